/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/gen/gen_jfr.h"

#include "common/base/mem.h"

#define BODY_MAX   (512 * MIB)
#define FIELDS_MAX 16

enum pool { STRINGS, SYMBOLS, CLASSES, METHODS, FRAME_TYPES, TRACES, STATES, THREADS };

/* A field "x:C" is inline, "x=C" a key of C's pool, "x[C" an array, "x{C" an array of keys; '!'
 * behind it says that the unit is nanoseconds, '~' ticks. */
static const struct class
{
    const char *name;
    int pool; /* its constants, or -1 */
    const char *fields[FIELDS_MAX];
} classes[] = {
    { "boolean", -1, { 0 } },
    { "byte", -1, { 0 } },
    { "char", -1, { 0 } },
    { "short", -1, { 0 } },
    { "int", -1, { 0 } },
    { "long", -1, { 0 } },
    { "float", -1, { 0 } },
    { "double", -1, { 0 } },
    { "java.lang.String", STRINGS, { 0 } },
    { "jdk.types.Symbol", SYMBOLS, { "string:java.lang.String" } },
    { "java.lang.Class",
      CLASSES,
      { "outer=java.lang.Class", "name=jdk.types.Symbol", "modifiers:int" } },
    { "jdk.types.Method",
      METHODS,
      { "type=java.lang.Class", "name=jdk.types.Symbol", "descriptor=jdk.types.Symbol",
        "modifiers:int", "hidden:boolean" } },
    { "jdk.types.FrameType", FRAME_TYPES, { "description:java.lang.String" } },
    { "jdk.types.StackFrame",
      -1,
      { "method=jdk.types.Method", "lineNumber:int", "bytecodeIndex:int",
        "type=jdk.types.FrameType" } },
    { "jdk.types.StackTrace", TRACES, { "truncated:boolean", "frames[jdk.types.StackFrame" } },
    { "jdk.types.ThreadState", STATES, { "name:java.lang.String" } },
    { "java.lang.Thread", THREADS, { "osName:java.lang.String", "pad:test.Pad", "id:long" } },
    { "test.Point", -1, { "x:float", "y:double", "c:char" } },
    { "test.Nothing", -1, { 0 } },
    { "test.Pad",
      -1,
      { "at[test.Point", "s:short", "bytes[byte", "text:java.lang.String", "none[test.Nothing",
        "texts[java.lang.String", "keys{java.lang.Class" } },
    { "jdk.ActiveSetting",
      -1,
      { "startTime:long", "id:long", "name:java.lang.String", "value:java.lang.String" } },
    { "test.Noise", -1, { "startTime:long", "stackTrace=jdk.types.StackTrace", "pad:test.Pad" } },
#define COMMON                                                                              \
    "startTime:long", "stackTrace=jdk.types.StackTrace", "eventThread=java.lang.Thread",    \
        "pad:test.Pad", "contextId:long", "spanId:long", "spanName:long", "traceIdHi:long", \
        "traceIdLo:long"
    { "jdk.ExecutionSample", -1, { COMMON, "state=jdk.types.ThreadState" } },
    { "jdk.NativeMethodSample", -1, { COMMON, "state=jdk.types.ThreadState" } },
    { "jdk.CPUTimeSample", -1, { COMMON, "failed:boolean", "samplingPeriod:long!" } },
    { "profiler.WallClockSample", -1, { COMMON, "state=jdk.types.ThreadState", "samples:int" } },
    { "jdk.ObjectAllocationInNewTLAB", -1, { COMMON, "allocationSize:long", "tlabSize:long" } },
    { "jdk.ObjectAllocationOutsideTLAB", -1, { COMMON, "allocationSize:long" } },
    { "jdk.ObjectAllocationSample", -1, { COMMON, "weight:long" } },
    { "jdk.JavaMonitorEnter", -1, { COMMON, "duration:long~", "address:long" } },
    { "jdk.ThreadPark", -1, { COMMON, "duration:long", "timeout:long" } },
    { "profiler.NativeLock", -1, { COMMON, "duration:long" } },
    { "profiler.LiveObject", -1, { COMMON, "allocationSize:long" } },
    { "profiler.Malloc", -1, { COMMON, "address:long", "size:long" } },
};
static_assert(ARRAY_LEN(classes) <= GEN_JFR_CLASSES, "all classes have a number");

