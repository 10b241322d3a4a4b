/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_sim: runs simulated clusters: SEED [HOW MANY [MUTANT]]; "mutants" lists those. A line each
 * on standard output, first that it begins, so that it is known which one took the process down.
 * Ends with 1 at the first world that is broken.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/sim.h"

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    int mutant = argc > 3 ? sim_mutant_by_name(argv[3]) : 0;

    if (argc > 1 && strcmp(argv[1], "mutants") == 0) {
        for (int i = 1; i < SIM_MUTANTS; i++)
            if (sim_mutant_name(i) && !sim_mutant_unseen(i))
                (void)puts(sim_mutant_name(i));
        return 0;
    }
    if (argc > 3 && !mutant) {
        (void)fprintf(stderr, "no mutant %s\n", argv[3]);
        return 2;
    }
    for (uint64_t i = seed; i < seed + n; i++) {
        struct sim_result r;
        char text[2000];

        (void)printf("begin %" PRIu64 "\n", i);
        (void)fflush(stdout);
        sim_run(&(struct sim_opts){ i, mutant }, &r);
        sim_stats_text(&r.stats, text, sizeof(text));
        if (r.broken) {
            (void)printf("broken %" PRIu64 " %s: %s\n", i, r.broken, r.text);
            return 1;
        }
        (void)printf("end %" PRIu64 " %s\n", i, text);
    }
    return 0;
}
