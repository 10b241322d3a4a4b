/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_write: finding ids by content, interning a request, and the rows of what was new.
 *
 * A table per kind maps content to id: slots of (32 bits of hash, id), linear probing, load <= 3/4.
 * The hash only chooses where to look; contents are always compared.
 *
 * A steady service finds everything, so finding is what must be fast. Nodes are guessed to follow
 * each other: a stack seen before was numbered in one go, so its next node usually has the next id.
 * Then the node there is compared by content, and strings and frames it names become known without
 * a hash. Only where the guess fails the tables are asked.
 *
 * A request may bring only so many new nodes (dict_cap.h). Behind that a stack that is not known
 * goes to its longest known beginning and a frame [overflow] below it: no name of it is kept, its
 * values are. Such frames are the only nodes over the cap, at most one for each node within.
 *
 * Rows: 1,024 consecutive entries make a chunk. Entries new in a request become one small row each
 * kind; when a chunk is full, or has TAILS_MAX rows, it is rewritten as one, unless its names are
 * very long. The row that begins a chunk keeps its key, so a rewrite replaces it and deletes the
 * others.
 */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/codec/fp.h"
#include "common/store/dict/dict_known.h"

#define NONE      UINT32_MAX
#define TAILS_MAX 32
#define ROW_BYTES GIB /* 1,024 of the longest strings; never reached */

/* slot = tag << 32 | id + 1; 0 is empty. */
struct idtab {
    uint64_t *slots;
    size_t mask, len;
};
struct dict_writer {
    uint64_t hash_mask;
    struct idtab strings, frames, nodes;
    struct dict_counts n;       /* appended; published at the end of a request */
    struct dict_counts emitted; /* in some batch already */
    VEC(uint64_t) string_hash;  /* content hashes, by id */
    VEC(uint64_t) frame_hash;
    VEC(uint64_t) node_hash; /* residues */
};

/* ---- tables ---- */

static inline uint32_t tag_of(const struct dict_writer *w, uint64_t hash)
{
    return (uint32_t)((hash ^ hash >> 32) & w->hash_mask);
}

static void idtab_resize(struct dict *d, struct idtab *t, size_t slots)
{
    struct idtab old = *t;

    t->slots = xcalloc(slots, sizeof(*t->slots));
    t->mask = slots - 1;
    dict_charge(d, (slots - (old.slots ? old.mask + 1 : 0)) * sizeof(*t->slots));
    for (size_t i = 0; old.slots && i <= old.mask; i++) {
        if (!old.slots[i])
            continue;
        size_t at = old.slots[i] >> 32 & t->mask;
        while (t->slots[at])
            at = (at + 1) & t->mask;
        t->slots[at] = old.slots[i];
    }
    xfree(old.slots);
}

/* Room for one more, so that a search that ends at an empty slot may fill it. */
static inline void idtab_room(struct dict *d, struct idtab *t)
{
    if (UNLIKELY(!t->slots || t->len + 1 > (t->mask + 1) / 4 * 3))
        idtab_resize(d, t, t->slots ? (t->mask + 1) * 2 : 64);
}

static inline void idtab_set(struct idtab *t, size_t at, uint32_t tag, uint32_t id)
{
    t->slots[at] = (uint64_t)tag << 32 | (id + 1);
    t->len++;
}

/* For contents known to be new. */
static void idtab_enter(struct dict *d, struct idtab *t, uint32_t tag, uint32_t id)
{
    idtab_room(d, t);
    size_t at = tag & t->mask;
    while (t->slots[at])
        at = (at + 1) & t->mask;
    idtab_set(t, at, tag, id);
}

static uint64_t frame_table_hash(const struct frame *f)
{
    uint64_t a = (uint64_t)f->func << 32 | f->line;
    uint64_t b = (uint64_t)f->file << 32 | f->module;
    return hash_u64(a ^ hash_u64(b ^ f->addr * 0x9e3779b97f4a7c15ULL));
}

static uint64_t node_table_hash(struct dict_node n)
{
    return hash_u64((uint64_t)n.parent << 32 | n.frame);
}

/* What a frame is, whatever ids its strings have. */
static uint64_t frame_content_hash(const struct dict *d, const struct frame *f)
{
    const uint64_t *s = d->writer->string_hash.ptr;
    uint64_t words[5] = { s[f->func], s[f->file], s[f->module], f->line, f->addr };
    return hash64(words, sizeof(words), d->seed);
}