/* What a field is to hold; others get noise. */
struct known_field {
    const char *field;
    uint64_t number;
    const char *text;      /* of a string */
    const struct buf *raw; /* of an array, with its count */
};

void gen_jfr_varint(struct buf *b, uint64_t v)
{
    for (int i = 0; i < 8 && v >= 0x80; i++, v >>= 7)
        buf_add_c(b, (char)(0x80 | (v & 0x7f)));
    buf_add_c(b, (char)v);
}

static void put_be(struct buf *b, uint64_t v, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--)
        buf_add_c(b, (char)(v >> (8 * i)));
}

/* ---- strings ----- */

static uint32_t utf8_next(const unsigned char **s)
{
    const unsigned char *p = *s;
    int more = p[0] < 0x80 ? 0 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : 3;
    uint32_t c = more == 0 ? p[0] : p[0] & (0x3fu >> more);

    for (int i = 1; i <= more; i++)
        c = c << 6 | (p[i] & 0x3f);
    *s = p + 1 + more;
    return c;
}

static bool latin1(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s)
        if (utf8_next(&s) > 0xff)
            return false;
    return true;
}

static void put_utf16(struct buf *b, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    struct buf units;
    uint64_t n = 0;

    buf_init(&units, BODY_MAX);
    while (*s) {
        uint32_t c = utf8_next(&s);
        n += c > 0xffff ? 2 : 1;
        if (c > 0xffff) {
            gen_jfr_varint(&units, 0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + ((c - 0x10000) & 0x3ff);
        }
        gen_jfr_varint(&units, c);
    }
    gen_jfr_varint(b, n);
    buf_add_str(b, buf_str(&units));
    buf_deinit(&units);
}

static void put_encoded(struct buf *b, const char *text, int encoding)
{
    struct buf plain;

    buf_init(&plain, BODY_MAX);
    buf_add_c(b, (char)encoding);
    if (encoding == 4) {
        put_utf16(b, text);
    } else {
        for (const unsigned char *s = (const unsigned char *)text; *s;)
            if (encoding == 5)
                buf_add_c(&plain, (char)utf8_next(&s));
            else
                buf_add_c(&plain, (char)*s++);
        gen_jfr_varint(b, plain.len);
        buf_add_str(b, buf_str(&plain));
    }
    buf_deinit(&plain);
}

static uint64_t new_constant(struct gen_jfr *g, enum pool pool, struct buf *value);

static void put_string(struct gen_jfr *g, struct buf *b, const char *text, bool pools)
{
    int encoding = g->encoding ? g->encoding : 2 + (int)prng_below(g->p, 4);
    struct buf value;

    if (encoding == 5 && !latin1(text))
        encoding = 3;
    if (encoding == 2 && !pools)
        encoding = 4;
    if (!*text) {
        buf_add_c(b, (char)prng_below(g->p, 2));
    } else if (encoding == 2) {
        buf_init(&value, BODY_MAX);
        put_encoded(&value, text, latin1(text) ? 5 : 3);
        buf_add_c(b, 2);
        gen_jfr_varint(b, new_constant(g, STRINGS, &value));
    } else {
        put_encoded(b, text, encoding);
    }
}

/* ---- values ----- */

static size_t class_at(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (str_eqc(name, classes[i].name))
            return i;
    CHECK(false); /* callers name classes of the table */
    return 0;
}

struct field {
    struct str name;
    char how; /* : = [ { */
    size_t class;
    char unit; /* ! ~ or 0 */
};

static struct field field_of(const char *text)
{
    size_t n = strcspn(text, ":=[{"), len = strlen(text);
    char unit = strchr("!~", text[len - 1]) ? text[len - 1] : 0;
    struct str class = str_n(text + n + 1, len - n - 1 - (unit != 0));

    return (struct field){ str_n(text, n), text[n], class_at(class), unit };
}

static size_t fields_of(size_t class)
{
    size_t n = 0;

    while (n < FIELDS_MAX && classes[class].fields[n])
        n++;
    return n;
}

static void put_value(struct gen_jfr *g, struct buf *b, size_t class,
                      const struct known_field *known, size_t n);

static void put_primitive(struct gen_jfr *g, struct buf *b, size_t class, uint64_t v)
{
    const char *name = classes[class].name;

    if (strcmp(name, "boolean") == 0 || strcmp(name, "byte") == 0)
        buf_add_c(b, (char)v);
    else if (strcmp(name, "float") == 0)
        put_be(b, v, 4);
    else if (strcmp(name, "double") == 0)
        put_be(b, v, 8);
    else if (strcmp(name, "char") == 0 || strcmp(name, "short") == 0)
        gen_jfr_varint(b, v & 0xffff);
    else if (strcmp(name, "int") == 0)
        gen_jfr_varint(b, v & 0xffffffff);
    else
        gen_jfr_varint(b, v);
    (void)g;
}

static uint64_t noise(struct gen_jfr *g)
{
    return prng_u64(g->p) >> prng_below(g->p, 64);
}

static void put_noise(struct gen_jfr *g, struct buf *b, const struct field *f)
{
    uint64_t n = prng_below(g->p, 4);

    if (f->how == '=') {
        gen_jfr_varint(b, noise(g));
    } else if (f->how == ':') {
        put_value(g, b, f->class, NULL, 0);
    } else {
        /* Elements without fields take no bytes, however many they are. */
        bool none = strcmp(classes[f->class].name, "test.Nothing") == 0;
        gen_jfr_varint(b, none ? noise(g) : n);
        for (uint64_t i = 0; i < n && !none; i++)
            if (f->how == '{')
                gen_jfr_varint(b, noise(g));
            else
                put_value(g, b, f->class, NULL, 0);
    }
}

static void put_field(struct gen_jfr *g, struct buf *b, const struct field *f,
                      const struct known_field *known, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!str_eqc(f->name, known[i].field))
            continue;
        if (known[i].raw)
            buf_add_str(b, buf_str(known[i].raw));
        else if (known[i].text)
            put_string(g, b, known[i].text, true);
        else if (f->how == '=')
            gen_jfr_varint(b, known[i].number);
        else
            put_primitive(g, b, f->class, known[i].number);
        return;
    }
    put_noise(g, b, f);
}

