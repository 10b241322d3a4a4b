/* SPDX-License-Identifier: Apache-2.0
 *
 * agree: settings as a number, and what it means that two numbers differ.
 *
 * The hash does not depend on the order of a file's lines, nor on which builds there are between
 * two processes: a newer kind of setting may be added to it only where it is not as before.
 */
#include "common/cluster/view/config_fingerprint.h"

#include "common/base/hash.h"

#define MARK         UINT64_C(0xe3b7)
#define MARK_SHIFT   48
#define STATIC_BIT   47
#define COUNT_SHIFT  36
#define COUNT_MASK   UINT64_C(0x7ff)
#define SHARDS_SHIFT 24
#define SHARDS_MASK  UINT64_C(0xfff)
#define HASH_MASK    UINT64_C(0xffffff)
#define SEED         UINT64_C(0x6167726565)

_Static_assert(MAP_NODES_MAX <= COUNT_MASK, "as many addresses");
_Static_assert(CLUSTER_SHARDS_MAX <= SHARDS_MASK + 1, "as many shards");

/* ---- the number ------------------------------------------------------------------------------ */

static uint64_t hash_steps(const struct map_steps *s, uint64_t h)
{
    for (uint32_t i = 0; i < s->len; i++)
        h = hash_u64(hash_u64(h + (uint64_t)s->at[i].from_ms) + s->at[i].n);
    return h;
}

static uint64_t hash_places(const struct map *m)
{
    uint64_t sum = m->tenant_steps.len ? hash_steps(&m->tenant_steps, SEED) : 0;

    for (size_t i = 0; i < m->tenants_len; i++) {
        const struct map_tenant *t = &m->tenants[i];
        sum += hash_steps(&t->steps, hash64(t->name.ptr, t->name.len, SEED + 1));
    }
    for (size_t i = 0; i < m->services_len; i++) {
        const struct map_service *s = &m->services[i];
        sum += hash_steps(&s->steps, hash64(s->name.ptr, s->name.len,
                                            hash64(s->tenant.ptr, s->tenant.len, SEED + 2)));
    }
    return sum ? hash_u64(sum) : 0;
}

uint64_t config_fingerprint_number(const struct view *v)
{
    enum view_kind kind = view_kind(v);
    const struct map *m;
    uint64_t count;
    int64_t rev;

    if (kind == VIEW_COORD)
        return 0;
    m = view_map(v, &rev);
    count = kind == VIEW_LIST ? m->nodes_len : m->version;
    return MARK << MARK_SHIFT | (uint64_t)(kind == VIEW_STATIC) << STATIC_BIT |
           (count & COUNT_MASK) << COUNT_SHIFT | ((m->shards - 1) & SHARDS_MASK) << SHARDS_SHIFT |
           (hash_places(m) & HASH_MASK);
}

/* ---- two of them ----------------------------------------------------------------------------- */

struct said {
    bool marked, fixed; /* it is no id; of a static map */
    uint32_t count, shards, hash;
};

static struct said said_of(uint64_t number)
{
    return (struct said){
        .marked = number >> MARK_SHIFT == MARK,
        .fixed = number >> STATIC_BIT & 1,
        .count = (uint32_t)(number >> COUNT_SHIFT & COUNT_MASK),
        .shards = (uint32_t)(number >> SHARDS_SHIFT & SHARDS_MASK) + 1,
        .hash = (uint32_t)(number & HASH_MASK),
    };
}

static const char *coordination(const struct said *s)
{
    return !s->marked ? "etcd" : s->fixed ? "static" : "none";
}

static const char *where(const struct said *s)
{
    return s->fixed ? "shards of cluster.map_file" : "cluster.shards";
}

int config_fingerprint_check(uint64_t mine, uint64_t theirs, struct err *e)
{
    const struct said me = said_of(mine), it = said_of(theirs);

    if (mine == theirs)
        return 0;
    if (!me.marked && !it.marked)
        return err_set(e, ERR_CONFLICT, "another cluster is there");
    if (me.marked != it.marked)
        return err_set(e, ERR_CONFIG,
                       "cluster.coordination is %s there, %s here: the two would look for services "
                       "in different shards. Give all processes the same section cluster",
                       coordination(&it), coordination(&me));
    if (me.shards != it.shards)
        return err_set(e, ERR_CONFIG,
                       "%s %u there, %s %u here: services would be looked for where they are not. "
                       "Give all processes the number that the ingesters' data were written with",
                       where(&it), it.shards, where(&me), me.shards);
    if (!me.fixed && !it.fixed && me.count != it.count)
        return err_set(e, ERR_CONFIG,
                       "cluster.ingesters has %u addresses there, %u here: shards would be looked "
                       "for where they are not. Give all processes the same list",
                       it.count, me.count);
    if (me.hash == it.hash || (me.fixed && it.fixed && me.count != it.count))
        return 0;
    if (me.fixed && it.fixed)
        return err_set(e, ERR_CONFIG,
                       "cluster.map_file has other places for services and tenants there than "
                       "here, under the same version: pushes would be stored where they are not "
                       "looked for. Give all processes the same file, and each change of it a "
                       "higher version");
    return err_set(e, ERR_CONFIG,
                   "cluster.coordination is %s there, %s here, and only the map says where spread "
                   "services are. Give all processes the same section cluster",
                   coordination(&it), coordination(&me));
}
