/* SPDX-License-Identifier: Apache-2.0
 *
 * ring: what one server knows of its cluster. Records come from the coordination service and are
 * the same wherever one asks; how far followers are only their leader knows, so that is shown for
 * shards which the server asked leads.
 */
#include "deploy/ctl/server/ring.h"

#include "common/base/map.h"
#include "common/base/rate_estimate.h"
#include "deploy/ctl/ask/ask.h"

#define SHARDS_MOST   4096
#define NODES_MOST    4096
#define NAME_WIDTH    20
#define SENTENCE_MOST 600
#define PROGRESS_MOST 200

/* ---- reading --------------------------------------------------------------------------------- */

static uint64_t number(const struct json_val *v, const char *key)
{
    struct err e;
    int64_t n = 0;

    return json_take_i64(json_get(v, key, NULL), key, &n, &e) || n < 0 ? 0 : (uint64_t)n;
}

struct str ring_name(const struct json_val *names, size_t i)
{
    struct err e;
    struct str s = STR("");

    return json_take_str(json_at(names, i), "name", &s, &e) ? STR("") : s;
}

static void read_nodes(const struct json_val *nodes, struct ring *r)
{
    for (size_t i = 0; i < json_len(nodes) && i < NODES_MOST; i++) {
        const struct json_val *v = json_at(nodes, i);
        struct ring_node n = { .name = ask_text(v, "name"),
                               .addr = ask_text(v, "addr"),
                               .zone = ask_text(v, "zone"),
                               .state = ask_text(v, "state"),
                               .live = ask_truth(v, "live"),
                               .gone_ms = number(v, "gone_ms") };

        vec_push(&r->nodes, n);
    }
}

/* What the node asked says of the shards it leads. */
static void read_peers(const struct json_val *replicas, struct ring *r)
{
    for (size_t i = 0; i < json_len(replicas); i++) {
        const struct json_val *v = json_at(replicas, i);
        uint64_t shard = number(v, "shard");

        if (!str_eq(ask_text(v, "state"), STR("serving")) || shard >= r->shards.len)
            continue;
        const struct json_val *peers = json_get(v, "peers", NULL);
        r->shards.ptr[shard].peers = peers;
        for (size_t k = 0; k < json_len(peers); k++) {
            const struct json_val *p = json_at(peers, k);

            if (ask_truth(p, "takesNothing"))
                vec_push(&r->bad,
                         ((struct ring_bad){ shard, ask_text(p, "name"),
                                             STR("it acks nothing to its leader"), false }));
        }
    }
}

static int read_shards(const struct cli *c, const struct json_val *root,
                       const struct json_val *shards, struct ring *r, struct err *e)
{
    uint64_t n = MAX(number(root, "shards"), json_len(shards));

    if (n > SHARDS_MOST)
        return ask_strange(c, "more shards than there can be", e);
    for (uint64_t i = 0; i < n; i++)
        vec_push(&r->shards, ((struct ring_shard){ .shard = i }));
    for (size_t i = 0; i < json_len(shards); i++) {
        const struct json_val *v = json_at(shards, i);
        uint64_t shard = number(v, "shard");

        if (shard >= n)
            return ask_strange(c, "a shard that does not exist", e);
        r->shards.ptr[shard] = (struct ring_shard){ .shard = shard,
                                                    .term = number(v, "term"),
                                                    .leader = ask_text(v, "leader"),
                                                    .named = true,
                                                    .established = ask_truth(v, "established"),
                                                    .leader_live = ask_truth(v, "leader_live"),
                                                    .members = json_get(v, "members", NULL),
                                                    .learners = json_get(v, "learners", NULL) };
    }
    return 0;
}

/* ---- counting -------------------------------------------------------------------------------- */

static void count(const struct map_str *index, const struct json_val *names)
{
    for (size_t i = 0; i < json_len(names); i++) {
        struct ring_node *n = map_str_get(index, ring_name(names, i));
        if (n)
            n->shards++;
    }
}

