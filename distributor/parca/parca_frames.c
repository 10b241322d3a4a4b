/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_frames: a list of locations to a node.
 *
 *   stack ─ (batch, first, n) seen? ── node          location ─ (batch, row) seen? ── frames
 *      └─ each location, leaf first ──────────────────> lines: (function, file, line, module)
 *                                                       none:  (build id or file; address)
 *
 * Equal stacks share their elements in a list view, and locations are entries of a dictionary: most
 * samples are one look into a table. Lists may overlap in any way, though, so that a small body
 * could stand for years of walking: the frames and lines looked at are counted and bounded.
 *
 * Addresses. The agent has turned them into addresses of the ELF file (v2 has no mapping ranges,
 * v1 sends 0 for them), so they are stored unchanged. Kernel and interpreted frames come with a
 * line.
 *
 * Format: proto/FORMATS.md, "Parca schema v1", "Parca schema v2".
 */
#include "distributor/parca/parca_frames.h"

#include "common/base/hash.h"
#include "distributor/formats/native.h"

#define WORK_MAX      (UINT64_C(32) << 20)
#define TEXT_MAX      (UINT64_C(1) << 30) /* bytes of names looked at, of all pushes */
#define LOCATIONS_MAX (1u << 20) /* remembered, of all pushes; frames: four times as many */

uint32_t parca_value_field(const struct arrow_schema *s, uint32_t f)
{
    for (;;) { /* down a finite tree */
        const struct arrow_field *at = &s->fields.ptr[f];
        if (at->kind == ARROW_DICT)
            f = s->dicts.ptr[at->dict].root;
        else if (at->kind == ARROW_RUNS)
            f = at[1].end;
        else
            return f;
    }
}

/* The struct that is an element of list `f`. */
static int element_struct(const struct arrow_schema *s, uint32_t f, uint32_t *ret, struct err *e)
{
    uint32_t list = parca_value_field(s, f);
    const struct arrow_field *at = &s->fields.ptr[list];

    if (at->kind == ARROW_LIST || at->kind == ARROW_LISTVIEW || at->kind == ARROW_FIXEDLIST) {
        *ret = parca_value_field(s, list + 1);
        if (s->fields.ptr[*ret].kind == ARROW_STRUCT)
            return 0;
    }
    return err_set(e, ERR_INPUT, "parca: column \"%.*s\" is no list of structs",
                   STR_ARG(str_sub(s->fields.ptr[f].name, 0, 64)));
}

static int line_fields(const struct arrow_schema *s, struct parca_fields *f, struct err *e)
{
    uint32_t line, in;

    if (element_struct(s, f->lines, &line, e))
        return e->code;
    f->line = arrow_child(s, line, STR("line"));
    f->function = arrow_child(s, line, STR("function"));
    if (f->function == ARROW_NO_FIELD) { /* v1 */
        f->name = arrow_child(s, line, STR("function_name"));
        f->system_name = arrow_child(s, line, STR("function_system_name"));
        f->filename = arrow_child(s, line, STR("function_filename"));
        return 0;
    }
    in = parca_value_field(s, f->function);
    if (s->fields.ptr[in].kind != ARROW_STRUCT)
        return err_set(e, ERR_INPUT, "parca: column \"function\" is no struct");
    f->name = arrow_child(s, in, STR("name"));
    f->system_name = arrow_child(s, in, STR("system_name"));
    f->filename = arrow_child(s, in, STR("filename"));
    return 0;
}

int parca_fields_find(const struct arrow_schema *s, uint32_t list, struct parca_fields *ret,
                      struct err *e)
{
    struct parca_fields f;
    uint32_t loc;

    memset(&f, 0xff, sizeof(f)); /* ARROW_NO_FIELD */
    if (element_struct(s, list, &loc, e))
        return e->code;
    f.address = arrow_child(s, loc, STR("address"));
    f.file = arrow_child(s, loc, STR("mapping_file"));
    f.build_id = arrow_child(s, loc, STR("mapping_build_id"));
    f.start = arrow_child(s, loc, STR("mapping_start"));
    f.limit = arrow_child(s, loc, STR("mapping_limit"));
    f.offset = arrow_child(s, loc, STR("mapping_offset"));
    f.lines = arrow_child(s, loc, STR("lines"));
    if (f.lines != ARROW_NO_FIELD && line_fields(s, &f, e))
        return e->code;
    *ret = f;
    return 0;
}

void parca_frames_init(struct parca_frames *f, struct arrow *a, const struct parca_fields *fields,
                       const struct limits *l)
{
    *f = (struct parca_frames){ .arrow = a, .fields = fields, .limits = l };
    map_u64_init(&f->location_ids);
    map_u64_init(&f->stack_ids);
    f->path = XNEW_ARRAY(uint32_t, (size_t)l->frames);
    buf_init(&f->tmp, 2 * (size_t)l->symbol_bytes + 64);
}

