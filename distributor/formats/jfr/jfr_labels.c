/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_labels: the LabelsSnapshot that the Java agent sends beside a recording.
 *
 *   LabelsSnapshot  1: map<int64, Context>   2: map<int64, string>
 *   Context         1: map<int64, int64>     string id of the key -> string id of the value
 *
 * An event names its context by number. Of a key that is there twice the last one counts, as in
 * every protobuf map. Ids are resolved when a context is used: strings may come last.
 *
 * Format: grafana/jfr-parser v0.18.0 (proto/FORMATS.md, "LabelsSnapshot").
 */
#include "distributor/formats/jfr/jfr_impl.h"

struct entry { /* of a map: a missing key or value is 0 or empty */
    uint64_t key, number;
    struct str bytes;
};

static int malformed(struct err *e)
{
    return err_set(e, ERR_INPUT, "labels: no LabelsSnapshot");
}

static bool read_entry(struct str bytes, struct entry *ret)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int rc;

    *ret = (struct entry){ 0 };
    while ((rc = rd_pb(&r, &f)) > 0) {
        if (f.number == 1 && f.wire == 0)
            ret->key = f.u64;
        else if (f.number == 2 && f.wire == 0)
            ret->number = f.u64;
        else if (f.number == 2 && f.wire == 2)
            ret->bytes = f.bytes;
    }
    return rc == 0;
}

static int add_context(struct jfr *j, const struct entry *c, struct err *e)
{
    struct jfr_labels *l = &j->labels;
    struct jfr_context context = { (uint32_t)l->pairs.len, 0 };
    struct rd r = rd_of(c->bytes);
    struct entry label;
    struct pb_field f;
    int rc;

    while ((rc = rd_pb(&r, &f)) > 0) {
        if (f.number != 1 || f.wire != 2)
            continue;
        if (!read_entry(f.bytes, &label))
            return malformed(e);
        if (context.len == j->l->labels_per_sample) /* a tag of any event may repeat them */
            return err_set(e, ERR_LIMIT,
                           "labels: a context with more than %" PRIu64
                           " labels (distributor.labels_per_sample)",
                           j->l->labels_per_sample);
        if (!jfr_charge(j, 2 * sizeof(struct jfr_pair), e))
            return e->code;
        struct jfr_pair pair = { label.key, label.number };
        vec_push(&l->pairs, pair);
        context.len++;
    }
    if (rc < 0)
        return malformed(e);
    uint32_t at = map_u64_put(&l->context_ids, c->key ^ j->seed, (uint32_t)l->contexts.len);
    if (at == MAP_U64_EMPTY)
        vec_push(&l->contexts, context);
    else
        l->contexts.ptr[at] = context;
    return 0;
}

int jfr_labels_read(struct jfr *j, struct str snapshot, struct err *e)
{
    struct jfr_labels *l = &j->labels;
    struct rd r = rd_of(snapshot);
    struct str empty = STR("");
    struct pb_field f;
    struct entry in;
    int rc;

    vec_push(&l->strings, empty);
    while ((rc = rd_pb(&r, &f)) > 0) {
        if (f.wire != 2 || (f.number != 1 && f.number != 2))
            continue;
        if (!read_entry(f.bytes, &in))
            return malformed(e);
        if (!jfr_charge(j, 8 * sizeof(uint64_t), e) || (f.number == 1 && add_context(j, &in, e)))
            return e->code;
        if (f.number == 1)
            continue;
        uint32_t at = map_u64_put(&l->string_ids, in.key ^ j->seed, (uint32_t)l->strings.len);
        if (at == MAP_U64_EMPTY)
            vec_push(&l->strings, in.bytes);
        else
            l->strings.ptr[at] = in.bytes;
    }
    return rc < 0 ? malformed(e) : 0;
}

void jfr_labels_deinit(struct jfr_labels *l)
{
    vec_free(&l->strings);
    vec_free(&l->contexts);
    vec_free(&l->pairs);
    map_u64_deinit(&l->string_ids);
    map_u64_deinit(&l->context_ids);
}