static void count_all(struct ring *r)
{
    struct map_str *index = map_str_new();

    vec_for (i, &r->nodes)
        (void)map_str_put(index, r->nodes.ptr[i].name, &r->nodes.ptr[i]);
    vec_for (i, &r->shards) {
        struct ring_shard *s = &r->shards.ptr[i];
        struct ring_node *leader = map_str_get(index, s->leader);

        if (leader)
            leader->leads++;
        if (leader && !json_len(s->members))
            leader->shards++;
        count(index, s->members);
        count(index, s->learners);
        r->moving += r->replicas && (json_len(s->learners) || json_len(s->members) > r->replicas);
    }
    map_str_free(index);
}

int ring_read(const struct cli *c, const struct json_val *root, struct ring *ret, struct err *e)
{
    const struct json_val *cluster = json_get(root, "cluster", NULL);
    const struct json_val *ingester = json_get(json_get(root, "roles", NULL), "ingester", NULL);

    *ret = (struct ring){ .coordination = ask_text(cluster, "coordination"),
                          .map_version = number(cluster, "map_version"),
                          .replicas = number(cluster, "replicas"),
                          .age_ms = number(cluster, "age_ms"),
                          .trouble = ask_text(cluster, "trouble"),
                          .unreadable = json_get(cluster, "unreadable", NULL) != NULL,
                          .ready = ask_truth(root, "ready") };
    if (!cluster || !ret->coordination.len)
        return ask_strange(c, "no cluster on /ring", e);
    ret->watched =
        !str_eq(ret->coordination, STR("none")) && !str_eq(ret->coordination, STR("static"));
    read_nodes(json_get(cluster, "nodes", NULL), ret);
    ring_heard_read(ret, cluster, ingester);
    if (read_shards(c, root, json_get(cluster, "shards", NULL), ret, e)) {
        ring_deinit(ret);
        return e->code;
    }
    read_peers(json_get(ingester, "replicas", NULL), ret);
    count_all(ret);
    ring_judge(ret);
    return 0;
}

void ring_deinit(struct ring *r)
{
    vec_free(&r->nodes);
    vec_free(&r->shards);
    vec_free(&r->copies);
    vec_free(&r->bad);
}

bool ring_healthy(const struct ring *r)
{
    return r->shards.len > 0 && r->troubles[RING_FINE] == r->shards.len && !r->unreadable &&
           r->age_ms <= RING_AGE_MOST_MS && (r->watched || r->ready) && !r->refused &&
           !r->refused_here && !r->not_in.len && ring_cold_right(r);
}

const struct ring_node *ring_node(const struct ring *r, struct str name)
{
    vec_for (i, &r->nodes)
        if (str_eq(r->nodes.ptr[i].name, name))
            return &r->nodes.ptr[i];
    return NULL;
}

/* ---- showing --------------------------------------------------------------------------------- */

static void put_count(size_t n, const char *noun, struct buf *out)
{
    (void)buf_addf(out, "%zu %s%s", n, noun, n == 1 ? "" : "s");
}

void ring_words(const struct ring *r, struct buf *out)
{
    static const char *const troubles[] = {
        [RING_UNNAMED] = "not placed yet",        [RING_LEADERLESS] = "without a live leader",
        [RING_MINORITY] = "without a majority",   [RING_STARTING] = "whose leader starts",
        [RING_COPIES] = "with fewer live copies", [RING_BEHIND] = "with copies far behind",
    };

    put_count(r->nodes.len, "node", out);
    (void)buf_add_str(out, STR(", "));
    put_count(r->shards.len, "shard", out);
    if (r->replicas > 1)
        (void)buf_addf(out, " with %" PRIu64 " copies", r->replicas);
    const char *gap = "; ";
    for (size_t i = RING_UNNAMED; i <= RING_BEHIND; i++) {
        if (!r->troubles[i])
            continue;
        (void)buf_addf(out, "%s%zu %s", gap, r->troubles[i], troubles[i]);
        gap = ", ";
    }
    if (r->shards.len == 0)
        (void)buf_add_str(out, STR("; there is no map yet"));
    else if (r->troubles[RING_FINE] == r->shards.len)
        (void)buf_add_str(out, STR("; all have a leader"));
    if (!r->watched)
        (void)buf_addf(out, "; no service watches which nodes live, and the server asked is %s",
                       r->ready ? "ready" : "not ready");
    if (r->moving)
        (void)buf_addf(out, "; %zu on the move", r->moving);
    if (r->coming.copies) {
        (void)buf_add_str(out, STR("; "));
        (void)buf_addf(out, r->coming.copies == 1 ? "%zu copy comes in" : "%zu copies come in",
                       r->coming.copies);
    }
    if (r->coming.sum.total) {
        (void)buf_add_str(out, STR(": "));
        progress_words(&r->coming.sum, out);
        if (r->coming.open)
            (void)buf_addf(out, "; %zu of them of unknown size", r->coming.open);
    }
    if (r->age_ms > RING_AGE_MOST_MS)
        (void)buf_addf(out, "; the coordination service last answered %" PRIu64 " s ago",
                       r->age_ms / 1000);
    if (r->unreadable)
        (void)buf_add_str(out, STR("; a value in the coordination service cannot be read"));
    if (r->refused || r->refused_here)
        (void)buf_add_str(out, STR("; etcd refuses changes"));
}