void parca_frames_deinit(struct parca_frames *f)
{
    map_u64_deinit(&f->location_ids);
    map_u64_deinit(&f->stack_ids);
    vec_free(&f->locations);
    vec_free(&f->stacks);
    vec_free(&f->frames);
    xfree(f->path);
    buf_deinit(&f->tmp);
}

void parca_frames_begin(struct parca_frames *f, struct push *push)
{
    f->push = push;
    f->longest = 0;
    f->push_no++;
    paths_init(&f->paths, push, f->limits);
}

void parca_frames_end(struct parca_frames *f)
{
    paths_deinit(&f->paths);
    f->push = NULL;
}

/* ---- one location ------------------------------------------------------------------------------
 */

static struct str text(struct parca_frames *f, struct arrow_cell in, uint32_t field)
{
    struct str s = STR_NULL;

    if (field != ARROW_NO_FIELD)
        (void)arrow_bytes(f->arrow, arrow_in(in, field), &s);
    f->text += s.len;
    f->longest = MAX(f->longest, s.len);
    return s;
}

static uint64_t num(struct parca_frames *f, struct arrow_cell in, uint32_t field)
{
    uint64_t v = 0;

    if (field != ARROW_NO_FIELD)
        (void)arrow_u64(f->arrow, arrow_in(in, field), &v);
    return v;
}

static uint32_t intern(struct parca_frames *f, struct str s)
{
    uint32_t id = stacks_string(&f->push->stacks, s);

    f->paths.full |= id == STACKS_FULL;
    return id;
}

/* A source file, or the file of a mapping. */
static uint32_t intern_path(struct parca_frames *f, struct str s)
{
    if (s.len == 0)
        return 0;
    return intern(f, push_path(f->push, s, (size_t)f->limits->symbol_keep_bytes, &f->tmp));
}

static void add_frame(struct parca_frames *f, const struct frame *frame)
{
    uint32_t id = f->paths.full ? STACKS_FULL : stacks_frame(&f->push->stacks, frame);

    f->paths.full |= id == STACKS_FULL;
    vec_push(&f->frames, id);
}

static void add_line(struct parca_frames *f, struct arrow_cell line, uint32_t module)
{
    const struct parca_fields *at = f->fields;
    struct arrow_cell fn = line;
    struct str name = STR_NULL, file = STR_NULL;
    int64_t number = 0;

    if (at->line != ARROW_NO_FIELD)
        (void)arrow_i64(f->arrow, arrow_in(line, at->line), &number);
    if (at->function != ARROW_NO_FIELD)
        fn = arrow_in(line, at->function);
    if (at->function == ARROW_NO_FIELD || arrow_struct(f->arrow, &fn)) {
        name = text(f, fn, at->name);
        if (name.len == 0)
            name = text(f, fn, at->system_name);
        file = text(f, fn, at->filename);
    }
    if (name.len == 0)
        name = STR(PATHS_NO_NAME);
    struct frame frame = { .module = module,
                           .line = number > 0 && number < UINT32_MAX ? (uint32_t)number : 0 };
    frame.func =
        intern(f, push_symbol(f->push, name, (size_t)f->limits->symbol_keep_bytes, &f->tmp));
    frame.file = intern_path(f, file);
    add_frame(f, &frame);
}

static void add_address(struct parca_frames *f, struct arrow_cell loc)
{
    const struct parca_fields *at = f->fields;
    struct str build_id = text(f, loc, at->build_id), file = text(f, loc, at->file);
    size_t keep = (size_t)f->limits->symbol_keep_bytes;
    struct frame frame = { .addr = native_offset(num(f, loc, at->address), num(f, loc, at->start),
                                                 num(f, loc, at->limit), num(f, loc, at->offset)) };

    if (frame.addr == 0 && build_id.len == 0 && file.len == 0)
        return; /* says nothing */
    if (native_build_id(build_id)) {
        frame.module = intern(f, str_tail(build_id, keep));
        frame.file = intern(f, str_tail(native_base_name(file), keep));
    } else {
        frame.module = intern_path(f, file);
    }
    add_frame(f, &frame);
}

static int too_much(struct err *e)
{
    return err_set(e, ERR_LIMIT, "parca: the stacks of a batch have over %" PRIu64 " frames",
                   WORK_MAX);
}