static uint64_t node_content_hash(const struct dict *d, struct dict_node n)
{
    uint64_t words[2] = { d->writer->node_hash.ptr[n.parent], d->writer->frame_hash.ptr[n.frame] };
    return fp_of_hash(hash128(words, sizeof(words), d->seed));
}

uint64_t dict_node_hash(const struct dict *d, uint32_t node)
{
    return d->writer->node_hash.ptr[node];
}

const uint64_t *dict_node_hashes(const struct dict *d)
{
    return d->writer->node_hash.ptr;
}

static void note_string(struct dict *d, uint64_t hash)
{
    vec_push(&d->writer->string_hash, hash);
    dict_charge(d, sizeof(uint64_t));
}

static void note_frame(struct dict *d, const struct frame *f)
{
    vec_push(&d->writer->frame_hash, frame_content_hash(d, f));
    dict_charge(d, sizeof(uint64_t));
}

static void note_node(struct dict *d, struct dict_node n)
{
    vec_push(&d->writer->node_hash, node_content_hash(d, n));
    dict_charge(d, sizeof(uint64_t));
}

void dict_open_writer(struct dict *d, uint64_t hash_mask)
{
    struct dict_counts have = dict_counts(d);
    struct dict_writer *w = XNEW(struct dict_writer);

    CHECK(!d->writer);
    d->writer = w;
    w->hash_mask = hash_mask;
    w->n = w->emitted = have;
    for (uint32_t i = 0; i < have.strings; i++) {
        struct str s = dict_string(d, i);
        note_string(d, hash64(s.ptr, s.len, d->seed));
        idtab_enter(d, &w->strings, tag_of(w, w->string_hash.ptr[i]), i);
    }
    for (uint32_t i = 0; i < have.frames; i++) {
        note_frame(d, dict_frame(d, i));
        idtab_enter(d, &w->frames, tag_of(w, frame_table_hash(dict_frame(d, i))), i);
    }
    vec_push(&w->node_hash, fp_of_hash(hash128("", 0, d->seed)));
    for (uint32_t i = 1; i < have.nodes; i++) {
        note_node(d, *dict_node(d, i));
        idtab_enter(d, &w->nodes, tag_of(w, node_table_hash(*dict_node(d, i))), i);
    }
}

static size_t idtab_free(struct idtab *t)
{
    size_t bytes = t->slots ? (t->mask + 1) * sizeof(*t->slots) : 0;

    xfree(t->slots);
    return bytes;
}

void dict_close_writer(struct dict *d)
{
    struct dict_writer *w = d->writer;

    if (!w)
        return;
    dict_sessions_free(d);
    size_t bytes = idtab_free(&w->strings) + idtab_free(&w->frames) + idtab_free(&w->nodes);
    bytes += (w->string_hash.len + w->frame_hash.len + w->node_hash.len - 1) * sizeof(uint64_t);
    dict_discharge(d, bytes);
    vec_free(&w->string_hash);
    vec_free(&w->frame_hash);
    vec_free(&w->node_hash);
    xfree(w);
    d->writer = NULL;
}

/* ---- find or append ---- */

/* The id, or NONE; then *ret_at is the empty slot it would take. */
static uint32_t find_string(const struct dict *d, struct str s, uint32_t tag, size_t *ret_at)
{
    const struct idtab *t = &d->writer->strings;
    size_t at;

    for (at = tag & t->mask; t->slots[at]; at = (at + 1) & t->mask) {
        if (t->slots[at] >> 32 != tag)
            continue;
        struct str have = dict_string(d, (uint32_t)t->slots[at] - 1);
        if (have.len == s.len && (!s.len || memcmp(have.ptr, s.ptr, s.len) == 0))
            return (uint32_t)t->slots[at] - 1;
    }
    *ret_at = at;
    return NONE;
}

static uint32_t add_string(struct dict *d, struct str s, uint64_t hash)
{
    struct dict_writer *w = d->writer;
    struct idtab *t = &w->strings;
    uint32_t tag = tag_of(w, hash);
    size_t at;

    idtab_room(d, t);
    uint32_t id = find_string(d, s, tag, &at);
    if (id != NONE)
        return id;
    id = w->n.strings++;
    dict_put_string(d, id, s);
    note_string(d, hash);
    idtab_set(t, at, tag, id);
    return id;
}

