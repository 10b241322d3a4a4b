/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_out: one walk over the samples, tables filled on first use.
 *
 *   part ── merge of its types by node ──> sample: locations (leaf first), a value per type, labels
 *                                              └─ frame ─> location ─> function, mapping ─> strings
 *
 * A frame is a location, numbered in order of first use; so a message holds only what its samples
 * refer to, however large the set of stacks it is cut from. The path of a sample is read up the
 * parents, which is the order pprof wants. Tables grow in buffers of their own and are put behind
 * the samples at the end; protobuf does not care about the order of fields. So a message can leave
 * in pieces: first the samples while they are made, then the tables.
 */
#include "common/model/pprof_out.h"

#include "common/base/mem.h"
#include "common/base/wr.h"

enum { PROFILE_TYPE = 1, PROFILE_SAMPLE, PROFILE_MAPPING, PROFILE_LOCATION, PROFILE_FUNCTION };
enum { PROFILE_STRING = 6, PROFILE_TIME = 9, PROFILE_DURATION, PROFILE_PERIOD_TYPE };
enum { PROFILE_PERIOD = 12, PROFILE_DEFAULT_TYPE = 14 };

enum stage { STAGE_HEAD, STAGE_SAMPLES, STAGE_TAIL, STAGE_TABLES, STAGE_STRINGS, STAGE_DONE };

struct pprof_out_writer {
    const struct pprof_out *p;
    struct buf *out; /* the piece being written */
    enum stage stage;
    size_t part, at[PPROF_OUT_TYPES_MAX]; /* the next sample */
    size_t moved;                         /* of the tables or strings */
    struct buf labels, ids;               /* of the part; of a sample */
    struct buf tables;                    /* mappings, locations, functions */
    struct buf strings;                   /* fields of the string table */
    struct buf one, inner;                /* the message being made, and one inside it */
    uint32_t *string_at;      /* string of the stacks -> index in the table, 0: not there yet */
    size_t *string_off;       /* string of the stacks -> where it starts */
    uint32_t *location_at;    /* frame -> location id, 0: none yet */
    struct map_u64 named;     /* name << 32 | file -> number */
    struct map_u64 functions; /* that number << 32 | first line -> id */
    struct map_u64 modules;   /* mappings of frames with symbols, by name */
    struct map_u64 natives;   /* of frames without: module << 32 | file */
    uint32_t strings_len, locations_len, functions_len, mappings_len;
};

/* ---- wire ----------------------------------------------------------------------------------- */

static void put_number(struct buf *b, uint32_t field, uint64_t v)
{
    if (v == 0)
        return;
    wr_varint(b, field << 3);
    wr_varint(b, v);
}

