/* SPDX-License-Identifier: Apache-2.0
 *
 * progress: the text of a node's report about its replicas.
 *
 * A shard is a list of numbers, since a node may have many: [shard, term, last, commit, leads,
 * lost, full, rate, bytes, newest, flags, entries per second, bytes of the copy that comes in, of
 * how many, per second]. A list of an older build is shorter. Rare facts have lists of their own.
 */
#include "common/cluster/map/progress.h"

#include "common/base/json.h"
#include "common/net/json_in.h"

/* Of FLAGS: which copy comes in, and which of the speeds are known. */
enum { COMING_FILES = 1, COMING_ROWS = 2, COMING_TIMED = 4, LOG_TIMED = 8 };

static void coming_write(const struct progress_shard *s, struct json *j)
{
    const struct progress_coming *c = &s->coming;
    unsigned flags = (c->files ? COMING_FILES : 0u) | (c->rows ? COMING_ROWS : 0u) |
                     (c->timed ? COMING_TIMED : 0u) | (s->timed ? LOG_TIMED : 0u);

    json_u64(j, flags);
    json_u64(j, s->per_s);
    json_u64(j, c->bytes);
    json_u64(j, c->total);
    json_u64(j, c->per_s);
}

static void why_write(const struct progress *p, struct json *j)
{
    json_key(j, "why");
    json_arr(j);
    for (size_t i = 0; i < p->shards_len; i++) {
        if (!p->shards[i].why.len)
            continue;
        json_obj(j);
        json_put_u64(j, "shard", p->shards[i].shard);
        json_put_str(j, "text", p->shards[i].why);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static struct str cut(struct str s)
{
    return str_sub(s, 0, PROGRESS_WHY_MAX);
}

static void bad_write(const struct progress *p, struct json *j)
{
    json_key(j, "bad");
    json_arr(j);
    for (size_t i = 0; i < MIN(p->bad_len, (size_t)PROGRESS_BAD_MAX); i++) {
        json_obj(j);
        json_put_u64(j, "shard", p->bad[i].shard);
        json_put_str(j, "node", p->bad[i].node);
        json_put_str(j, "why", cut(p->bad[i].why));
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void node_write(const struct progress *p, struct json *j)
{
    json_put_str(j, "trouble", cut(p->trouble));
    json_put_u64(j, "room", p->room);
    json_put_u64(j, "replace", p->replace_ms);
}

void progress_write(const struct progress *p, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_key(&j, "shards");
    json_arr(&j);
    for (size_t i = 0; i < p->shards_len; i++) {
        const struct progress_shard *s = &p->shards[i];

        json_arr(&j);
        json_u64(&j, s->shard);
        json_u64(&j, s->term);
        json_u64(&j, s->last);
        json_u64(&j, s->commit);
        json_u64(&j, s->leads);
        json_u64(&j, s->lost);
        json_u64(&j, s->full);
        json_u64(&j, s->rate);
        json_u64(&j, s->bytes);
        json_i64(&j, s->newest_ms);
        coming_write(s, &j);
        json_arr_end(&j);
    }
    json_arr_end(&j);
    json_key(&j, "services");
    json_arr(&j);
    for (size_t i = 0; i < p->services_len; i++) {
        json_obj(&j);
        json_put_str(&j, "tenant", p->services[i].tenant);
        json_put_str(&j, "name", p->services[i].name);
        json_put_u64(&j, "rate", p->services[i].rate);
        json_obj_end(&j);
    }
    json_arr_end(&j);
    why_write(p, &j);
    bad_write(p, &j);
    node_write(p, &j);
    if (p->cold.len)
        json_put_str(&j, "cold", p->cold);
    json_put_u64(&j, "map", p->map);
    json_obj_end(&j);
}

/* The first NEEDED must be there; what comes later older nodes do not say. */
enum {
    SHARD,
    TERM,
    LAST,
    COMMIT,
    LEADS,
    NEEDED,
    LOST = NEEDED,
    FULL,
    RATE,
    BYTES,
    NEWEST,
    FLAGS,
    PER_S,
    COMING_BYTES,
    COMING_TOTAL,
    COMING_PER_S,
    NUMBERS
};

static int parse_shard(const struct json_val *v, struct progress_shard *ret, struct err *e)
{
    static const char *const what[NUMBERS] = { "shard", "term",    "last",   "commit", "leads",
                                               "lost",  "full",    "rate",   "bytes",  "newest",
                                               "flags", "entries", "coming", "of",     "speed" };
    int64_t n[NUMBERS] = { 0 };

    for (size_t i = 0; i < NUMBERS && (i < NEEDED || i < json_len(v)); i++) {
        int code;

        n[i] = i < NEEDED ? -1 : 0;
        code = json_take_i64(json_at(v, i), what[i], &n[i], e);
        if (code)
            return code;
        if (n[i] < 0 || (i == SHARD && n[i] >= CLUSTER_SHARDS_MAX))
            return err_set(e, ERR_INPUT, "%s is %" PRId64 " or missing", what[i], n[i]);
    }
    *ret = (struct progress_shard){
        .shard = (uint32_t)n[SHARD],
        .term = (uint64_t)n[TERM],
        .last = (uint64_t)n[LAST],
        .commit = (uint64_t)n[COMMIT],
        .leads = n[LEADS] != 0,
        .lost = n[LOST] != 0,
        .full = n[FULL] != 0,
        .rate = MIN((uint64_t)n[RATE], PROGRESS_RATE_MAX),
        .bytes = MIN((uint64_t)n[BYTES], PROGRESS_STORED_MAX),
        .newest_ms = n[NEWEST],
        .timed = n[FLAGS] & LOG_TIMED,
        .per_s = (uint64_t)n[PER_S],
        .coming = { .files = n[FLAGS] & COMING_FILES,
                    .rows = n[FLAGS] & COMING_ROWS,
                    .bytes = (uint64_t)n[COMING_BYTES],
                    .total = (uint64_t)n[COMING_TOTAL],
                    .timed = n[FLAGS] & COMING_TIMED,
                    .per_s = (uint64_t)n[COMING_PER_S] },
    };
    return 0;
}

static int take(const struct json_val *v, const char *key, struct arena *a, struct str *ret,
                struct err *e)
{
    struct str s = STR_NULL;
    int code = json_take_str(json_get(v, key, NULL), key, &s, e);

    if (code)
        return code;
    *ret = arena_strdup(a, s);
    return ret->ptr ? 0 : err_set(e, ERR_LIMIT, "progress takes too much memory");
}

static int parse_service(const struct json_val *v, struct arena *a, struct progress_service *ret,
                         struct err *e)
{
    int64_t rate = 0;
    int code = take(v, "tenant", a, &ret->tenant, e);

    if (!code)
        code = take(v, "name", a, &ret->name, e);
    if (!code)
        code = json_take_i64(json_get(v, "rate", NULL), "rate", &rate, e);
    ret->rate = rate > 0 ? (uint64_t)rate : 0;
    return code;
}

/* Sets why no copy comes in; ignores an entry whose shard is not in the report. */
static int parse_why(const struct json_val *v, struct arena *a, struct progress_shard *shards,
                     size_t n, struct err *e)
{
    int64_t shard = -1;
    struct str text;
    int code = json_take_i64(json_get(v, "shard", NULL), "shard", &shard, e);

    if (!code)
        code = take(v, "text", a, &text, e);
    for (size_t i = 0; !code && i < n; i++)
        if (shards[i].shard == shard)
            shards[i].why = text;
    return code;
}

static int parse_bad(const struct json_val *v, struct arena *a, struct progress_bad *ret,
                     struct err *e)
{
    int64_t shard = -1;
    int code = json_take_i64(json_get(v, "shard", NULL), "shard", &shard, e);

    if (!code && (shard < 0 || shard >= CLUSTER_SHARDS_MAX))
        code = err_set(e, ERR_INPUT, "shard is %" PRId64, shard);
    ret->shard = (uint32_t)shard;
    if (!code)
        code = take(v, "node", a, &ret->node, e);
    if (!code)
        code = take(v, "why", a, &ret->why, e);
    return code;
}

/* A field that an older node does not send has its zero value. */
static int parse_node(const struct json_val *root, struct arena *a, struct progress *p,
                      struct err *e)
{
    const struct json_val *bad = json_get(root, "bad", NULL);
    int64_t room = 0, replace = 0;
    struct progress_bad *to;
    int code = 0;

    p->bad_len = MIN(json_len(bad), (size_t)PROGRESS_BAD_MAX);
    p->bad = to = ARENA_ARRAY(a, struct progress_bad, MAX(p->bad_len, 1));
    if (!to)
        return err_set(e, ERR_LIMIT, "progress takes too much memory");
    for (size_t i = 0; i < p->bad_len && !code; i++)
        code = parse_bad(json_at(bad, i), a, &to[i], e);
    if (!code && json_get(root, "trouble", NULL))
        code = take(root, "trouble", a, &p->trouble, e);
    if (!code)
        code = json_take_i64(json_get(root, "room", NULL), "room", &room, e);
    if (!code)
        code = json_take_i64(json_get(root, "replace", NULL), "replace", &replace, e);
    p->room = room == PROGRESS_ROOM || room == PROGRESS_NO_ROOM ? (enum progress_room)room
                                                                : PROGRESS_ROOM_UNSAID;
    p->replace_ms = replace > 0 ? (uint64_t)replace : 0;
    return code;
}

static int parse_root(const struct json_val *root, struct arena *a, struct progress *p,
                      struct err *e)
{
    const struct json_val *shards = json_get(root, "shards", NULL);
    const struct json_val *services = json_get(root, "services", NULL);
    const struct json_val *why = json_get(root, "why", NULL);
    struct progress_shard *to;
    struct progress_service *sto;
    int64_t map = 0;
    int code = 0;

    p->shards_len = json_len(shards);
    p->services_len = MIN(json_len(services), (size_t)PROGRESS_SERVICES_MAX);
    if (p->shards_len > CLUSTER_SHARDS_MAX)
        return err_set(e, ERR_LIMIT, "%zu shards, at most %d", p->shards_len, CLUSTER_SHARDS_MAX);
    p->shards = to = ARENA_ARRAY(a, struct progress_shard, MAX(p->shards_len, 1));
    p->services = sto = ARENA_ARRAY(a, struct progress_service, MAX(p->services_len, 1));
    if (!to || !sto)
        return err_set(e, ERR_LIMIT, "progress takes too much memory");
    for (size_t i = 0; i < p->shards_len && !code; i++)
        code = parse_shard(json_at(shards, i), &to[i], e);
    for (size_t i = 0; i < p->services_len && !code; i++)
        code = parse_service(json_at(services, i), a, &sto[i], e);
    for (size_t i = 0; i < MIN(json_len(why), p->shards_len) && !code; i++)
        code = parse_why(json_at(why, i), a, to, p->shards_len, e);
    if (!code && json_get(root, "cold", NULL))
        code = take(root, "cold", a, &p->cold, e);
    if (!code)
        code = json_take_i64(json_get(root, "map", NULL), "map", &map, e);
    p->map = map > 0 ? (uint64_t)map : 0;
    return code ? code : parse_node(root, a, p, e);
}

int progress_parse(struct str text, struct arena *a, struct progress *ret, struct err *e)
{
    struct progress p = { 0 };
    struct json_doc *doc;
    int code;

    if (text.len > PROGRESS_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "progress of %zu bytes, at most %zu", text.len,
                       (size_t)PROGRESS_BYTES_MAX);
    code = json_parse(text, &doc, e);
    if (code)
        return code;
    code = parse_root(json_root(doc), a, &p, e);
    json_doc_free(doc);
    if (!code)
        *ret = p;
    return code;
}
