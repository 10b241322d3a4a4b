/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_rights: a caller hands out no more than it has.
 *
 * Grants are compared by grants_cover. Besides them a key has an end and networks: without a rule
 * for these, who holds a key for an hour could make one without an end. The first key of a server
 * (keystore_bootstrap) is let off its end, since it is there to make keys that last.
 */
#include "common/role/admin/keys_rights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

#define NAMES_MAX (GRANTS_MAX * (GRANT_TENANTS_MAX + 1))
#define BOOTSTRAP "bootstrap"

void keys_subject(const struct http_req *r, char to[KEYS_SUBJECT_MAX])
{
    if (r->identity)
        (void)snprintf(to, KEYS_SUBJECT_MAX, "key:%.*s", STR_ARG(r->identity->id));
    else
        (void)snprintf(to, KEYS_SUBJECT_MAX, "%s", r->local ? "socket" : "operator");
}

bool keys_covers(const struct http_req *r, const struct key_record *key)
{
    struct err why;

    return !r->identity || str_eq(r->identity->id, key->id) ||
           grants_cover(&r->identity->grants, &key->grants, &why);
}

static bool net_within(const struct net_range *in, const struct key_record *who)
{
    for (size_t i = 0; i < who->nets_len; i++) {
        const struct net_range *out = &who->nets[i];
        size_t whole = out->bits / 8, rest = out->bits % 8;

        if (in->bits < out->bits || memcmp(in->addr, out->addr, whole) != 0)
            continue;
        if (rest == 0 || ((in->addr[whole] ^ out->addr[whole]) >> (8 - rest)) == 0)
            return true;
    }
    return false;
}

int keys_may_hand_out(const struct http_req *r, const struct key_record *key, struct err *e)
{
    const struct key_record *who = r->identity;

    if (!who)
        return 0;
    if (!grants_cover(&who->grants, &key->grants, e)) {
        e->code = ERR_FORBIDDEN;
        return err_wrap(e, "your key may not hand this out");
    }
    if (str_eqc(who->made_by, BOOTSTRAP))
        return 0;
    if (who->until_ms && (!key->until_ms || key->until_ms > who->until_ms))
        return err_set(e, ERR_FORBIDDEN,
                       "the key would outlive yours, which ends at %" PRId64
                       " (milliseconds since 1970); give an earlier \"until\" or \"valid_for\"",
                       who->until_ms);
    if (who->nets_len && !key->nets_len)
        return err_set(e, ERR_FORBIDDEN,
                       "your key is for some networks only: give \"nets\" within them");
    for (size_t i = 0; who->nets_len && i < key->nets_len; i++)
        if (!net_within(&key->nets[i], who))
            return err_set(e, ERR_FORBIDDEN, "nets[%zu] is not within the networks of your key", i);
    return 0;
}

/* ---- how many a tenant has ------------------------------------------------------------------- */

/* Records of keys that have ended stay, and all tenants share the cluster's REGISTRY_KEYS_MAX: so a
 * tenant that makes keys and revokes them, in a loop, is held to this many times its limit in a
 * week. */
#define CHURN         10
#define CHURN_DAYS_MS (INT64_C(7) * 86400000)

struct counted {
    struct str tenant;
    uint64_t n;    /* in force */
    uint64_t made; /* in the last week, whether in force or not */
};
struct counts {
    struct counted *ptr, *one; /* of the new key; room for those of another */
    size_t len;
    int64_t now_ms;
};

static int by_tenant(const void *a, const void *b)
{
    return str_cmp(((const struct counted *)a)->tenant, ((const struct counted *)b)->tenant);
}

/* The tenants that a record names, each once, sorted; "*" for all. */
static size_t tenants_in(const struct grants *g, struct counted *to)
{
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < g->len; i++) {
        if (g->ptr[i].everywhere)
            to[n++].tenant = STR("*");
        for (size_t t = 0; t < g->ptr[i].tenants_len; t++)
            to[n++].tenant = g->ptr[i].tenants[t];
    }
    if (n)
        qsort(to, n, sizeof(*to), by_tenant);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || !str_eq(to[i].tenant, to[kept - 1].tenant))
            to[kept++] = (struct counted){ .tenant = to[i].tenant };
    return kept;
}

static void count_one(void *cookie, struct key_record *r, const struct block_record *b)
{
    struct counts *c = cookie;
    struct counted *hit;

    if (!r)
        return;
    bool good = !b && (!r->until_ms || r->until_ms > c->now_ms);
    bool recent = !r->from_file && r->made_ms > c->now_ms - CHURN_DAYS_MS;
    for (size_t i = 0, n = tenants_in(&r->grants, c->one); i < n; i++) {
        hit = bsearch(&c->one[i], c->ptr, c->len, sizeof(*c->ptr), by_tenant);
        if (hit) {
            hit->n += good;
            hit->made += recent;
        }
    }
}

int keys_room_for(const struct registry *g, const struct key_record *r, uint64_t most,
                  int64_t now_ms, struct err *e)
{
    struct counts c = { .ptr = XNEW_ARRAY(struct counted, NAMES_MAX),
                        .one = XNEW_ARRAY(struct counted, NAMES_MAX),
                        .now_ms = now_ms };
    int code = 0;

    c.len = tenants_in(&r->grants, c.ptr);
    registry_each(g, count_one, &c);
    for (size_t i = 0; i < c.len && !code; i++)
        if (c.ptr[i].n >= most)
            code = err_set(e, ERR_LIMIT,
                           "tenant %.*s has %" PRIu64 " keys in force, and the most is %" PRIu64
                           " (identity.keys_per_tenant); revoke some, or raise it",
                           STR_ARG(str_sub(c.ptr[i].tenant, 0, 150)), c.ptr[i].n, most);
        else if (c.ptr[i].made >= CHURN * most)
            code = err_set(e, ERR_LIMIT,
                           "for tenant %.*s %" PRIu64 " keys were made within a week, revoked and "
                           "expired ones included, and the most is %d times "
                           "identity.keys_per_tenant: let keys live longer, or raise it",
                           STR_ARG(str_sub(c.ptr[i].tenant, 0, 150)), c.ptr[i].made, CHURN);
    xfree(c.ptr);
    xfree(c.one);
    return code;
}
