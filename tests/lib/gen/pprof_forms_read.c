/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_forms_read: the slow decoder. It reads byte by byte, keeps everything in lists and looks
 * through them from the front. The body is known to be a good one.
 */
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/gen/pprof_forms.h"

#define TEXT_MAX (512 * MIB)

struct cursor {
    const char *p, *end;
};
struct entry {
    uint32_t number;
    uint64_t v;
    struct cursor sub;
};
struct numbers {
    VEC(uint64_t) list;
};
/* A function or a mapping: its fields by number. */
struct row {
    uint64_t v[8];
};
struct place {
    uint64_t id, mapping, address;
    size_t from, to; /* of slow.lines */
};
struct slow {
    VEC(struct str) strings, samples;
    VEC(struct row) types, functions, mappings, lines;
    VEC(struct place) places;
};

static uint64_t take_number(struct cursor *c)
{
    uint64_t v = 0;
    unsigned shift = 0;

    for (;; shift += 7) {
        CHECK(c->p < c->end && shift < 64);
        uint64_t byte = (uint8_t)*c->p++;
        v |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            return v;
    }
}

static bool next(struct cursor *c, struct entry *ret)
{
    if (c->p == c->end)
        return false;
    uint64_t tag = take_number(c), n;
    *ret = (struct entry){ .number = (uint32_t)(tag >> 3) };
    if ((tag & 7) == 0) {
        ret->v = take_number(c);
        return true;
    }
    CHECK((tag & 7) == 2);
    n = take_number(c);
    CHECK(n <= (size_t)(c->end - c->p));
    ret->sub = (struct cursor){ c->p, c->p + n };
    c->p += n;
    return true;
}

static struct row row_of(struct cursor c)
{
    struct row r = { { 0 } };
    struct entry x;

    while (next(&c, &x))
        if (x.number < ARRAY_LEN(r.v))
            r.v[x.number] = x.v;
    return r;
}

static void take_place(struct slow *s, struct cursor c)
{
    struct place l = { .from = s->lines.len };
    struct entry x;

    while (next(&c, &x)) {
        if (x.number == 1)
            l.id = x.v;
        else if (x.number == 2)
            l.mapping = x.v;
        else if (x.number == 3)
            l.address = x.v;
        else if (x.number == 4)
            vec_push(&s->lines, row_of(x.sub));
    }
    l.to = s->lines.len;
    vec_push(&s->places, l);
}

static void take_all(struct slow *s, struct str body)
{
    struct cursor c = { body.ptr, body.ptr + body.len };
    struct entry x;

    while (next(&c, &x)) {
        struct str text = { x.sub.p, (size_t)(x.sub.end - x.sub.p) };
        if (x.number == 1)
            vec_push(&s->types, row_of(x.sub));
        else if (x.number == 2)
            vec_push(&s->samples, text);
        else if (x.number == 3)
            vec_push(&s->mappings, row_of(x.sub));
        else if (x.number == 4)
            take_place(s, x.sub);
        else if (x.number == 5)
            vec_push(&s->functions, row_of(x.sub));
        else if (x.number == 6)
            vec_push(&s->strings, text);
    }
}

static const struct row *find_row(const struct row *rows, size_t n, uint64_t id)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].v[1] == id)
            return &rows[i];
    return NULL;
}

static struct str string_of(const struct slow *s, uint64_t i)
{
    return i < s->strings.len ? s->strings.ptr[i] : STR("");
}

/* Puts one frame of a location in front of the stack. */
static void frame_before(const struct slow *s, const struct place *l, const struct row *line,
                         struct buf *stack)
{
    const struct row *f = find_row(s->functions.ptr, s->functions.len, line->v[1]);
    const struct row *m = find_row(s->mappings.ptr, s->mappings.len, l->mapping);
    struct buf b;

    if (!f)
        return;
    struct str name = string_of(s, f->v[2]), module = m ? string_of(s, m->v[5]) : STR("");
    if (!name.len)
        name = string_of(s, f->v[3]);
    if (!name.len)
        name = STR("<no name>");
    buf_init(&b, TEXT_MAX);
    buf_addf(&b, ";%.*s|%.*s|%.*s|%" PRIu64 "|%" PRIx64 "%.*s", STR_ARG(name),
             STR_ARG(string_of(s, f->v[4])), STR_ARG(module),
             line->v[2] < UINT32_MAX ? line->v[2] : 0, f->v[5] <= INT32_MAX ? f->v[5] : 0,
             STR_ARG(buf_str(stack)));
    buf_move(stack, &b);
}