/* One column, wider than `width` only where it is the last. */
static void put_cell(const struct term *t, struct str s, size_t width, struct buf *out)
{
    size_t used = term_name(t, s.len ? s : STR("-"), width, out);

    term_pad(width - used + 2, out);
}

static void put_styled(const struct term *t, enum term_style style, struct str s, size_t width,
                       struct buf *out)
{
    term_style(t, style, out);
    put_cell(t, s, width, out);
    term_style(t, TERM_PLAIN, out);
}

static size_t widest(size_t have, struct str s, size_t most)
{
    return MIN(MAX(have, s.len), most);
}

static struct str live_word(const struct ring_node *n)
{
    if (!n->live)
        return STR("no");
    return n->full ? STR("full") : STR("yes");
}

static void nodes_text(const struct term *t, const struct ring *r, struct buf *out)
{
    size_t name = 4, zone = 4, addr = 7;

    vec_for (i, &r->nodes) {
        name = widest(name, r->nodes.ptr[i].name, NAME_WIDTH);
        zone = widest(zone, r->nodes.ptr[i].zone, NAME_WIDTH);
        addr = widest(addr, r->nodes.ptr[i].addr, 40);
    }
    term_style(t, TERM_BOLD, out);
    (void)buf_addf(out, "%-*s  %-*s  %-*s  %-8s  %-4s  %6s  %5s\n", (int)name, "NODE", (int)zone,
                   "ZONE", (int)addr, "ADDRESS", "STATE", "LIVE", "SHARDS", "LEADS");
    term_style(t, TERM_PLAIN, out);
    vec_for (i, &r->nodes) {
        const struct ring_node *n = &r->nodes.ptr[i];

        put_cell(t, n->name, name, out);
        put_cell(t, n->zone, zone, out);
        put_cell(t, n->addr, addr, out);
        put_cell(t, n->state, 8, out);
        bool fine = n->live && !n->full && !n->lost;
        put_styled(t, fine ? TERM_GREEN : TERM_RED, live_word(n), 4, out);
        (void)buf_addf(out, "%6" PRIu32 "  %5" PRIu32 "\n", n->shards, n->leads);
    }
}

static void put_names(const struct json_val *names, struct str but, struct buf *ret)
{
    buf_reset(ret);
    for (size_t i = 0; i < json_len(names); i++) {
        struct str s = ring_name(names, i);

        if (str_eq(s, but))
            continue;
        if (ret->len)
            (void)buf_add_c(ret, ' ');
        (void)buf_add_str(ret, s);
    }
}

/* The text behind "gets a copy", or "is behind". lag NULL: unknown. */
static void put_how_long(const struct ring_lag *lag, struct buf *ret)
{
    if (lag && lag->copy->coming) {
        (void)buf_add_str(ret, STR(": "));
        progress_words(&lag->copy->come, ret);
    } else if (lag && lag->timed && lag->behind && !lag->copy->why.len) {
        (void)buf_add_str(ret, STR(", "));
        if (lag->left_s == RATE_ESTIMATE_NEVER)
            (void)buf_add_str(ret, STR("not catching up"));
        else
            progress_left(lag->left_s, ret);
    }
}

