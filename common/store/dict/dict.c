/* SPDX-License-Identifier: Apache-2.0
 *
 * dict: what an epoch looks like in memory, and how it grows.
 *
 *   strings  id -> bytes             \
 *   frames   id -> struct frame       } pages of 256; an element never moves nor changes
 *   nodes    id -> (parent, frame)   /
 *   writer   content -> id, for the shard thread (dict_write.c)
 *
 * Publication: the shard thread fills elements behind the published length, then stores the new
 * length (release). A reader loads the length (acquire) and touches only what stands before it, so
 * it needs no lock and never sees half an element. The directory of pages is replaced when full:
 * the new one is complete before its address is stored (release), the old one stays until the
 * dictionary is freed (they halve in size going back, so all together cost less than the last).
 * A reader may hold a longer dictionary than its snapshot: ids it does not know do not occur there.
 *
 * The loader (dict_load) appends under d->load until the shard thread opens the writer. From then
 * on only the shard thread appends. No reader asks for more than is loaded then, because entries
 * are published before the batch that holds them is committed (the whole argument is in
 * dict_cache.c). One exception: where shards have copies, another node may lead while the store
 * here is being closed. Then the rows have more entries than the writer, and a reader gets
 * ERR_UNAVAILABLE.
 */
#include "common/store/dict/dict.h"

#include "common/base/mem.h"

#define BLOCK ((size_t)16 * KIB)

/* ---- memory ---- */

void dict_charge(struct dict *d, size_t n)
{
    atomic_fetch_add_explicit(&d->bytes, n, memory_order_relaxed);
    atomic_fetch_add_explicit(d->bytes_all, n, memory_order_relaxed);
}

void dict_discharge(struct dict *d, size_t n)
{
    atomic_fetch_sub_explicit(&d->bytes, n, memory_order_relaxed);
    atomic_fetch_sub_explicit(d->bytes_all, n, memory_order_relaxed);
}

static void pages_init(struct dict_pages *p)
{
    atomic_init(&p->dir, NULL);
}

static void pages_deinit(struct dict_pages *p)
{
    char **dir = atomic_load_explicit(&p->dir, memory_order_relaxed);

    for (uint32_t i = 0; i < p->pages; i++)
        xfree(dir[i]);
    xfree(dir);
    vec_for (i, &p->retired)
        xfree(p->retired.ptr[i]);
    vec_free(&p->retired);
}

/* Makes element i exist; i grows by one from call to call. */
static void *pages_add(struct dict *d, struct dict_pages *p, uint32_t i, size_t size)
{
    char **dir = atomic_load_explicit(&p->dir, memory_order_relaxed);

    if (i >> DICT_PAGE_BITS < p->pages)
        return dict_page_at(p, i, size);
    if (p->pages == p->cap) {
        uint32_t cap = p->cap ? p->cap * 2 : 4;
        char **grown = xreallocarray(NULL, cap, sizeof(*grown));
        if (dir) {
            memcpy(grown, dir, p->pages * sizeof(*dir));
            vec_push(&p->retired, dir);
        }
        dict_charge(d, cap * sizeof(*grown));
        p->cap = cap;
        dir = grown;
    }
    dir[p->pages++] = xreallocarray(NULL, DICT_PAGE, size);
    dict_charge(d, DICT_PAGE * size);
    atomic_store_explicit(&p->dir, dir, memory_order_release);
    return dict_page_at(p, i, size);
}

static struct str keep_bytes(struct dict *d, struct str s)
{
    if (s.len > d->block_left) {
        size_t n = MAX(s.len, d->blocks.len ? BLOCK : BLOCK / 8);
        vec_push(&d->blocks, xmalloc(n));
        dict_charge(d, n);
        if (s.len >= BLOCK / 2) { /* a block of its own: the open one stays open */
            memcpy(d->blocks.ptr[d->blocks.len - 1], s.ptr, s.len);
            return (struct str){ d->blocks.ptr[d->blocks.len - 1], s.len };
        }
        d->block_next = d->blocks.ptr[d->blocks.len - 1];
        d->block_left = n;
    }
    char *p = d->block_next;
    if (s.len)
        memcpy(p, s.ptr, s.len);
    d->block_next += s.len;
    d->block_left -= s.len;
    return (struct str){ p, s.len };
}

