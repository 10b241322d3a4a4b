/* SPDX-License-Identifier: Apache-2.0
 *
 * intake_decode: the pool's half of an intake: pushes come in from a decoder and leave packed.
 *
 *   begin ─> decoder fills the push ─> end ─> rules ─> window ─> write ids ─> pack ─> pushes
 *                                       └─> reject: a row, the others continue
 *
 * Each push has an arena and stacks of its own, so that what was sent can be freed while others
 * wait. Together they may hold limits.decode_bytes: a request with a thousand profiles may not take
 * more than one with a single large one. The number of pushes of a request is bounded as well.
 *
 * An error of the decoder itself fails the request as a whole, before anything of it is sent.
 */
#include "distributor/intake/intake_impl.h"
#include "distributor/rules/stamp.h"
#include "distributor/send/pack.h"
#include "distributor/send/symbol_sessions.h"

#define PUSH_LEAST (64 * KIB) /* another push is not begun with less memory than this */
#define ID_MOST    128        /* bytes kept of a sender's id, for error texts */

/* ---- rows ----------------------------------------------------------------------------------- */

static const struct err *keep_err(struct intake *k, const struct err *why)
{
    static const struct err no_room = { .code = ERR_LIMIT,
                                        .text = "rejected; there is no room for the reasons" };
    struct err *e = ARENA_NEW(k->arena, struct err);

    if (!e)
        return &no_room;
    *e = *why;
    return e;
}

void intake_reject(struct intake *k, size_t row, const struct err *why)
{
    struct intake_row *r = &k->rows.ptr[row];

    r->outcome = INTAKE_REJECTED;
    r->err = keep_err(k, why);
}

void intake_push_free(struct intake_push *p)
{
    if (!p)
        return;
    CHECK(p->magic == INTAKE_PUSH_MAGIC);
    if (p->kept)
        p->k->d->tap->failed(p->k->d->tap->cookie, p->kept);
    p->kept = NULL;
    buf_deinit(&p->packed);
    loop_timer_free(p->timer);
    p->timer = NULL;
    p->over = true;
    struct intake_push *whole = p->whole ? p->whole : p;
    if (p->whole) {
        arena_free(p->arena);
        p->magic = 0;
        xfree(p);
        whole->parts--;
    }
    if (!whole->over || whole->parts)
        return;
    push_deinit(&whole->push);
    arena_pool_put(whole->k->d->arenas, whole->arena);
    whole->magic = 0;
    if (whole->k->spare)
        xfree(whole);
    else
        whole->k->spare = whole;
}

static void close_push(struct intake *k, struct intake_push *p)
{
    for (size_t i = 0; i < k->open.len; i++) {
        if (k->open.ptr[i] != p)
            continue;
        k->open.ptr[i] = k->open.ptr[--k->open.len];
        return;
    }
    CHECK(false); /* a push that was not begun */
}

/* ---- one push ------------------------------------------------------------------------------- */

/* What holds for the labels of every protocol, whoever decoded them. */
static int check_labels(const struct intake *k, const struct labels *l, struct err *e)
{
    for (size_t i = 0; i < l->len; i++) {
        const struct label *at = &l->ptr[i];
        if (at->name.len > k->limits.label_name_bytes)
            return err_set(e, ERR_LIMIT, "label_name_too_long: %zu bytes, at most %" PRIu64,
                           at->name.len, k->limits.label_name_bytes);
        if (at->value.len > k->limits.label_value_bytes)
            return err_set(e, ERR_LIMIT,
                           "label_value_too_long: %zu bytes of %.*s, at most %" PRIu64,
                           at->value.len, STR_ARG(at->name), k->limits.label_value_bytes);
    }
    if (l->len > k->limits.label_names)
        return err_set(e, ERR_LIMIT,
                       "max_label_names_per_series: the push has %zu labels, at most %" PRIu64,
                       l->len, k->limits.label_names);
    return 0;
}

/* The rules of the tenant over a decoded push: may change or drop series (then it may be empty),
 * or refuse the push. Labels that the identity of the request sets are there before and after. */
static int intake_rules(struct intake *k, struct intake_push *p, const struct window *w,
                        uint64_t bytes, struct err *e)
{
    if (stamp_push(&p->push, &k->set, e) ||
        rules_run(k->d->rules, &k->rules, &p->push, w, bytes, e))
        return e->code;
    if (p->push.series_len == 0) /* all series were left out: their times need no check */
        return 0;
    if (stamp_push(&p->push, &k->set, e))
        return e->code;
    p->push.service = rules_service(&p->push.series[0]);
    return check_labels(k, &p->push.base, e);
}