static void put_value(struct gen_jfr *g, struct buf *b, size_t class,
                      const struct known_field *known, size_t n)
{
    size_t fields = fields_of(class);

    if (strcmp(classes[class].name, "java.lang.String") == 0)
        put_string(g, b, prng_chance(g->p, 0.3) ? "" : "no\xc3\xafse", true);
    else if (fields == 0 && class < class_at(STR("java.lang.String")))
        put_primitive(g, b, class, noise(g));
    for (size_t i = 0; i < fields; i++) {
        struct field f = field_of(classes[class].fields[g->order[class][i]]);
        put_field(g, b, &f, known, n);
    }
}

/* ---- constants ----- */

static void put_constant(struct gen_jfr *g, enum pool pool, size_t checkpoint, uint64_t key,
                         struct str value)
{
    struct buf *b = &g->pools[checkpoint][pool];

    gen_jfr_varint(b, key);
    buf_add_str(b, value);
    g->counts[checkpoint][pool]++;
}

/* Takes the value over. At random an older checkpoint has something else under that key. */
static uint64_t new_constant(struct gen_jfr *g, enum pool pool, struct buf *value)
{
    size_t at = prng_below(g->p, g->checkpoints);
    uint64_t key = g->keys[pool] += 1 + (prng_chance(g->p, 0.2) ? noise(g) >> 24 : 0);

    put_constant(g, pool, at, key, buf_str(value));
    if (at + 1 < g->checkpoints && pool == SYMBOLS && prng_chance(g->p, 0.2)) {
        struct buf stale;
        buf_init(&stale, BODY_MAX);
        put_encoded(&stale, "stale", 3);
        put_constant(g, pool, at + 1, key, buf_str(&stale));
        buf_deinit(&stale);
    }
    buf_deinit(value);
    return key;
}

