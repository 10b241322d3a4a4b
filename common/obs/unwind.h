/* SPDX-License-Identifier: Apache-2.0
 *
 * unwind.h: from the registers of an interrupted thread to its call stack, inside a signal handler.
 *
 * A map of the loaded objects with their frame tables is built beforehand by an ordinary thread;
 * the walk itself only reads that map and the thread's own stack, within bounds that were checked
 * with the kernel. No allocation, no locks, no system call but mincore(2), once per thread.
 */
#ifndef COMMON_OBS_UNWIND_H
#define COMMON_OBS_UNWIND_H

#include "common/obs/cfi.h"

enum { BUILD_ID_MAX = 32, UNWIND_DEPTH_MAX = 512 };

/* A loaded object: the program, a library, the vDSO. */
struct module {
    uint64_t start, end; /* its code in memory */
    uint64_t bias;       /* address in memory - address in the file */
    uint64_t hdr;        /* of .eh_frame_hdr in memory; with start and path the identity */
    char *path;          /* owned; "/proc/self/exe" for the program */
    uint8_t build_id[BUILD_ID_MAX];
    size_t build_id_len; /* 0: has none */
    struct cfi *cfi;     /* owned; NULL: no table */
};
struct unwind_map {
    struct module **modules; /* ascending start */
    size_t modules_len;
    uint64_t loads, unloads; /* the linker's counts when it was made */
    uint64_t main_stack_end;
};

/* Reads the loaded objects. Takes over what did not change from *old, which may be NULL and stays
 * usable until unwind_map_free. Not for signal handlers. */
struct unwind_map *unwind_map_new(struct unwind_map *old);
/* Frees the map, and the modules that `next` (NULL: none) did not take over. */
void unwind_map_free(struct unwind_map *m, const struct unwind_map *next);
/* True when objects were loaded or unloaded since. */
bool unwind_map_stale(const struct unwind_map *m);
/* The object whose code holds pc, or NULL. Signal-safe. */
const struct module *unwind_module(const struct unwind_map *m, uint64_t pc);

struct unwind_regs {
    uint64_t pc, sp, bp;
};
enum unwind_end {
    UNWIND_WHOLE,  /* reached the function that has no caller */
    UNWIND_BROKEN, /* no rule, or a pointer outside the stack */
    UNWIND_DEEP,   /* more frames than fit: the innermost are there */
};
/* Addresses innermost first: the interrupted instruction, then in each caller an address inside
 * the call instruction. The stack is [regs.sp, stack_end). Signal-safe. */
enum unwind_end unwind_walk(const struct unwind_map *m, struct unwind_regs regs, uint64_t stack_end,
                            uint64_t *ret_pcs, size_t max, size_t *ret_len);
/* End of the calling thread's stack as seen from sp, such that all of [sp, end) can be read; sp
 * itself when that is not known. Signal-safe. */
uint64_t unwind_stack_end(const struct unwind_map *m, uint64_t sp);

#endif
