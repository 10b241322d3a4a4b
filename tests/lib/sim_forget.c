/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_forget: in one of four worlds the coordination service is lost now and then, an empty one or
 * an old backup stands in its place for some seconds, and it is brought back. Ingesters are cut
 * off, crash and start again meanwhile as ever: whatever was acked must be there.
 *
 * Not while several ingesters know nothing of the cluster (their disks were replaced, or they have
 * just joined): enough of those would begin one of their own in an empty service, as they should.
 * A backup only when all know, also in their files, of a term that is newer than it: who does not
 * cannot tell (common/cluster/README.md), and goes on from there, which is then what counts.
 *
 * Chance is its own: worlds in which nothing is lost are what they were.
 */
#include "common/cluster/keyspace.h"
#include "tests/lib/sim_impl.h"

#define LOOK_MS   700
#define BACKUP_MS 9000
#define SAVED_MS  2500 /* the views' files are a second behind */

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

static int64_t rev_of(const struct world *w, struct coord_key key)
{
    const struct coord_kv *kv = coord_site_get(w->site, key_str(&key));

    return kv ? kv->mod_rev : 0;
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

/* When the map or a record changed last. */
static int64_t changed_rev(const struct world *w)
{
    int64_t rev = rev_of(w, key_map(STR(SIM_PREFIX)));

    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        rev = MAX(rev, rev_of(w, key_shard(STR(SIM_PREFIX), i)));
    return rev;
}

static bool knows_all(const struct world *w, const struct node *n)
{
    int64_t rev;
    bool all = n->state == NODE_UP && !n->disk.full && view_map(n->view, &rev) &&
               rev == rev_of(w, key_map(STR(SIM_PREFIX)));

    for (uint32_t i = 0; all && i < SIM_SHARDS; i++)
        all = view_record(n->view, i, &rev) && rev == rev_of(w, key_shard(STR(SIM_PREFIX), i));
    return all;
}

/* All of them since long enough for their files to have it. */
static bool all_know(struct world *w)
{
    int64_t rev = changed_rev(w);
    bool all = w->known_rev == rev;

    for (size_t i = 0; i < w->ingesters; i++)
        all = all && (w->nodes[i]->state == NODE_GONE || knows_all(w, w->nodes[i]));
    if (!all)
        w->known_ms = world_ms(w);
    w->known_rev = rev;
    return world_ms(w) - w->known_ms >= SAVED_MS;
}

static void deed_forget(struct world *w, const struct deed *d);

void forget_end(struct world *w)
{
    if (!w->whole)
        return;
    trace(w, "the coordination service has its data again");
    coord_site_restore(w->site, w->whole);
    coord_backup_free(w->whole);
    w->whole = NULL;
}

static void deed_recall(struct world *w, const struct deed *d)
{
    (void)d;
    forget_end(w);
    deed_in(w, 3000 + prng_below(&w->forgets, 9000), deed_forget, 0, 0, 0);
}

static void deed_forget(struct world *w, const struct deed *d)
{
    bool know = all_know(w);

    (void)d;
    /* An old one where that can be, an empty one now and then. */
    if (w->away || !most_know(w) || (!know && !prng_chance(&w->forgets, 0.04))) {
        deed_in(w, LOOK_MS, deed_forget, 0, 0, 0);
        return;
    }
    know = know && w->old && w->old_terms < terms(w);
    count(w)->coord_forgets++;
    count(w)->coord_old += know;
    trace(w, "the coordination service is %s", know ? "an old one" : "empty");
    w->whole = coord_site_backup(w->site);
    coord_site_restore(w->site, know ? w->old : NULL);
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
    if (!prng_chance(&w->forgets, 0.25))
        return;
    deed_in(w, BACKUP_MS, deed_backup, 0, 0, 0);
    deed_in(w, 3000 + prng_below(&w->forgets, 10000), deed_forget, 0, 0, 0);
}
