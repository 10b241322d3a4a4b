/* SPDX-License-Identifier: Apache-2.0
 *
 * speedscope: https://www.speedscope.app/file-format-schema.json to series.
 *
 *   shared.frames[] {name, file?, line?}
 *   profiles[] {type, name, unit, startValue, endValue, and
 *     sampled: samples[][] of frame indices, root first, and weights[], as many
 *     evented: events[] {type "O" or "C", at, frame}: opened and closed in order, nested}
 *
 * Values may have fractions (milliseconds): they are brought to nanoseconds, bytes or samples, and
 * rounded at the borders between samples, not per sample, so that sums stay what they were. A frame
 * that is open at the end closes at endValue. Profiles that agree in name and type of profile are
 * one series; each carries the label profile_name.
 *
 * The profile type: bytes are memory; a time is cpu, or wall where the file has several profiles,
 * which are threads then; without a unit the values are samples of what the app's name says.
 */
#include "distributor/formats/speedscope.h"

#include <math.h>

#include "common/base/hash.h"
#include "common/net/json_in.h"
#include "distributor/formats/gather.h"
#include "distributor/formats/kinds.h"

#define SCHEMA     "https://www.speedscope.app/file-format-schema.json"
#define VALUE_MOST 9.0e18 /* below 2^63 */
#define NONE       UINT32_MAX

struct profile {
    struct str type, name, unit;
    const struct json_val *json;
    double start, end, scale;
    uint32_t next; /* of the profiles that are `same`; NONE: the last */
};
/* Profiles that are `same`, of which a file may have any number. */
struct group {
    uint32_t first, last;
    bool taken;
};
struct reader {
    struct gather g;
    struct kind kind;
    VEC(uint32_t) frames; /* owned; index in the file -> frame */
    VEC(struct profile) profiles;
    VEC(struct group) groups; /* of them; no more than there may be series */
    struct map_u64 group_ids; /* hash of what is `same` -> group */
    VEC(uint32_t) stack;      /* owned; scratch */
};

static int bad(struct err *e, size_t at, const char *what)
{
    return err_set(e, ERR_INPUT, "speedscope: profile %zu: %s", at, what);
}

/* ---- frames and profiles --------------------------------------------------------------------- */

static int read_frames(struct reader *r, const struct json_val *root, struct err *e)
{
    const struct json_val *list = json_get(json_get(root, "shared", NULL), "frames", NULL);

    if (!json_is_arr(list))
        return err_set(e, ERR_INPUT, "speedscope: shared.frames is no list");
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json_val *v = json_at(list, i);
        struct str name = STR_NULL, file = STR_NULL;
        double line = 0;
        if (!json_is_obj(v) || json_take_str(json_get(v, "name", NULL), "name", &name, e) ||
            !name.ptr)
            return err_set(e, ERR_INPUT, "speedscope: frame %zu has no name", i);
        if (json_take_str(json_get(v, "file", NULL), "file", &file, e) ||
            json_take_double(json_get(v, "line", NULL), "line", &line, e))
            return err_wrap(e, "speedscope: frame %zu", i);
        if (gather_check_name(&r->g, name, "frame", i, e) ||
            gather_check_name(&r->g, file, "file of frame", i, e))
            return e->code;
        uint32_t id = gather_frame(&r->g, name, file, line >= 1 && line < 1e9 ? (uint32_t)line : 0);
        if (id == STACKS_FULL)
            return push_full(r->g.push, e);
        vec_push(&r->frames, id);
    }
    return 0;
}