static uint32_t place_of(const struct intake_push *p, struct str service,
                         const struct push_series *s)
{
    const struct intake *k = p->k;
    bool placed = map_is_placed(k->map, k->tenant->name, service);

    return map_shard(k->map, k->tenant->name, service,
                     placed ? shard_routing_hash(&s->labels, &p->push.base) : 0, p->when_ms);
}

/* A symbol session covers whole pushes of one service to one shard. It is not used if rules left
 * out a part of the push or divided it into several services, or if it goes to several shards. */
static int expand_unless_single_shard(struct intake_push *p, size_t series_before, struct err *e)
{
    struct push *push = &p->push;

    if (!push->known)
        return 0;
    uint32_t shard = place_of(p, rules_service(&push->series[0]), &push->series[0]);
    bool placed = map_is_placed(p->k->map, p->k->tenant->name, rules_service(&push->series[0]));
    bool one = shard == p->told_shard || !placed;
    for (size_t i = 1; placed && one && i < push->series_len; i++)
        one = place_of(p, rules_service(&push->series[i]), &push->series[i]) == shard;
    if (one && push->series_len == series_before &&
        str_eq(rules_service(&push->series[0]), rules_service(&push->series[push->series_len - 1])))
        return 0;
    if (push->known_grew)
        atomic_store_explicit(&push->known->dead, true, memory_order_relaxed);
    return push_known_expand(push, e);
}

/* Pushes of one request that have the same base are numbered in their order. */
static struct write_base own_base(struct intake *k, struct write_base base)
{
    uint64_t before = 0;

    vec_for (i, &k->bases)
        before += k->bases.ptr[i].lo == base.digest.lo && k->bases.ptr[i].hi == base.digest.hi;
    vec_push(&k->bases, base.digest);
    return before ? write_base_again(&k->tenant->secret, &base, before) : base;
}

int intake_pack(struct intake_push *p, struct err *e)
{
    const struct intake *k = p->k;

    if (p->once && push_known_expand(&p->push, e))
        return e->code;
    pool_slice();
    if (!p->once)
        p->epoch = ledger_epoch(k->d->book);
    p->once = true;
    p->told = p->push.known != NULL;
    struct packing in = {
        .tenant = k->tenant->name,
        .shard = p->shard,
        .map_version = k->map->version,
        .received_ms = clock_wall_ms(k->d->ctx->env->clock),
        .push = &p->push,
        .leaves = &p->leaves,
        .secret = &k->tenant->secret,
        .write_base = &p->write_base,
        .distributor = ledger_distributor(k->d->book),
        .epoch = p->epoch,
        .acks = &p->acks,
    };

    buf_reset(&p->packed);
    return pack_write(&in, &p->packed, e);
}

/* The parts of a push have one base, so those of one service need something else to be told apart;
 * but where a retry may find another map, the id must not depend on it. */
static struct hash128 tap_id(const struct intake_push *p)
{
    const struct intake *k = p->k;
    struct hash128 id = p->write_base.digest;
    struct str service = p->push.service;

    id.lo ^= hash64(service.ptr, service.len, id.hi);
    if (p->shard != map_shard(k->map, k->tenant->name, service, 0, MAP_WHEN_FIRST))
        id.lo ^= hash_u64(p->shard + 1);
    return id;
}

/* All series have one service, and one shard. */
static int pack_push(struct intake_push *p, const struct window *w, struct err *e)
{
    const struct intake *k = p->k;
    const struct distributor *d = k->d;

    if (intake_pack(p, e))
        return e->code;
    if (d->tap) {
        p->kept = d->tap->packed(d->tap->cookie,
                                 &(struct intake_packed){ .tenant = k->tenant->name,
                                                          .push = &p->push,
                                                          .window = w,
                                                          .message = buf_str(&p->packed),
                                                          .id = tap_id(p),
                                                          .hops = k->hops },
                                 &p->kept_bytes);
    }
    return 0;
}

/* The first n series leave *p for a push of their own, which is packed and goes with k->pushes. */
static int split_part(struct intake_push *p, size_t n, uint32_t shard, const struct window *w,
                      struct err *e)
{
    struct intake *k = p->k;
    struct intake_push *part = XNEW(struct intake_push);

    part->magic = INTAKE_PUSH_MAGIC;
    part->k = k;
    part->in = p->in;
    part->row = p->row;
    part->arena = arena_new((size_t)k->limits.decode_bytes);
    part->leaves = p->leaves;
    part->write_base = p->write_base;
    part->shard = shard;
    part->when_ms = p->when_ms;
    part->whole = p;
    buf_init(&part->packed, p->packed.max);
    part->push = (struct push){ .arena = part->arena,
                                .stacks = p->push.stacks,
                                .base = p->push.base,
                                .service = rules_service(&p->push.series[0]),
                                .series = p->push.series,
                                .series_len = n,
                                .series_cap = n };
    p->parts++;
    p->push.series += n;
    p->push.series_len -= n;
    p->push.series_cap -= n;
    if (pack_push(part, w, e)) {
        intake_push_free(part);
        return e->code;
    }
    part->holds = arena_used(part->arena) + part->packed.cap + part->kept_bytes;
    k->holds += part->holds;
    vec_push(&k->pushes, part);
    return 0;
}

