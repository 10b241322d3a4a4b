/* SPDX-License-Identifier: Apache-2.0
 *
 * gen_jfr_random: recordings of everything at once, and what a reader must make of them: a line per
 * event and sample type, added up at the end.
 */
#include "common/base/mem.h"
#include "tests/lib/gen/gen_jfr.h"
#include "tests/lib/gen/gen_pprof.h"

#define TEXT_MAX (512 * MIB)
#define METHODS  24
#define TRACES   40
#define CONTEXTS 6

static const char *const label_keys[] = { "route", "thread", "zone" };
static const char *const label_values[] = { "GET /", "pool-1", "\xc3\xa9t\xc3\xa9", "eu-1" };
static const char *const span_names[] = { "", "Checkout", "Search" };

struct line { /* one event under one type */
    const char *type;
    uint64_t context, span_name, value;
    size_t stack; /* of stacks */
};
struct model {
    struct prng *p;
    struct gen_jfr g;
    struct gen_jfr_random *out;
    char *stacks[METHODS * TRACES];
    size_t stacks_len;
    struct line *lines;
    size_t lines_len, lines_cap;
    char labels[CONTEXTS + 1][128]; /* sorted, "route=..,zone=.."; context 0 has none */
    const char *setting;            /* the last one */
    bool wall;
};

static void snapshot_entry(struct buf *out, uint32_t field, uint64_t key, const struct buf *value)
{
    struct buf entry;

    buf_init(&entry, TEXT_MAX);
    gen_u64(&entry, 1, key);
    gen_bytes(&entry, 2, buf_str(value));
    gen_bytes(out, field, buf_str(&entry));
    buf_deinit(&entry);
}

static void snapshot_string(struct buf *out, uint64_t id, const char *text)
{
    struct buf value;

    buf_init(&value, TEXT_MAX);
    buf_add_str(&value, str_c(text));
    snapshot_entry(out, 2, id, &value);
    buf_deinit(&value);
}

/* Keys are strings 100.., values 200.., names of spans 300... */
static void make_labels(struct model *m)
{
    struct buf *out = &m->out->labels;

    buf_init(out, TEXT_MAX);
    for (size_t i = 0; i < ARRAY_LEN(label_keys); i++)
        snapshot_string(out, 100 + i, label_keys[i]);
    for (uint64_t c = 1; c <= CONTEXTS; c++) {
        struct buf context, text, entry;
        buf_init(&context, TEXT_MAX);
        buf_init(&text, sizeof(m->labels[c]) - 1);
        buf_init(&entry, TEXT_MAX);
        for (size_t i = 0; i < ARRAY_LEN(label_keys); i++) {
            size_t v = prng_below(m->p, ARRAY_LEN(label_values));
            if (prng_chance(m->p, 0.4))
                continue;
            buf_reset(&entry);
            gen_u64(&entry, 1, 100 + i);
            gen_u64(&entry, 2, 200 + v);
            gen_bytes(&context, 1, buf_str(&entry));
            buf_addf(&text, "%s%s=%s", text.len ? "," : "", label_keys[i], label_values[v]);
        }
        snapshot_entry(out, 1, c, &context);
        if (text.len)
            memcpy(m->labels[c], text.ptr, text.len);
        m->labels[c][text.len] = '\0';
        buf_deinit(&context);
        buf_deinit(&text);
        buf_deinit(&entry);
    }
    for (size_t i = 0; i < ARRAY_LEN(label_values); i++)
        snapshot_string(out, 200 + i, label_values[i]);
    for (size_t i = 1; i < ARRAY_LEN(span_names); i++)
        snapshot_string(out, 300 + i, span_names[i]);
}

static void add(struct model *m, const char *type, const struct gen_jfr_event *e, size_t stack,
                uint64_t value)
{
    if (m->lines_len == m->lines_cap) {
        m->lines_cap = m->lines_cap ? m->lines_cap * 2 : 64;
        m->lines = xreallocarray(m->lines, m->lines_cap, sizeof(*m->lines));
    }
    uint64_t name = e->span_name ? e->span_name - 300 : 0;
    m->lines[m->lines_len++] = (struct line){ type, e->context, name, value, stack };
}