static bool frame_eq(const struct frame *a, const struct frame *b)
{
    return a->func == b->func && a->line == b->line && a->file == b->file &&
           a->module == b->module && a->addr == b->addr;
}

static uint32_t find_frame(const struct dict *d, const struct frame *f, uint32_t tag,
                           size_t *ret_at)
{
    const struct idtab *t = &d->writer->frames;
    size_t at;

    for (at = tag & t->mask; t->slots[at]; at = (at + 1) & t->mask) {
        if (t->slots[at] >> 32 == tag && frame_eq(dict_frame(d, (uint32_t)t->slots[at] - 1), f))
            return (uint32_t)t->slots[at] - 1;
    }
    *ret_at = at;
    return NONE;
}

uint32_t dict_add_frame(struct dict *d, const struct frame *f)
{
    struct dict_writer *w = d->writer;
    struct idtab *t = &w->frames;
    uint32_t tag = tag_of(w, frame_table_hash(f));
    size_t at;

    idtab_room(d, t);
    uint32_t id = find_frame(d, f, tag, &at);
    if (id != NONE)
        return id;
    id = w->n.frames++;
    dict_put_frame(d, id, f);
    note_frame(d, f);
    idtab_set(t, at, tag, id);
    return id;
}

static bool node_eq(const struct dict_node *a, struct dict_node b)
{
    return a->parent == b.parent && a->frame == b.frame;
}

static uint32_t find_node(const struct dict *d, struct dict_node n, uint32_t tag, size_t *ret_at)
{
    const struct idtab *t = &d->writer->nodes;
    size_t at;

    for (at = tag & t->mask; t->slots[at]; at = (at + 1) & t->mask) {
        if (t->slots[at] >> 32 == tag && node_eq(dict_node(d, (uint32_t)t->slots[at] - 1), n))
            return (uint32_t)t->slots[at] - 1;
    }
    *ret_at = at;
    return NONE;
}

uint32_t dict_add_node(struct dict *d, struct dict_node n)
{
    struct dict_writer *w = d->writer;
    struct idtab *t = &w->nodes;
    uint32_t tag = tag_of(w, node_table_hash(n));
    size_t at;

    idtab_room(d, t);
    uint32_t id = find_node(d, n, tag, &at);
    if (id != NONE)
        return id;
    id = w->n.nodes++;
    dict_put_node(d, id, n);
    note_node(d, n);
    idtab_set(t, at, tag, id);
    return id;
}

uint32_t dict_add_string(struct dict *d, struct str s)
{
    return add_string(d, s, hash64(s.ptr, s.len, d->seed));
}

void dict_publish_added(struct dict *d)
{
    dict_publish(d, d->writer->n);
}

/* ---- a request ---- */

void dict_scratch_init(struct dict_scratch *x)
{
    *x = (struct dict_scratch){ 0 };
    buf_init(&x->row, ROW_BYTES);
}

void dict_scratch_deinit(struct dict_scratch *x)
{
    vec_free(&x->string_map);
    vec_free(&x->frame_map);
    vec_free(&x->node_map);
    vec_free(&x->used);
    vec_free(&x->string_off);
    buf_deinit(&x->row);
}

void dict_scratch_begin(struct dict_scratch *x, const struct stacks_view *v)
{
    vec_reserve(&x->used, v->nodes + 1);
    memset(x->used.ptr, 0, v->nodes + 1);
}

/* What a request's string is called here, or NONE until it was looked up. */
static struct str request_string(const struct dict_scratch *x, const struct stacks_view *v,
                                 uint32_t s)
{
    return (struct str){ v->string_data.ptr + x->string_off.ptr[s], v->string_len[s] };
}

static uint32_t intern_string(struct dict *d, const struct stacks_view *v, struct dict_scratch *x,
                              uint32_t s)
{
    if (x->string_map.ptr[s] == NONE) {
        struct str text = request_string(x, v, s);
        x->string_map.ptr[s] = add_string(d, text, hash64(text.ptr, text.len, d->seed));
    }
    return x->string_map.ptr[s];
}