static int scale_of(struct profile *p, size_t at, struct err *e)
{
    static const struct {
        const char *unit;
        double scale;
    } rows[] = {
        { "none", 1 },           { "bytes", 1 },          { "nanoseconds", 1 },
        { "microseconds", 1e3 }, { "milliseconds", 1e6 }, { "seconds", 1e9 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_eqc(p->unit, rows[i].unit))
            p->scale = rows[i].scale;
    return p->scale > 0 ? 0
                        : err_set(e, ERR_INPUT,
                                  "speedscope: profile %zu: unit \"%.*s\" is none of "
                                  "none, bytes, {nano,micro,milli,}seconds",
                                  at, (int)MIN(p->unit.len, 40), p->unit.ptr);
}

static bool same(const struct profile *a, const struct profile *b)
{
    return str_eq(a->name, b->name) && str_eq(a->type, b->type) && str_eq(a->unit, b->unit) &&
           a->start == b->start;
}

/* Adds the profile to its group, or to a new one. */
static int group_profile(struct reader *r, const struct profile *p, struct err *e)
{
    const uint32_t at = (uint32_t)r->profiles.len, next = (uint32_t)r->groups.len;
    const struct group new = { .first = at, .last = at };
    uint64_t h = hash64(p->name.ptr, p->name.len, r->g.push->stacks.seed);
    uint32_t id;

    h = hash64(p->type.ptr, p->type.len, hash64(p->unit.ptr, p->unit.len, h));
    for (h = hash64(&p->start, sizeof(p->start), h);
         (id = map_u64_get(&r->group_ids, h)) != MAP_U64_EMPTY; h = hash_u64(h + 1))
        if (same(&r->profiles.ptr[r->groups.ptr[id].first], p))
            break;
    if (id == MAP_U64_EMPTY && next >= r->g.l->series)
        return err_set(e, ERR_LIMIT, "speedscope: more than %" PRIu64 " profiles", r->g.l->series);
    vec_push(&r->profiles, *p);
    if (id == MAP_U64_EMPTY) {
        (void)map_u64_put(&r->group_ids, h, next);
        vec_push(&r->groups, new);
        return 0;
    }
    r->profiles.ptr[r->groups.ptr[id].last].next = at;
    r->groups.ptr[id].last = at;
    return 0;
}

static int read_profiles(struct reader *r, const struct json_val *root, struct err *e)
{
    const struct json_val *list = json_get(root, "profiles", NULL);

    if (!json_is_arr(list))
        return err_set(e, ERR_INPUT, "speedscope: profiles is no list");
    for (size_t i = 0; i < json_len(list); i++) {
        struct profile p = {
            .json = json_at(list, i), .name = STR(""), .unit = STR("none"), .next = NONE
        };
        if (!json_is_obj(p.json))
            return bad(e, i, "it is no object");
        if (json_take_str(json_get(p.json, "type", NULL), "type", &p.type, e) ||
            json_take_str(json_get(p.json, "name", NULL), "name", &p.name, e) ||
            json_take_str(json_get(p.json, "unit", NULL), "unit", &p.unit, e) ||
            json_take_double(json_get(p.json, "startValue", NULL), "startValue", &p.start, e) ||
            json_take_double(json_get(p.json, "endValue", NULL), "endValue", &p.end, e))
            return err_wrap(e, "speedscope: profile %zu", i);
        if (scale_of(&p, i, e) || group_profile(r, &p, e))
            return e->code;
    }
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int frame_at(const struct reader *r, const struct json_val *v, size_t at, uint32_t *ret,
                    struct err *e)
{
    int64_t index = -1;

    if (!v || json_take_i64(v, "frame", &index, e) || index < 0 || (uint64_t)index >= r->frames.len)
        return bad(e, at, "a frame index that is none of the file's frames");
    *ret = r->frames.ptr[index];
    return 0;
}

/* A border between values, in the unit that is stored. */
static int border(double at, const struct profile *p, size_t i, uint64_t *ret, struct err *e)
{
    double v = at * p->scale;

    if (!(v >= 0 && v < VALUE_MOST))
        return bad(e, i, "a time or sum of weights that is negative or beyond 2^63");
    *ret = (uint64_t)llround(v);
    return 0;
}

static int add(struct reader *r, size_t i, uint64_t count, struct err *e)
{
    const struct gather_stack s = { .ids = r->stack.ptr, .n = r->stack.len };

    return gather_add(&r->g, &s, count, "profile", i, e);
}

static int take_sampled(struct reader *r, const struct profile *p, size_t i, struct err *e)
{
    const struct json_val *samples = json_get(p->json, "samples", NULL);
    const struct json_val *weights = json_get(p->json, "weights", NULL);
    double sum = 0, weight;
    uint64_t before = 0, now = 0;

    if (!json_is_arr(samples) || !json_is_arr(weights) || json_len(samples) != json_len(weights))
        return bad(e, i, "samples and weights must be lists of one length");
    for (size_t k = 0; k < json_len(samples); k++) {
        const struct json_val *s = json_at(samples, k);
        weight = -1;
        if (!json_is_arr(s))
            return bad(e, i, "a sample that is no list of frames");
        if (json_take_double(json_at(weights, k), "weight", &weight, e) || !(weight >= 0))
            return bad(e, i, "a weight that is no number of 0 or more");
        sum += weight;
        if (border(sum, p, i, &now, e))
            return e->code;
        r->stack.len = 0;
        gather_cut(&r->g, 0);
        for (size_t f = 0; f < json_len(s); f++) {
            uint32_t id;
            if (frame_at(r, json_at(s, f), i, &id, e))
                return e->code;
            vec_push(&r->stack, id);
        }
        if (add(r, i, now - before, e))
            return e->code;
        before = now;
    }
    return 0;
}

static int take_event(struct reader *r, const struct json_val *v, size_t i, struct err *e)
{
    struct str type = STR_NULL;
    uint32_t frame;

    if (json_take_str(json_get(v, "type", NULL), "type", &type, e) ||
        frame_at(r, json_get(v, "frame", NULL), i, &frame, e))
        return e->code;
    if (str_eqc(type, "O")) {
        if (r->stack.len > r->g.l->text_frames)
            return err_set(e, ERR_LIMIT,
                           "speedscope: profile %zu: more than %" PRIu64 " open frames", i,
                           r->g.l->text_frames);
        vec_push(&r->stack, frame);
        return 0;
    }
    if (!str_eqc(type, "C"))
        return bad(e, i, "an event whose type is neither \"O\" nor \"C\"");
    if (!r->stack.len || r->stack.ptr[r->stack.len - 1] != frame)
        return bad(e, i, "an event closes a frame that was not the last one opened");
    gather_cut(&r->g, --r->stack.len);
    return 0;
}

static int take_evented(struct reader *r, const struct profile *p, size_t i, struct err *e)
{
    const struct json_val *events = json_get(p->json, "events", NULL);
    uint64_t before = 0, now = 0;
    double at;

    if (!json_is_arr(events))
        return bad(e, i, "events is no list");
    r->stack.len = 0;
    gather_cut(&r->g, 0);
    for (size_t k = 0; k < json_len(events); k++) {
        const struct json_val *v = json_at(events, k);
        at = (double)NAN;
        if (!json_is_obj(v) || json_take_double(json_get(v, "at", NULL), "at", &at, e) || isnan(at))
            return bad(e, i, "an event without a time (\"at\")");
        if (border(at - p->start, p, i, &now, e))
            return e->code;
        if (now < before)
            return bad(e, i, "the times of its events run backwards");
        if ((r->stack.len && add(r, i, now - before, e)) || take_event(r, v, i, e))
            return e->code;
        before = now;
    }
    if (!r->stack.len || p->end <= p->start)
        return 0;
    if (border(p->end - p->start, p, i, &now, e))
        return e->code;
    return now > before ? add(r, i, now - before, e) : 0;
}

/* ---- series ---------------------------------------------------------------------------------- */

static struct kind kind_for(const struct reader *r, const struct profile *p)
{
    struct kind k = r->kind;
    const bool wall = r->groups.len > 1 || str_eqc(k.type.name, "wall");

    if (str_eqc(p->unit, "none"))
        return k;
    k.period = 1;
    if (str_eqc(p->unit, "bytes")) {
        if (!str_eqc(k.type.sample_unit, "bytes"))
            k.type = (struct ptype){ .name = STR("memory"),
                                     .sample_type = STR("samples"),
                                     .sample_unit = STR("bytes") };
    } else if (!str_eqc(k.type.name, "mutex") && !str_eqc(k.type.name, "block")) {
        k.type = (struct ptype){ .name = wall ? STR("wall") : STR("process_cpu"),
                                 .sample_type = wall ? STR("wall") : STR("cpu"),
                                 .sample_unit = STR("nanoseconds"),
                                 .period_type = STR("cpu"),
                                 .period_unit = STR("nanoseconds") };
    }
    return k;
}

/* The name as a label: profiles whose labels come out equal are one. */
static struct str label_of(const struct reader *r, const struct profile *p)
{
    return str_tail(p->name, (size_t)r->g.l->label_value_bytes);
}

static int take_one(struct reader *r, const struct profile *p, size_t i, struct err *e)
{
    if (str_eqc(p->type, "sampled"))
        return take_sampled(r, p, i, e);
    if (str_eqc(p->type, "evented"))
        return take_evented(r, p, i, e);
    return bad(e, i, "its type is neither \"sampled\" nor \"evented\"");
}

/* The profiles of a group and of all later ones of the same name and type, as one series. */
static int take_group(struct reader *r, size_t first, struct err *e)
{
    const struct profile *p = &r->profiles.ptr[r->groups.ptr[first].first];
    const struct kind kind = kind_for(r, p);
    struct label pair = { .name = STR("profile_name"), .value = label_of(r, p) };
    const struct labels extra = { .ptr = &pair, .len = pair.value.len ? 1 : 0 };

    r->g.period = kind.period;
    for (size_t i = first; i < r->groups.len; i++) {
        struct group *other = &r->groups.ptr[i];
        const struct profile *next = &r->profiles.ptr[other->first];
        const struct kind its = kind_for(r, next);
        if (other->taken || !str_eq(label_of(r, next), pair.value) || its.period != kind.period ||
            !str_eq(its.type.name, kind.type.name) ||
            !str_eq(its.type.sample_unit, kind.type.sample_unit))
            continue;
        other->taken = true;
        for (uint32_t at = other->first; at != NONE; at = r->profiles.ptr[at].next)
            if (take_one(r, &r->profiles.ptr[at], at, e))
                return e->code;
    }
    return gather_series(&r->g, &kind.type, &extra, e);
}

static int read_all(struct reader *r, const struct json_val *root, struct err *e)
{
    struct str schema = STR_NULL;

    if (json_take_str(json_get(root, "$schema", NULL), "$schema", &schema, e) ||
        !str_eqc(schema, SCHEMA))
        return err_set(e, ERR_INPUT, "speedscope: $schema must be \"" SCHEMA "\"");
    if (read_frames(r, root, e) || read_profiles(r, root, e))
        return e->code;
    for (size_t i = 0; i < r->groups.len; i++)
        if (!r->groups.ptr[i].taken && take_group(r, i, e))
            return e->code;
    return 0;
}

int speedscope_push(const struct json_val *root, const struct ingest *in, const struct limits *l,
                    struct push *push, struct err *e)
{
    struct reader r = { .kind = kind_of(in->name.app, in->sample_rate) };

    if (push_base(push, in, r.kind.app, l, e))
        return e->code;
    gather_init(&r.g, push, l, 1);
    int rc = read_all(&r, root, e);
    push->samples += r.g.taken;
    vec_free(&r.frames);
    vec_free(&r.profiles);
    vec_free(&r.groups);
    map_u64_deinit(&r.group_ids);
    vec_free(&r.stack);
    gather_deinit(&r.g);
    return rc;
}
