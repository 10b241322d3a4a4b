/* SPDX-License-Identifier: Apache-2.0
 *
 * map_change: changes the map by compare-and-swap on its revision.
 *
 *   read_map ──> on_map: edit ──> swap ──> on_swapped: done
 *      ^                                      │
 *      └──── another writer was faster ───────┘        after TRIES losses: ERR_BUSY
 *
 * One transaction compares the revision that was read and writes the whole map, so no change of
 * another writer is lost. `edit` is called again with the newer map each time.
 */
#include "common/cluster/view/map_change.h"

#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"

#define TRIES 8 /* the map seldom changes: this many losses in a row are no coincidence */

struct map_changing {
    struct map_change_opts o;
    struct coord_key key;
    unsigned tries;
};

static void finish(struct map_changing *c, const struct err *e)
{
    c->o.done(c->o.cookie, e);
    xfree(c);
}

static void read_map(struct map_changing *c);

static void on_swapped(void *cookie, const struct coord_reply *r)
{
    struct map_changing *c = cookie;
    struct err e;

    if (r->err || r->done) {
        finish(c, r->err);
    } else if (++c->tries < TRIES) {
        read_map(c);
    } else {
        (void)err_set(&e, ERR_BUSY, "the map changed %u times in a row; ask again", c->tries);
        finish(c, &e);
    }
}

static int swap(struct map_changing *c, const struct map *next, int64_t rev, struct err *e)
{
    struct coord_compare cmp = { .key = key_str(&c->key), .rev = rev };
    struct buf text;
    int code = 0;

    buf_init(&text, COORD_VALUE_MAX);
    map_write(next, &text);
    struct coord_change chg = { .key = key_str(&c->key), .value = buf_str(&text) };
    if (buf_ok(&text))
        coord_txn(c->o.coord,
                  &(struct coord_txn){ .cmp = &cmp, .cmp_len = 1, .chg = &chg, .chg_len = 1 },
                  on_swapped, c);
    else
        code = err_set(e, ERR_LIMIT, "the map would take more than %zu bytes",
                       (size_t)COORD_VALUE_MAX);
    buf_deinit(&text);
    return code;
}

static void on_map(void *cookie, const struct coord_reply *r)
{
    const struct map *m = NULL, *next = NULL;
    struct map_changing *c = cookie;
    int64_t rev = 0;
    struct err e;
    int code;

    if (r->err) {
        finish(c, r->err);
        return;
    }
    code = err_set(&e, ERR_UNAVAILABLE, "the cluster has no map yet: too few nodes have come");
    for (size_t i = 0; i < r->kvs_len; i++) {
        if (!str_eq(r->kvs[i].key, key_str(&c->key)))
            continue;
        rev = r->kvs[i].mod_rev;
        code = map_parse("the map", r->kvs[i].value, false, &m, &e);
    }
    if (!code)
        code = c->o.edit(c->o.cookie, m, &next, &e);
    map_unref(m);
    if (!code && next)
        code = swap(c, next, rev, &e);
    if (code || !next)
        finish(c, code ? &e : NULL);
    map_unref(next);
}

static void read_map(struct map_changing *c)
{
    coord_list(c->o.coord, key_str(&c->key), on_map, c);
}

void map_change(const struct map_change_opts *o)
{
    struct map_changing *c = XNEW(struct map_changing);

    *c = (struct map_changing){ .o = *o, .key = key_map(str_c(o->prefix)) };
    read_map(c);
}
