/* SPDX-License-Identifier: Apache-2.0
 *
 * eh_frame.h: reading the records of .eh_frame in memory (LSB Core, .eh_frame; DWARF 4, section
 * 7.23): pointers in their encodings, CIEs, and the bodies of FDEs. Every read is bounded.
 */
#ifndef COMMON_OBS_EH_FRAME_H
#define COMMON_OBS_EH_FRAME_H

#include "common/base/rd.h"

enum {
    EH_PCREL = 0x10,
    EH_DATAREL = 0x30,
    EH_SDATA4 = 0x0b,
    EH_OMIT = 0xff,
    EH_REG_RA = 16, /* DWARF number of the return address on x86-64 */
    EH_SEGMENTS_MAX = 8,
};

/* The readable stretches of an object in memory. */
struct eh_image {
    struct {
        const uint8_t *start, *end;
    } segments[EH_SEGMENTS_MAX];
    size_t segments_len;
};

struct eh_cie {
    const uint8_t *at; /* identity; NULL: none read yet */
    bool ok;
    uint64_t code_align;
    int64_t data_align;
    uint8_t enc;    /* of the addresses in its FDEs */
    bool augmented; /* its FDEs have a length-prefixed part before the program */
    bool signal;    /* frames that the kernel made */
    struct str program;
};

bool eh_sleb(struct rd *r, int64_t *ret);
/* A number in the format given by the low four bits of a DW_EH_PE encoding. */
bool eh_sized(struct rd *r, unsigned format, uint64_t *ret);
/* A pointer in one of the encodings that need no dereferencing. */
bool eh_pointer(struct rd *r, uint8_t enc, const uint8_t *data_base, uint64_t *ret);
/* A cursor from p to the end of its segment; empty if p is in none. */
struct rd eh_at(const struct eh_image *image, const uint8_t *p);
/* The contents of the CIE or FDE at p, behind its length. */
bool eh_entry(const struct eh_image *image, const uint8_t *p, struct rd *ret);
/* Fills *ret in any case; ret->ok says whether it can be used. */
bool eh_cie_read(const struct eh_image *image, const uint8_t *p, struct eh_cie *ret);

#endif