void dict_put_string(struct dict *d, uint32_t id, struct str s)
{
    struct str *at = pages_add(d, &d->string_at, id, sizeof(struct str));
    *at = s.len ? keep_bytes(d, s) : STR("");
    d->string_bytes += s.len;
}

void dict_put_frame(struct dict *d, uint32_t id, const struct frame *f)
{
    struct frame *at = pages_add(d, &d->frame_at, id, sizeof(struct frame));
    *at = *f;
}

void dict_put_node(struct dict *d, uint32_t id, struct dict_node n)
{
    struct dict_node *at = pages_add(d, &d->node_at, id, sizeof(struct dict_node));
    *at = n;
}

void dict_publish(struct dict *d, struct dict_counts n)
{
    atomic_store_explicit(&d->strings, n.strings, memory_order_release);
    atomic_store_explicit(&d->frames, n.frames, memory_order_release);
    atomic_store_explicit(&d->nodes, n.nodes, memory_order_release);
}

struct dict *dict_new(struct dict_id id, uint64_t seed, _Atomic size_t *bytes_all)
{
    struct dict *d = XNEW(struct dict);

    d->id = id;
    d->seed = seed;
    d->bytes_all = bytes_all;
    pages_init(&d->string_at);
    pages_init(&d->frame_at);
    pages_init(&d->node_at);
    atomic_init(&d->refs, 1);
    list_init(&d->lru);
    list_init(&d->sessions);
    mutex_init(&d->load);
    dict_charge(d, sizeof(*d));
    dict_put_string(d, 0, STR(""));
    dict_put_node(d, 0, (struct dict_node){ 0, 0 });
    dict_publish(d, (struct dict_counts){ .strings = 1, .frames = 0, .nodes = 1 });
    return d;
}

void dict_free(struct dict *d)
{
    if (!d)
        return;
    dict_close_writer(d);
    atomic_fetch_sub_explicit(d->bytes_all, atomic_load(&d->bytes), memory_order_relaxed);
    pages_deinit(&d->string_at);
    pages_deinit(&d->frame_at);
    pages_deinit(&d->node_at);
    vec_for (i, &d->blocks)
        xfree(d->blocks.ptr[i]);
    vec_free(&d->blocks);
    for (size_t i = 0; i < ARRAY_LEN(d->tails); i++)
        vec_free(&d->tails[i]);
    mutex_deinit(&d->load);
    xfree(d);
}

/* ---- loading ---- */

/* Strings and nodes have an entry 0 that is not stored. */
uint32_t dict_first_stored(enum key_dict kind)
{
    return kind == DICT_FRAMES ? 0 : 1;
}

uint32_t dict_chunk_first(enum key_dict kind, uint32_t id)
{
    uint32_t at = id - id % DICT_ROW_MAX;
    return at ? at : dict_first_stored(kind);
}

/* Loading entries of an epoch, row by row. */
struct load {
    struct dict *d;
    struct kv_view from;
    struct dict_counts want;
    uint32_t have;  /* entries of the kind that *d has already */
    uint32_t first; /* id of the first entry of the row */
    union {
        struct str strings[DICT_ROW_MAX];
        struct frame frames[DICT_ROW_MAX];
        struct dict_node nodes[DICT_ROW_MAX];
    } row;
};

static int load_strings(struct load *l, struct str row, size_t *n, struct err *e)
{
    int rc = dict_rows_read_strings(row, l->row.strings, n, e);

    for (size_t i = 0; !rc && i < *n; i++)
        if (l->first + i >= l->have)
            dict_put_string(l->d, (uint32_t)(l->first + i), l->row.strings[i]);
    return rc;
}

static int load_frames(struct load *l, struct str row, size_t *n, struct err *e)
{
    int rc = dict_rows_read_frames(row, l->row.frames, n, e);

    for (size_t i = 0; !rc && i < *n; i++) {
        const struct frame *f = &l->row.frames[i];
        if (f->func >= l->want.strings || f->file >= l->want.strings ||
            f->module >= l->want.strings)
            return err_set(e, ERR_CORRUPT, "frame %zu names a string that is not there",
                           l->first + i);
        if (l->first + i >= l->have)
            dict_put_frame(l->d, (uint32_t)(l->first + i), f);
    }
    return rc;
}