static uint64_t constant(struct gen_jfr *g, const char *class, const struct known_field *known,
                         size_t n)
{
    size_t at = class_at(str_c(class));
    struct buf value;

    buf_init(&value, BODY_MAX);
    put_value(g, &value, at, known, n);
    return new_constant(g, (enum pool)classes[at].pool, &value);
}

static uint64_t symbol(struct gen_jfr *g, const char *text)
{
    const struct known_field known[] = { { .field = "string", .text = text } };

    return constant(g, "jdk.types.Symbol", known, 1);
}

void gen_jfr_methods(struct gen_jfr *g, const char *class, const char *method, uint64_t *keys,
                     size_t n)
{
    const struct known_field of_class[] = { { .field = "name", .number = symbol(g, class) } };
    const struct known_field known[] = {
        { .field = "type", .number = constant(g, "java.lang.Class", of_class, 1) },
        { .field = "name", .number = symbol(g, method) },
    };

    for (size_t i = 0; i < n; i++)
        keys[i] = constant(g, "jdk.types.Method", known, 2);
}

uint64_t gen_jfr_method(struct gen_jfr *g, const char *class, const char *method)
{
    uint64_t key;

    gen_jfr_methods(g, class, method, &key, 1);
    return key;
}

uint64_t gen_jfr_trace(struct gen_jfr *g, const struct gen_jfr_frame *leaf_first, size_t n)
{
    struct buf frames;

    buf_init(&frames, BODY_MAX);
    gen_jfr_varint(&frames, n);
    for (size_t i = 0; i < n; i++) {
        const struct known_field frame[] = {
            { .field = "method", .number = leaf_first[i].method },
            { .field = "lineNumber", .number = (uint64_t)leaf_first[i].line },
        };
        put_value(g, &frames, class_at(STR("jdk.types.StackFrame")), frame, 2);
    }
    const struct known_field known[] = { { .field = "frames", .raw = &frames } };
    uint64_t key = constant(g, "jdk.types.StackTrace", known, 1);
    buf_deinit(&frames);
    return key;
}

uint64_t gen_jfr_state(struct gen_jfr *g, const char *name)
{
    const struct known_field known[] = { { .field = "name", .text = name } };

    return constant(g, "jdk.types.ThreadState", known, 1);
}

/* ---- events ----- */

/* A varint of at least `least` bytes. */
static void put_padded(struct buf *b, uint64_t v, size_t least)
{
    for (size_t i = 1; v >= 0x80 || i < least; i++, v >>= 7)
        buf_add_c(b, (char)(0x80 | (v & 0x7f)));
    buf_add_c(b, (char)v);
}

static void put_event(struct buf *out, uint64_t type, const struct buf *body, size_t size_bytes)
{
    struct buf head;

    buf_init(&head, 32);
    gen_jfr_varint(&head, type);
    uint64_t rest = head.len + body->len;
    while (rest + size_bytes >= UINT64_C(1) << (7 * size_bytes))
        size_bytes++;
    put_padded(out, rest + size_bytes, size_bytes);
    buf_add_str(out, buf_str(&head));
    buf_add_str(out, buf_str(body));
    buf_deinit(&head);
}

