/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys added and revoked in any order by three processes, while answers are lost, processes restart
 * or are cut off, and the service is away or restored from a backup: in the end all know the same,
 * each key that was stored is good, and each that was revoked is not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/obs/log.h"
#include "tests/lib/identity/keystore_bed.h"

#define KEYS 64

struct history {
    struct keystore_key keys[KEYS];
    bool added[KEYS], blocked[KEYS];
    struct keystore_answer add[KEYS], block[KEYS];
    size_t len;
};

static void a_step(struct keystore_bed *w, struct history *h, struct prng *r,
                   struct coord_backup **backup)
{
    struct keystore_one *p = &w->at[prng_below(r, KEYSTORE_BED)];
    size_t i = p - w->at, k = prng_below(r, h->len + 1);

    switch (prng_below(r, 9)) {
    case 0:
    case 1:
    case 2:
        if (h->len < KEYS)
            keystore_bed_add(p, &h->keys[h->len], &h->add[h->len]), h->len++;
        break;
    case 3:
    case 4:
        if (k < h->len && h->keys[k].id[0] && !h->blocked[k]) {
            h->blocked[k] = true;
            keystore_bed_block(p, &h->keys[k], &h->block[k]);
        }
        break;
    case 5:
        coord_site_away(w->site, prng_below(r, 2) == 0);
        break;
    case 6:
        coord_sim_cut(p->coord, prng_below(r, 2) == 0);
        break;
    case 7:
        keystore_bed_run(w, 8000); /* calls have their deadline, files are written */
        keystore_bed_stop(w, i);
        keystore_bed_start(w, i);
        break;
    default:
        keystore_bed_run(w, 8000);
        if (*backup && prng_below(r, 2) == 0) {
            coord_site_away(w->site, true); /* it takes a while, so that clients notice */
            keystore_bed_run(w, 8000);
            coord_site_restore(w->site, *backup);
            coord_site_away(w->site, false);
        } else {
            coord_backup_free(*backup);
            *backup = coord_site_backup(w->site);
        }
    }
    keystore_bed_run(w, prng_below(r, 3000));
}

static void test_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct coord_backup *backup = NULL;
        struct history *h = XNEW(struct history);
        struct coord_faults faults = { .delay_max_ms = 300,
                                       .lose_request = 0.05,
                                       .lose_reply = 0.05 };
        struct prng r;
        struct keystore_bed w;

        prng_init(&r, seed);
        keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
        keystore_bed_all(&w);
        coord_site_faults(w.site, &faults);
        for (int step = 0; step < 60; step++)
            a_step(&w, h, &r, &backup);
        coord_site_faults(w.site, &(struct coord_faults){ 0 });
        coord_site_away(w.site, false);
        for (size_t i = 0; i < KEYSTORE_BED; i++)
            coord_sim_cut(w.at[i].coord, false);
        keystore_bed_run(&w, 3 * KEYSTORE_LONG_MS);
        for (size_t i = 0; i < h->len; i++) {
            enum credential_fault want = CREDENTIAL_OK;

            assert_true(h->add[i].ended && (!h->blocked[i] || h->block[i].ended));
            if (h->add[i].code) { /* not stored, or its answer was lost: all think the same */
                want = keystore_bed_prove(&w, 0, &h->keys[i]);
                assert_true(h->block[i].code || !h->blocked[i] || want != CREDENTIAL_OK);
            } else if (h->blocked[i] && !h->block[i].code) {
                want = CREDENTIAL_REVOKED;
                assert_true(h->block[i].in_file || !h->block[i].away);
            }
            for (size_t p = 0; p < KEYSTORE_BED; p++)
                if (keystore_bed_prove(&w, p, &h->keys[i]) != want)
                    fail_msg("seed %" PRIu64 ": process %zu says %d of key %zu, want %d", seed, p,
                             (int)keystore_bed_prove(&w, p, &h->keys[i]), i, (int)want);
        }
        coord_backup_free(backup);
        keystore_bed_close(&w);
        xfree(h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
