/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_oracle: each push has a stack of its own and a value, so that every single one can be looked
 * for in an answer. At any read: what was acked before it began is there, once and whole; what was
 * deleted before is not; what was never pushed is not.
 *
 * A delete takes what was acked before it began, and copies of it that come later, too. While it is
 * on its way, and for what had no ack then, both is right.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/repl/apply.h"
#include "tests/lib/sim/sim_impl.h"

#define MINUTE_MS INT64_C(60000)

uint8_t *oracle_before(struct world *w, size_t *ret_len)
{
    uint8_t *before = xcalloc(w->pushes.len + 1, 1);

    vec_for (i, &w->pushes) {
        enum push_state s = w->pushes.ptr[i]->state;
        before[i] = s == PUSH_ACKED ? ORACLE_MUST : s == PUSH_DEAD ? ORACLE_MUST_NOT : ORACLE_MAY;
    }
    *ret_len = w->pushes.len;
    return before;
}

/* Sums by number of push, of lines "main;p17 42"; false: it is no such text. */
static bool parse(struct world *w, struct str folded, uint64_t *sums)
{
    struct str rest = folded, line;
    bool more = true;

    while (str_next(&rest, '\n', &more, &line)) {
        ptrdiff_t blank = str_rfind(line, ' '), semi;
        uint64_t number, value;

        if (line.len == 0)
            continue;
        if (blank <= 0)
            return false;
        semi = str_rfind(str_sub(line, 0, (size_t)blank), ';');
        if (!str_u64(str_sub(line, (size_t)(semi + 2), (size_t)blank), &number) ||
            !str_u64(str_sub(line, (size_t)blank + 1, line.len), &value) || number >= w->pushes.len)
            return false;
        sums[number] += value;
    }
    return true;
}

static void check(struct world *w, const struct push *p, bool meant, uint64_t have, int before)
{
    struct str name = str_c(services[p->service].name);

    if (!meant) {
        if (have)
            broke(w, "a push is in an answer to another question",
                  "p%" PRIu32 " of %s, %" PRId64 " ms", p->number, name.ptr, p->time_ms);
        return;
    }
    if (have && have != p->value)
        broke(w, "a push counts twice or wrong",
              "p%" PRIu32 " of %s: %" PRIu64 " instead of %" PRIu64, p->number, name.ptr, have,
              p->value);
    if (!have && before == ORACLE_MUST && p->state == PUSH_ACKED) /* no delete began meanwhile */
        broke(w, "an acked push is not there",
              "p%" PRIu32 " of %s/%s, pushed at %" PRIu64 ", acked at %" PRIu64 ", read at %" PRIu64
              " ms; it is of %" PRId64 ", %" PRId64 " s ago",
              p->number, services[p->service].tenant, name.ptr, p->began_ms, p->acked_ms,
              world_ms(w), p->time_ms, (world_wall_ms(w) - p->time_ms) / 1000);
    if (have && before == ORACLE_MUST_NOT)
        broke(w, "a deleted push is there", "p%" PRIu32 " of %s", p->number, name.ptr);
}

void oracle_read(struct world *w, uint32_t service, const uint8_t *before, size_t before_len,
                 int64_t from_ms, int64_t to_ms, struct str folded)
{
    uint64_t *sums = XNEW_ARRAY(uint64_t, w->pushes.len + 1);

    if (!parse(w, folded, sums))
        broke(w, "something was never pushed", "%.*s", (int)MIN(folded.len, 200u), folded.ptr);
    else
        vec_for (i, &w->pushes) {
            const struct push *p = w->pushes.ptr[i];
            bool meant = p->service == service && p->time_ms >= from_ms && p->time_ms < to_ms;
            check(w, p, meant, sums[i], i < before_len ? before[i] : ORACLE_MAY);
        }
    xfree(sums);
}

/* ---- deletes --------------------------------------------------------------------------------- */

static bool taken(const struct push *p, const struct taking *t)
{
    const struct service *s = &services[p->service];

    return strcmp(s->tenant, t->tenant) == 0 && (!t->service || strcmp(s->name, t->service) == 0) &&
           (t->pod == SIM_PODS || p->number % SIM_PODS == t->pod) &&
           (!t->to_ms || (p->time_ms >= t->from_ms && p->time_ms < t->to_ms));
}

/* One more delete of these services is on its way, or one less. */
static void deleting(struct world *w, const struct taking *t, uint32_t by)
{
    for (size_t i = 0; i < SERVICES; i++)
        if (strcmp(services[i].tenant, t->tenant) == 0 &&
            (!t->service || strcmp(services[i].name, t->service) == 0))
            w->deleting[i] += by;
}

