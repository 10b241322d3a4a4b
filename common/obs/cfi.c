/* SPDX-License-Identifier: Apache-2.0
 *
 * cfi: runs the call frame program of every function once and writes down each state it passes.
 *
 *   .eh_frame_hdr ── sorted (function, FDE) pairs ──> FDE ── program ──> rows (pc, rule)
 *                                                      └──> CIE: common start of the program
 *
 * The bytes are those the dynamic linker mapped, so they are as trustworthy as the code beside
 * them; still every read is bounded by the mapped segment, since a signal handler will follow what
 * comes out. An FDE that cannot be read leaves a CFI_NONE row, not a hole.
 */
#include "common/obs/cfi.h"

#include "common/base/mem.h"
#include "common/base/rd.h"

enum {
    REG_RBP = 6,
    REG_RSP = 7,
    REG_RA = 16,
    ROWS_MAX = 8 << 20,
    REMEMBER_MAX = 16,
};

struct rule {
    enum cfi_cfa cfa;
    int64_t cfa_off;
    enum cfi_rbp rbp;
    int64_t rbp_off;
    bool ra_undefined, ra_odd;
};

struct builder {
    uint64_t base;
    const uint8_t *hdr;
    struct eh_image image;
    struct cfi_row *rows; /* of the caller, with room for so many */
    size_t room, len;     /* more than the room: so many are needed */
    struct cfi_row last;
    struct eh_cie cie; /* the last one used; neighbours share it */
};

/* ---- rules ----------------------------------------------------------------------------------- */

static void rule_cfa(struct rule *u, uint64_t reg, int64_t off)
{
    u->cfa = reg == REG_RSP ? CFI_RSP : reg == REG_RBP ? CFI_RBP : CFI_NONE;
    u->cfa_off = off;
}

/* The register was pushed at CFA + off. */
static void rule_saved(struct rule *u, uint64_t reg, int64_t off)
{
    if (reg == REG_RBP) {
        u->rbp = CFI_RBP_AT_CFA;
        u->rbp_off = off;
    } else if (reg == REG_RA) {
        u->ra_undefined = false;
        u->ra_odd = off != -8;
    }
}

static void rule_restored(struct rule *u, uint64_t reg, const struct rule *initial)
{
    if (reg == REG_RBP) {
        u->rbp = initial->rbp;
        u->rbp_off = initial->rbp_off;
    } else if (reg == REG_RA) {
        u->ra_undefined = initial->ra_undefined;
        u->ra_odd = initial->ra_odd;
    }
}

static void rule_lost(struct rule *u, uint64_t reg)
{
    if (reg == REG_RBP)
        u->rbp = CFI_RBP_LOST;
    else if (reg == REG_RA)
        u->ra_odd = true;
}

/* The frame address as an expression: the three kinds that compilers and linkers emit. */
static void rule_cfa_expression(struct rule *u, struct str x)
{
    /* rsp + 8 + ((rip & 15) >= n) << 3: an entry of the procedure linkage table. */
    static const uint8_t plt[] = { 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0, 0x2a, 0x33, 0x24, 0x22 };
    const uint8_t *p = (const uint8_t *)(const void *)x.ptr;
    struct rd r = rd_of(x);
    uint8_t op;
    int64_t off;

    u->cfa = CFI_NONE;
    if (x.len == sizeof(plt) && memcmp(p, plt, 6) == 0 && memcmp(p + 7, plt + 7, 4) == 0 &&
        p[6] >= 0x30 && p[6] < 0x40) {
        u->cfa = CFI_PLT;
        u->cfa_off = p[6] - 0x30;
        return;
    }
    /* DW_OP_breg6 off, DW_OP_deref: main() and others that realign the stack. */
    if (rd_u8(&r, &op) && op == 0x70 + REG_RBP && eh_sleb(&r, &off) && rd_u8(&r, &op) &&
        op == 0x06 && rd_left(&r) == 0) {
        u->cfa = CFI_RBP_DEREF;
        u->cfa_off = off;
    }
}