static void event(struct gen_jfr *g, const char *class, const struct known_field *known, size_t n)
{
    size_t at = class_at(str_c(class));
    struct buf body;

    buf_init(&body, BODY_MAX);
    put_value(g, &body, at, known, n);
    if (prng_chance(g->p, 0.1))
        buf_add_str(&body, STR("a newer producer's bytes"));
    put_event(&g->events, g->class_ids[at], &body, 1 + prng_below(g->p, 4));
    if (prng_chance(g->p, 0.5) && g->half == 0)
        g->half = g->events.len;
    buf_deinit(&body);
}

void gen_jfr_setting(struct gen_jfr *g, const char *name, const char *value)
{
    const struct known_field known[] = { { .field = "name", .text = name },
                                         { .field = "value", .text = value } };

    event(g, "jdk.ActiveSetting", known, 2);
}

void gen_jfr_period(struct gen_jfr *g, uint64_t time, const char *value)
{
    const struct known_field known[] = {
        { .field = "startTime", .number = time },
        { .field = "id", .number = g->class_ids[class_at(STR("jdk.ExecutionSample"))] },
        { .field = "name", .text = "period" },
        { .field = "value", .text = value }
    };

    event(g, "jdk.ActiveSetting", known, ARRAY_LEN(known));
}

void gen_jfr_event(struct gen_jfr *g, const struct gen_jfr_event *e)
{
    static const struct {
        const char *class, *value;
    } kinds[GEN_JFR_EVENTS] = {
        [GEN_JFR_CPU] = { "jdk.ExecutionSample", NULL },
        [GEN_JFR_NATIVE] = { "jdk.NativeMethodSample", NULL },
        [GEN_JFR_CPU_TIME] = { "jdk.CPUTimeSample", "samplingPeriod" },
        [GEN_JFR_WALL] = { "profiler.WallClockSample", "samples" },
        [GEN_JFR_IN_TLAB] = { "jdk.ObjectAllocationInNewTLAB", "tlabSize" },
        [GEN_JFR_OUTSIDE_TLAB] = { "jdk.ObjectAllocationOutsideTLAB", "allocationSize" },
        [GEN_JFR_ALLOC_SAMPLE] = { "jdk.ObjectAllocationSample", "weight" },
        [GEN_JFR_MONITOR] = { "jdk.JavaMonitorEnter", "duration" },
        [GEN_JFR_PARK] = { "jdk.ThreadPark", "duration" },
        [GEN_JFR_NATIVE_LOCK] = { "profiler.NativeLock", "duration" },
        [GEN_JFR_LIVE] = { "profiler.LiveObject", NULL },
        [GEN_JFR_MALLOC] = { "profiler.Malloc", "size" },
    };
    const struct known_field known[] = {
        { .field = "stackTrace", .number = e->trace },
        { .field = "state", .number = e->state },
        { .field = "contextId", .number = e->context },
        { .field = "spanId", .number = e->span },
        { .field = "spanName", .number = e->span_name },
        { .field = "traceIdHi", .number = e->trace_hi },
        { .field = "traceIdLo", .number = e->trace_lo },
        { .field = e->time ? "startTime" : "", .number = e->time },
        { .field = kinds[e->is].value, .number = (uint64_t)e->value },
    };

    event(g, kinds[e->is].class, known, ARRAY_LEN(known) - (kinds[e->is].value == NULL));
}

void gen_jfr_noise(struct gen_jfr *g)
{
    event(g, "test.Noise", NULL, 0);
}

/* ---- chunks ----- */

void gen_jfr_init(struct gen_jfr *g, struct prng *p)
{
    *g = (struct gen_jfr){ .p = p,
                           .start_ns = INT64_C(1700000000123456789),
                           .duration_ns = INT64_C(10000000000),
                           .ticks_per_s = 1000000000,
                           .checkpoints = 1 };
    buf_init(&g->file, BODY_MAX);
    buf_init(&g->events, BODY_MAX);
    for (size_t c = 0; c < GEN_JFR_CHECKPOINTS; c++)
        for (size_t i = 0; i < GEN_JFR_POOLS; i++)
            buf_init(&g->pools[c][i], BODY_MAX);
}