static uint32_t intern_frame(struct dict *d, const struct stacks_view *v, struct dict_scratch *x,
                             uint32_t f)
{
    struct frame here = {
        .func = intern_string(d, v, x, v->frame_func[f]),
        .file = intern_string(d, v, x, v->frame_file[f]),
        .module = intern_string(d, v, x, v->frame_module[f]),
        .line = v->frame_line[f],
        .addr = v->frame_addr[f],
    };
    return dict_add_frame(d, &here);
}

/* Is the request's string s the one we call id? Remembers a yes. */
static inline bool is_string(const struct dict *d, const struct stacks_view *v,
                             struct dict_scratch *x, uint32_t s, uint32_t id)
{
    uint32_t *known = &x->string_map.ptr[s];
    struct str have = dict_string(d, id);

    if (*known != NONE)
        return *known == id;
    if (have.len != v->string_len[s] ||
        memcmp(have.ptr, v->string_data.ptr + x->string_off.ptr[s], have.len))
        return false;
    *known = id;
    return true;
}

/* Is the request's frame f the one we call id? Without a hash; remembers a yes. */
static inline bool is_frame(const struct dict *d, const struct stacks_view *v,
                            struct dict_scratch *x, uint32_t f, uint32_t id)
{
    uint32_t *known = &x->frame_map.ptr[f];
    const struct frame *have = dict_frame(d, id);

    if (*known != NONE)
        return *known == id;
    if (have->line != v->frame_line[f] || have->addr != v->frame_addr[f] ||
        !is_string(d, v, x, v->frame_func[f], have->func) ||
        !is_string(d, v, x, v->frame_file[f], have->file) ||
        !is_string(d, v, x, v->frame_module[f], have->module))
        return false;
    *known = id;
    return true;
}

static void begin(struct dict_scratch *x, const struct stacks_view *v)
{
    uint8_t *used = x->used.ptr;
    uint32_t off = 0;

    vec_reserve(&x->string_map, v->strings + 1);
    vec_reserve(&x->string_off, v->strings + 1);
    vec_reserve(&x->frame_map, v->frames + 1);
    vec_reserve(&x->node_map, v->nodes + 1);
    memset(x->string_map.ptr, 0xff, v->strings * sizeof(uint32_t));
    memset(x->frame_map.ptr, 0xff, v->frames * sizeof(uint32_t));
    for (size_t i = 0; i < v->strings; i++) {
        x->string_off.ptr[i] = off;
        off += v->string_len[i];
    }
    for (size_t i = v->nodes; i > 0; i--)
        used[v->node_parent[i - 1]] |= used[i];
}

void dict_intern(struct dict *d, const struct stacks_view *v, struct dict_scratch *x)
{
    struct dict_writer *w = d->writer;
    uint32_t guess = 1;

    begin(x, v);
    x->node_map.ptr[0] = 0;
    for (size_t i = 1; i <= v->nodes; i++) {
        uint32_t f = v->node_frame[i - 1];
        if (!x->used.ptr[i])
            continue;
        struct dict_node n = { .parent = x->node_map.ptr[v->node_parent[i - 1]] };
        const struct dict_node *g = guess < w->n.nodes ? dict_node(d, guess) : NULL;
        if (!g || g->parent != n.parent || !is_frame(d, v, x, f, g->frame)) {
            if (x->frame_map.ptr[f] == NONE)
                x->frame_map.ptr[f] = intern_frame(d, v, x, f);
            n.frame = x->frame_map.ptr[f];
            guess = dict_add_node(d, n);
        }
        x->node_map.ptr[i] = guess++;
    }
    dict_publish(d, w->n);
}

/* ---- a request over its cap ---- */

/* The string known for it, or NONE. */
static uint32_t known_string(const struct dict *d, const struct stacks_view *v,
                             struct dict_scratch *x, uint32_t s)
{
    size_t at;

    if (x->string_map.ptr[s] == NONE) {
        struct str text = request_string(x, v, s);
        x->string_map.ptr[s] =
            find_string(d, text, tag_of(d->writer, hash64(text.ptr, text.len, d->seed)), &at);
    }
    return x->string_map.ptr[s];
}

