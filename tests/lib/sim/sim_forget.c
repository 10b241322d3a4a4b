/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_forget: in one of four worlds the coordination service is lost at random, an empty one or an
 * old backup replaces it for some seconds, and it is brought back, or filled from the dumps of the
 * nodes (sim_recover.c). Ingesters are cut off, crash and start again meanwhile: all acked data
 * must be there.
 *
 * Not while several ingesters know nothing of the cluster (their disks were replaced, or they have
 * just joined): enough of those would begin one of their own in an empty service, as they should. A
 * backup only when all nodes know, also in their files, a term that is newer than the backup: a
 * node that does not cannot see that it is old (common/cluster/README.md), and continues from it,
 * which then is the valid state.
 *
 * Chance is its own: worlds in which nothing is lost are what they were.
 */
#include "common/base/json.h"
#include "common/cluster/coord/keyspace.h"
#include "tests/lib/sim/sim_impl.h"

#define LOOK_MS   700
#define BACKUP_MS 9000
#define RECOVERED 0.5 /* of those: what it held does not come back */

static bool most_know(const struct world *w)
{
    size_t ignorant = 0;

    for (size_t i = 0; i < w->ingesters; i++) {
        const struct node *n = w->nodes[i];

        ignorant += n->state != NODE_GONE &&
                    (n->wipe || !n->disk.kept.len || (n->state == NODE_UP && !view_ready(n->view)));
    }
    return ignorant <= 1;
}

static uint64_t terms(const struct world *w)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        struct coord_key key = key_shard(STR(SIM_PREFIX), i);
        const struct coord_kv *kv = coord_site_get(w->site, key_str(&key));
        struct repl_record r;
        struct err e;

        sum += kv && record_parse(kv->value, &r, &e) == 0 ? r.term : 0;
    }
    return sum;
}

/* The value of that key stands in its file (common/cluster/view/view_file.c). */
static bool saved(const struct world *w, const struct node *n, struct coord_key key)
{
    const struct coord_kv *kv = coord_site_get(w->site, key_str(&key));
    struct buf text;
    struct json j;
    bool there;

    buf_init(&text, MIB);
    json_init(&j, &text);
    json_str(&j, kv ? kv->value : STR(""));
    there = kv && str_contains(buf_str(&n->disk.kept), buf_str(&text));
    buf_deinit(&text);
    return there;
}

static bool knows_all(const struct world *w, const struct node *n)
{
    bool all = n->state == NODE_UP && view_trusts(n->view);

    for (uint32_t i = 0; all && i < SIM_SHARDS; i++)
        all = saved(w, n, key_shard(STR(SIM_PREFIX), i));
    return all && saved(w, n, key_map(STR(SIM_PREFIX)));
}

static bool all_know(const struct world *w)
{
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->state != NODE_GONE && !knows_all(w, w->nodes[i]))
            return false;
    return true;
}

static void deed_forget(struct world *w, const struct deed *d);

void forget_over(struct world *w)
{
    coord_backup_free(w->whole);
    w->whole = NULL;
    deed_in(w, 3000 + prng_below(&w->forgets, 9000), deed_forget, 0, 0, 0);
}

void forget_end(struct world *w)
{
    if (!w->whole || w->recovery)
        return;
    trace(w, "the coordination service has its data again");
    coord_site_restore(w->site, w->whole);
    forget_over(w);
}

static void deed_recall(struct world *w, const struct deed *d)
{
    (void)d;
    forget_end(w);
}

static void deed_forget(struct world *w, const struct deed *d)
{
    bool know = all_know(w);

    (void)d;
    /* An old one where that can be, an empty one at random. */
    if (w->away || between_holds(w) || !most_know(w) ||
        (!know && !prng_chance(&w->forgets, 0.04))) {
        deed_in(w, LOOK_MS, deed_forget, 0, 0, 0);
        return;
    }
    know = know && w->old && w->old_terms < terms(w);
    count(w)->coord_forgets++;
    count(w)->coord_old += know;
    trace(w, "the coordination service is %s", know ? "an old one" : "empty");
    w->whole = coord_site_backup(w->site);
    coord_site_restore(w->site, know ? w->old : NULL);
    if (prng_chance(&w->forgets, RECOVERED) || w->o.mutant == SIM_ONE_ANSWER)
        recover_begin(w, 500 + prng_below(&w->forgets, 8000));
    else
        deed_in(w, 2000 + prng_below(&w->forgets, 12000), deed_recall, 0, 0, 0);
}

static void deed_backup(struct world *w, const struct deed *d)
{
    (void)d;
    if (!w->whole) {
        coord_backup_free(w->old);
        w->old = coord_site_backup(w->site);
        w->old_terms = terms(w);
    }
    deed_in(w, BACKUP_MS, deed_backup, 0, 0, 0);
}

void forget_open(struct world *w)
{
    prng_init(&w->forgets, w->o.seed ^ 0x1057);
    if (!prng_chance(&w->forgets, 0.25) && w->o.mutant != SIM_ONE_ANSWER)
        return;
    deed_in(w, BACKUP_MS, deed_backup, 0, 0, 0);
    deed_in(w, 3000 + prng_below(&w->forgets, 10000), deed_forget, 0, 0, 0);
}