/* What one event means, by the tables of the reference. */
static void expect(struct model *m, const struct gen_jfr_event *e, size_t stack, size_t state)
{
    uint64_t ns = (uint64_t)e->value / m->g.ticks_per_s * 1000000000u +
                  (uint64_t)e->value % m->g.ticks_per_s * 1000000000u / m->g.ticks_per_s;

    switch (e->is) {
    case GEN_JFR_CPU:
        if (state != 2)
            add(m, "cpu", e, stack, 1);
        if (m->wall)
            add(m, "wall", e, stack, 1);
        return;
    case GEN_JFR_WALL:
        add(m, "wall", e, stack, (uint64_t)e->value);
        if (m->wall && state == 1)
            add(m, "cpu", e, stack, (uint64_t)e->value);
        return;
    case GEN_JFR_NATIVE:
        add(m, "samples", e, stack, 1);
        return;
    case GEN_JFR_CPU_TIME:
        add(m, "cpu_time", e, stack, (uint64_t)e->value);
        return;
    case GEN_JFR_IN_TLAB:
        add(m, "alloc_in_new_tlab_objects", e, stack, 1);
        add(m, "alloc_in_new_tlab_bytes", e, stack, (uint64_t)e->value);
        return;
    case GEN_JFR_OUTSIDE_TLAB:
        add(m, "alloc_outside_tlab_objects", e, stack, 1);
        add(m, "alloc_outside_tlab_bytes", e, stack, (uint64_t)e->value);
        return;
    case GEN_JFR_ALLOC_SAMPLE:
        add(m, "alloc_sample_objects", e, stack, 1);
        add(m, "alloc_sample_bytes", e, stack, (uint64_t)e->value);
        return;
    case GEN_JFR_MONITOR:
    case GEN_JFR_PARK: /* mutex and block, which rows do not tell apart */
        add(m, "contentions", e, stack, 1);
        add(m, "delay", e, stack, ns);
        return;
    case GEN_JFR_NATIVE_LOCK:
        add(m, "native_contentions", e, stack, 1);
        add(m, "native_delay", e, stack, ns);
        return;
    case GEN_JFR_LIVE:
        add(m, "live", e, stack, 1);
        return;
    case GEN_JFR_MALLOC:
        add(m, "malloc_objects", e, stack, 1);
        add(m, "malloc_bytes", e, stack, (uint64_t)e->value);
        return;
    case GEN_JFR_EVENTS:
        return;
    }
}

static const struct {
    const char *class, *method, *shown;
} names[] = {
    { "java/lang/Thread", "run", "java/lang/Thread.run" },
    { "demo/Main", "main", "demo/Main.main" },
    { "demo/Main", "\xe5\xb7\xa5\xe4\xbd\x9c", "demo/Main.\xe5\xb7\xa5\xe4\xbd\x9c" },
    { "demo/Caf\xc3\xa9", "<init>", "demo/Caf\xc3\xa9.<init>" },
    { "", "__libc_read", "__libc_read" },
    { "libjvm.so", "JavaCalls::call(JavaValue*)", "libjvm.so.JavaCalls::call(JavaValue*)" },
    { "demo/\xf0\x9f\x98\x80", "smile", "demo/\xf0\x9f\x98\x80.smile" },
};

/* Traces of a chunk: key and what it should read. The first is one with no frames. */
static void make_trace(struct model *m, const uint64_t *methods, size_t i, uint64_t *ret_key)
{
    struct gen_jfr_frame frames[12];
    size_t n = i ? prng_below(m->p, ARRAY_LEN(frames)) : 0;
    struct buf text;
    bool any = false;

    buf_init(&text, TEXT_MAX);
    for (size_t k = 0; k < n; k++)
        frames[k].line = (int32_t)prng_below(m->p, 300) - 5;
    for (size_t k = n; k > 0; k--) { /* texts stand root first */
        size_t name = prng_below(m->p, ARRAY_LEN(names));
        bool known = !prng_chance(m->p, 0.05);
        frames[k - 1].method = known ? methods[name] : 0;
        if (known)
            buf_addf(&text, "%s%s", any ? ";" : "", names[name].shown);
        any |= known;
    }
    *ret_key = gen_jfr_trace(&m->g, frames, n);
    if (!any)
        buf_add_str(&text, STR("[unknown]"));
    buf_add_c(&text, '\0');
    CHECK(m->stacks_len < ARRAY_LEN(m->stacks));
    m->stacks[m->stacks_len++] = xstrdup(text.ptr);
    buf_deinit(&text);
}

