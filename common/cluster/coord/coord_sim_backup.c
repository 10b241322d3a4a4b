/* SPDX-License-Identifier: Apache-2.0
 *
 * coord_sim_backup: replaces the data of the simulated service by a backup, or by none.
 */
#include "common/base/mem.h"
#include "common/cluster/coord/coord_sim_impl.h"

struct coord_backup {
    VEC(struct coord_kv) keys; /* owned bytes */
    VEC(struct sim_lease) leases;
    int64_t rev;
};

struct coord_backup *coord_site_backup(const struct coord_site *s)
{
    struct coord_backup *b = XNEW(struct coord_backup);

    b->rev = s->rev;
    vec_for (i, &s->keys)
        vec_push(&b->keys, sim_kv_copy(&s->keys.ptr[i]));
    vec_for (i, &s->leases)
        vec_push(&b->leases, s->leases.ptr[i]);
    return b;
}

void coord_backup_free(struct coord_backup *b)
{
    if (!b)
        return;
    vec_for (i, &b->keys)
        sim_kv_drop(&b->keys.ptr[i]);
    vec_free(&b->keys);
    vec_free(&b->leases);
    xfree(b);
}

/* Numbers of leases continue: etcd draws them at random, and none comes twice. */
void coord_site_restore(struct coord_site *s, const struct coord_backup *b)
{
    sim_forget(s, s->rev);
    vec_for (i, &s->keys)
        sim_kv_drop(&s->keys.ptr[i]);
    s->keys.len = 0;
    s->leases.len = 0;
    s->rev = b ? b->rev : 1;
    s->compacted = s->rev;
    for (size_t i = 0; b && i < b->keys.len; i++)
        vec_push(&s->keys, sim_kv_copy(&b->keys.ptr[i]));
    for (size_t i = 0; b && i < b->leases.len; i++) {
        struct sim_lease l = b->leases.ptr[i];

        l.deadline_ms = sim_now_ms(s) + l.ttl_ms;
        vec_push(&s->leases, l);
    }
    if (s->leases.len)
        loop_timer_start(s->lease_timer, SIM_RETRY_MS, 0);
    sim_pump_soon(s);
}