/* Edges of a range snap outward to whole minutes (tomb.h). */
static struct taking at_most(const struct taking *t)
{
    struct taking ret = *t;

    ret.from_ms = t->from_ms / MINUTE_MS * MINUTE_MS;
    ret.to_ms = (t->to_ms + MINUTE_MS - 1) / MINUTE_MS * MINUTE_MS;
    return ret;
}

/* What is on its way then, or sent while it lasts, may be taken by it as well. */
void oracle_delete_begin(struct world *w, const struct taking *t)
{
    struct taking most = at_most(t);

    vec_for (i, &w->pushes) {
        struct push *p = w->pushes.ptr[i];
        if (!taken(p, &most))
            continue;
        if (p->state == PUSH_ACKED)
            p->state = PUSH_MAYBE;
        p->doubtful |= p->state == PUSH_OPEN;
    }
    deleting(w, t, 1);
}

void oracle_delete_done(struct world *w, const struct taking *t, uint64_t began_ms)
{
    vec_for (i, &w->pushes) {
        struct push *p = w->pushes.ptr[i];
        if (!taken(p, t))
            continue;
        if (p->state == PUSH_MAYBE && p->acked_ms < began_ms)
            p->state = PUSH_DEAD;
        if (t->to_ms)
            p->named = true;
        else if (p->acked_ms && p->acked_ms < began_ms) /* one shard may have had it long before */
            p->named = false;
    }
    deleting(w, t, UINT32_MAX);
}

/* ---- replicas -------------------------------------------------------------------------------- */

static struct node *node_named(struct world *w, const char *name)
{
    for (size_t i = 0; i < w->ingesters; i++)
        if (strcmp(w->nodes[i]->name, name) == 0)
            return w->nodes[i];
    return NULL;
}

uint64_t oracle_applied(struct world *w, const char *name, uint32_t shard)
{
    const struct node *n = node_named(w, name);
    struct kv *k = n ? n->disk.kvs[shard].inner : NULL;
    uint64_t index = 0, term;
    struct err e;

    return k && apply_read(k, &index, &term, &e) == 0 ? index : 0;
}

bool oracle_equal(struct world *w)
{
    for (uint32_t s = 0; s < SIM_SHARDS; s++) {
        int64_t rev;
        const struct repl_record *rec = view_record(w->view, s, &rev);
        uint64_t first = 0;

        if (!rec || !rec->established || rec->learners.len || rec->members.len < 3)
            return false;
        for (uint32_t i = 0; i < rec->members.len; i++) {
            const struct node *n = node_named(w, rec->members.names[i]);
            uint64_t h = n ? sim_disk_hash(&n->disk, s) : 0;
            if (i == 0)
                first = h;
            else if (h != first)
                return false;
        }
        if (!first)
            return false;
    }
    return true;
}

void oracle_where(struct world *w, struct buf *ret)
{
    for (uint32_t s = 0; s < SIM_SHARDS; s++) {
        int64_t rev;
        const struct repl_record *rec = view_record(w->view, s, &rev);

        if (rec)
            (void)buf_addf(ret, "shard %" PRIu32 " term %" PRIu64 " of %s%s: ", s, rec->term,
                           rec->leader, rec->established ? "" : ", not established");
        for (uint32_t i = 0; rec && i < rec->members.len + rec->learners.len; i++) {
            bool member = i < rec->members.len;
            const char *name =
                member ? rec->members.names[i] : rec->learners.names[i - rec->members.len];
            const struct node *n = node_named(w, name);
            struct kv *k = n ? n->disk.kvs[s].inner : NULL;
            uint64_t index = 0, term = 0;
            struct err e;
            if (k && apply_read(k, &index, &term, &e))
                index = 0;
            (void)buf_addf(ret, "%s%s %" PRIu64 "/%" PRIx64 " %08" PRIx64 ", ", name,
                           member ? "" : " (learner)", index, term,
                           (n ? sim_disk_hash(&n->disk, s) : 0) & 0xffffffff);
        }
    }
    for (size_t i = 0; i < w->ingesters; i++) {
        const struct node *n = w->nodes[i];
        struct view_node vn = { 0 };
        bool known = view_node_find(w->view, n->name, &vn);
        (void)buf_addf(ret, "%s: state %d, drain %d, %s, %s; ", n->name, (int)n->state, n->draining,
                       known ? vn.live ? "lives" : "is dead" : "unknown",
                       !known                     ? ""
                       : vn.state == MAP_ACTIVE   ? "active"
                       : vn.state == MAP_DRAINING ? "draining"
                                                  : "left");
    }
    (void)buf_addf(ret, "lost: %" PRIx32, w->lost);
    (void)buf_add_c(ret, 0);
}