static void put_bytes(struct buf *b, uint32_t field, struct str s)
{
    wr_varint(b, field << 3 | 2);
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

/* ---- tables --------------------------------------------------------------------------------- */

static uint32_t add_string(struct pprof_out_writer *w, struct str s)
{
    put_bytes(&w->strings, PROFILE_STRING, s);
    return w->strings_len++;
}

/* A text from outside the stacks; equal ones may stand in the table twice. */
static uint32_t own_string(struct pprof_out_writer *w, struct str s)
{
    return s.len ? add_string(w, s) : 0;
}

static struct str stack_text(const struct pprof_out_writer *w, uint32_t id)
{
    const struct stacks_view *v = w->p->stacks;

    return str_sub(v->string_data, w->string_off[id], w->string_off[id] + v->string_len[id]);
}

static uint32_t stack_string(struct pprof_out_writer *w, uint32_t id)
{
    if (id && !w->string_at[id])
        w->string_at[id] = own_string(w, stack_text(w, id));
    return id ? w->string_at[id] : 0;
}

/* True if `name` is one identifier as compilers of C++ and Rust mangle it. `go tool pprof` takes a
 * system name that equals the name for "not demangled yet": it demangles the name, or strips <...>
 * and (...) from it. That is right for these names, and wrong for all others, like `<module>`. */
static bool is_mangled(struct str name)
{
    static const char more[] = "_.$@";

    if (!str_starts(name, STR("_Z")) && !str_starts(name, STR("_R")))
        return false;
    for (size_t i = 2; i < name.len; i++) {
        char c = name.ptr[i], lower = (char)(c | 0x20);
        if ((lower < 'a' || lower > 'z') && (c < '0' || c > '9') && (c == '\0' || !strchr(more, c)))
            return false;
    }
    return true;
}

static uint32_t function_of(struct pprof_out_writer *w, uint32_t name, uint32_t file,
                            uint32_t first_line)
{
    uint32_t next = (uint32_t)w->named.len, id = w->functions_len + 1;
    uint32_t pair = map_u64_put(&w->named, (uint64_t)name << 32 | file, next);

    pair = pair == MAP_U64_EMPTY ? next : pair;
    uint32_t known = map_u64_put(&w->functions, (uint64_t)pair << 32 | first_line, id);
    if (known != MAP_U64_EMPTY)
        return known;
    w->functions_len = id;
    uint32_t name_at = stack_string(w, name);
    buf_reset(&w->inner);
    put_number(&w->inner, 1, id);
    put_number(&w->inner, 2, name_at);
    if (name && is_mangled(stack_text(w, name)))
        put_number(&w->inner, 3, name_at);
    put_number(&w->inner, 4, stack_string(w, file));
    put_number(&w->inner, 5, first_line);
    put_bytes(&w->tables, PROFILE_FUNCTION, buf_str(&w->inner));
    return id;
}

static uint32_t module_of(struct pprof_out_writer *w, uint32_t module)
{
    uint32_t id = w->mappings_len + 1, known;

    if (module == 0)
        return 0;
    known = map_u64_put(&w->modules, module, id);
    if (known != MAP_U64_EMPTY)
        return known;
    w->mappings_len = id;
    buf_reset(&w->inner);
    put_number(&w->inner, 1, id);
    put_number(&w->inner, 5, stack_string(w, module));
    for (uint32_t has = 7; has <= 9; has++) /* functions, file names, lines */
        put_number(&w->inner, has, 1);
    put_bytes(&w->tables, PROFILE_MAPPING, buf_str(&w->inner));
    return id;
}

/* The module is a build id where there is a file beside it, else the name of the file itself. The
 * mapping covers all offsets, so that none is moved. */
static uint32_t native_of(struct pprof_out_writer *w, uint32_t module, uint32_t file)
{
    uint32_t id = w->mappings_len + 1, known;

    if (module == 0)
        return 0;
    known = map_u64_put(&w->natives, (uint64_t)module << 32 | file, id);
    if (known != MAP_U64_EMPTY)
        return known;
    w->mappings_len = id;
    buf_reset(&w->inner);
    put_number(&w->inner, 1, id);
    put_number(&w->inner, 3, INT64_MAX);
    put_number(&w->inner, 5, stack_string(w, file ? file : module));
    if (file)
        put_number(&w->inner, 6, stack_string(w, module));
    put_bytes(&w->tables, PROFILE_MAPPING, buf_str(&w->inner));
    return id;
}

static uint32_t location_of(struct pprof_out_writer *w, uint32_t frame)
{
    const struct stacks_view *v = w->p->stacks;
    uint32_t func = v->frame_func[frame], file = v->frame_file[frame];
    uint32_t module = v->frame_module[frame];
    bool native = func == 0 && v->frame_addr[frame] != 0;
    uint32_t mapping, function = 0;

    if (w->location_at[frame])
        return w->location_at[frame];
    w->location_at[frame] = ++w->locations_len;
    mapping = native ? native_of(w, module, file) : module_of(w, module);
    if (!native) /* the address of a frame with a name: where its function begins */
        function = function_of(w, func, file, (uint32_t)MIN(v->frame_addr[frame], INT32_MAX));
    buf_reset(&w->inner);
    put_number(&w->inner, 1, w->locations_len);
    put_number(&w->inner, 2, mapping);
    put_number(&w->inner, 3, native ? v->frame_addr[frame] : 0);
    if (!native) {
        uint64_t line = v->frame_line[frame];
        size_t n = 1 + varint_len(function) + (line ? 1 + varint_len(line) : 0);
        wr_varint(&w->inner, 4 << 3 | 2);
        wr_varint(&w->inner, n);
        put_number(&w->inner, 1, function);
        put_number(&w->inner, 2, line);
    }
    put_bytes(&w->tables, PROFILE_LOCATION, buf_str(&w->inner));
    return w->locations_len;
}

/* ---- samples -------------------------------------------------------------------------------- */

static struct buf *scratch(struct pprof_out_writer *w)
{
    buf_reset(&w->one);
    return &w->one;
}

static void put_sample(struct pprof_out_writer *w, uint32_t node, const uint64_t *values)
{
    const struct stacks_view *v = w->p->stacks;
    struct buf *one;

    buf_reset(&w->ids);
    for (uint32_t at = node; at; at = v->node_parent[at - 1])
        wr_varint(&w->ids, location_of(w, v->node_frame[at - 1]));
    one = scratch(w);
    if (w->ids.len)
        put_bytes(one, 1, buf_str(&w->ids));
    buf_reset(&w->ids);
    for (size_t t = 0; t < w->p->types_len; t++)
        wr_varint(&w->ids, values[t]);
    put_bytes(one, 2, buf_str(&w->ids));
    buf_add_str(one, buf_str(&w->labels));
    put_bytes(w->out, PROFILE_SAMPLE, buf_str(one));
}

static void begin_part(struct pprof_out_writer *w)
{
    const struct pprof_out_part *part = &w->p->parts[w->part];

    memset(w->at, 0, sizeof(w->at));
    buf_reset(&w->labels);
    for (size_t i = 0; i < part->labels_len; i++) {
        struct buf *one = scratch(w);
        put_number(one, 1, own_string(w, part->labels[i].name));
        put_number(one, 2, own_string(w, part->labels[i].value));
        put_bytes(&w->labels, 3, buf_str(one));
    }
}

/* The types of a part together: one sample per node that has a value in any of them. False: no
 * sample is left. */
static bool next_sample(struct pprof_out_writer *w)
{
    const struct pprof_out_part *part = &w->p->parts[w->part];
    uint64_t values[PPROF_OUT_TYPES_MAX];
    uint32_t node = UINT32_MAX;

    for (size_t t = 0; t < w->p->types_len; t++)
        if (w->at[t] < part->by_type[t].len)
            node = MIN(node, part->by_type[t].nodes[w->at[t]]);
    if (node == UINT32_MAX)
        return false;
    for (size_t t = 0; t < w->p->types_len; t++) {
        const struct pprof_out_values *v = &part->by_type[t];
        bool here = w->at[t] < v->len && v->nodes[w->at[t]] == node;
        values[t] = here ? v->values[w->at[t]++] : 0;
    }
    put_sample(w, node, values);
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void put_type(struct pprof_out_writer *w, uint32_t field, const struct pprof_out_type *t)
{
    struct buf *one = scratch(w);

    put_number(one, 1, own_string(w, t->type));
    put_number(one, 2, own_string(w, t->unit));
    put_bytes(w->out, field, buf_str(one));
}

static void put_tail(struct pprof_out_writer *w)
{
    const struct pprof_out *p = w->p;

    if (p->period_type.type.len || p->period_type.unit.len)
        put_type(w, PROFILE_PERIOD_TYPE, &p->period_type);
    put_number(w->out, PROFILE_PERIOD, (uint64_t)p->period);
    put_number(w->out, PROFILE_TIME, (uint64_t)p->time_ns);
    put_number(w->out, PROFILE_DURATION, (uint64_t)p->duration_ns);
    if (p->default_type.len)
        put_number(w->out, PROFILE_DEFAULT_TYPE, own_string(w, p->default_type));
}

static void writer_init(struct pprof_out_writer *w, const struct pprof_out *p, size_t bytes_max)
{
    const struct stacks_view *v = p->stacks;
    size_t off = 0;

    CHECK(p->types_len <= PPROF_OUT_TYPES_MAX);
    *w = (struct pprof_out_writer){ .p = p };
    struct buf *bufs[] = { &w->tables, &w->strings, &w->one, &w->inner, &w->labels, &w->ids };
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        buf_init(bufs[i], bytes_max);
    map_u64_init(&w->named);
    map_u64_init(&w->functions);
    map_u64_init(&w->modules);
    map_u64_init(&w->natives);
    w->string_at = XNEW_ARRAY(uint32_t, v->strings + 1);
    w->string_off = XNEW_ARRAY(size_t, v->strings + 1);
    w->location_at = XNEW_ARRAY(uint32_t, v->frames + 1);
    for (size_t i = 0; i < v->strings; i++) {
        w->string_off[i] = off;
        off += v->string_len[i];
    }
    (void)add_string(w, STR(""));
}

static void writer_deinit(struct pprof_out_writer *w)
{
    struct buf *bufs[] = { &w->tables, &w->strings, &w->one, &w->inner, &w->labels, &w->ids };

    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        buf_deinit(bufs[i]);
    map_u64_deinit(&w->named);
    map_u64_deinit(&w->functions);
    map_u64_deinit(&w->modules);
    map_u64_deinit(&w->natives);
    xfree(w->string_at);
    xfree(w->string_off);
    xfree(w->location_at);
}

static bool writer_ok(const struct pprof_out_writer *w)
{
    return buf_ok(w->out) && buf_ok(&w->tables) && buf_ok(&w->strings) && buf_ok(&w->one) &&
           buf_ok(&w->inner) && buf_ok(&w->labels) && buf_ok(&w->ids);
}

/* Up to `want` bytes of a finished table; true once all of it is out. */
static bool move_table(struct pprof_out_writer *w, const struct buf *table, size_t want)
{
    size_t n = MIN(table->len - w->moved, want);

    buf_add(w->out, table->ptr + w->moved, n);
    w->moved += n;
    return w->moved == table->len;
}

/* One step: a sample, or up to `want` bytes of something else. */
static void writer_step(struct pprof_out_writer *w, size_t want)
{
    switch (w->stage) {
    case STAGE_HEAD:
        for (size_t t = 0; t < w->p->types_len; t++)
            put_type(w, PROFILE_TYPE, &w->p->types[t]);
        if (w->p->parts_len)
            begin_part(w);
        w->stage = w->p->parts_len ? STAGE_SAMPLES : STAGE_TAIL;
        break;
    case STAGE_SAMPLES:
        if (next_sample(w))
            break;
        if (++w->part < w->p->parts_len)
            begin_part(w);
        else
            w->stage = STAGE_TAIL;
        break;
    case STAGE_TAIL:
        put_tail(w);
        w->stage = STAGE_TABLES;
        break;
    case STAGE_TABLES:
        if (move_table(w, &w->tables, want)) {
            w->moved = 0;
            w->stage = STAGE_STRINGS;
        }
        break;
    case STAGE_STRINGS:
        if (move_table(w, &w->strings, want))
            w->stage = STAGE_DONE;
        break;
    case STAGE_DONE:
        break;
    }
}

static int writer_next(struct pprof_out_writer *w, size_t want, struct buf *out, bool *ret_more,
                       struct err *e)
{
    size_t from = out->len;

    w->out = out;
    while (w->stage != STAGE_DONE && out->len - from < want && writer_ok(w))
        writer_step(w, want - (out->len - from));
    if (!writer_ok(w))
        return err_set(e, ERR_LIMIT, "as pprof it takes more than %zu bytes",
                       MIN(out->max, w->tables.max));
    *ret_more = w->stage != STAGE_DONE;
    return 0;
}

struct pprof_out_writer *pprof_out_new(const struct pprof_out *p, size_t bytes_max)
{
    struct pprof_out_writer *w = XNEW(struct pprof_out_writer);

    writer_init(w, p, bytes_max);
    return w;
}

void pprof_out_free(struct pprof_out_writer *w)
{
    if (w)
        writer_deinit(w);
    xfree(w);
}

int pprof_out_next(struct pprof_out_writer *w, size_t want, struct buf *out, bool *ret_more,
                   struct err *e)
{
    return writer_next(w, MAX(want, 1), out, ret_more, e);
}

int pprof_out_write(const struct pprof_out *p, struct buf *out, struct err *e)
{
    struct pprof_out_writer w;
    bool more;

    writer_init(&w, p, out->max);
    int code = writer_next(&w, SIZE_MAX, out, &more, e);
    writer_deinit(&w);
    return code;
}