static void make_chunk(struct model *m, size_t events)
{
    static const uint64_t ticks[] = { 1000000000, UINT64_C(2419200000), 1000003, 1 };
    static const char *const states[] = { "STATE_DEFAULT", "STATE_RUNNABLE", "STATE_SLEEPING" };
    static const char *const settings[] = { "cpu", "wall", "itimer" };
    uint64_t methods[ARRAY_LEN(names)], traces[TRACES], state[ARRAY_LEN(states)];
    size_t stacks = m->stacks_len;

    m->g.ticks_per_s = ticks[prng_below(m->p, ARRAY_LEN(ticks))];
    m->g.checkpoints = 1 + prng_below(m->p, GEN_JFR_CHECKPOINTS);
    gen_jfr_chunk(&m->g);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        methods[i] = gen_jfr_method(&m->g, names[i].class, names[i].method);
    for (size_t i = 0; i < TRACES; i++)
        make_trace(m, methods, i, &traces[i]);
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        state[i] = gen_jfr_state(&m->g, states[i]);
    if (prng_chance(m->p, 0.7)) {
        m->setting = settings[prng_below(m->p, ARRAY_LEN(settings))];
        m->wall = strcmp(m->setting, "wall") == 0;
        gen_jfr_setting(&m->g, "interval", "wall");
        gen_jfr_setting(&m->g, "event", m->setting);
    }
    for (size_t i = 0; i < events; i++) {
        struct gen_jfr_event e = { .is = (enum gen_jfr_is)prng_below(m->p, GEN_JFR_EVENTS) };
        size_t t = prng_below(m->p, TRACES), s = prng_below(m->p, ARRAY_LEN(states));
        bool known = !prng_chance(m->p, 0.05);
        e.trace = known ? traces[t] : 0;
        e.state = state[s];
        e.value = (int64_t)(1 + (prng_u64(m->p) >> (34 + prng_below(m->p, 29))));
        e.context = prng_chance(m->p, 0.4) ? prng_below(m->p, CONTEXTS + 1) : 0;
        if (prng_chance(m->p, 0.2)) {
            e.span = prng_u64(m->p) >> 40;
            size_t name = prng_below(m->p, ARRAY_LEN(span_names));
            e.span_name = name ? 300 + name : 0;
        }
        e.trace_lo = prng_chance(m->p, 0.1) ? prng_u64(m->p) : 0;
        gen_jfr_event(&m->g, &e);
        m->out->samples++;
        m->out->no_stack += !known;
        if (known)
            expect(m, &e, stacks + t, s);
        if (prng_chance(m->p, 0.1))
            gen_jfr_noise(&m->g);
    }
    gen_jfr_finish(&m->g);
}

/* Labels stand in the order of their names: jfr_event, route, span_name, thread, zone. */
static void write_labels(const struct model *m, const struct line *l, struct buf *out)
{
    struct str rest = str_c(m->labels[l->context]), one;
    bool comma = false, more = true, named = l->span_name == 0;

    if (m->setting) {
        buf_addf(out, "jfr_event=%s", m->setting);
        comma = true;
    }
    while (rest.len && str_next(&rest, ',', &more, &one)) {
        if (!named && !str_starts(one, STR("route="))) {
            buf_addf(out, "%sspan_name=%s", comma ? "," : "", span_names[l->span_name]);
            named = comma = true;
        }
        buf_addf(out, "%s%.*s", comma ? "," : "", STR_ARG(one));
        comma = true;
    }
    if (!named)
        buf_addf(out, "%sspan_name=%s", comma ? "," : "", span_names[l->span_name]);
}

/* Lines that say the same but for their value become one. */
static void write_rows(struct model *m)
{
    struct buf all;
    struct str rest, line, last = STR_NULL;
    uint64_t sum = 0, v;
    bool more = true;

    buf_init(&all, TEXT_MAX);
    buf_init(&m->out->rows, TEXT_MAX);
    for (size_t i = 0; i < m->lines_len; i++) {
        const struct line *l = &m->lines[i];
        buf_addf(&all, "%s\t{", l->type);
        write_labels(m, l, &all);
        buf_addf(&all, "}\t%s\t%" PRIu64 "\n", m->stacks[l->stack], l->value);
    }
    gen_sort_lines(&all);
    rest = buf_str(&all);
    while (rest.len && str_next(&rest, '\n', &more, &line)) {
        ptrdiff_t tab = str_rfind(line, '\t');
        struct str key = str_sub(line, 0, tab < 0 ? 0 : (size_t)tab);
        if (last.ptr && !str_eq(key, last)) {
            if (sum)
                buf_addf(&m->out->rows, "%.*s\t%" PRIu64 "\n", STR_ARG(last), sum);
            sum = 0;
        }
        CHECK(str_u64(str_sub(line, (size_t)tab + 1, line.len), &v));
        sum += v;
        last = key;
    }
    if (last.ptr && sum)
        buf_addf(&m->out->rows, "%.*s\t%" PRIu64 "\n", STR_ARG(last), sum);
    gen_sort_lines(&m->out->rows);
    buf_deinit(&all);
}

void gen_jfr_random(struct prng *p, size_t events, struct gen_jfr_random *ret)
{
    struct model *m = XNEW(struct model);
    size_t chunks = 1 + prng_below(p, 4);

    *ret = (struct gen_jfr_random){ 0 };
    m->p = p;
    m->out = ret;
    gen_jfr_init(&m->g, p);
    make_labels(m);
    for (size_t i = 0; i < chunks; i++)
        make_chunk(m, events / chunks);
    write_rows(m);
    buf_move(&ret->file, &m->g.file);
    for (size_t i = 0; i < m->stacks_len; i++)
        xfree(m->stacks[i]);
    xfree(m->lines);
    gen_jfr_deinit(&m->g);
    xfree(m);
}

void gen_jfr_random_deinit(struct gen_jfr_random *r)
{
    buf_deinit(&r->file);
    buf_deinit(&r->labels);
    buf_deinit(&r->rows);
}