static void put_lag(const struct ring_lag *lag, struct str name, struct buf *ret)
{
    (void)buf_addf(ret, "%s%.*s", ret->len ? "; " : "", STR_ARG(name));
    if (lag->copy->coming)
        (void)buf_add_str(ret, STR(" gets a whole copy"));
    else if (lag->copy->why.len)
        (void)buf_add_str(ret, STR(" cannot take a copy"));
    else if (lag->lost)
        (void)buf_add_str(ret, STR(" fetches its copy again"));
    else
        (void)buf_addf(ret, " has %" PRIu32 " %%, %" PRIu64 " behind", lag->percent, lag->behind);
    put_how_long(lag, ret);
}

static bool is_gone(const struct ring *r, struct str name)
{
    const struct ring_node *n = r->watched ? ring_node(r, name) : NULL;

    return n && !n->live;
}

/* A member that is down neither keeps up nor is behind. */
static void put_gone(const struct ring *r, const struct ring_shard *s, const struct json_val *names,
                     struct buf *ret)
{
    for (size_t i = 0; i < json_len(names); i++) {
        struct str name = ring_name(names, i);

        if (is_gone(r, name))
            (void)buf_addf(ret, "%s%.*s is gone", ret->len ? "; " : "", STR_ARG(name));
        else if (ring_bad_why(r, s->shard, name).len)
            (void)buf_addf(ret, "%s%.*s stores nothing", ret->len ? "; " : "", STR_ARG(name));
    }
}

/* The same by what the nodes say. */
static void put_lags(const struct ring *r, const struct ring_shard *s, struct buf *ret)
{
    const struct json_val *const sets[] = { s->members, s->learners };
    struct ring_lag lag;
    size_t known = 0;

    for (size_t k = 0; k < ARRAY_LEN(sets); k++)
        for (size_t i = 0; i < json_len(sets[k]); i++) {
            struct str name = ring_name(sets[k], i);
            const struct ring_node *n = ring_node(r, name);

            if (!n || !n->live || !ring_lag(r, s, name, &lag))
                continue;
            known++;
            if (lag.far || lag.copy->coming || lag.copy->why.len || (k == 1 && lag.behind))
                put_lag(&lag, name, ret);
        }
    if (known && !ret->len)
        (void)buf_add_str(ret, STR("keep up"));
}

/* How the followers are, as far as the leader was asked. */
static void put_behind(const struct ring *r, const struct ring_shard *s, struct buf *ret)
{
    struct ring_lag lag;

    buf_reset(ret);
    put_gone(r, s, s->members, ret);
    put_gone(r, s, s->learners, ret);
    if (!json_len(s->peers)) {
        put_lags(r, s, ret);
        return;
    }
    for (size_t i = 0; i < json_len(s->peers); i++) {
        const struct json_val *p = json_at(s->peers, i);

        if ((!ask_truth(p, "snapshot") && number(p, "behind") <= RING_BEHIND_MOST) ||
            is_gone(r, ask_text(p, "name")))
            continue;
        (void)buf_add_str(ret, ret->len ? STR("; ") : STR(""));
        (void)buf_add_str(ret, ask_text(p, "name"));
        if (ask_truth(p, "snapshot"))
            (void)buf_add_str(ret, STR(" gets a whole copy"));
        else
            (void)buf_addf(ret, " %" PRIu64 " behind", number(p, "behind"));
        put_how_long(ring_lag(r, s, ask_text(p, "name"), &lag) ? &lag : NULL, ret);
    }
    if (!ret->len)
        (void)buf_add_str(ret, STR("keep up"));
}

static struct str word_of(enum ring_trouble trouble)
{
    static const char *const words[] = {
        [RING_FINE] = "fine",       [RING_UNNAMED] = "not placed", [RING_LEADERLESS] = "no leader",
        [RING_MINORITY] = "halted", [RING_STARTING] = "starting",  [RING_COPIES] = "few copies",
        [RING_BEHIND] = "behind",
    };

