/* SPDX-License-Identifier: Apache-2.0
 *
 * stacks: interning of strings, frames and nodes.
 *
 * This is the hot path of every push: a profile of 500 stacks is some 20,000 lookups of edges, so
 * an edge costs one probe of a flat table and no comparison (the key is the content). Strings and
 * frames are looked up by a 64-bit hash of their content; the content is compared, and where two
 * contents share a hash the later one moves on to a derived hash, so no hash decides anything. Keys
 * are mixed with the seed: a sender that does not know the seed cannot make all keys fall on one
 * slot.
 *
 * Ids are handed out in order of first sight and parents come before children, therefore the
 * columns are already in the order in which they travel and are stored.
 *
 * Thread: one at a time.
 */
#include "common/model/stacks.h"

#include "common/base/hash.h"

/* Charged per entry besides its content: table slots at the worst load, columns. */
#define SLOT_COST   32
#define STRING_COST (SLOT_COST + 2 * sizeof(uint32_t))
#define FRAME_COST  (SLOT_COST + 4 * sizeof(uint32_t) + sizeof(uint64_t))
#define NODE_COST   (SLOT_COST + 2 * sizeof(uint32_t))

void stacks_init(struct stacks *s, size_t bytes_max, uint64_t seed)
{
    *s = (struct stacks){ .seed = seed, .bytes_max = MIN(bytes_max, (size_t)UINT32_MAX) };
    buf_init(&s->string_data, s->bytes_max);
    map_u64_init(&s->string_ids);
    map_u64_init(&s->frame_ids);
    map_u64_init(&s->edges);
    vec_push(&s->string_len, 0);
    vec_push(&s->string_off, 0);
}

void stacks_deinit(struct stacks *s)
{
    buf_deinit(&s->string_data);
    vec_free(&s->string_len);
    vec_free(&s->string_off);
    vec_free(&s->frame_func);
    vec_free(&s->frame_file);
    vec_free(&s->frame_line);
    vec_free(&s->frame_module);
    vec_free(&s->frame_addr);
    vec_free(&s->node_parent);
    vec_free(&s->node_frame);
    map_u64_deinit(&s->string_ids);
    map_u64_deinit(&s->frame_ids);
    map_u64_deinit(&s->edges);
}

void stacks_close(struct stacks *s)
{
    map_u64_deinit(&s->string_ids);
    map_u64_deinit(&s->frame_ids);
    map_u64_deinit(&s->edges);
}

void stacks_reset(struct stacks *s)
{
    buf_reset(&s->string_data);
    s->string_len.len = 1;
    s->string_off.len = 1;
    s->frame_func.len = s->frame_file.len = s->frame_line.len = 0;
    s->frame_module.len = s->frame_addr.len = 0;
    s->node_parent.len = s->node_frame.len = 0;
    map_u64_reset(&s->string_ids);
    map_u64_reset(&s->frame_ids);
    map_u64_reset(&s->edges);
    s->bytes = 0;
}

void stacks_reserve(struct stacks *s, const struct stacks_room *room)
{
    vec_reserve(&s->string_off, s->string_off.len + room->strings);
    vec_reserve(&s->string_len, s->string_len.len + room->strings);
    map_u64_reserve(&s->string_ids, s->string_ids.len + room->strings);
    (void)buf_room(&s->string_data,
                   MIN(room->string_bytes, s->string_data.max - s->string_data.len));
    vec_reserve(&s->frame_func, s->frame_func.len + room->frames);
    vec_reserve(&s->frame_file, s->frame_file.len + room->frames);
    vec_reserve(&s->frame_line, s->frame_line.len + room->frames);
    vec_reserve(&s->frame_module, s->frame_module.len + room->frames);
    vec_reserve(&s->frame_addr, s->frame_addr.len + room->frames);
    map_u64_reserve(&s->frame_ids, s->frame_ids.len + room->frames);
    vec_reserve(&s->node_parent, s->node_parent.len + room->nodes);
    vec_reserve(&s->node_frame, s->node_frame.len + room->nodes);
}

static bool charge(struct stacks *s, size_t cost)
{
    if (cost > s->bytes_max - s->bytes)
        return false;
    s->bytes += cost;
    return true;
}

struct str stacks_string_at(const struct stacks *s, uint32_t id)
{
    CHECK(id < s->string_len.len);
    if (id == 0)
        return (struct str){ "", 0 };
    return (struct str){ s->string_data.ptr + s->string_off.ptr[id], s->string_len.ptr[id] };
}

/* The entry is in the table already: its charge was found to fit before. */
static uint32_t string_add(struct stacks *s, struct str v, uint32_t id)
{
    CHECK(charge(s, v.len + STRING_COST));
    vec_push(&s->string_off, (uint32_t)s->string_data.len);
    vec_push(&s->string_len, (uint32_t)v.len);
    char *to = buf_room(&s->string_data, v.len);
    CHECK(to); /* the charge covers it */
    memcpy(to, v.ptr, v.len);
    s->string_data.len += v.len;
    return id;
}