static void rule_expression(struct rule *u, uint64_t reg, struct str x)
{
    struct rd r = rd_of(x);
    uint8_t op;
    int64_t off;

    if (reg == REG_RBP && rd_u8(&r, &op) && op == 0x70 + REG_RBP && eh_sleb(&r, &off) &&
        rd_left(&r) == 0) {
        u->rbp = CFI_RBP_AT_RBP;
        u->rbp_off = off;
    } else {
        rule_lost(u, reg);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static struct cfi_row row_of(const struct rule *u, bool signal)
{
    struct cfi_row row = { 0 };

    row.cfa = (uint8_t)u->cfa;
    if (signal)
        row.cfa = CFI_SIGNAL;
    else if (u->ra_undefined)
        row.cfa = CFI_END;
    else if (u->ra_odd || u->cfa_off > INT32_MAX || u->cfa_off < INT32_MIN)
        row.cfa = CFI_NONE;
    if (row.cfa == CFI_RSP || row.cfa == CFI_RBP || row.cfa == CFI_RBP_DEREF || row.cfa == CFI_PLT)
        row.cfa_off = (int32_t)u->cfa_off;
    row.rbp = (unsigned)u->rbp & 0xfu;
    if (u->rbp == CFI_RBP_AT_CFA || u->rbp == CFI_RBP_AT_RBP) {
        if (u->rbp_off > INT16_MAX || u->rbp_off < INT16_MIN)
            row.rbp = CFI_RBP_LOST;
        else
            row.rbp_off = (int16_t)u->rbp_off;
    }
    return row;
}

static void put_row(struct builder *b, size_t at, struct cfi_row row)
{
    b->last = row;
    if (at < b->room)
        b->rows[at] = row;
}

static void emit(struct builder *b, uint64_t pc, struct cfi_row row)
{
    const struct cfi_row *last = b->len ? &b->last : NULL;

    if (pc < b->base || pc - b->base > UINT32_MAX || b->len >= ROWS_MAX)
        return;
    row.pc = (uint32_t)(pc - b->base);
    if (last && last->pc > row.pc)
        return; /* functions that overlap: the first one keeps the bytes */
    if (last && last->pc == row.pc) {
        row.starts_function |= last->starts_function;
        put_row(b, b->len - 1, row);
        return;
    }
    if (last && !row.starts_function && last->cfa == row.cfa && last->cfa_off == row.cfa_off &&
        last->rbp == row.rbp && last->rbp_off == row.rbp_off)
        return;
    put_row(b, b->len++, row);
}

/* ---- programs -------------------------------------------------------------------------------- */

struct run {
    struct builder *b;
    const struct eh_cie *cie;
    struct rule now, initial;
    struct rule remembered[REMEMBER_MAX];
    size_t depth;
    uint64_t pc;
    bool emits, first;
};

static void advance(struct run *x, uint64_t delta)
{
    struct cfi_row row;

    if (delta && x->emits) {
        row = row_of(&x->now, x->cie->signal);
        row.starts_function = x->first;
        x->first = false;
        emit(x->b, x->pc, row);
    }
    x->pc += delta;
}

static bool advance_coded(struct run *x, struct rd *r, unsigned format)
{
    uint64_t v;

    if (!eh_sized(r, format, &v))
        return false;
    advance(x, v * x->cie->code_align);
    return true;
}

/* Opcodes with a register first. */
static bool step_register(struct run *x, struct rd *r, uint8_t op)
{
    uint64_t reg, u;
    int64_t s;
    struct str block;

    if (!rd_varint(r, &reg))
        return false;
    switch (op) {
    case 0x05: /* offset_extended */
    case 0x2f: /* GNU_negative_offset_extended */
        if (!rd_varint(r, &u))
            return false;
        rule_saved(&x->now, reg, (int64_t)u * x->cie->data_align * (op == 0x2f ? -1 : 1));
        return true;
    case 0x06: /* restore_extended */
        rule_restored(&x->now, reg, &x->initial);
        return true;
    case 0x07: /* undefined */
        if (reg == REG_RA)
            x->now.ra_undefined = true;
        else
            rule_lost(&x->now, reg);
        return true;
    case 0x08: /* same_value */
        if (reg == REG_RBP)
            x->now.rbp = CFI_RBP_SAME;
        return true;
    case 0x09: /* register */
    case 0x14: /* val_offset */
        rule_lost(&x->now, reg);
        return rd_varint(r, &u);
    case 0x0c: /* def_cfa */
        if (!rd_varint(r, &u))
            return false;
        rule_cfa(&x->now, reg, (int64_t)u);
        return true;
    case 0x0d: /* def_cfa_register */
        rule_cfa(&x->now, reg, x->now.cfa_off);
        return true;
    case 0x10: /* expression */
    case 0x16: /* val_expression */
        if (!rd_varint(r, &u) || !rd_bytes(r, u, &block))
            return false;
        if (op == 0x10)
            rule_expression(&x->now, reg, block);
        else
            rule_lost(&x->now, reg);
        return true;
    case 0x11: /* offset_extended_sf */
        if (!eh_sleb(r, &s))
            return false;
        rule_saved(&x->now, reg, s * x->cie->data_align);
        return true;
    case 0x12: /* def_cfa_sf */
        if (!eh_sleb(r, &s))
            return false;
        rule_cfa(&x->now, reg, s * x->cie->data_align);
        return true;
    case 0x15: /* val_offset_sf */
        rule_lost(&x->now, reg);
        return eh_sleb(r, &s);
    default:
        return false;
    }
}

static bool step(struct run *x, struct rd *r, uint8_t op)
{
    struct str block;
    uint64_t u;
    int64_t s;

    switch (op) {
    case 0x00: /* nop */
        return true;
    case 0x01: /* set_loc */
        if (!eh_pointer(r, x->cie->enc, NULL, &u) || u < x->pc)
            return false;
        advance(x, u - x->pc);
        return true;
    case 0x02: /* advance_loc1 */
        if (r->p == r->end)
            return false;
        advance(x, *r->p++ * x->cie->code_align);
        return true;
    case 0x03: /* advance_loc2 */
        return advance_coded(x, r, 0x02);
    case 0x04: /* advance_loc4 */
        return advance_coded(x, r, 0x03);
    case 0x0a: /* remember_state */
        if (x->depth == REMEMBER_MAX)
            return false;
        x->remembered[x->depth++] = x->now;
        return true;
    case 0x0b: /* restore_state */
        if (x->depth == 0)
            return false;
        x->now = x->remembered[--x->depth];
        return true;
    case 0x0e: /* def_cfa_offset */
        if (!rd_varint(r, &u))
            return false;
        x->now.cfa_off = (int64_t)u;
        return true;
    case 0x0f: /* def_cfa_expression */
        if (!rd_varint(r, &u) || !rd_bytes(r, u, &block))
            return false;
        rule_cfa_expression(&x->now, block);
        return true;
    case 0x13: /* def_cfa_offset_sf */
        if (!eh_sleb(r, &s))
            return false;
        x->now.cfa_off = s * x->cie->data_align;
        return true;
    case 0x2e: /* GNU_args_size */
        return rd_varint(r, &u);
    default:
        return step_register(x, r, op);
    }
}

/* False if the program cannot be read to its end. */
static bool run_program(struct run *x, struct str program)
{
    struct rd r = rd_of(program);
    uint8_t op;
    uint64_t u;

    while (rd_u8(&r, &op)) {
        uint8_t low = op & 0x3f;

        switch (op >> 6) {
        case 1: /* advance_loc */
            advance(x, low * x->cie->code_align);
            break;
        case 2: /* offset */
            if (!rd_varint(&r, &u))
                return false;
            rule_saved(&x->now, low, (int64_t)u * x->cie->data_align);
            break;
        case 3: /* restore */
            rule_restored(&x->now, low, &x->initial);
            break;
        default:
            if (!step(x, &r, op))
                return false;
        }
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Rows for one function; its range is known even when its program is not. */
static void add_fde(struct builder *b, const uint8_t *p)
{
    struct cfi_row none = { .cfa = CFI_NONE };
    uint64_t start, range, len;
    struct str skipped;
    uint32_t back;
    struct rd r;
    struct run x = { .b = b };
    bool ok;

    if (!eh_entry(&b->image, p, &r))
        return;
    const uint8_t *cie_at = r.p;
    if (!rd_u32le(&r, &back) || back == 0)
        return;
    cie_at -= back;
    if (b->cie.at != cie_at)
        (void)eh_cie_read(&b->image, cie_at, &b->cie);
    if (!b->cie.ok || !eh_pointer(&r, b->cie.enc, b->hdr, &start) ||
        !eh_sized(&r, b->cie.enc & 0x0f, &range) || range == 0)
        return;
    if (b->cie.augmented && (!rd_varint(&r, &len) || !rd_bytes(&r, len, &skipped)))
        return;
    x.cie = &b->cie;
    x.pc = start;
    ok = run_program(&x, b->cie.program);
    x.initial = x.now;
    x.emits = x.first = true;
    ok = ok && run_program(&x, str_n(r.p, rd_left(&r)));
    if (ok && x.pc < start + range)
        advance(&x, start + range - x.pc);
    none.starts_function = x.first;
    if (!ok)
        emit(b, x.pc, none);
    none.starts_function = false;
    emit(b, start + range, none);
}

size_t cfi_read(uint64_t base, const uint8_t *hdr, const struct eh_image *image,
                struct cfi_row *rows, size_t room)
{
    struct builder b = { .base = base, .hdr = hdr, .image = *image, .rows = rows, .room = room };
    struct rd r = eh_at(&b.image, hdr);
    uint8_t version, frame_enc, count_enc, table_enc;
    uint64_t frame, count;

    if (!rd_u8(&r, &version) || version != 1 || !rd_u8(&r, &frame_enc) || !rd_u8(&r, &count_enc) ||
        !rd_u8(&r, &table_enc) || table_enc != (EH_DATAREL | EH_SDATA4) ||
        !eh_pointer(&r, frame_enc, hdr, &frame) || !eh_pointer(&r, count_enc, hdr, &count))
        return 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t start, fde;

        if (!eh_pointer(&r, table_enc, hdr, &start) || !eh_pointer(&r, table_enc, hdr, &fde))
            break;
        add_fde(&b, (const uint8_t *)(uintptr_t)fde);
    }
    return b.len;
}

struct cfi *cfi_new(uint64_t base, const struct cfi_row *rows, size_t len)
{
    struct cfi *c = XNEW(struct cfi);

    c->base = base;
    c->rows = xmemdup(rows, len * sizeof(struct cfi_row));
    c->rows_len = len;
    return c;
}

void cfi_free(struct cfi *c)
{
    if (!c)
        return;
    xfree(c->rows);
    xfree(c);
}

static size_t row_at(const struct cfi *c, uint64_t pc)
{
    size_t lo = 0, hi = c->rows_len;

    if (pc < c->base || pc - c->base > UINT32_MAX)
        return SIZE_MAX;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (c->rows[mid].pc <= pc - c->base)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo - 1; /* SIZE_MAX when all rows lie behind */
}

const struct cfi_row *cfi_find(const struct cfi *c, uint64_t pc)
{
    size_t i = row_at(c, pc);

    return i == SIZE_MAX ? NULL : &c->rows[i];
}

uint64_t cfi_function(const struct cfi *c, uint64_t pc)
{
    size_t i = row_at(c, pc);

    while (i != SIZE_MAX && !c->rows[i].starts_function)
        i--;
    return i == SIZE_MAX ? 0 : c->base + c->rows[i].pc;
}