static int add_location(struct parca_frames *f, struct arrow_cell loc, struct err *e)
{
    const struct parca_fields *at = f->fields;
    struct arrow_cell line = loc;
    uint64_t lines = 0;
    uint32_t module;

    if (at->lines != ARROW_NO_FIELD &&
        !arrow_list(f->arrow, arrow_in(loc, at->lines), &line, &lines))
        lines = 0; /* null: to be found out later */
    if (lines > f->limits->lines_per_location)
        return err_set(e, ERR_LIMIT, "parca: a location with %" PRIu64 " lines, at most %" PRIu64,
                       lines, f->limits->lines_per_location);
    if (lines == 0) {
        add_address(f, loc);
        return 0;
    }
    f->work += lines;
    module = intern_path(f, text(f, loc, at->file));
    for (; lines; lines--, line.row++) { /* innermost first */
        struct arrow_cell one = line;
        if (arrow_struct(f->arrow, &one))
            add_line(f, one, module);
    }
    return 0;
}

/* Place in f->locations of the location of a cell; MAP_U64_EMPTY for a null. */
static int find_location(struct parca_frames *f, struct arrow_cell c, uint32_t *ret, struct err *e)
{
    uint32_t next = (uint32_t)f->locations.len;

    *ret = MAP_U64_EMPTY;
    if (!arrow_struct(f->arrow, &c))
        return 0;
    /* Pushes, batches, rows: 2^17, 2^14, 2^26 at most; dictionaries of a batch have its id, too,
     * but a location always comes from the same field. */
    uint64_t key = (uint64_t)f->push_no << 40 | (uint64_t)c.batch->id << 26 | c.row;
    *ret = map_u64_put(&f->location_ids, key, next);
    if (*ret != MAP_U64_EMPTY)
        return 0;
    if (next == LOCATIONS_MAX || f->frames.len > 4 * (size_t)LOCATIONS_MAX)
        return err_set(e, ERR_LIMIT, "parca: a batch with more than %u locations", LOCATIONS_MAX);
    struct parca_seen_location seen = { .from = (uint32_t)f->frames.len };
    if (add_location(f, c, e))
        return e->code;
    if (f->text > TEXT_MAX)
        return err_set(e, ERR_LIMIT,
                       "parca: the frames of a batch have over %" PRIu64 " bytes of names",
                       TEXT_MAX);
    if (f->longest > f->limits->symbol_bytes)
        return err_set(e, ERR_LIMIT, "parca: a name of %" PRIu64 " bytes, at most %" PRIu64,
                       f->longest, f->limits->symbol_bytes);
    seen.len = (uint32_t)f->frames.len - seen.from;
    vec_push(&f->locations, seen);
    *ret = next;
    return f->paths.full ? push_full(f->push, e) : 0;
}

/* ---- one stack ---------------------------------------------------------------------------------
 */

static int walk(struct parca_frames *f, struct arrow_cell c, uint64_t n, uint32_t *ret,
                struct err *e)
{
    size_t len = 0, most = (size_t)f->limits->frames;
    uint32_t at;

    for (; n; n--, c.row++) {
        if (f->work++ >= WORK_MAX)
            return too_much(e);
        if (find_location(f, c, &at, e))
            return e->code;
        if (at == MAP_U64_EMPTY)
            continue;
        struct parca_seen_location seen = f->locations.ptr[at];
        if (seen.len > most - len)
            return paths_too_deep(&f->paths, e);
        for (uint32_t k = 0; k < seen.len; k++)
            f->path[len++] = f->frames.ptr[seen.from + k];
    }
    if (f->arrow->fault.code) {
        *e = f->arrow->fault;
        return e->code;
    }
    return paths_node(&f->paths, f->path, len, ret, e);
}

int parca_frames_node(struct parca_frames *f, struct arrow_cell first, uint64_t n, uint32_t *ret,
                      struct err *e)
{
    struct parca_seen_stack mine = { f->push_no, first.batch->id, n ? first.row : 0, n, 0 };
    uint32_t next = (uint32_t)f->stacks.len;
    const uint64_t words[] = { (uint64_t)mine.push << 32 | mine.batch, mine.from, mine.len };

    for (uint64_t h = hash64(words, sizeof(words), f->push->stacks.seed);; h = hash_u64(h + 1)) {
        uint32_t at = map_u64_put(&f->stack_ids, h, next);
        if (at == MAP_U64_EMPTY)
            break;
        const struct parca_seen_stack *s = &f->stacks.ptr[at];
        if (s->push == mine.push && s->batch == mine.batch && s->from == mine.from &&
            s->len == mine.len) {
            *ret = s->node;
            return 0;
        }
    }
    int rc = walk(f, first, n, &mine.node, e);
    vec_push(&f->stacks, mine);
    *ret = mine.node;
    return rc;
}
