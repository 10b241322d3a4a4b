/* SPDX-License-Identifier: Apache-2.0
 *
 * scoped.c: what a request asks and what its identity may see, as one list of matchers.
 *
 *   selectors of the request ──┐
 *   `match` of the grants ─────┴─ AND ──> matchers of each message to an ingester
 *
 * Joining happens when a message is packed, not when a request is parsed: routes build their
 * matchers in many ways and add some on their way (of groups, of services), and none of them can
 * take the identity's away again. Where ingesters answer from sums without some labels, a matcher
 * on such a label leads them to the series, like a matcher that a
 * user typed (common/store/query/targets.c).
 */
#include "querier/ask/scoped.h"

#include "querier/ask/plan.h"

struct scoped_matchers {
    struct str tenant;
    const struct selector *asked;
    size_t asked_len;
    const struct selector *added; /* NULL: none */
};

int scoped_matchers_make(const struct scoped_ask *ask, struct arena *a,
                         const struct scoped_matchers **ret, struct err *e)
{
    struct scoped_matchers *s;
    const struct selector *added;

    if (scope_match(ask->who, ask->role, ask->tenant, &added, e))
        return e->code;
    s = ARENA_NEW(a, struct scoped_matchers);
    if (!s)
        return err_set(e, ERR_LIMIT, "the request has more matchers than %zu bytes hold",
                       arena_limit(a));
    *s = (struct scoped_matchers){ ask->tenant, ask->selectors, ask->len, added };
    *ret = s;
    return 0;
}

struct str scoped_matchers_tenant(const struct scoped_matchers *s)
{
    return s->tenant;
}

const struct selector *scoped_matchers_added(const struct scoped_matchers *s)
{
    return s->added;
}

bool scoped_matchers_service(const struct scoped_matchers *s, struct str *ret)
{
    return plan_service(s->asked, s->asked_len, ret) ||
           (s->added && plan_service(s->added, 1, ret));
}

/* ---- packing --------------------------------------------------------------------------------- */

/* protobuf-c's structs hold pointers to non-const bytes that it only reads when it packs. */
static ProtobufCBinaryData out_str(struct str s)
{
    return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

struct packed {
    Embertree__Matcher **list, *all;
    size_t len;
};

static void pack_selector(const struct selector *s, struct packed *to)
{
    for (size_t k = 0; k < s->len; k++) {
        const struct matcher *m = &s->matchers[k];
        Embertree__Matcher *out = &to->all[to->len];
        embertree__matcher__init(out);
        out->op = (uint32_t)m->op;
        out->name = out_str(m->name);
        out->value = out_str(m->value);
        out->unanchored = m->unanchored;
        to->list[to->len++] = out;
    }
}

Embertree__Matcher **scoped_matchers_pack(const struct scoped_matchers *s, struct arena *a,
                                          size_t *ret_len)
{
    size_t n = s->added ? s->added->len : 0;
    struct packed to = { 0 };

    for (size_t i = 0; i < s->asked_len; i++)
        n += s->asked[i].len;
    to.list = ARENA_ARRAY(a, Embertree__Matcher *, n + 1);
    to.all = ARENA_ARRAY(a, Embertree__Matcher, n + 1);
    if (!to.list || !to.all)
        return NULL;
    for (size_t i = 0; i < s->asked_len; i++)
        pack_selector(&s->asked[i], &to);
    if (s->added)
        pack_selector(s->added, &to);
    CHECK(to.len == n);
    *ret_len = n;
    return to.list;
}