void gen_jfr_deinit(struct gen_jfr *g)
{
    buf_deinit(&g->file);
    buf_deinit(&g->events);
    for (size_t c = 0; c < GEN_JFR_CHECKPOINTS; c++)
        for (size_t i = 0; i < GEN_JFR_POOLS; i++)
            buf_deinit(&g->pools[c][i]);
}

void gen_jfr_chunk(struct gen_jfr *g)
{
    uint64_t id = 2;

    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        id += 1 + prng_below(g->p, prng_chance(g->p, 0.1) ? 5000 : 20);
        g->class_ids[i] = id;
        size_t n = fields_of(i);
        for (size_t k = 0; k < n; k++)
            g->order[i][k] = (uint8_t)k;
        for (size_t k = n; k > 1; k--) {
            size_t other = prng_below(g->p, k);
            uint8_t swap = g->order[i][k - 1];
            g->order[i][k - 1] = g->order[i][other];
            g->order[i][other] = swap;
        }
    }
    for (size_t c = 0; c < GEN_JFR_CHECKPOINTS; c++)
        for (size_t i = 0; i < GEN_JFR_POOLS; i++) {
            buf_reset(&g->pools[c][i]);
            g->counts[c][i] = 0;
        }
    for (size_t i = 0; i < GEN_JFR_POOLS; i++)
        g->keys[i] = noise(g) >> 8;
    buf_reset(&g->events);
    g->half = 0;
}

struct tree { /* strings of the metadata, as they come */
    struct gen_jfr *g;
    struct buf strings, body;
    uint64_t n;
};

static void put_name(struct tree *t, struct str s)
{
    struct buf text;

    buf_init(&text, BODY_MAX);
    buf_add_str(&text, s);
    buf_add_c(&text, '\0');
    put_string(t->g, &t->strings, text.ptr, false);
    gen_jfr_varint(&t->body, t->n++);
    buf_deinit(&text);
}

static void put_attribute(struct tree *t, const char *key, struct str value)
{
    put_name(t, str_c(key));
    put_name(t, value);
}

static void put_number(struct tree *t, const char *key, uint64_t value)
{
    struct buf text;

    buf_init(&text, 32);
    buf_add_u64(&text, value);
    put_attribute(t, key, buf_str(&text));
    buf_deinit(&text);
}

static void put_metadata_field(struct tree *t, const struct field *f)
{
    bool pool = f->how == '=' || f->how == '{', array = f->how == '[' || f->how == '{';

    put_name(t, STR("field"));
    gen_jfr_varint(&t->body, 2 + (uint64_t)pool + array);
    put_attribute(t, "name", f->name);
    put_number(t, "class", t->g->class_ids[f->class]);
    if (pool)
        put_attribute(t, "constantPool", STR("true"));
    if (array)
        put_attribute(t, "dimension", STR("1"));
    gen_jfr_varint(&t->body, f->unit != 0);
    if (f->unit) {
        put_name(t, STR("annotation"));
        gen_jfr_varint(&t->body, 2);
        put_number(t, "class", 1);
        put_attribute(t, "value", f->unit == '!' ? STR("NANOSECONDS") : STR("TICKS"));
        gen_jfr_varint(&t->body, 0);
    }
}