static uint32_t known_frame(const struct dict *d, const struct stacks_view *v,
                            struct dict_scratch *x, uint32_t f)
{
    struct frame here = { .func = known_string(d, v, x, v->frame_func[f]),
                          .file = known_string(d, v, x, v->frame_file[f]),
                          .module = known_string(d, v, x, v->frame_module[f]),
                          .line = v->frame_line[f],
                          .addr = v->frame_addr[f] };
    size_t at;

    if (here.func == NONE || here.file == NONE || here.module == NONE)
        return NONE;
    return find_frame(d, &here, tag_of(d->writer, frame_table_hash(&here)), &at);
}

static uint32_t known_node(const struct dict *d, const struct stacks_view *v,
                           struct dict_scratch *x, uint32_t parent, uint32_t f)
{
    struct dict_node n = { parent, known_frame(d, v, x, f) };
    size_t at;

    return n.frame == NONE ? NONE : find_node(d, n, tag_of(d->writer, node_table_hash(n)), &at);
}

static uint64_t cost_string(const struct dict *d, const struct stacks_view *v,
                            struct dict_scratch *x, uint32_t s)
{
    return known_string(d, v, x, s) == NONE ? v->string_len[s] : 0;
}

/* What a new node of the frame takes of new_max. */
static uint64_t cost_node(const struct dict *d, const struct stacks_view *v, struct dict_scratch *x,
                          uint32_t f)
{
    return 1 + (cost_string(d, v, x, v->frame_func[f]) + cost_string(d, v, x, v->frame_file[f]) +
                cost_string(d, v, x, v->frame_module[f])) /
                   DICT_NAME_BYTES;
}

size_t dict_intern_capped(struct dict *d, const struct stacks_view *v, struct dict_scratch *x,
                          uint32_t new_max)
{
    struct dict_writer *w = d->writer;
    size_t over = 0;

    begin(x, v);
    idtab_room(d, &w->strings);
    idtab_room(d, &w->frames);
    idtab_room(d, &w->nodes);
    const struct str name = STR(DICT_OVERFLOW);
    struct frame frame = { .func = add_string(d, name, hash64(name.ptr, name.len, d->seed)) };
    uint32_t overflow = dict_add_frame(d, &frame);
    x->node_map.ptr[0] = 0;
    for (size_t i = 1; i <= v->nodes; i++) {
        uint32_t above = v->node_parent[i - 1], f = v->node_frame[i - 1];
        uint32_t parent = x->node_map.ptr[above];
        if (!x->used.ptr[i])
            continue;
        if (x->used.ptr[above] == DICT_OVER) {
            x->node_map.ptr[i] = parent;
            x->used.ptr[i] = DICT_OVER;
            continue;
        }
        uint32_t node = known_node(d, v, x, parent, f);
        uint64_t cost = node == NONE ? cost_node(d, v, x, f) : 0;
        if (node == NONE && new_max >= cost) {
            new_max -= (uint32_t)cost;
            node = dict_add_node(d, (struct dict_node){ parent, intern_frame(d, v, x, f) });
        } else if (node == NONE) {
            node = dict_add_node(d, (struct dict_node){ parent, overflow });
            x->used.ptr[i] = DICT_OVER;
            over++;
        }
        x->node_map.ptr[i] = node;
    }
    dict_publish(d, w->n);
    return over;
}

/* ---- rows ---- */

static void put_row(struct dict *d, struct dict_scratch *x, enum key_dict kind, uint32_t from,
                    uint32_t to, struct kv_batch *b)
{
    union {
        struct str strings[DICT_ROW_MAX];
        struct frame frames[DICT_ROW_MAX];
        struct dict_node nodes[DICT_ROW_MAX];
    } row;
    size_t n = to - from;
    struct key k;

    CHECK(n >= 1 && n <= DICT_ROW_MAX);
    switch (kind) {
    case DICT_STRINGS:
        for (size_t i = 0; i < n; i++)
            row.strings[i] = dict_string(d, (uint32_t)(from + i));
        dict_rows_strings(row.strings, n, &x->row);
        break;
    case DICT_FRAMES:
        for (size_t i = 0; i < n; i++)
            row.frames[i] = *dict_frame(d, (uint32_t)(from + i));
        dict_rows_frames(row.frames, n, &x->row);
        break;
    case DICT_NODES:
        for (size_t i = 0; i < n; i++)
            row.nodes[i] = *dict_node(d, (uint32_t)(from + i));
        dict_rows_nodes(row.nodes, n, from, &x->row);
        break;
    }
    key_dict(&k, d->id.tenant, d->id.scope, d->id.epoch, kind, from);
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&x->row));
}