    return str_c(words[trouble]);
}

static void shards_text(const struct term *t, const struct ring *r, struct buf *out)
{
    size_t leader = 6, others = 9, learners = 8;
    struct buf b;

    buf_init(&b, MIB);
    vec_for (i, &r->shards) {
        const struct ring_shard *s = &r->shards.ptr[i];

        leader = widest(leader, s->leader, NAME_WIDTH);
        put_names(s->members, s->leader, &b);
        others = widest(others, buf_str(&b), 60);
        put_names(s->learners, STR(""), &b);
        learners = widest(learners, buf_str(&b), 40);
    }
    term_style(t, TERM_BOLD, out);
    (void)buf_addf(out, "%5s  %-10s  %6s  %-*s  %-*s  %-*s  %s\n", "SHARD", "IS", "TERM",
                   (int)leader, "LEADER", (int)others, "FOLLOWERS", (int)learners, "LEARNERS",
                   "PROGRESS");
    term_style(t, TERM_PLAIN, out);
    vec_for (i, &r->shards) {
        const struct ring_shard *s = &r->shards.ptr[i];

        (void)buf_addf(out, "%5" PRIu64 "  ", s->shard);
        put_styled(t, s->trouble == RING_FINE ? TERM_GREEN : TERM_RED, word_of(s->trouble), 10,
                   out);
        (void)buf_addf(out, "%6" PRIu64 "  ", s->term);
        put_cell(t, s->leader, leader, out);
        put_names(s->members, s->leader, &b);
        put_cell(t, buf_str(&b), others, out);
        put_names(s->learners, STR(""), &b);
        put_cell(t, buf_str(&b), learners, out);
        put_behind(r, s, &b);
        (void)term_name(t, b.len ? buf_str(&b) : STR("-"), PROGRESS_MOST, out);
        (void)buf_add_c(out, '\n');
    }
    buf_deinit(&b);
}

struct page {
    const struct term *t;
    struct buf *out;
};

static void put_advice(void *cookie, struct str sentence)
{
    struct page *p = cookie;

    (void)buf_add_str(p->out, STR("  - "));
    (void)term_name(p->t, sentence, SENTENCE_MOST, p->out);
    (void)buf_add_c(p->out, '\n');
}

void ring_text(const struct term *t, const struct ring *r, struct buf *out)
{
    struct page page = { t, out };

    nodes_text(t, r, out);
    (void)buf_add_c(out, '\n');
    shards_text(t, r, out);
    (void)buf_add_c(out, '\n');
    ring_words(r, out);
    (void)buf_add_c(out, '\n');
    ring_advice(r, put_advice, &page);
}

static void put_array(struct json *j, const char *key, const struct json_val *names)
{
    json_key(j, key);
    json_arr(j);
    for (size_t i = 0; i < json_len(names); i++)
        json_str(j, ring_name(names, i));
    json_arr_end(j);
}

static void coming_json(const struct progress_now *p, struct json *j)
{
    uint64_t left = p->total - MIN(p->done, p->total);

    json_key(j, "copy");
    json_obj(j);
    json_put_u64(j, "bytes", p->done);
    if (p->total)
        json_put_u64(j, "of", p->total);
    if (p->timed)
        json_put_u64(j, "bytesPerSecond", p->per_s);
    if (p->timed && p->total && (p->per_s || !left))
        json_put_u64(j, "leftSeconds", rate_estimate_left_s(p->per_s, left));
    json_obj_end(j);
}

/* Those that do not lead, as far as they say how they are. */
static void copies_json(const struct ring *r, const struct ring_shard *s, struct json *j)
{
    const struct json_val *const sets[] = { s->members, s->learners };
    struct ring_lag lag;

    json_key(j, "copies");
    json_arr(j);
    for (size_t k = 0; k < ARRAY_LEN(sets); k++)
        for (size_t i = 0; i < json_len(sets[k]); i++) {
            struct str name = ring_name(sets[k], i);

            if (!ring_lag(r, s, name, &lag))
                continue;
            json_obj(j);
            json_put_str(j, "name", name);
            json_put_u64(j, "behind", lag.behind);
            if (lag.timed && lag.left_s != RATE_ESTIMATE_NEVER)
                json_put_u64(j, "leftSeconds", lag.left_s);
            if (lag.copy->coming)
                coming_json(&lag.copy->come, j);
            if (lag.copy->why.len)
                json_put_str(j, "why", lag.copy->why);
            json_obj_end(j);
        }
    json_arr_end(j);
}