/* False: there is no such location. */
static bool place_before(const struct slow *s, uint64_t id, struct buf *stack)
{
    size_t i = 0, had = stack->len;

    while (i < s->places.len && s->places.ptr[i].id != id)
        i++;
    if (i == s->places.len)
        return false;
    const struct place *l = &s->places.ptr[i];
    for (size_t n = l->from; n < l->to; n++)
        frame_before(s, l, &s->lines.ptr[n], stack);
    if (stack->len == had && l->address) {
        struct buf b;
        buf_init(&b, TEXT_MAX);
        buf_addf(&b, ";|||0|%" PRIx64 "%.*s", l->address, STR_ARG(buf_str(stack)));
        buf_move(stack, &b);
    }
    return true;
}

static void take_numbers(struct numbers *to, const struct entry *x)
{
    struct cursor c = x->sub;

    if (!c.p)
        vec_push(&to->list, x->v);
    while (c.p && c.p < c.end)
        vec_push(&to->list, take_number(&c));
}

static struct str label_of(const struct slow *s, struct cursor c, struct str before)
{
    struct row r = row_of(c);

    return str_eq(string_of(s, r.v[1]), STR("pod")) && r.v[2] ? string_of(s, r.v[2]) : before;
}

/* Its rows: 0, or what is wrong with it. */
static void add_rows(const struct slow *s, const struct numbers *ids, const struct numbers *values,
                     struct str pod, struct pprof_forms_read *ret)
{
    struct buf stack;
    bool known = true;

    buf_init(&stack, TEXT_MAX);
    for (size_t i = 0; i < ids->list.len && known; i++)
        known = place_before(s, ids->list.ptr[i], &stack);
    if (!stack.len)
        buf_add_str(&stack, STR(";[unknown]|||0|0"));
    ret->unknown_location += !known;
    for (size_t t = 0; t < s->types.len && known; t++)
        if (values->list.ptr[t])
            buf_addf(&ret->rows, "%.*s\t%.*s\t%.*s\t%" PRIu64 "\n",
                     STR_ARG(string_of(s, s->types.ptr[t].v[1])), STR_ARG(pod),
                     STR_ARG(buf_str(&stack)), values->list.ptr[t]);
    buf_deinit(&stack);
}

static void add_sample(const struct slow *s, struct str bytes, struct pprof_forms_read *ret)
{
    struct cursor c = { bytes.ptr, bytes.ptr + bytes.len };
    struct numbers ids = { 0 }, values = { 0 };
    struct str pod = STR("");
    struct entry x;
    uint64_t any = 0;

    while (next(&c, &x)) {
        if (x.number == 1)
            take_numbers(&ids, &x);
        else if (x.number == 2)
            take_numbers(&values, &x);
        else if (x.number == 3)
            pod = label_of(s, x.sub, pod);
    }
    vec_for (i, &values.list)
        any |= values.list.ptr[i];
    ret->samples++;
    if (values.list.len != s->types.len)
        ret->value_count++;
    else if (any > INT64_MAX)
        ret->negative++;
    else if (any)
        add_rows(s, &ids, &values, pod, ret);
    vec_free(&ids.list);
    vec_free(&values.list);
}

bool pprof_forms_add_up(struct buf *lines)
{
    struct str rest, line, last = STR_NULL;
    bool more = true, saturated = false;
    uint64_t sum = 0, v;
    struct buf out;

    gen_sort_lines(lines);
    rest = buf_str(lines);
    buf_init(&out, TEXT_MAX);
    while (str_next(&rest, '\n', &more, &line)) {
        ptrdiff_t tab = str_rfind(line, '\t');
        struct str key = str_sub(line, 0, tab < 0 ? 0 : (size_t)tab);
        if (last.ptr && !str_eq(key, last)) {
            buf_addf(&out, "%.*s\t%" PRIu64 "\n", STR_ARG(last), sum);
            sum = 0;
        }
        last = key.len ? key : STR_NULL;
        if (!key.len)
            continue;
        CHECK(str_u64(str_sub(line, (size_t)tab + 1, line.len), &v));
        saturated |= sum + v > INT64_MAX;
        sum = MIN(sum + v, (uint64_t)INT64_MAX);
    }
    buf_move(lines, &out);
    return saturated;
}

void pprof_forms_read(struct str body, struct pprof_forms_read *ret)
{
    struct slow s = { 0 };

    *ret = (struct pprof_forms_read){ 0 };
    buf_init(&ret->rows, TEXT_MAX);
    take_all(&s, body);
    vec_for (i, &s.samples)
        add_sample(&s, s.samples.ptr[i], ret);
    ret->saturated = pprof_forms_add_up(&ret->rows);
    CHECK(buf_ok(&ret->rows));
    vec_free(&s.strings);
    vec_free(&s.samples);
    vec_free(&s.types);
    vec_free(&s.functions);
    vec_free(&s.mappings);
    vec_free(&s.lines);
    vec_free(&s.places);
}
