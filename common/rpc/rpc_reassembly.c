/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_source: duplicate filter and reassembly.
 *
 * A sender numbers its messages per link. The last RPC_WINDOW numbers are a bitmap; a message marks
 * its bit when it is whole, so a lost chunk does not use up the number, and a chunk that comes
 * again after that finds the bit. A frame older than the window cannot be told from a duplicate and
 * is dropped: its caller's deadline ends the call.
 *
 * A restarted node has another epoch and is another sender: it does not matter which of two epochs
 * is newer, and late frames of the dead process do no harm.
 *
 * Budget: the announced size of a message counts from its first chunk. A message lives until the
 * time left that its first chunk named, at most PART_LIFE_MAX_MS.
 */
#include "common/rpc/rpc_reassembly.h"

#include "common/base/map.h"
#include "common/base/mem.h"

enum {
    PART_LIFE_MIN_MS = 100,
    PART_LIFE_MAX_MS = 60000,
    SOURCE_IDLE_MS = 60000,  /* then it is forgotten */
    SOURCE_EVICT_MS = 10000, /* least silence before it makes room for another */
};
#define MS_NS     UINT64_C(1000000)
#define WORD_BITS 64

#define SOURCE_KEY_MAX (RPC_ADDR_MAX + sizeof(uint64_t) + sizeof(uint32_t))
struct source {
    char key[SOURCE_KEY_MAX]; /* address, epoch, link */
    size_t key_len;
    uint64_t heard_ns;
    uint64_t top; /* highest number marked */
    uint64_t seen[RPC_WINDOW / WORD_BITS];
    struct list parts;
    size_t parts_len;
};

struct part {
    struct list link; /* in source.parts */
    uint64_t seq, expires_ns;
    uint32_t total, chunks_left;
    uint64_t *got;       /* bit per chunk */
    struct rpc_msg *msg; /* owned; its body has total bytes allocated */
};

struct rpc_reassembly {
    struct map_str *by_key; /* of struct source, owned */
    size_t message_max, bytes_max, bytes;
};

struct rpc_reassembly *rpc_reassembly_new(size_t message_max, size_t bytes_max)
{
    struct rpc_reassembly *t = XNEW(struct rpc_reassembly);

    t->by_key = map_str_new();
    t->message_max = message_max;
    t->bytes_max = bytes_max;
    return t;
}

struct rpc_msg *rpc_msg_of_frame(const struct rpc_frame *f, uint64_t now_ns)
{
    struct rpc_msg *m = rpc_msg_new((enum rpc_kind)f->kind, f->id);

    m->lane = f->lane;
    m->flags = f->flags;
    m->method = f->method;
    m->code = f->code;
    m->to_epoch = f->to_epoch;
    m->raw = f->raw;
    m->again_s = f->again_s;
    m->speaks_min = f->speaks_min;
    m->speaks_max = f->speaks_max;
    m->epoch = f->epoch;
    m->cluster = f->cluster;
    m->deadline_ns = f->left_ms ? now_ns + f->left_ms * MS_NS : 0;
    CHECK(f->addr.len <= RPC_ADDR_MAX);
    memcpy(m->from, f->addr.ptr, f->addr.len);
    return m;
}

/* ---- window ---------------------------------------------------------------------------------- */

static uint64_t *window_word(struct source *s, uint64_t seq)
{
    return &s->seen[seq % RPC_WINDOW / WORD_BITS];
}

static bool window_seen(struct source *s, uint64_t seq)
{
    if (seq > s->top)
        return false;
    if (s->top - seq >= RPC_WINDOW)
        return true;
    return *window_word(s, seq) >> seq % WORD_BITS & 1;
}

static void window_mark(struct source *s, uint64_t seq)
{
    if (seq > s->top) {
        if (seq - s->top >= RPC_WINDOW) {
            memset(s->seen, 0, sizeof(s->seen));
        } else {
            for (uint64_t n = s->top + 1; n <= seq && n > s->top; n++)
                *window_word(s, n) &= ~(UINT64_C(1) << n % WORD_BITS);
        }
        s->top = seq;
    }
    if (s->top - seq < RPC_WINDOW)
        *window_word(s, seq) |= UINT64_C(1) << seq % WORD_BITS;
}