uint32_t stacks_string(struct stacks *s, struct str v)
{
    uint32_t next = (uint32_t)s->string_len.len;

    if (!v.len)
        return 0;
    bool room = v.len <= s->bytes_max && v.len + STRING_COST <= s->bytes_max - s->bytes;
    for (uint64_t key = hash64(v.ptr, v.len, s->seed);; key = hash_u64(key + 1)) {
        uint32_t id =
            room ? map_u64_put(&s->string_ids, key, next) : map_u64_get(&s->string_ids, key);
        if (id == MAP_U64_EMPTY)
            return room ? string_add(s, v, next) : STACKS_FULL;
        if (str_eq(stacks_string_at(s, id), v))
            return id;
    }
}

static bool frame_eq(const struct stacks *s, uint32_t id, const struct frame *f)
{
    return s->frame_func.ptr[id] == f->func && s->frame_line.ptr[id] == f->line &&
           s->frame_file.ptr[id] == f->file && s->frame_module.ptr[id] == f->module &&
           s->frame_addr.ptr[id] == f->addr;
}

/* As string_add. */
static uint32_t frame_add(struct stacks *s, const struct frame *f, uint32_t id)
{
    CHECK(charge(s, FRAME_COST));
    vec_push(&s->frame_func, f->func);
    vec_push(&s->frame_file, f->file);
    vec_push(&s->frame_line, f->line);
    vec_push(&s->frame_module, f->module);
    vec_push(&s->frame_addr, f->addr);
    return id;
}

static uint64_t frame_key(const struct stacks *s, const struct frame *f)
{
    uint64_t key = hash_mix(((uint64_t)f->func << 32 | f->line) ^ s->seed,
                            ((uint64_t)f->file << 32 | f->module) ^ ~s->seed);

    return hash_mix(key ^ f->addr, s->seed | 1);
}

uint32_t stacks_frame_known(const struct stacks *s, const struct frame *f)
{
    for (uint64_t key = frame_key(s, f);; key = hash_u64(key + 1)) {
        uint32_t id = map_u64_get(&s->frame_ids, key);
        if (id == MAP_U64_EMPTY || frame_eq(s, id, f))
            return id;
    }
}

uint32_t stacks_frame(struct stacks *s, const struct frame *f)
{
    size_t strings = s->string_len.len;
    uint32_t next = (uint32_t)s->frame_func.len;
    bool room = FRAME_COST <= s->bytes_max - s->bytes;

    if (f->func == STACKS_FULL || f->file == STACKS_FULL || f->module == STACKS_FULL)
        return STACKS_FULL;
    CHECK(f->func < strings && f->file < strings && f->module < strings);
    for (uint64_t key = frame_key(s, f);; key = hash_u64(key + 1)) {
        uint32_t id =
            room ? map_u64_put(&s->frame_ids, key, next) : map_u64_get(&s->frame_ids, key);
        if (id == MAP_U64_EMPTY)
            return room ? frame_add(s, f, next) : STACKS_FULL;
        if (frame_eq(s, id, f))
            return id;
    }
}

uint32_t stacks_node(struct stacks *s, uint32_t parent, uint32_t frame)
{
    uint64_t key = ((uint64_t)parent << 32 | frame) ^ s->seed;
    uint32_t next = (uint32_t)s->node_parent.len + 1;

    if (UNLIKELY(parent == STACKS_FULL || frame == STACKS_FULL))
        return STACKS_FULL;
    CHECK(parent < next && frame < s->frame_func.len);
    if (UNLIKELY(NODE_COST > s->bytes_max - s->bytes))
        return map_u64_get(&s->edges, key); /* empty is STACKS_FULL */
    uint32_t id = map_u64_put(&s->edges, key, next);
    if (id != MAP_U64_EMPTY)
        return id;
    CHECK(charge(s, NODE_COST));
    vec_push(&s->node_parent, parent);
    vec_push(&s->node_frame, frame);
    return next;
}
static_assert(MAP_U64_EMPTY == STACKS_FULL, "stacks_node returns a failed lookup as full");

uint32_t stacks_node_known(const struct stacks *s, uint32_t parent, uint32_t frame)
{
    return map_u64_get(&s->edges, ((uint64_t)parent << 32 | frame) ^ s->seed);
}