static int load_nodes(struct load *l, struct str row, size_t *n, struct err *e)
{
    int rc = dict_rows_read_nodes(row, l->first, l->row.nodes, n, e);

    for (size_t i = 0; !rc && i < *n; i++) {
        if (l->row.nodes[i].frame >= l->want.frames)
            return err_set(e, ERR_CORRUPT, "node %zu names a frame that is not there",
                           l->first + i);
        if (l->first + i >= l->have)
            dict_put_node(l->d, (uint32_t)(l->first + i), l->row.nodes[i]);
    }
    return rc;
}

static int load_row(struct load *l, enum key_dict kind, struct str row, size_t *n, struct err *e)
{
    switch (kind) {
    case DICT_STRINGS:
        return load_strings(l, row, n, e);
    case DICT_FRAMES:
        return load_frames(l, row, n, e);
    case DICT_NODES:
        return load_nodes(l, row, n, e);
    }
    CHECK(false);
}

/* Loads rows from the chunk that holds l->have up to `want`, without a gap. */
static int load_kind(struct load *l, struct kv_iter *it, enum key_dict kind, uint32_t want,
                     struct err *e)
{
    uint32_t next = dict_chunk_first(kind, l->have);
    size_t n = 0;

    l->d->tails[kind - 1].len = 0;
    for (; kv_iter_valid(it) && next < want; kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (key.len != KEY_DICT_LEN || get_u32be(key.ptr + KEY_DICT_FIRST_OFF) != next)
            break;
        if (next == dict_chunk_first(kind, next))
            l->d->tails[kind - 1].len = 0;
        vec_push(&l->d->tails[kind - 1], next);
        l->first = next;
        int rc = load_row(l, kind, kv_iter_value(it), &n, e);
        if (rc)
            return rc;
        next += (uint32_t)n;
    }
    if (kv_iter_status(it, e))
        return e->code;
    if (next != want)
        return err_set(e, ERR_CORRUPT, "entries of kind %d end at %u, the epoch row says %u",
                       (int)kind, next, want);
    if (want % DICT_ROW_MAX == 0)
        l->d->tails[kind - 1].len = 0;
    return 0;
}

static int load_from(struct load *l, enum key_dict kind, uint32_t have, uint32_t want,
                     struct err *e)
{
    struct dict_id id = l->d->id;
    struct key from, to;

    l->have = have;
    key_dict(&from, id.tenant, id.scope, id.epoch, kind, dict_chunk_first(kind, have));
    key_dict(&to, id.tenant, id.scope, id.epoch, kind, UINT32_MAX);
    struct kv_iter *it =
        kv_iter_new(l->from.kv, l->from.snap, KV_META, key_str(&from), key_str(&to));
    int rc = load_kind(l, it, kind, want, e);
    kv_iter_free(it);
    return rc ? err_wrap(e, "dictionary of tenant %u, service %u, epoch %u", id.tenant, id.scope,
                         id.epoch)
              : 0;
}

int dict_load(struct dict *d, struct kv *kv, const struct kv_snap *snap, struct dict_counts want,
              struct err *e)
{
    struct dict_counts have = dict_counts(d);
    struct load *l;

    /* A reader of a store whose node leads the shard no more, and that is being closed: the rows
     * below are another leader's by now. */
    if (d->writer)
        return err_set(e, ERR_UNAVAILABLE, "another node continues the dictionaries of this shard");
    l = XNEW(struct load);
    l->d = d;
    l->from = (struct kv_view){ kv, snap };
    l->want = want;
    int rc = load_from(l, DICT_STRINGS, have.strings, want.strings, e);
    if (!rc)
        rc = load_from(l, DICT_FRAMES, have.frames, want.frames, e);
    if (!rc)
        rc = load_from(l, DICT_NODES, have.nodes, want.nodes, e);
    if (!rc)
        dict_publish(d, want);
    xfree(l);
    return rc;
}