/* How many series from the first on have its service. */
static size_t same_service(const struct intake_push *p)
{
    size_t n = 1;

    while (n < p->push.series_len &&
           str_eq(rules_service(&p->push.series[0]), rules_service(&p->push.series[n])))
        n++;
    return n;
}

/* Of the first n series, which have one service, those that have the place of the first come to the
 * front. Returns how many there are. */
static size_t same_place(struct intake_push *p, size_t n, uint32_t *ret_shard)
{
    struct str service = rules_service(&p->push.series[0]);
    struct push_series *s = p->push.series;
    size_t to = 1;

    *ret_shard = place_of(p, service, &s[0]);
    if (!map_is_placed(p->k->map, p->k->tenant->name, service))
        return n;
    for (size_t i = 1; i < n; i++) {
        if (place_of(p, service, &s[i]) != *ret_shard)
            continue;
        struct push_series here = s[to];
        s[to++] = s[i];
        s[i] = here;
    }
    return to;
}

/* Series are in order of their services: all but the last service, and there all but the last
 * place, go into pushes of their own. */
static int split_places(struct intake_push *p, const struct window *w, struct err *e)
{
    size_t n;

    while ((n = same_place(p, same_service(p), &p->shard)) < p->push.series_len)
        if (split_part(p, n, p->shard, w, e))
            return e->code;
    p->push.service = rules_service(&p->push.series[0]);
    return pack_push(p, w, e);
}

static int finish_push(struct intake *k, struct intake_push *p, struct str identity, struct str id,
                       struct err *e)
{
    struct write_sender sender = { .key = k->key, .id = id };
    const struct distributor *d = k->d;
    size_t series = p->push.series_len;
    struct window w;

    /* First: which one of its request it is may not depend on what of the others is taken today. */
    p->write_base = own_base(
        k, write_base_of(&k->tenant->secret, &sender, p->in, &p->push, identity, d->ctx->env));
    if (window_of(p->in, &p->push, &k->accept, &w, e) || intake_rules(k, p, &w, identity.len, e))
        return e->code;
    if (p->push.series_len == 0)
        return 0;
    if (!leaves_of(&w, (size_t)k->limits.leaves, p->arena, &p->leaves))
        return push_full(&p->push, e);
    p->when_ms = shard_routing_when(p->in, &p->push, p->write_base.kind, p->leaves.slots[0]);
    if (expand_unless_single_shard(p, series, e))
        return e->code;
    return split_places(p, &w, e);
}

/* The parts of a push that failed go with it: nothing of a refused push is sent. */
static void drop_parts(struct intake *k, const struct intake_push *p)
{
    while (k->pushes.len && k->pushes.ptr[k->pushes.len - 1]->whole == p) {
        struct intake_push *part = k->pushes.ptr[--k->pushes.len];

        k->holds -= part->holds;
        intake_push_free(part);
    }
}

/* ---- the sink ------------------------------------------------------------------------------- */

/* A symbol session is known to one shard only, so each place of a service has its own. The choice
 * here is a guess, since rules and windows were not applied yet (expand_unless_single_shard). */
static struct symbol_session *take_known(void *cookie, const struct push *push)
{
    struct intake_push *p = cookie;
    const struct intake *k = p->k;
    struct str name = push->service;

    if (map_is_placed(k->map, k->tenant->name, name)) {
        p->told_shard = map_shard(k->map, k->tenant->name, name,
                                  shard_routing_hash(&push->base, &push->base), k->accept.now_ms);
        struct buf key;
        buf_init(&key, name.len + 16);
        (void)buf_add_str(&key, name);
        (void)buf_addf(&key, "%c%" PRIu32, 0, p->told_shard);
        name = arena_strdup(push->arena, buf_str(&key));
        buf_deinit(&key);
        if (!name.ptr)
            return NULL;
    }
    return symbol_sessions_take(k->d->knowns, k->tenant->name, name, k->limits.symbol_keep_bytes,
                                clock_mono_ms(k->d->ctx->env->clock));
}

static void put_known(void *cookie, struct symbol_session *known)
{
    const struct intake_push *p = cookie;

    symbol_sessions_put(p->k->d->knowns, known);
}

static struct push *sink_begin(void *cookie, const struct ingest *in, struct err *e)
{
    struct intake *k = cookie;
    size_t left =
        (size_t)k->limits.decode_bytes > k->holds ? (size_t)k->limits.decode_bytes - k->holds : 0;
    const struct push none = { 0 };
    struct window w;

