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
 * The file is read in three passes, for frames stand in front of the profiles or behind them, and
 * what a profile is may follow its values: where the parts are, the heads of the profiles, values.
 *
 * The profile type: bytes are memory; a time is cpu, or wall where the file has several profiles,
 * which are threads then; without a unit the values are samples of what the app's name says.
 *
 * Format: jlfwong/speedscope at 3613918de0dd, src/lib/file-format-spec.ts (proto/FORMATS.md,
 * "speedscope").
 */
#include "distributor/formats/speedscope.h"

#include <math.h>

#include "common/base/hash.h"
#include "common/net/jpull.h"
#include "distributor/formats/gather.h"
#include "distributor/formats/kinds.h"

#define SCHEMA     "https://www.speedscope.app/file-format-schema.json"
#define VALUE_MOST 9.0e18 /* below 2^63 */
#define NONE       UINT32_MAX
#define DIFFER     "samples and weights must be lists of one length"

struct profile {
    struct str type, name, unit;
    struct str samples, weights, events; /* where in the text they are */
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
    struct jpull j; /* at the beginning of the file */
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

static int wrapped(struct err *e, const char *what, size_t at)
{
    return err_wrap(e, "speedscope: %s %zu", what, at);
}

/* ---- frames and profiles --------------------------------------------------------------------- */

/* The frame that is next; it is the i-th. */
static int read_frame(struct reader *r, struct jpull *j, size_t i, struct err *e)
{
    static const char *const names[] = { "name", "file", "line" };
    struct str name = STR_NULL, file = STR_NULL;
    struct jpull_obj obj;
    double line = 0;
    size_t which;

    if (jpull_object(j, &obj))
        while (jpull_member(j, &obj, names, ARRAY_LEN(names), &which))
            (void)(which == 0   ? jpull_string(j, &name)
                   : which == 1 ? jpull_string(j, &file)
                   : which == 2 ? jpull_real(j, "line", &line)
                                : jpull_skip(j));
    if (j->bad)
        return wrapped(e, "frame", i);
    if (!name.ptr)
        return err_set(e, ERR_INPUT, "speedscope: frame %zu has no name", i);
    if (gather_check_name(&r->g, name, "frame", i, e) ||
        gather_check_name(&r->g, file, "file of frame", i, e))
        return e->code;
    uint32_t id = gather_frame(&r->g, name, file, line >= 1 && line < 1e9 ? (uint32_t)line : 0);
    if (id == STACKS_FULL)
        return push_full(r->g.push, e);
    if (gather_charge(&r->g, 2 * sizeof(id), e))
        return e->code;
    vec_push(&r->frames, id);
    return 0;
}

static int read_frames(struct reader *r, struct str shared, struct err *e)
{
    static const char *const names[] = { "frames" };
    struct str list = STR_NULL;
    struct jpull_obj obj;
    struct jpull_it it;
    struct jpull j;
    size_t which;

    if (shared.len) {
        jpull_part(&r->j, shared, &j);
        if (jpull_object(&j, &obj))
            while (jpull_member(&j, &obj, names, ARRAY_LEN(names), &which))
                (void)(which == 0 ? jpull_value(&j, &list) : jpull_skip(&j));
        if (j.bad)
            return err_wrap(e, "speedscope: shared");
    }
    if (!list.len || list.ptr[0] != '[')
        return err_set(e, ERR_INPUT, "speedscope: shared.frames is not a list");
    jpull_part(&r->j, list, &j);
    (void)jpull_array(&j, &it);
    for (size_t i = 0; jpull_element(&j, &it); i++)
        if (read_frame(r, &j, i, e))
            return e->code;
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
                                  "speedscope: profile %zu: unit \"%.*s\": want one of "
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

/* The head of a profile, and where its values are. */
static int read_profile(struct reader *r, struct jpull *j, size_t i, struct err *e)
{
    static const char *const names[] = { "type",     "name",    "unit",    "startValue",
                                         "endValue", "samples", "weights", "events" };
    struct profile p = { .name = STR(""), .unit = STR("none"), .next = NONE };
    struct str *const texts[] = { &p.type, &p.name, &p.unit };
    struct str *const values[] = { &p.samples, &p.weights, &p.events };
    struct jpull_obj obj;
    size_t which;

    if (!jpull_object(j, &obj))
        return bad(e, i, "it is not an object");
    while (jpull_member(j, &obj, names, ARRAY_LEN(names), &which)) {
        if (which < 3)
            (void)jpull_string(j, texts[which]);
        else if (which < 5)
            (void)jpull_real(j, names[which], which == 3 ? &p.start : &p.end);
        else
            (void)(which < 8 ? jpull_value(j, values[which - 5]) : jpull_skip(j));
    }
    if (j->bad)
        return wrapped(e, "profile", i);
    if (scale_of(&p, i, e) || gather_charge(&r->g, 2 * (sizeof(p) + sizeof(struct group)), e))
        return e->code;
    return group_profile(r, &p, e);
}

static int read_profiles(struct reader *r, struct str list, struct err *e)
{
    struct jpull_it it;
    struct jpull j;

    if (!list.len || list.ptr[0] != '[')
        return err_set(e, ERR_INPUT, "speedscope: profiles is not a list");
    jpull_part(&r->j, list, &j);
    (void)jpull_array(&j, &it);
    for (size_t i = 0; jpull_element(&j, &it); i++)
        if (read_profile(r, &j, i, e))
            return e->code;
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The frame index that is next. */
static int frame_at(const struct reader *r, struct jpull *j, size_t at, uint32_t *ret,
                    struct err *e)
{
    int64_t index = -1;

    if (!jpull_signed(j, "frame", &index) || index < 0 || (uint64_t)index >= r->frames.len)
        return bad(e, at, "a frame index that is not in the file's frames");
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

/* The sample that is next, to r->stack; of too many frames some are enough to be refused. */
static int read_sample(struct reader *r, struct jpull *j, size_t i, struct err *e)
{
    struct jpull_it it;
    uint32_t id;

    if (jpull_peek(j) != '[')
        return bad(e, i, "a sample that is not a list of frames");
    r->stack.len = 0;
    gather_cut(&r->g, 0);
    (void)jpull_array(j, &it);
    while (jpull_element(j, &it)) {
        if (frame_at(r, j, i, &id, e))
            return e->code;
        if (r->stack.len <= r->g.l->text_frames)
            vec_push(&r->stack, id);
    }
    return 0;
}

static int take_sampled(struct reader *r, const struct profile *p, size_t i, struct err *e)
{
    struct jpull_it samples, weights;
    uint64_t before = 0, now = 0;
    struct jpull s, w;
    double sum = 0;

    jpull_part(&r->j, p->samples, &s);
    jpull_part(&r->j, p->weights, &w);
    if (jpull_peek(&s) != '[' || jpull_peek(&w) != '[')
        return bad(e, i, DIFFER);
    (void)jpull_array(&s, &samples);
    (void)jpull_array(&w, &weights);
    while (jpull_element(&s, &samples)) {
        double weight = -1;
        if (!jpull_element(&w, &weights))
            return bad(e, i, DIFFER);
        if (!jpull_real(&w, "weight", &weight) || !(weight >= 0))
            return bad(e, i, "a weight that is not a number of 0 or more");
        sum += weight;
        if (border(sum, p, i, &now, e) || read_sample(r, &s, i, e) || add(r, i, now - before, e))
            return e->code;
        before = now;
    }
    return jpull_element(&w, &weights) ? bad(e, i, DIFFER) : 0;
}

struct event {
    struct str type;
    uint32_t frame;
    double at; /* NAN: it has none */
};

static int read_event(struct reader *r, struct jpull *j, size_t i, struct event *ret, struct err *e)
{
    static const char *const names[] = { "type", "frame", "at" };
    bool has_frame = false;
    struct jpull_obj obj;
    size_t which;

    *ret = (struct event){ .at = (double)NAN };
    if (!jpull_object(j, &obj))
        return bad(e, i, "an event that is not an object");
    while (jpull_member(j, &obj, names, ARRAY_LEN(names), &which)) {
        if (which == 1) {
            if (frame_at(r, j, i, &ret->frame, e))
                return e->code;
            has_frame = true;
        } else {
            (void)(which == 0   ? jpull_string(j, &ret->type)
                   : which == 2 ? jpull_real(j, "at", &ret->at)
                                : jpull_skip(j));
        }
    }
    if (j->bad)
        return wrapped(e, "an event of profile", i);
    if (isnan(ret->at))
        return bad(e, i, "an event without a time (\"at\")");
    return has_frame ? 0 : bad(e, i, "an event without a frame");
}

static int take_event(struct reader *r, const struct event *v, size_t i, struct err *e)
{
    if (str_eqc(v->type, "O")) {
        if (r->stack.len > r->g.l->text_frames)
            return err_set(e, ERR_LIMIT,
                           "speedscope: profile %zu: more than %" PRIu64 " open frames", i,
                           r->g.l->text_frames);
        vec_push(&r->stack, v->frame);
        return 0;
    }
    if (!str_eqc(v->type, "C"))
        return bad(e, i, "an event whose type is neither \"O\" nor \"C\"");
    if (!r->stack.len || r->stack.ptr[r->stack.len - 1] != v->frame)
        return bad(e, i, "an event closes a frame that was not the last one opened");
    gather_cut(&r->g, --r->stack.len);
    return 0;
}

static int take_evented(struct reader *r, const struct profile *p, size_t i, struct err *e)
{
    uint64_t before = 0, now = 0;
    struct jpull_it it;
    struct event v;
    struct jpull j;

    jpull_part(&r->j, p->events, &j);
    if (jpull_peek(&j) != '[')
        return bad(e, i, "events is not a list");
    r->stack.len = 0;
    gather_cut(&r->g, 0);
    (void)jpull_array(&j, &it);
    while (jpull_element(&j, &it)) {
        if (read_event(r, &j, i, &v, e) || border(v.at - p->start, p, i, &now, e))
            return e->code;
        if (now < before)
            return bad(e, i, "the times of its events run backwards");
        if ((r->stack.len && add(r, i, now - before, e)) || take_event(r, &v, i, e))
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

static int read_all(struct reader *r, struct err *e)
{
    static const char *const names[] = { "$schema", "shared", "profiles" };
    struct str schema = STR_NULL, parts[2] = { STR_NULL, STR_NULL };
    struct jpull j = r->j;
    struct jpull_obj obj;
    size_t which;

    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, names, ARRAY_LEN(names), &which))
            (void)(which == 0  ? jpull_string(&j, &schema)
                   : which < 3 ? jpull_value(&j, &parts[which - 1])
                               : jpull_skip(&j));
    if (j.bad)
        return err_wrap(e, "speedscope");
    if (!str_eqc(schema, SCHEMA))
        return err_set(e, ERR_INPUT, "speedscope: $schema must be \"" SCHEMA "\"");
    if (read_frames(r, parts[0], e) || read_profiles(r, parts[1], e))
        return e->code;
    for (size_t i = 0; i < r->groups.len; i++)
        if (!r->groups.ptr[i].taken && take_group(r, i, e))
            return e->code;
    return 0;
}

int speedscope_push(struct str text, const struct ingest *in, const struct limits *l,
                    struct push *push, struct err *e)
{
    struct reader r = { .kind = kind_of(in->name.app, in->sample_rate) };

    if (push_base(push, in, r.kind.app, l, e))
        return e->code;
    gather_init(&r.g, push, l, 1);
    jpull_init_checked(&r.j, text, push->arena, e);
    int rc = read_all(&r, e);
    push->samples += r.g.taken;
    vec_free(&r.frames);
    vec_free(&r.profiles);
    vec_free(&r.groups);
    map_u64_deinit(&r.group_ids);
    vec_free(&r.stack);
    gather_deinit(&r.g);
    return rc;
}