uint32_t stacks_chain_new(struct stacks *s, uint32_t parent, const uint32_t *frames, size_t n)
{
    size_t len = s->node_parent.len;

    CHECK(n > 0 && parent <= len);
    if (n > (s->bytes_max - s->bytes) / NODE_COST)
        return STACKS_FULL;
    s->bytes += n * NODE_COST;
    vec_reserve(&s->node_parent, len + n);
    vec_reserve(&s->node_frame, len + n);
    uint32_t *parents = s->node_parent.ptr + len, *out = s->node_frame.ptr + len;
    for (size_t i = 0; i < n; i++) {
        parents[i] = i ? (uint32_t)(len + i) : parent;
        out[i] = frames[n - 1 - i];
        CHECK(out[i] < s->frame_func.len);
    }
    s->node_parent.len = s->node_frame.len = len + n;
    return (uint32_t)(len + n);
}

struct stacks_view stacks_view(const struct stacks *s)
{
    return (struct stacks_view){
        .string_data = buf_str(&s->string_data),
        .string_len = s->string_len.ptr,
        .strings = s->string_len.len,
        .frame_func = s->frame_func.ptr,
        .frame_file = s->frame_file.ptr,
        .frame_line = s->frame_line.ptr,
        .frame_module = s->frame_module.ptr,
        .frame_addr = s->frame_addr.ptr,
        .frames = s->frame_func.len,
        .node_parent = s->node_parent.ptr,
        .node_frame = s->node_frame.ptr,
        .nodes = s->node_parent.len,
    };
}

size_t stacks_bytes(const struct stacks *s)
{
    return s->bytes;
}

int stacks_view_check(const struct stacks_view *v, struct err *e)
{
    uint64_t bytes = 0; /* at most 2^32 lengths below 2^32: no overflow */

    if (v->strings >= STACKS_FULL || v->frames >= STACKS_FULL || v->nodes >= STACKS_FULL)
        return err_set(e, ERR_INPUT, "stacks have more than 2^32 - 2 entries");
    for (size_t i = 0; i < v->strings; i++)
        bytes += v->string_len[i];
    if (bytes != v->string_data.len)
        return err_set(e, ERR_INPUT,
                       "stacks: lengths of %zu strings add up to %" PRIu64 ", not %zu", v->strings,
                       bytes, v->string_data.len);
    if (v->strings && v->string_len[0])
        return err_set(e, ERR_INPUT, "stacks: string 0 is not empty");
    for (size_t i = 0; i < v->frames; i++)
        if (v->frame_func[i] >= v->strings || v->frame_file[i] >= v->strings ||
            v->frame_module[i] >= v->strings)
            return err_set(e, ERR_INPUT, "stacks: frame %zu names a string beyond %zu", i,
                           v->strings);
    for (size_t i = 0; i < v->nodes; i++)
        if (v->node_parent[i] > i || v->node_frame[i] >= v->frames)
            return err_set(e, ERR_INPUT,
                           "stacks: node %zu has parent %" PRIu32 " and frame %" PRIu32
                           " of %zu frames",
                           i + 1, v->node_parent[i], v->node_frame[i], v->frames);
    return 0;
}

/* Where v's strings stand here. False when full. */
static bool merge_strings(struct stacks *s, const struct stacks_view *v, uint32_t *map)
{
    size_t off = 0;

    for (size_t i = 0; i < v->strings; i++) {
        struct str one = str_sub(v->string_data, off, off + v->string_len[i]);
        map[i] = stacks_string(s, one);
        if (map[i] == STACKS_FULL)
            return false;
        off += one.len;
    }
    return true;
}

static bool merge_frames(struct stacks *s, const struct stacks_view *v, const uint32_t *strings,
                         uint32_t *map)
{
    for (size_t i = 0; i < v->frames; i++) {
        struct frame f = { strings[v->frame_func[i]], strings[v->frame_file[i]],
                           strings[v->frame_module[i]], v->frame_line[i], v->frame_addr[i] };
        map[i] = stacks_frame(s, &f);
        if (map[i] == STACKS_FULL)
            return false;
    }
    return true;
}

int stacks_merge(struct stacks *s, const struct stacks_view *v, uint32_t *ret_map, struct err *e)
{
    CLEANUP(xfreep) uint32_t *strings = xreallocarray(NULL, v->strings + 1, sizeof(*strings));
    CLEANUP(xfreep) uint32_t *frames = xreallocarray(NULL, v->frames + 1, sizeof(*frames));
    bool fits = merge_strings(s, v, strings) && merge_frames(s, v, strings, frames);

    ret_map[0] = 0;
    for (size_t i = 0; fits && i < v->nodes; i++) {
        ret_map[i + 1] = stacks_node(s, ret_map[v->node_parent[i]], frames[v->node_frame[i]]);
        fits = ret_map[i + 1] != STACKS_FULL;
    }
    if (!fits)
        return err_set(e, ERR_LIMIT,
                       "stacks of %zu strings, %zu frames and %zu nodes do not fit the budget of "
                       "%zu bytes",
                       v->strings, v->frames, v->nodes, s->bytes_max);
    return 0;
}
