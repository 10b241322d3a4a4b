/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_push: profiles to pushes.
 *
 *   profile ── samples by their attribute service.name ── one push each
 *                (else the resource's, else unknown_service[:executable])
 *
 * Names of series. A profile has one sample type, and says of what a sample was taken how often:
 *
 *   samples:count, period cpu:nanoseconds    process_cpu:cpu:nanoseconds:cpu:nanoseconds, x period
 *   off_cpu:nanoseconds                      off_cpu:off_cpu:nanoseconds::
 *   another one with a period type           named like the period type
 *   another one without                      as pprof would call it
 *
 * The first is what a CPU profile is called from every other agent, so that they add up and can be
 * compared. Peers leave the name empty in the last case and then refuse the profile.
 *
 * Values. A sample has one value; or one per timestamp, which are added; or timestamps only, which
 * count 1 each. Layouts up to 1.7 may have several types and then one value per type.
 *
 * Which pushes are the same push: by the profile's id and times, else by its bytes. A second one of
 * a request with the same is another one: repeating itself within a request is no retry.
 *
 * Meaning of fields: opentelemetry-proto v1.11.0 (proto/FORMATS.md, "OTLP semantics").
 */
#include "distributor/otlp/otlp_push.h"

#include "common/base/hash.h"
#include "common/base/secret.h"
#include "distributor/formats/kinds.h"
#include "distributor/otlp/otlp_walk.h"

#define ID_BYTES    16
#define KEY_BYTES   (ID_BYTES + 8 + 8 + 4) /* id, time, duration, which one of equal ones */
#define SAMPLES_MIN 16

struct service_list {
    VEC(struct str) names;
    struct map_u64 by_hash;
    struct map_u64 by_attr;
};
struct pushing {
    struct otlp *o;
    const struct batch_sink *sink;
    struct otlp_texts texts;
    struct otlp_walk walk;
    struct arena *scratch; /* of one profile */
    struct map_u64 same;   /* hash of what tells profiles apart -> how many there were */
    VEC(uint32_t) counts;  /* by the value in `same` */
    struct service_list services;
    VEC(uint32_t) service; /* of each sample of a profile */
    VEC(uint32_t) order;   /* its samples, by service */
};

/* ---- names ---------------------------------------------------------------------------------- */

static struct str string_at(const struct otlp *o, uint32_t at)
{
    return at == OTLP_NONE ? STR("") : o->strings.ptr[at];
}

static struct str series_name(const struct pprof_names *n, size_t types)
{
    struct str display[OTLP_TYPES_MAX];

    if (str_eqc(n->types[0], "off_cpu"))
        return n->types[0];
    if (n->period_type.len && !str_eqc(n->period_type, "cpu"))
        return n->period_type;
    if (n->period_type.len && types == 1 && !str_eqc(n->types[0], "samples"))
        return n->period_type;
    for (size_t i = 0; i < types; i++)
        display[i] = kind_display_name(n->types[i]);
    return kind_series_name(n->types, display, types);
}

/* Returns what values are to be multiplied by. */
static uint64_t name_types(const struct otlp *o, const struct otlp_profile *p,
                           struct pprof_names *n)
{
    uint64_t scale = 1;

    for (uint32_t i = 0; i < p->types.len; i++) {
        n->types[i] = string_at(o, o->types.ptr[p->types.from + i].type);
        n->units[i] = string_at(o, o->types.ptr[p->types.from + i].unit);
    }
    if (p->has_period_type) {
        n->period_type = string_at(o, p->period_type.type);
        n->period_unit = string_at(o, p->period_type.unit);
    }
    n->name = series_name(n, p->types.len);
    if (p->types.len == 1 && p->period > 0 && str_eqc(n->types[0], "samples") &&
        str_eqc(n->units[0], "count") && str_eqc(n->period_type, "cpu") &&
        str_eqc(n->period_unit, "nanoseconds")) {
        n->types[0] = n->period_type;
        n->units[0] = n->period_unit;
        scale = (uint64_t)p->period;
    }
    return scale;
}

/* ---- services ------------------------------------------------------------------------------- */

static void services_reset(struct service_list *s)
{
    s->names.len = 0;
    map_u64_reset(&s->by_hash);
    map_u64_reset(&s->by_attr);
    vec_push(&s->names, STR("")); /* the resource's */
}

static uint32_t service_find(struct service_list *s, struct str name)
{
    uint32_t next = (uint32_t)s->names.len;

    for (uint64_t h = hash64(name.ptr, name.len, secret_word());; h = hash_u64(h + 1)) {
        uint32_t at = map_u64_put(&s->by_hash, h, next);
        if (at == MAP_U64_EMPTY)
            break;
        if (str_eq(s->names.ptr[at], name))
            return at;
    }
    vec_push(&s->names, name);
    return next;
}

/* The service that an attribute of a sample names; 0: none. False: no room. */
static bool service_of_attr(struct pushing *s, uint32_t attr, uint32_t *ret)
{
    uint32_t known = attr == OTLP_NONE ? 0 : map_u64_get(&s->services.by_attr, attr);
    const struct otlp_text *text;

    *ret = known;
    if (known != MAP_U64_EMPTY)
        return true;
    if (!(text = otlp_text(&s->texts, attr)))
        return false;
    *ret = str_eqc(text->key, OTLP_SERVICE) && text->value.len
               ? service_find(&s->services, text->value)
               : 0;
    map_u64_put(&s->services.by_attr, attr, *ret);
    return true;
}

/* Samples of p in order of their services; starts[i] .. starts[i + 1] are those of service i. */
static bool order_samples(struct pushing *s, const struct otlp_profile *p, uint32_t **ret_starts)
{
    uint32_t n = p->samples.len, *starts;

    services_reset(&s->services);
    vec_reserve(&s->service, n + SAMPLES_MIN);
    vec_reserve(&s->order, n + SAMPLES_MIN);
    for (uint32_t i = 0; i < n; i++) {
        const struct otlp_range a = s->o->samples.ptr[p->samples.from + i].attrs;
        s->service.ptr[i] = 0;
        for (uint32_t k = a.from; k < a.from + a.len && s->service.ptr[i] == 0; k++)
            if (!service_of_attr(s, s->o->indices.ptr[k], &s->service.ptr[i]))
                return false;
    }
    starts = ARENA_ARRAY(s->scratch, uint32_t, s->services.names.len + 2);
    if (!starts)
        return false;
    for (uint32_t i = 0; i < n; i++)
        starts[s->service.ptr[i] + 2]++;
    for (size_t k = 2; k < s->services.names.len + 2; k++)
        starts[k] += starts[k - 1];
    for (uint32_t i = 0; i < n; i++)
        s->order.ptr[starts[s->service.ptr[i] + 1]++] = p->samples.from + i;
    *ret_starts = starts;
    return true;
}

/* ---- one profile ---------------------------------------------------------------------------- */

static bool id_real(struct str id)
{
    uint8_t any = 0;

    for (size_t i = 0; i < id.len; i++)
        any |= (uint8_t)id.ptr[i];
    return id.len == ID_BYTES && any;
}

/* How many profiles before this one cannot be told from it. */
static uint32_t same_before(struct pushing *s, struct str what)
{
    uint32_t next = (uint32_t)s->counts.len;
    uint32_t at = map_u64_put(&s->same, hash64(what.ptr, what.len, secret_word()), next);

    if (at != MAP_U64_EMPTY)
        return ++s->counts.ptr[at];
    vec_push(&s->counts, 0);
    return 0;
}

/* What a retry repeats: the id if there is one, else the bytes; both NULL where memory ends, which
 * costs no more than that a retry is not known. */
static void identify(struct pushing *s, const struct otlp_profile *p, struct str *ret_identity,
                     struct str *ret_id)
{
    char *key = arena_calloc(s->scratch, KEY_BYTES, 1);
    uint32_t n;

    *ret_identity = p->text;
    *ret_id = STR_NULL;
    if (!key)
        return;
    if (id_real(p->id)) {
        memcpy(key, p->id.ptr, ID_BYTES);
        memcpy(key + ID_BYTES, &p->time_ns, sizeof(p->time_ns));
        memcpy(key + ID_BYTES + 8, &p->duration_ns, sizeof(p->duration_ns));
        n = same_before(s, str_n(key, KEY_BYTES - 4));
        memcpy(key + KEY_BYTES - 4, &n, sizeof(n));
        *ret_id = str_n(key, KEY_BYTES);
        return;
    }
    n = same_before(s, p->text);
    if (n == 0)
        return;
    char *text = arena_alloc(s->scratch, p->text.len + sizeof(n));
    *ret_identity = STR_NULL;
    if (!text)
        return;
    memcpy(text, p->text.ptr, p->text.len);
    memcpy(text + p->text.len, &n, sizeof(n));
    *ret_identity = str_n(text, p->text.len + sizeof(n));
}

static int set_time(const struct pushing *s, const struct otlp_profile *p, struct push *push,
                    struct err *e)
{
    bool of_samples = p->time_ns == 0 && p->has_times;
    uint64_t from = of_samples ? p->first_ns : p->time_ns;
    int64_t length = p->duration_ns;

    if (from > INT64_MAX)
        return err_set(e, ERR_INPUT,
                       "otlp: the %s %" PRIu64 " ns (%" PRId64
                       " if it had a sign): that is before 1990 or more than a day ahead",
                       of_samples ? "first time of its samples is" : "profile's time is", from,
                       (int64_t)from);
    if (of_samples)
        length = MAX((int64_t)MIN(p->last_ns - from, (uint64_t)INT64_MAX), length);
    return push_time(push, (int64_t)from, length, s->sink->now_ms, e);
}

static int fill(struct pushing *s, const struct ingest *in, const struct otlp_samples *samples,
                struct push *push, struct err *e)
{
    const struct limits *l = s->sink->limits;
    struct pprof_names names = { 0 };
    struct pprof_walked walked = { 0 };
    uint64_t scale = name_types(s->o, samples->p, &names);

    if (set_time(s, samples->p, push, e) || push_base(push, in, in->name.app, l, e))
        return e->code;
    int rc = otlp_walk(&s->walk, samples, scale, push, &walked, e);
    if (!rc && samples->n > 0 && push->drops[DROP_VALUE_COUNT] == samples->n)
        rc = err_set(e, ERR_INPUT, "otlp: none of its %zu samples has a value or a time",
                     samples->n);
    if (!rc)
        rc = pprof_add(&s->walk.labels, &names, l, &walked, push, e);
    pprof_walked_deinit(&walked);
    return rc;
}

/* What the pushes of a profile share. */
struct shared {
    struct otlp_base base;
    struct str identity, id;
};

/* The samples of one service. */
static int push_service(struct pushing *s, const struct shared *of, const struct ingest *in,
                        const struct otlp_samples *samples, struct err *e)
{
    struct err why;
    struct push *push = s->sink->begin(s->sink->cookie, in, e);

    if (!push)
        return e->code;
    if (fill(s, in, samples, push, &why)) {
        s->sink->reject(s->sink->cookie, push, 1, &why);
        if (!s->walk.over)
            return 0;
        *e = why;
        return e->code;
    }
    push->drops[DROP_LABEL] += of->base.left_out;
    return s->sink->end(s->sink->cookie, push, of->identity, of->id, e);
}

static int no_type(struct pushing *s, size_t at)
{
    struct err why;

    (void)err_set(&why, ERR_INPUT, "otlp: profile %zu of the request has no sample type", at);
    s->sink->reject(s->sink->cookie, NULL, 1, &why);
    return 0;
}

static int push_profile(struct pushing *s, size_t at, struct err *e)
{
    const struct otlp_profile *p = &s->o->profiles.ptr[at];
    const struct limits *l = s->sink->limits;
    struct shared of = { 0 };
    uint32_t *starts;
    int rc = 0;

    if (p->types.len == 0)
        return no_type(s, at);
    arena_reset(s->scratch);
    if (otlp_base_labels(&s->texts, p, l, s->scratch, &of.base, e))
        return e->code;
    if (!order_samples(s, p, &starts))
        return err_set(e, ERR_LIMIT, "otlp: the attributes of a profile take too much memory");
    identify(s, p, &of.identity, &of.id);
    for (size_t i = 0; i < s->services.names.len && !rc; i++) {
        uint32_t n = starts[i + 1] - starts[i];
        struct str name = i == 0 ? of.base.service : s->services.names.ptr[i];
        struct ingest *in;
        if (n == 0 && (i > 0 || p->samples.len > 0))
            continue;
        if (!(in = ARENA_NEW(s->scratch, struct ingest)))
            return err_set(e, ERR_LIMIT, "otlp: the services of a profile take too much memory");
        in->name.labels = of.base.labels;
        in->name.app = otlp_clean(str_sub(name, 0, (size_t)l->label_value_bytes), s->scratch);
        rc = push_service(s, &of, in, &(struct otlp_samples){ p, s->order.ptr + starts[i], n }, e);
    }
    return rc;
}

static void pushing_deinit(struct pushing *s)
{
    otlp_walk_deinit(&s->walk);
    otlp_texts_deinit(&s->texts);
    arena_free(s->scratch);
    map_u64_deinit(&s->same);
    vec_free(&s->counts);
    vec_free(&s->services.names);
    map_u64_deinit(&s->services.by_hash);
    map_u64_deinit(&s->services.by_attr);
    vec_free(&s->service);
    vec_free(&s->order);
}

int otlp_push(struct otlp *o, const struct batch_sink *sink, struct err *e)
{
    struct pushing s = { .o = o, .sink = sink };
    int rc = otlp_texts_init(&s.texts, o, e);

    if (rc)
        return rc;
    rc = otlp_walk_init(&s.walk, o, sink->limits, &s.texts, e);
    s.scratch = arena_new((size_t)sink->limits->decode_bytes);
    map_u64_init(&s.same);
    map_u64_init(&s.services.by_hash);
    map_u64_init(&s.services.by_attr);
    for (size_t i = 0; i < o->profiles.len && !rc; i++)
        rc = push_profile(&s, i, e);
    pushing_deinit(&s);
    return rc;
}

int otlp_decode_proto(struct str body, enum otlp_layout layout, const struct batch_sink *sink,
                      struct err *e)
{
    struct arena *a = arena_new((size_t)sink->limits->decode_bytes);
    struct otlp o;
    int rc = otlp_parse_proto(&o, body, layout, sink->limits, a, e);

    if (!rc)
        rc = otlp_push(&o, sink, e);
    otlp_deinit(&o);
    arena_free(a);
    return rc;
}