/* ---- senders --------------------------------------------------------------------------------- */

static void part_free(struct rpc_reassembly *t, struct source *s, struct part *p)
{
    CHECK(t->bytes >= p->total && s->parts_len > 0);
    t->bytes -= p->total;
    s->parts_len--;
    list_del(&p->link);
    rpc_msg_free(p->msg);
    xfree(p->got);
    xfree(p);
}

static void source_free(struct rpc_reassembly *t, struct source *s)
{
    list_for (it, &s->parts)
        part_free(t, s, container_of(it, struct part, link));
    CHECK(map_str_del(t->by_key, str_n(s->key, s->key_len)) == s);
    xfree(s);
}

void rpc_reassembly_free(struct rpc_reassembly *t)
{
    struct str key;
    void *s;

    if (!t)
        return;
    for (size_t pos = 0; map_str_next(t->by_key, &pos, &key, &s); pos = 0)
        source_free(t, s);
    CHECK(t->bytes == 0);
    map_str_free(t->by_key);
    xfree(t);
}

size_t rpc_reassembly_bytes(const struct rpc_reassembly *t)
{
    return t->bytes;
}

size_t rpc_reassembly_len(const struct rpc_reassembly *t)
{
    return map_str_len(t->by_key);
}

/* Frees the sender that is silent longest, if long enough. */
static bool make_room(struct rpc_reassembly *t, uint64_t now_ns)
{
    struct source *oldest = NULL;
    struct str key;
    size_t pos = 0;
    void *v;

    while (map_str_next(t->by_key, &pos, &key, &v)) {
        struct source *s = v;

        if (!oldest || s->heard_ns < oldest->heard_ns)
            oldest = s;
    }
    if (!oldest || now_ns - oldest->heard_ns < SOURCE_EVICT_MS * MS_NS)
        return false;
    source_free(t, oldest);
    return true;
}

static struct source *source_get(struct rpc_reassembly *t, const struct rpc_frame *f,
                                 uint64_t now_ns)
{
    char key[SOURCE_KEY_MAX];
    size_t len = f->addr.len + sizeof(f->epoch) + sizeof(f->link);
    struct source *s;

    CHECK(len <= sizeof(key));
    memcpy(key, f->addr.ptr, f->addr.len);
    memcpy(key + f->addr.len, &f->epoch, sizeof(f->epoch));
    memcpy(key + f->addr.len + sizeof(f->epoch), &f->link, sizeof(f->link));
    s = map_str_get(t->by_key, str_n(key, len));
    if (!s) {
        if (map_str_len(t->by_key) >= RPC_REASSEMBLY_MAX && !make_room(t, now_ns))
            return NULL;
        s = XNEW(struct source);
        memcpy(s->key, key, len);
        s->key_len = len;
        list_init(&s->parts);
        CHECK(map_str_put(t->by_key, str_n(s->key, len), s) == NULL);
    }
    s->heard_ns = now_ns;
    return s;
}

