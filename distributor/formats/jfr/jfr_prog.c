/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_prog: a class as a flat list of steps.
 *
 * Millions of events have the layout of a few classes, so a class is compiled once per chunk: its
 * fields in order, structs in it laid flat, an array as one step followed by the steps of an
 * element. Running it is a loop over a switch; values of wanted fields go to slots, all others to
 * slot 0, which is never read. A struct of a single field is that field (simpleType in JFR's words,
 * but some producers forget to say so).
 *
 * Bounds: structs in structs JFR_NESTING_MAX deep, which ends cycles as well; JFR_OPS_MAX steps a
 * class, since structs in structs multiply. An element of an array takes a byte at least, or the
 * array has no steps and is stepped over at once: so no count costs more than the bytes it stands
 * on.
 *
 * Format: JDK 11 to 25 and async-profiler at b583d82c2aa9 (proto/FORMATS.md, "JFR values").
 */
#include "distributor/formats/jfr/jfr_impl.h"

/* ---- compiling ----- */

struct level {
    uint32_t class;
    uint32_t at;       /* next field */
    uint32_t array;    /* the step this is the element of, JFR_NONE: a plain struct */
    enum jfr_slot one; /* the slot of the only field of a wanted struct */
};
struct compiler {
    struct jfr *j;
    struct jfr_chunk *c;
    struct jfr_prog prog;
    struct level levels[JFR_NESTING_MAX + 1];
    size_t depth;
    const struct jfr_want *wants;
    size_t wants_len;
    struct err *e;
};

static int bad_class(struct compiler *p, uint32_t class, const char *what)
{
    return err_set(p->e, ERR_INPUT, "class %.*s: %s",
                   STR_ARG(str_sub(p->c->classes.ptr[class].name, 0, 80)), what);
}

static int emit(struct compiler *p, enum jfr_op_kind kind, enum jfr_slot slot)
{
    struct jfr_op op = { .kind = (uint8_t)kind, .slot = (uint8_t)slot };

    if (p->prog.len == JFR_OPS_MAX || p->c->ops.len == JFR_OPS_ALL_MAX)
        return err_set(p->e, ERR_LIMIT, "metadata: a class of more than %d fields, or %d in all",
                       JFR_OPS_MAX, JFR_OPS_ALL_MAX);
    vec_push(&p->c->ops, op);
    p->prog.len++;
    return 0;
}

static int emit_primitive(struct compiler *p, enum jfr_kind kind, enum jfr_slot slot)
{
    static const uint8_t ops[JFR_PRIMITIVES] = {
        [JFR_BYTE] = JFR_OP_BYTE,    [JFR_SHORT] = JFR_OP_I16,     [JFR_CHAR] = JFR_OP_U16,
        [JFR_INT] = JFR_OP_I32,      [JFR_LONG] = JFR_OP_I64,      [JFR_FLOAT] = JFR_OP_SKIP4,
        [JFR_DOUBLE] = JFR_OP_SKIP8, [JFR_STRING] = JFR_OP_STRING,
    };

    return emit(p, (enum jfr_op_kind)ops[kind], slot);
}

static bool primitive(const struct jfr_class *c)
{
    return c->kind != JFR_OTHER && c->kind < JFR_PRIMITIVES;
}

static int enter(struct compiler *p, uint32_t class, uint32_t array, enum jfr_slot slot)
{
    const struct jfr_class *c = &p->c->classes.ptr[class];

    if (p->depth == ARRAY_LEN(p->levels))
        return bad_class(p, class, "structs in structs, too deep or endless");
    p->levels[p->depth++] = (struct level){ class, 0, array, c->fields_len == 1 ? slot : 0 };
    return 0;
}

static enum jfr_slot wanted(const struct compiler *p, struct str field)
{
    for (size_t i = 0; i < p->wants_len; i++)
        if (str_eqc(field, p->wants[i].field))
            return p->wants[i].slot;
    return JFR_SLOT_NONE;
}

static int compile_field(struct compiler *p, uint32_t class, const struct jfr_field *f,
                         enum jfr_slot slot)
{
    uint32_t of = jfr_class_find(p->j, f->class_id), array = JFR_NONE;

    if (of == JFR_NONE)
        return bad_class(p, class, "a field of a class that is not there");
    if (f->dimension > 1)
        return bad_class(p, class, "an array of arrays");
    const struct jfr_class *type = &p->c->classes.ptr[of];
    if (slot && (primitive(type) || f->pool || f->dimension || type->fields_len != 1))
        p->prog.bind[slot] = (struct jfr_bind){ .here = primitive(type) || f->pool || f->dimension,
                                                .pool = f->pool,
                                                .array = f->dimension == 1,
                                                .unit = f->unit,
                                                .class = of };
    if (f->dimension == 1) {
        array = (uint32_t)p->c->ops.len;
        if (emit(p, JFR_OP_ARRAY, slot))
            return p->e->code;
        slot = JFR_SLOT_NONE;
    }
    if (!f->pool && !primitive(type))
        return enter(p, of, array, slot);
    if (f->pool ? emit(p, JFR_OP_I64, slot) : emit_primitive(p, type->kind, slot))
        return p->e->code;
    if (array != JFR_NONE)
        p->c->ops.ptr[array].body = 1;
    return 0;
}

