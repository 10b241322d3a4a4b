/* SPDX-License-Identifier: Apache-2.0
 *
 * node_state: read, edit, swap, from the beginning when the swap fails.
 *
 * A drain that would leave fewer active nodes than there are copies is refused: it could never come
 * to its end, since no shard gives a copy up before another node has it.
 */
#include "common/cluster/node_state.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/keyspace.h"
#include "common/cluster/map_edit.h"

#define TRIES 8 /* the map seldom changes: this many losses in a row are no coincidence */

struct change {
    struct coord *coord;
    char name[NODE_NAME_MAX + 1];
    enum map_state state;
    struct coord_key key;
    unsigned tries;
    node_state_fn done;
    void *cookie;
};

int node_state_edit(const struct map *m, const char *name, enum map_state state,
                    const struct map **ret, struct err *e)
{
    const struct map_node *n = map_node(m, name);
    size_t active = 0;

    *ret = NULL;
    if (!n)
        return err_set(e, ERR_NOT_FOUND, "no node of the cluster is called %.63s", name);
    if (n->state == state || (state == MAP_DRAINING && n->state == MAP_LEFT))
        return 0;
    for (size_t i = 0; i < m->nodes_len; i++)
        active += m->nodes[i].state == MAP_ACTIVE;
    if (state == MAP_DRAINING && active - 1 < m->replicas)
        return err_set(e, ERR_CONFLICT,
                       "%u copies need as many active nodes, and without %.63s there would be %zu; "
                       "let another node join first",
                       m->replicas, name, active - 1);
    return map_edit_state(m, name, state, ret, e);
}

static void finish(struct change *c, const struct err *e)
{
    c->done(c->cookie, e);
    xfree(c);
}

static void read_map(struct change *c);

static void on_swapped(void *cookie, const struct coord_reply *r)
{
    struct change *c = cookie;
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

static int swap(struct change *c, const struct map *next, int64_t rev, struct err *e)
{
    struct coord_compare cmp = { .key = key_str(&c->key), .rev = rev };
    struct buf text;
    int code = 0;

    buf_init(&text, COORD_VALUE_MAX);
    map_write(next, &text);
    struct coord_change chg = { .key = key_str(&c->key), .value = buf_str(&text) };
    if (buf_ok(&text))
        coord_txn(c->coord, &cmp, 1, &chg, 1, on_swapped, c);
    else
        code = err_set(e, ERR_LIMIT, "the map would take more than %zu bytes",
                       (size_t)COORD_VALUE_MAX);
    buf_deinit(&text);
    return code;
}

static void on_map(void *cookie, const struct coord_reply *r)
{
    const struct map *m = NULL, *next = NULL;
    struct change *c = cookie;
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
        code = node_state_edit(m, c->name, c->state, &next, &e);
    map_unref(m);
    if (!code && next)
        code = swap(c, next, rev, &e);
    if (code || !next)
        finish(c, code ? &e : NULL);
    map_unref(next);
}

static void read_map(struct change *c)
{
    coord_list(c->coord, key_str(&c->key), on_map, c);
}

void node_state_set(struct coord *coord, const char *prefix, const char *name, enum map_state state,
                    node_state_fn done, void *cookie)
{
    struct change *c = XNEW(struct change);

    *c = (struct change){ .coord = coord,
                          .state = state,
                          .key = key_map(str_c(prefix)),
                          .done = done,
                          .cookie = cookie };
    (void)snprintf(c->name, sizeof(c->name), "%s", name);
    read_map(c);
}