    if (k->begun >= k->d->conf->request_profiles) {
        err_set(e, ERR_LIMIT,
                "a request with more than %" PRIu64
                " profiles (distributor.request_profiles): send it in parts",
                k->d->conf->request_profiles);
        return NULL;
    }
    if (left < PUSH_LEAST && k->begun) {
        err_set(e, ERR_LIMIT,
                "decoded, this request takes more than %" PRIu64
                " bytes of memory (distributor.decode_bytes): send it in parts",
                k->limits.decode_bytes);
        return NULL;
    }
    /* What the URL says about the time is wrong or right without decoding anything. */
    if ((in->has_from || in->has_until) && window_of(in, &none, &k->accept, &w, e))
        return NULL;
    struct limits l = k->limits;
    l.decode_bytes = left;
    struct intake_push *p = k->spare ? k->spare : xmalloc(sizeof(*p));
    k->spare = NULL;
    *p = (struct intake_push){ .magic = INTAKE_PUSH_MAGIC, .k = k, .in = in };
    p->row = k->rows.len;
    p->arena = arena_pool_get(k->d->arenas, left);
    /* Like the stacks, the message refers to what is in the body: it cannot be much larger. */
    buf_init(&p->packed, k->d->ctx->cluster->rpc_message_bytes_max);
    push_init(&p->push, p->arena, &l, distributor_seed(k->d));
    /* Forwarding needs names. And where the identity names the service, the session of what the
     * sender calls it would be one of several places. */
    if (k->d->knowns && !k->d->tap && !labels_get(&k->set, STR("service_name")).ptr)
        p->push.memory = (struct push_memory){ take_known, put_known, p };
    vec_push(&k->rows, ((struct intake_row){ .profiles = 1 }));
    vec_push(&k->open, p);
    k->begun++;
    return &p->push;
}

static int sink_end(void *cookie, struct push *push, struct str identity, struct str id,
                    struct err *e)
{
    struct intake *k = cookie;
    struct intake_push *p = container_of(push, struct intake_push, push);
    struct err why;

    (void)e;
    close_push(k, p);
    if (id.len)
        k->rows.ptr[p->row].id = arena_strdup(k->arena, str_sub(id, 0, ID_MOST));
    if (finish_push(k, p, identity, id, &why)) {
        intake_reject(k, p->row, &why);
        rules_refused(k->d->rules, k->rules.label, &why, 1, identity.len);
        drop_parts(k, p);
        intake_push_free(p);
        return 0;
    }
    if (p->push.series_len) {
        /* It waits for its ack; the next push may decode in that memory, which is warm. */
        push_known_put(&p->push);
        stacks_close(&p->push.stacks);
        k->holds +=
            arena_used(p->arena) + stacks_bytes(&p->push.stacks) + p->packed.cap + p->kept_bytes;
        vec_push(&k->pushes, p);
        return 0;
    }
    k->rows.ptr[p->row].outcome = INTAKE_EMPTY;
    intake_add_drops(k, &p->push);
    intake_push_free(p);
    return 0;
}

static void sink_reject(void *cookie, struct push *push, uint64_t profiles, const struct err *why)
{
    struct intake *k = cookie;

    rules_refused(k->d->rules, k->rules.label, why, profiles, 0);
    if (push) {
        struct intake_push *p = container_of(push, struct intake_push, push);
        close_push(k, p);
        intake_reject(k, p->row, why);
        intake_push_free(p);
    } else if (k->rows.len < 2 * k->d->conf->request_profiles) {
        vec_push(&k->rows,
                 ((struct intake_row){
                     .outcome = INTAKE_REJECTED, .profiles = profiles, .err = keep_err(k, why) }));
    } else {
        k->rejected_more += profiles;
    }
}

void intake_decode(struct intake *k)
{
    const struct distributor *d = k->d;
    struct batch_sink sink = { .begin = sink_begin,
                               .end = sink_end,
                               .reject = sink_reject,
                               .limits = &k->limits,
                               .cookie = k };

    k->accept = (struct window_accept){ .now_ms = clock_wall_ms(d->ctx->env->clock),
                                        .past_ms = k->rules.policy->past_ms,
                                        .future_ms = k->rules.policy->future_ms };
    sink.now_ms = k->accept.now_ms;
    sink.oldest_ms = window_oldest_ms(&k->accept);
    if (k->o.decode(k->o.cookie, &sink, &k->err) == 0)
        err_clear(&k->err);
    /* A decoder that gave up leaves what it was at. */
    CHECK(k->err.code || k->open.len == 0);
    while (k->open.len)
        intake_push_free(k->open.ptr[--k->open.len]);
}
