/* SPDX-License-Identifier: Apache-2.0
 *
 * cfi.h: how to step from a function to its caller on x86-64, as a sorted table of small rows,
 * made once from an object's .eh_frame (LSB Core, .eh_frame; DWARF 4, section 6.4).
 *
 * Only what compilers emit is kept: the frame address (CFA) is rsp or rbp plus a number, the return
 * address lies 8 below it, and the caller's rbp is unchanged or saved in the frame. A few
 * expressions are known by their bytes (PLT entries, realigned stacks, signal frames); anything
 * else becomes CFI_NONE, where a walk ends as broken.
 *
 * Thread: building is for one thread; cfi_find only reads, and is safe in a signal handler.
 */
#ifndef COMMON_OBS_CFI_H
#define COMMON_OBS_CFI_H

#include "common/obs/eh_frame.h"

enum cfi_cfa {
    CFI_NONE,      /* nothing known */
    CFI_END,       /* outermost function: there is no caller */
    CFI_RSP,       /* rsp + cfa_off */
    CFI_RBP,       /* rbp + cfa_off */
    CFI_RBP_DEREF, /* the word at rbp + cfa_off */
    CFI_PLT,       /* rsp + 8, and 8 more when rip % 16 >= cfa_off */
    CFI_SIGNAL,    /* signal frame: registers stand in the ucontext at rsp */
};
enum cfi_rbp {
    CFI_RBP_SAME,
    CFI_RBP_AT_CFA, /* saved at CFA + rbp_off */
    CFI_RBP_AT_RBP, /* saved at rbp + rbp_off */
    CFI_RBP_LOST,
};

struct cfi_row {
    uint32_t pc; /* offset from cfi.base; holds up to the next row */
    int32_t cfa_off;
    int16_t rbp_off;
    uint8_t cfa;     /* enum cfi_cfa */
    uint8_t rbp : 4; /* enum cfi_rbp */
    uint8_t starts_function : 1;
};
static_assert(sizeof(struct cfi_row) == 12, "the table is hundreds of thousands of rows");

struct cfi {
    uint64_t base;
    struct cfi_row *rows; /* owned; ascending pc */
    size_t rows_len;
};

/* Reads the table of an object; `hdr` is the address of its .eh_frame_hdr. Returns how many rows it
 * has, 0 when it cannot be read. Of more than `room` rows the first ones are written. Allocates
 * nothing, because the caller holds the linker's lock (unwind.c). */
size_t cfi_read(uint64_t base, const uint8_t *hdr, const struct eh_image *image,
                struct cfi_row *rows, size_t room);
/* Copies the rows. */
struct cfi *cfi_new(uint64_t base, const struct cfi_row *rows, size_t len);
void cfi_free(struct cfi *c); /* NULL is fine */
/* The row for an address, or NULL. */
const struct cfi_row *cfi_find(const struct cfi *c, uint64_t pc);
/* Start of the function around an address, or 0. */
uint64_t cfi_function(const struct cfi *c, uint64_t pc);

#endif