/* Rewrites the open chunk up to `to` as one row; tails[0] begins it. */
static void put_chunk(struct dict *d, struct dict_scratch *x, enum key_dict kind, uint32_t to,
                      struct kv_batch *b)
{
    uint32_t first = dict_chunk_first(kind, to - 1);
    struct key k;

    for (size_t i = 0; i < d->tails[kind - 1].len; i++) {
        uint32_t tail = d->tails[kind - 1].ptr[i];
        key_dict(&k, d->id.tenant, d->id.scope, d->id.epoch, kind, tail);
        if (tail != first)
            kv_batch_del(b, KV_META, key_str(&k));
    }
    put_row(d, x, kind, first, to, b);
    d->tails[kind - 1].len = 0;
    if (to % DICT_ROW_MAX)
        vec_push(&d->tails[kind - 1], first);
}

/* May what the open chunk has be written once more, as one row up to `to`? Very long names stay in
 * the rows they came in: a small push would write all of them again, up to 64 MiB. */
static bool may_join(const struct dict *d, enum key_dict kind, uint32_t to)
{
    size_t bytes = 0;

    if (kind != DICT_STRINGS)
        return true;
    for (uint32_t i = dict_chunk_first(kind, to - 1); i < to; i++)
        bytes += dict_string(d, i).len;
    return bytes <= DICT_JOIN_BYTES;
}

static void emit_kind(struct dict *d, struct dict_scratch *x, enum key_dict kind, uint32_t from,
                      uint32_t to, struct kv_batch *b)
{
    while (from < to) {
        uint32_t end = MIN(to, (from / DICT_ROW_MAX + 1) * DICT_ROW_MAX);
        bool full = end % DICT_ROW_MAX == 0;
        if ((full || d->tails[kind - 1].len >= TAILS_MAX) && may_join(d, kind, end)) {
            put_chunk(d, x, kind, end, b);
        } else {
            put_row(d, x, kind, from, end, b);
            vec_push(&d->tails[kind - 1], from);
            d->tails[kind - 1].len = full ? 0 : d->tails[kind - 1].len;
        }
        from = end;
    }
}

void dict_emit(struct dict *d, struct dict_scratch *x, struct kv_batch *b)
{
    struct dict_writer *w = d->writer;

    if (w->n.strings == w->emitted.strings && w->n.frames == w->emitted.frames &&
        w->n.nodes == w->emitted.nodes)
        return;
    emit_kind(d, x, DICT_STRINGS, w->emitted.strings, w->n.strings, b);
    emit_kind(d, x, DICT_FRAMES, w->emitted.frames, w->n.frames, b);
    emit_kind(d, x, DICT_NODES, w->emitted.nodes, w->n.nodes, b);
    w->emitted = w->n;
    dict_emit_epoch(d, false, b);
}

#define EPOCH_VERSION 1

void dict_emit_epoch(const struct dict *d, bool closed, struct kv_batch *b)
{
    struct dict_counts n = dict_counts(d);
    char row[14] = { EPOCH_VERSION, closed };
    struct key k;

    put_u32be(row + 2, n.strings);
    put_u32be(row + 6, n.frames);
    put_u32be(row + 10, n.nodes);
    key_epoch(&k, d->id.tenant, d->id.scope, d->id.epoch);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
}

int dict_epoch_read(struct str row, bool *ret_closed, struct dict_counts *ret, struct err *e)
{
    if (row.len != 14 || row.ptr[0] != EPOCH_VERSION || (uint8_t)row.ptr[1] > 1)
        return err_set(e, ERR_CORRUPT, "epoch row of %zu bytes is not one of version %d", row.len,
                       EPOCH_VERSION);
    *ret_closed = row.ptr[1];
    *ret = (struct dict_counts){ get_u32be(row.ptr + 2), get_u32be(row.ptr + 6),
                                 get_u32be(row.ptr + 10) };
    if (ret->strings < 1 || ret->nodes < 1)
        return err_set(e, ERR_CORRUPT, "epoch row counts %u strings and %u nodes", ret->strings,
                       ret->nodes);
    return 0;
}
