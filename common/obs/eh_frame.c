/* SPDX-License-Identifier: Apache-2.0
 *
 * eh_frame: decodes records of .eh_frame for cfi.c.
 *
 * The records are read from the memory of this process, as the loader mapped them. A damaged record
 * must not crash the profiler: every cursor ends at the end of a segment (eh_at) or of a record
 * (eh_entry), and a CIE that is not understood has `ok` false, so that its functions get no table.
 * Encodings that need a memory read through a pointer are refused. Thread: any; no state.
 */
#include "common/obs/eh_frame.h"

bool eh_sleb(struct rd *r, int64_t *ret)
{
    uint64_t v = 0;
    unsigned shift = 0;
    uint8_t b;

    do {
        if (shift > 63 || !rd_u8(r, &b))
            return false;
        v |= (uint64_t)(b & 0x7f) << shift;
        shift += 7;
    } while (b & 0x80);
    if ((b & 0x40) && shift < 64)
        v |= ~(uint64_t)0 << shift;
    *ret = (int64_t)v;
    return true;
}

bool eh_sized(struct rd *r, unsigned format, uint64_t *ret)
{
    uint16_t v2;
    uint32_t v4;
    int64_t s;

    switch (format) {
    case 0x00: /* address */
    case 0x04: /* udata8 */
    case 0x0c: /* sdata8 */
        return rd_u64le(r, ret);
    case 0x01: /* uleb128 */
        return rd_varint(r, ret);
    case 0x09: /* sleb128 */
        if (!eh_sleb(r, &s))
            return false;
        *ret = (uint64_t)s;
        return true;
    case 0x02: /* udata2 */
    case 0x0a: /* sdata2 */
        if (!rd_u16le(r, &v2))
            return false;
        *ret = format == 0x0a ? (uint64_t)(int64_t)(int16_t)v2 : v2;
        return true;
    case 0x03: /* udata4 */
    case EH_SDATA4:
        if (!rd_u32le(r, &v4))
            return false;
        *ret = format == EH_SDATA4 ? (uint64_t)(int64_t)(int32_t)v4 : v4;
        return true;
    default:
        return false;
    }
}

/* A pointer in one of the DW_EH_PE encodings that do not need to be dereferenced. */
bool eh_pointer(struct rd *r, uint8_t enc, const uint8_t *data_base, uint64_t *ret)
{
    uint64_t here = (uintptr_t)r->p, v;

    if (enc == EH_OMIT || (enc & 0x80) || !eh_sized(r, enc & 0x0f, &v))
        return false;
    switch (enc & 0x70) {
    case 0:
        break;
    case EH_PCREL:
        v += here;
        break;
    case EH_DATAREL:
        v += (uintptr_t)data_base;
        break;
    default:
        return false;
    }
    *ret = v;
    return true;
}

/* A cursor from p to the end of its segment; empty if p is in none. */
struct rd eh_at(const struct eh_image *image, const uint8_t *p)
{
    for (size_t i = 0; i < image->segments_len; i++)
        if (p >= image->segments[i].start && p < image->segments[i].end)
            return (struct rd){ p, image->segments[i].end };
    return (struct rd){ NULL, NULL };
}

/* The contents of the CIE or FDE at p, behind its length. 64-bit lengths are for objects > 4 GiB.
 */
bool eh_entry(const struct eh_image *image, const uint8_t *p, struct rd *ret)
{
    struct rd r = eh_at(image, p);
    struct str body;
    uint32_t len;

    if (!rd_u32le(&r, &len) || len == 0 || len == UINT32_MAX || !rd_bytes(&r, len, &body))
        return false;
    *ret = rd_of(body);
    return true;
}

static bool read_augmentation(struct eh_cie *c, struct rd *r, struct str letters)
{
    uint64_t len, skipped;
    struct str data;
    struct rd a;

    c->enc = 0;
    c->augmented = letters.len && letters.ptr[0] == 'z';
    if (letters.len == 0)
        return true;
    if (!c->augmented || !rd_varint(r, &len) || !rd_bytes(r, len, &data))
        return false;
    a = rd_of(data);
    for (size_t i = 1; i < letters.len; i++) {
        uint8_t enc;

        switch (letters.ptr[i]) {
        case 'R':
            if (!rd_u8(&a, &c->enc))
                return false;
            break;
        case 'L':
            if (!rd_u8(&a, &enc))
                return false;
            break;
        case 'P':
            if (!rd_u8(&a, &enc) || !eh_sized(&a, enc & 0x0f, &skipped))
                return false;
            break;
        case 'S':
            c->signal = true;
            break;
        default: /* 'B' and later letters have no data, or are behind all we need */
            break;
        }
    }
    return true;
}

bool eh_cie_read(const struct eh_image *image, const uint8_t *p, struct eh_cie *ret)
{
    struct eh_cie c = { .at = p };
    const uint8_t *nul;
    struct str letters;
    uint32_t id;
    uint8_t version, byte;
    uint64_t ra;
    struct rd r;

    *ret = c;
    if (!eh_entry(image, p, &r) || !rd_u32le(&r, &id) || id != 0 || !rd_u8(&r, &version))
        return false;
    nul = memchr(r.p, 0, rd_left(&r));
    if ((version != 1 && version != 3) || !nul)
        return false;
    letters = str_n(r.p, (size_t)(nul - r.p));
    r.p = nul + 1;
    if (!rd_varint(&r, &c.code_align) || !eh_sleb(&r, &c.data_align))
        return false;
    if (version == 1) {
        if (!rd_u8(&r, &byte))
            return false;
        ra = byte;
    } else if (!rd_varint(&r, &ra)) {
        return false;
    }
    if (ra != EH_REG_RA || !read_augmentation(&c, &r, letters))
        return false;
    c.program = str_n(r.p, rd_left(&r));
    c.ok = true;
    *ret = c;
    return true;
}
