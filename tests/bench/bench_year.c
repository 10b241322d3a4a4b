/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "common/model/slot.h"
#include "tests/lib/year.h"

int main(void)
{
    static const uint32_t counts[] = { 40000, 8000, 30000 };
    for (enum year_kind k = 0; k < YEAR_KINDS; k++) {
        struct year_opts o = { .seed = 1, .kind = k, .pods = 20, .stacks = counts[k], .deploy_days = 5, .moved = 40, .start = 100 * YEAR_DAY_SLOTS };
        struct year *y = year_new(&o);
        year_print_fit(y, stdout);
        clock_t t = clock();
        uint64_t n = 0, m = 0;
        for (uint32_t i = 0; i < 360; i++)
            for (uint32_t p = 0; p < 20; p++) { struct year_profile f = year_profile(y, p, o.start + 12 * 720 + i * 2, 2); n += f.len; m += f.samples; }
        printf("%.2f us per profile, %.1f stacks, %.1f samples\n", (double)(clock() - t) / 7200, (double)n / 7200, (double)m / 7200);
        t = clock(); n = m = 0;
        for (uint32_t i = 0; i < 60; i++)
            for (uint32_t p = 0; p < 20; p++) { struct year_profile f = year_profile(y, p, o.start + 12 * 720 + i * 12, 12); n += f.len; m += f.samples; }
        printf("1 m: %.2f us per profile, %.1f stacks, %.1f samples\n", (double)(clock() - t) / 1200, (double)n / 1200, (double)m / 1200);
        year_free(y);
    }
}