size_t rpc_reassembly_tick(struct rpc_reassembly *t, uint64_t now_ns)
{
    size_t expired = 0, pos = 0;
    struct source *idle = NULL;
    struct str key;
    void *v;

    while (map_str_next(t->by_key, &pos, &key, &v)) {
        struct source *s = v;

        list_for (it, &s->parts) {
            struct part *p = container_of(it, struct part, link);

            if (now_ns >= p->expires_ns) {
                part_free(t, s, p);
                expired++;
            }
        }
        if (now_ns - s->heard_ns >= SOURCE_IDLE_MS * MS_NS && list_empty(&s->parts))
            idle = s;
    }
    /* One a tick: the map may not change while it is walked, and there is no hurry. */
    if (idle)
        source_free(t, idle);
    return expired;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static struct part *part_find(struct source *s, uint64_t seq)
{
    list_for (it, &s->parts) {
        struct part *p = container_of(it, struct part, link);

        if (p->seq == seq)
            return p;
    }
    return NULL;
}

static struct part *part_new(struct rpc_reassembly *t, struct source *s, const struct rpc_frame *f,
                             uint64_t now_ns)
{
    struct part *p = XNEW(struct part);
    uint32_t life_ms = f->left_ms ? f->left_ms : PART_LIFE_MAX_MS;
    uint32_t chunks = (uint32_t)((f->total + RPC_FRAME_CHUNK - 1) / RPC_FRAME_CHUNK);

    life_ms = MIN(MAX(life_ms, (uint32_t)PART_LIFE_MIN_MS), (uint32_t)PART_LIFE_MAX_MS);
    p->seq = f->seq;
    p->total = f->total;
    p->chunks_left = chunks;
    p->got = XNEW_ARRAY(uint64_t, (chunks + WORD_BITS - 1) / WORD_BITS);
    p->expires_ns = now_ns + life_ms * MS_NS;
    p->msg = rpc_msg_of_frame(f, now_ns);
    buf_init(&p->msg->body, f->total);
    CHECK(buf_room(&p->msg->body, f->total));
    list_add_tail(&s->parts, &p->link);
    s->parts_len++;
    t->bytes += f->total;
    return p;
}

static bool part_agrees(const struct part *p, const struct rpc_frame *f)
{
    const struct rpc_msg *m = p->msg;

    return p->total == f->total && m->kind == f->kind && m->id == f->id && m->raw == f->raw &&
           m->flags == f->flags && m->method == f->method && m->to_epoch == f->to_epoch;
}

static enum rpc_drop take_chunk(struct rpc_reassembly *t, struct source *s,
                                const struct rpc_frame *f, uint64_t now_ns, struct rpc_msg **ret)
{
    struct part *p = part_find(s, f->seq);
    uint32_t chunk = f->offset / (uint32_t)RPC_FRAME_CHUNK;
    uint64_t bit = UINT64_C(1) << chunk % WORD_BITS;

    if (!p) {
        if (window_seen(s, f->seq))
            return RPC_DROP_DUPLICATE;
        if (f->total > t->bytes_max - t->bytes || s->parts_len >= RPC_SOURCE_PARTS_MAX)
            return RPC_DROP_BUDGET;
        p = part_new(t, s, f, now_ns);
    }
    if (!part_agrees(p, f))
        return RPC_DROP_HEADER;
    if (p->got[chunk / WORD_BITS] & bit)
        return RPC_DROP_DUPLICATE;
    p->got[chunk / WORD_BITS] |= bit;
    memcpy(p->msg->body.ptr + f->offset, f->body.ptr, f->body.len);
    if (--p->chunks_left)
        return RPC_DROP_NONE;
    window_mark(s, f->seq);
    *ret = p->msg;
    (*ret)->body.len = p->total;
    p->msg = NULL; /* moved */
    part_free(t, s, p);
    return RPC_DROP_NONE;
}

enum rpc_drop rpc_reassembly_add(struct rpc_reassembly *t, const struct rpc_frame *f,
                                 uint64_t now_ns, struct rpc_msg **ret)
{
    struct source *s;

    *ret = NULL;
    if (f->total > t->message_max || f->raw > t->message_max)
        return RPC_DROP_OVERSIZE;
    s = source_get(t, f, now_ns);
    if (!s)
        return RPC_DROP_SOURCES;
    if (f->total > f->body.len)
        return take_chunk(t, s, f, now_ns, ret);
    if (window_seen(s, f->seq))
        return RPC_DROP_DUPLICATE;
    window_mark(s, f->seq);
    *ret = rpc_msg_of_frame(f, now_ns);
    buf_init(&(*ret)->body, MAX(f->total, (uint32_t)1));
    CHECK(buf_add_str(&(*ret)->body, f->body));
    return RPC_DROP_NONE;
}
