/* SPDX-License-Identifier: Apache-2.0
 *
 * querier_fake_exemplars.c: what exemplars cost, as a list or by points. Sums of their stacks are
 * not asked of it: the empty message.
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/model/exid.h"
#include "common/model/label.h"
#include "common/model/slot.h"
#include "proto/exemplar.pb-c.h"
#include "tests/lib/roles/querier_fake_impl.h"

static struct str in_str(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

static ProtobufCBinaryData out_str(struct str s)
{
    return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

/* Of "a;b=3 a;c=4" what begins with the site. */
static uint64_t below(const char *stacks, const Embertree__ExemplarRequest *q)
{
    struct str rest = str_c(stacks), part;
    bool more = true;
    uint64_t sum = 0, value;

    while (str_next(&rest, ' ', &more, &part)) {
        size_t eq = (size_t)str_find(part, '=');
        CHECK(str_u64(str_sub(part, eq + 1, part.len), &value));
        if (fake_has_prefix(str_sub(part, 0, eq), q->call_site, q->n_call_site))
            sum += value;
    }
    return sum;
}

/* Which of the ids it has, or any of the kinds. */
static bool asked_for(const Embertree__ExemplarRequest *q, enum exid_kind kind, struct str id)
{
    bool named = q->n_ids == 0;

    for (size_t i = 0; i < q->n_ids; i++)
        named |= str_eq(in_str(q->ids[i]), id);
    return named && (q->kinds & 1u << kind);
}

static Embertree__Exemplar *make(const struct fake *f, const struct qbed_exemplar *x,
                                 const Embertree__ExemplarRequest *q, struct arena *a,
                                 struct err *e)
{
    const struct qbed_push *p = &f->pushes[x->push];
    struct str text = str_c(x->kind_and_id);
    size_t eq = (size_t)str_find(text, '=');
    Embertree__Exemplar *ret = ARENA_NEW(a, Embertree__Exemplar);
    enum exid_kind kind = exid_label(str_sub(text, 0, eq));
    struct exid id;

    if (str_starts(text, STR("profile_id=")))
        kind = EXID_PROFILE;
    CHECK(ret && kind != EXID_NONE && exid_parse(str_sub(text, eq + 1, text.len), &id));
    embertree__exemplar__init(ret);
    ret->kind = (uint32_t)kind;
    ret->id = out_str(arena_strdup(a, exid_str(&id)));
    ret->start_ms = slot_to_ms(slot_of_ms(p->ms));
    ret->total = below(x->stacks, q);
    bool hit = fake_lives_here(f, p, q->shards, q->n_shards) &&
               str_eqc(in_str(q->profile_type), p->type) &&
               fake_matches(p, in_str(q->tenant), q->matchers, q->n_matchers, a, e) > 0 &&
               asked_for(q, kind, exid_str(&id)) &&
               (q->what == 2 || (ret->start_ms >= q->start_ms && ret->start_ms < q->end_ms));
    return hit && (ret->total || q->n_ids || !q->n_call_site) ? ret : NULL;
}

static void put_list(const struct fake *f, const Embertree__ExemplarRequest *q, struct arena *a,
                     struct buf *out, struct err *e)
{
    Embertree__ExemplarReply r = EMBERTREE__EXEMPLAR_REPLY__INIT;

    r.exemplars = ARENA_ARRAY(a, Embertree__Exemplar *, f->exemplars_len + 1);
    r.series = ARENA_ARRAY(a, Embertree__LabelSet *, f->exemplars_len + 1);
    for (size_t i = 0; i < f->exemplars_len; i++) {
        const struct qbed_exemplar *x = &f->exemplars[i];
        Embertree__Exemplar *one = make(f, x, q, a, e);
        if (!one)
            continue;
        struct labels l = fake_labels(&f->pushes[x->push], a);
        Embertree__LabelSet *set = ARENA_NEW(a, Embertree__LabelSet);
        embertree__label_set__init(set);
        set->labels = fake_pairs(&l, a);
        set->n_labels = l.len;
        r.gauge |= f->pushes[x->push].gauge;
        one->series = (uint32_t)r.n_series;
        r.series[r.n_series++] = set;
        r.exemplars[r.n_exemplars++] = one;
    }
    fake_pack(&r.base, out);
}

static void put_timeline(const struct fake *f, const Embertree__ExemplarRequest *q, struct arena *a,
                         struct buf *out, struct err *e)
{
    Embertree__TimelineReply r = EMBERTREE__TIMELINE_REPLY__INIT;
    Embertree__TimelineSeries s = EMBERTREE__TIMELINE_SERIES__INIT, *one = &s;

    s.point = ARENA_ARRAY(a, uint32_t, q->points);
    s.value = ARENA_ARRAY(a, uint64_t, q->points);
    s.writes = ARENA_ARRAY(a, uint64_t, q->points);
    for (uint32_t k = 0; k < q->points; k++) {
        int64_t to = q->origin_ms + k * q->step_ms;
        uint64_t value = 0, writes = 0;
        for (size_t i = 0; i < f->exemplars_len; i++) {
            Embertree__Exemplar *x = make(f, &f->exemplars[i], q, a, e);
            if (!x || x->start_ms <= to - q->step_ms || x->start_ms > to)
                continue;
            value += x->total;
            writes++;
        }
        if (!writes)
            continue;
        s.point[s.n_point++] = k;
        s.value[s.n_value++] = value;
        s.writes[s.n_writes++] = writes;
    }
    r.series = &one;
    r.n_series = 1;
    fake_pack(&r.base, out);
}

int fake_exemplars(const struct fake *f, struct str payload, struct arena *a, struct buf *out,
                   struct err *e)
{
    Embertree__ExemplarRequest *q =
        embertree__exemplar_request__unpack(NULL, payload.len, (const uint8_t *)payload.ptr);

    CHECK(q);
    if (q->what == 1)
        put_list(f, q, a, out, e);
    else if (q->what == 2)
        put_timeline(f, q, a, out, e);
    embertree__exemplar_request__free_unpacked(q, NULL);
    return e->code;
}