/* Members that are no copies now. */
static void bad_json(const struct ring *r, const struct ring_shard *s, struct json *j)
{
    json_key(j, "storesNothing");
    json_arr(j);
    for (size_t i = 0; i < json_len(s->members); i++) {
        struct str name = ring_name(s->members, i);
        struct str why = ring_bad_why(r, s->shard, name);

        if (!why.len || is_gone(r, name))
            continue;
        json_obj(j);
        json_put_str(j, "name", name);
        json_put_str(j, "why", why);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void shard_json(const struct ring *r, const struct ring_shard *s, struct json *j)
{
    json_obj(j);
    json_put_u64(j, "shard", s->shard);
    json_put_str(j, "is", word_of(s->trouble));
    json_put_u64(j, "term", s->term);
    json_put_str(j, "leader", s->leader);
    json_put_bool(j, "leaderLive", s->leader_live);
    json_put_bool(j, "established", s->established);
    put_array(j, "members", s->members);
    put_array(j, "learners", s->learners);
    json_key(j, "peers");
    json_arr(j);
    for (size_t i = 0; i < json_len(s->peers); i++) {
        const struct json_val *p = json_at(s->peers, i);

        json_obj(j);
        json_put_str(j, "name", ask_text(p, "name"));
        json_put_bool(j, "member", ask_truth(p, "member"));
        json_put_u64(j, "behind", number(p, "behind"));
        json_put_bool(j, "snapshot", ask_truth(p, "snapshot"));
        json_obj_end(j);
    }
    json_arr_end(j);
    copies_json(r, s, j);
    bad_json(r, s, j);
    json_obj_end(j);
}

static void add_advice(void *cookie, struct str sentence)
{
    json_str(cookie, sentence);
}

void ring_json(const struct ring *r, struct json *j)
{
    struct buf words;

    buf_init(&words, 4 * KIB);
    ring_words(r, &words);
    json_obj(j);
    json_put_bool(j, "healthy", ring_healthy(r));
    json_put_str(j, "summary", buf_str(&words));
    json_put_str(j, "coordination", r->coordination);
    json_put_u64(j, "mapVersion", r->map_version);
    json_put_u64(j, "replicas", r->replicas);
    json_put_u64(j, "ageMs", r->age_ms);
    json_put_u64(j, "moving", r->moving);
    json_key(j, "advice");
    json_arr(j);
    ring_advice(r, add_advice, j);
    json_arr_end(j);
    json_key(j, "nodes");
    json_arr(j);
    vec_for (i, &r->nodes) {
        const struct ring_node *n = &r->nodes.ptr[i];

        json_obj(j);
        json_put_str(j, "name", n->name);
        json_put_str(j, "zone", n->zone);
        json_put_str(j, "addr", n->addr);
        json_put_str(j, "state", n->state);
        json_put_bool(j, "live", n->live);
        json_put_u64(j, "goneMs", n->gone_ms);
        json_put_bool(j, "full", n->full);
        json_put_u64(j, "lost", n->lost);
        if (n->trouble.len)
            json_put_str(j, "trouble", n->trouble);
        if (n->cold.len)
            json_put_str(j, "cold", n->cold);
        json_put_u64(j, "shards", n->shards);
        json_put_u64(j, "leads", n->leads);
        if (n->refused)
            json_put_bool(j, "etcdRefuses", true);
        if (n->clock_known)
            json_put_i64(j, "clockAheadMs", n->ahead_ms);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_key(j, "shards");
    json_arr(j);
    vec_for (i, &r->shards)
        shard_json(r, &r->shards.ptr[i], j);
    json_arr_end(j);
    json_obj_end(j);
    buf_deinit(&words);
}