static void put_metadata(struct gen_jfr *g)
{
    struct tree t = { .g = g };
    struct buf event;

    buf_init(&t.strings, BODY_MAX);
    buf_init(&t.body, BODY_MAX);
    buf_init(&event, BODY_MAX);
    put_name(&t, STR("root"));
    gen_jfr_varint(&t.body, 0);
    gen_jfr_varint(&t.body, 2);
    put_name(&t, STR("metadata"));
    gen_jfr_varint(&t.body, 0);
    gen_jfr_varint(&t.body, ARRAY_LEN(classes));
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        size_t n = fields_of(i);
        put_name(&t, STR("class"));
        gen_jfr_varint(&t.body, 2);
        put_attribute(&t, "name", str_c(classes[i].name));
        put_number(&t, "id", g->class_ids[i]);
        gen_jfr_varint(&t.body, n);
        for (size_t k = 0; k < n; k++) {
            struct field f = field_of(classes[i].fields[g->order[i][k]]);
            put_metadata_field(&t, &f);
        }
    }
    put_name(&t, STR("region"));
    gen_jfr_varint(&t.body, 1);
    put_attribute(&t, "locale", STR("en_GB"));
    gen_jfr_varint(&t.body, 0);
    gen_jfr_varint(&event, noise(g));
    gen_jfr_varint(&event, 0);
    gen_jfr_varint(&event, 1);
    gen_jfr_varint(&event, t.n);
    buf_add_str(&event, buf_str(&t.strings));
    buf_add_str(&event, buf_str(&t.body));
    put_event(&g->file, 0, &event, 4);
    buf_deinit(&t.strings);
    buf_deinit(&t.body);
    buf_deinit(&event);
}

static void put_checkpoint(struct gen_jfr *g, size_t i, int64_t delta)
{
    struct buf event;
    uint64_t pools = 0;

    buf_init(&event, BODY_MAX);
    for (size_t k = 0; k < GEN_JFR_POOLS; k++)
        pools += g->counts[i][k] > 0;
    gen_jfr_varint(&event, noise(g));
    gen_jfr_varint(&event, 0);
    gen_jfr_varint(&event, (uint64_t)delta);
    buf_add_c(&event, (char)prng_below(g->p, 16));
    gen_jfr_varint(&event, pools);
    for (size_t c = 0; c < ARRAY_LEN(classes); c++) {
        int pool = classes[c].pool;
        if (pool < 0 || g->counts[i][pool] == 0)
            continue;
        gen_jfr_varint(&event, g->class_ids[c]);
        gen_jfr_varint(&event, g->counts[i][pool]);
        buf_add_str(&event, buf_str(&g->pools[i][pool]));
    }
    put_event(&g->file, 1, &event, 4);
    buf_deinit(&event);
}

static void patch_be(struct gen_jfr *g, size_t at, uint64_t v)
{
    for (size_t i = 0; i < 8; i++)
        g->file.ptr[at + i] = (char)(v >> (56 - 8 * i));
}

void gen_jfr_finish(struct gen_jfr *g)
{
    size_t start = g->file.len, last = 0;

    buf_add(&g->file, "FLR\0\0\2\0\1", 8);
    for (int i = 0; i < 3; i++)
        put_be(&g->file, 0, 8);
    put_be(&g->file, (uint64_t)g->start_ns, 8);
    put_be(&g->file, (uint64_t)g->duration_ns, 8);
    put_be(&g->file, noise(g), 8);
    put_be(&g->file, g->ticks_per_s, 8);
    put_be(&g->file, 1, 4); /* finished, integers compressed */
    /* Old checkpoints come first: the last one, 0, is the newest. */
    for (size_t i = g->checkpoints; i > 1; i--) {
        size_t at = g->file.len - start;
        put_checkpoint(g, i - 1, last ? (int64_t)last - (int64_t)at : 0);
        last = at;
    }
    buf_add(&g->file, g->events.ptr, g->half);
    patch_be(g, start + 24, g->file.len - start);
    put_metadata(g);
    buf_add_str(&g->file, str_sub(buf_str(&g->events), g->half, g->events.len));
    patch_be(g, start + 16, g->file.len - start);
    put_checkpoint(g, 0, last ? (int64_t)last - (int64_t)(g->file.len - start) : 0);
    patch_be(g, start + 8, g->file.len - start);
}
