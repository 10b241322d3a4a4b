/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_sim: runs simulated clusters: SEED [HOW MANY [MUTANT]]; "mutants" lists those. A line each
 * on standard output, first that it begins, so that it is known which one took the process down.
 * Ends with 1 at the first world that is broken.
 *
 * Each world has a process of its own: whatever ran before, and however that ended, is no part of
 * it. Addresses of memory play no part either (map_str_fix_seed).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/obs/log.h"
#include "tests/lib/sim/sim.h"
#include "tests/lib/sim/sim_files.h"

static int world(uint64_t seed, int mutant)
{
    struct sim_result r;
    char text[2000];

    sim_run(&(struct sim_opts){ seed, mutant }, &r);
    sim_stats_text(&r.stats, text, sizeof(text));
    if (r.broken)
        (void)printf("broken %" PRIu64 " %s: %s\n", seed, r.broken, r.text);
    else
        (void)printf("end %" PRIu64 " %s\n", seed, text);
    (void)fflush(stdout);
    return r.broken ? 1 : 0;
}

/* As a process; ends as it ended. */
static int world_apart(uint64_t seed, int mutant)
{
    char files[SIM_FILES_DIR];
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(world(seed, mutant));
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    sim_files_root(pid, files);
    sim_files_remove(files);
    if (WIFSIGNALED(status)) {
        (void)signal(WTERMSIG(status), SIG_DFL);
        (void)raise(WTERMSIG(status));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

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
    if (!getenv("SIM_TRACE")) /* not read, and a tenth of the work */
        log_set_level(LOG_ERROR);
    if (argc > 3 && !mutant) {
        (void)fprintf(stderr, "no mutant %s\n", argv[3]);
        return 2;
    }
    for (uint64_t i = seed; i < seed + n; i++) {
        (void)printf("begin %" PRIu64 "\n", i);
        (void)fflush(stdout);
        if (world_apart(i, mutant))
            return 1;
    }
    return 0;
}