static int compile_all(struct compiler *p)
{
    while (p->depth > 0) {
        struct level *in = &p->levels[p->depth - 1];
        const struct jfr_class *class = &p->c->classes.ptr[in->class];
        if (in->at == class->fields_len) {
            if (in->array != JFR_NONE)
                p->c->ops.ptr[in->array].body = (uint16_t)(p->c->ops.len - in->array - 1);
            p->depth--;
            continue;
        }
        const struct jfr_field *f = &p->c->fields.ptr[class->fields_from + in->at++];
        enum jfr_slot slot = p->depth == 1 ? wanted(p, f->name) : in->one;
        if (compile_field(p, in->class, f, slot))
            return p->e->code;
    }
    return 0;
}

int jfr_compile(struct jfr *j, uint32_t class, const struct jfr_want *wants, size_t n,
                struct err *e)
{
    struct jfr_chunk *c = &j->chunk;
    struct compiler p = { .j = j, .c = c, .wants = wants, .wants_len = n, .e = e };
    int rc;

    if (c->classes.ptr[class].prog != JFR_NONE)
        return 0;
    p.prog.from = (uint32_t)c->ops.len;
    if (primitive(&c->classes.ptr[class])) { /* a pool of strings */
        rc = emit_primitive(&p, c->classes.ptr[class].kind, JFR_SLOT_A);
        p.prog.bind[JFR_SLOT_A] = (struct jfr_bind){ .here = true, .class = class };
    } else {
        rc = enter(&p, class, JFR_NONE, JFR_SLOT_NONE);
        if (!rc)
            rc = compile_all(&p);
    }
    if (rc)
        return rc;
    c->classes.ptr[class].prog = (uint32_t)c->progs.len;
    vec_push(&c->progs, p.prog);
    return 0;
}

/* ---- running ----- */

static bool skip(struct rd *r, size_t n)
{
    if (rd_left(r) < n)
        return false;
    r->p += n;
    return true;
}

/* One step that is no array. */
static inline bool step(struct jfr_op op, const uint8_t *base, struct rd *r, uint64_t *slots)
{
    struct jfr_string s;
    uint64_t v;

    switch ((enum jfr_op_kind)op.kind) {
    case JFR_OP_I64:
        return jfr_varint(r, &slots[op.slot]);
    case JFR_OP_I32:
        if (!jfr_varint(r, &v))
            return false;
        slots[op.slot] = (uint64_t)(int64_t)(int32_t)(uint32_t)v;
        return true;
    case JFR_OP_I16:
        if (!jfr_varint(r, &v))
            return false;
        slots[op.slot] = (uint64_t)(int64_t)(int16_t)(uint16_t)v;
        return true;
    case JFR_OP_U16:
        if (!jfr_varint(r, &v))
            return false;
        slots[op.slot] = (uint16_t)v;
        return true;
    case JFR_OP_BYTE:
        if (r->p == r->end)
            return false;
        slots[op.slot] = (uint64_t)(int64_t)(int8_t)*r->p++;
        return true;
    case JFR_OP_SKIP4:
        return skip(r, 4);
    case JFR_OP_SKIP8:
        return skip(r, 8);
    case JFR_OP_STRING:
        slots[op.slot] = (uint64_t)(r->p - base);
        return jfr_string_read(r, &s);
    case JFR_OP_ARRAY:
        break;
    }
    return false;
}

struct loop {
    const struct jfr_op *from, *at, *end;
    uint64_t left; /* elements after this one */
};

/* A count of elements, none of which is here unless its bytes are. */
static bool open_array(const struct jfr_op *op, struct rd *r, struct loop *ret, bool *empty)
{
    uint64_t n;

    if (!jfr_varint(r, &n))
        return false;
    *empty = n == 0 || op->body == 0;
    if (*empty)
        return true;
    if (n > rd_left(r))
        return false;
    *ret = (struct loop){ op + 1, op + 1, op + 1 + op->body, n - 1 };
    return true;
}

static bool skip_array(const struct jfr_op *op, const uint8_t *base, struct rd *r)
{
    struct loop loops[JFR_NESTING_MAX + 2];
    uint64_t none[JFR_SLOTS];
    size_t depth = 0;
    bool empty;

    if (!open_array(op, r, &loops[0], &empty))
        return false;
    if (empty)
        return true;
    for (;;) {
        struct loop *in = &loops[depth];
        if (in->at == in->end) {
            if (in->left > 0) {
                in->left--;
                in->at = in->from;
            } else if (depth-- == 0) {
                return true;
            }
            continue;
        }
        const struct jfr_op *now = in->at;
        in->at += 1 + (now->kind == JFR_OP_ARRAY ? now->body : 0);
        if (now->kind != JFR_OP_ARRAY) {
            if (!step((struct jfr_op){ now->kind, 0, 0 }, base, r, none))
                return false;
            continue;
        }
        if (depth + 1 == ARRAY_LEN(loops) || !open_array(now, r, &loops[depth + 1], &empty))
            return false;
        depth += !empty;
    }
}

bool jfr_run(const struct jfr_op *ops, size_t n, const uint8_t *base, struct rd *r,
             uint64_t slots[JFR_SLOTS])
{
    for (size_t i = 0; i < n; i++) {
        if (LIKELY(ops[i].kind != JFR_OP_ARRAY)) {
            if (!step(ops[i], base, r, slots))
                return false;
            continue;
        }
        slots[ops[i].slot] = (uint64_t)(r->p - base);
        if (!skip_array(&ops[i], base, r))
            return false;
        i += ops[i].body;
    }
    return true;
}
