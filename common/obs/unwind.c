/* SPDX-License-Identifier: Apache-2.0
 *
 * unwind: which rule leads from a function to its caller, and from what address on nothing may be
 * read.
 *
 * The rule comes from the frame table of the object that holds the address (cfi.h), for our own
 * code too: the table is right in every instruction, where frame pointers miss the caller inside
 * prologues and epilogues. Frame pointers serve where there is no table, that is, code made at run
 * time (PCRE2's JIT): our functions keep them, so a walk that leaves such code lands in ours again.
 *
 * The stack's end. A pthread's stack lies directly below its control block, whose address is
 * pthread_self(); the main thread's ends where the kernel said at start. A thread could run on
 * another stack for a while, so the first time, and whenever sp is lower than ever before, the
 * pages between sp and the end are checked with mincore(2); the answer is kept in thread-local
 * storage (of the executable itself, so reading it allocates nothing). Every word read lies between
 * the red zone below the first sp and that end, and each frame must lie above the one before: a
 * walk ends, whatever the stack holds.
 */
#include "common/obs/unwind.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/rd.h"

enum {
    PAGE = 4096,
    RED_ZONE = 128, /* bytes below rsp that functions may use (x86-64 ABI) */
    STACK_BYTES_MAX = 256 << 20,
    MODULES_MAX = 1024,
    ROWS_FIRST = 1 << 16, /* of a frame table: few objects have more */
    /* Offsets in the ucontext that lies at rsp in a signal frame (x86-64 ABI of Linux). */
    UC_RBP = 40 + 8 * 10,
    UC_RSP = 40 + 8 * 15,
    UC_RIP = 40 + 8 * 16,
};

/* ---- the map --------------------------------------------------------------------------------- */

/* The callbacks of dl_iterate_phdr run with the linker's lock held, so that no object is unmapped
 * meanwhile. They must not allocate. An allocator that profiles the heap walks the stack inside of
 * malloc with libunwind, and holds a lock of libunwind while it waits for the linker's lock in
 * dl_iterate_phdr. A thread that allocated with the linker's lock held would wait for libunwind's
 * lock: a deadlock. So the callbacks fill memory that was allocated before, count what does not fit
 * into it, and are called again with more. */

struct collect {
    struct module *seen; /* owned; their paths lie in `paths` */
    char *paths;         /* owned */
    size_t seen_room, paths_room;
    size_t seen_len, paths_len; /* more than the room: so much is needed */
    uint64_t loads, unloads;
};
struct table { /* of one object */
    const struct module *of;
    struct cfi_row *rows; /* owned */
    size_t room, len;     /* as above */
    bool there;
};

static const struct module *find_same(const struct unwind_map *m, const struct module *want)
{
    for (size_t i = 0; m && i < m->modules_len; i++) {
        struct module *o = m->modules[i];

        if (o->start == want->start && o->end == want->end && o->bias == want->bias &&
            o->hdr == want->hdr && strcmp(o->path, want->path) == 0 &&
            o->build_id_len == want->build_id_len &&
            memcmp(o->build_id, want->build_id, want->build_id_len) == 0)
            return o;
    }
    return NULL;
}

static void module_free(struct module *m)
{
    cfi_free(m->cfi);
    xfree(m->path);
    xfree(m);
}

/* ELF notes: name size, description size, type, then both, each padded to four bytes. */
static void read_build_id(struct module *m, struct rd r)
{
    uint32_t name_len, desc_len, type;
    struct str name, desc;

    while (rd_u32le(&r, &name_len) && rd_u32le(&r, &desc_len) && rd_u32le(&r, &type) &&
           rd_bytes(&r, name_len, &name) && rd_skip(&r, -name_len & 3) &&
           rd_bytes(&r, desc_len, &desc)) {
        if (type == NT_GNU_BUILD_ID && str_eq(name, STR("GNU\0")) && desc.len <= BUILD_ID_MAX) {
            memcpy(m->build_id, desc.ptr, desc.len);
            m->build_id_len = desc.len;
            return;
        }
        if (!rd_skip(&r, -desc_len & 3))
            return;
    }
}

/* Fills everything but the path and the frame table. False if the object has no code. */
static bool read_module(struct module *m, const struct dl_phdr_info *info, struct eh_image *image)
{
    m->bias = info->dlpi_addr;
    m->start = UINT64_MAX;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uint64_t at = m->bias + p->p_vaddr;
        const uint8_t *bytes = (const uint8_t *)(uintptr_t)at;

        if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
            m->start = MIN(m->start, at);
            m->end = MAX(m->end, at + p->p_memsz);
        }
        if (p->p_type == PT_LOAD && (p->p_flags & PF_R) && image->segments_len < EH_SEGMENTS_MAX) {
            image->segments[image->segments_len].start = bytes;
            image->segments[image->segments_len++].end = bytes + p->p_filesz;
        }
        if (p->p_type == PT_GNU_EH_FRAME)
            m->hdr = at;
        if (p->p_type == PT_NOTE && m->build_id_len == 0)
            read_build_id(m, (struct rd){ bytes, bytes + p->p_filesz });
    }
    return m->start < m->end;
}

static const char *path_of(const struct dl_phdr_info *info)
{
    return info->dlpi_name && *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
}

static int on_object(struct dl_phdr_info *info, size_t size, void *cookie)
{
    struct collect *c = cookie;
    struct module m = { .path = NULL };
    struct eh_image image = { .segments_len = 0 };
    size_t bytes = strlen(path_of(info)) + 1;

    (void)size;
    c->loads = info->dlpi_adds;
    c->unloads = info->dlpi_subs;
    if (!read_module(&m, info, &image) || c->seen_len >= MODULES_MAX)
        return 0;
    if (c->seen_len < c->seen_room && c->paths_len + bytes <= c->paths_room) {
        m.path = c->paths + c->paths_len;
        memcpy(m.path, path_of(info), bytes);
        c->seen[c->seen_len] = m;
    }
    c->seen_len++;
    c->paths_len += bytes;
    return 0;
}

static void collect_all(struct collect *c)
{
    do {
        c->seen_room = c->seen_len;
        c->paths_room = c->paths_len;
        c->seen = xreallocarray(c->seen, c->seen_room, sizeof(*c->seen));
        c->paths = xreallocarray(c->paths, c->paths_room, 1);
        c->seen_len = c->paths_len = 0;
        (void)dl_iterate_phdr(on_object, c);
    } while (c->seen_len > c->seen_room || c->paths_len > c->paths_room);
}

static int on_table(struct dl_phdr_info *info, size_t size, void *cookie)
{
    struct table *t = cookie;
    struct module m = { .path = NULL };
    struct eh_image image = { .segments_len = 0 };

    (void)size;
    if (info->dlpi_addr != t->of->bias || strcmp(path_of(info), t->of->path) != 0 ||
        !read_module(&m, info, &image) || m.start != t->of->start || m.end != t->of->end ||
        m.hdr != t->of->hdr)
        return 0;
    t->there = true;
    if (m.hdr)
        t->len = cfi_read(m.start, (const uint8_t *)(uintptr_t)m.hdr, &image, t->rows, t->room);
    return 1;
}

/* NULL: it was unloaded since it was seen. */
static struct module *module_new(const struct module *seen, struct table *t)
{
    struct module *m;

    t->of = seen;
    t->len = 0;
    do {
        if (t->len > t->room) {
            t->room = t->len;
            t->rows = xreallocarray(t->rows, t->room, sizeof(struct cfi_row));
        }
        t->there = false;
        t->len = 0;
        (void)dl_iterate_phdr(on_table, t);
    } while (t->len > t->room);
    if (!t->there)
        return NULL;
    m = xmemdup(seen, sizeof(*seen));
    m->path = xstrdup(seen->path);
    m->cfi = t->len ? cfi_new(m->start, t->rows, t->len) : NULL;
    return m;
}

static int by_start(const void *a, const void *b)
{
    uint64_t x = (*(struct module *const *)a)->start, y = (*(struct module *const *)b)->start;

    return (x > y) - (x < y);
}

/* The main thread's stack grows down from here. 0 if the system does not say. */
static uint64_t main_stack_end(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    uint64_t from, to, found = 0;

    while (f && fgets(line, sizeof(line), f))
        if (strstr(line, "[stack]") && sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2)
            found = to;
    if (f)
        (void)fclose(f);
    return found;
}

struct unwind_map *unwind_map_new(struct unwind_map *old)
{
    struct unwind_map *map = XNEW(struct unwind_map);
    struct collect c = { .seen = NULL };
    struct table t = { .room = ROWS_FIRST };

    collect_all(&c);
    map->loads = c.loads;
    map->unloads = c.unloads;
    map->modules = XNEW_ARRAY(struct module *, c.seen_len);
    t.rows = XNEW_ARRAY(struct cfi_row, t.room);
    for (size_t i = 0; i < c.seen_len; i++) {
        struct module *m = (struct module *)(uintptr_t)find_same(old, &c.seen[i]);

        if (!m)
            m = module_new(&c.seen[i], &t);
        if (m)
            map->modules[map->modules_len++] = m;
    }
    xfree(t.rows);
    xfree(c.seen);
    xfree(c.paths);
    qsort(map->modules, map->modules_len, sizeof(struct module *), by_start);
    map->main_stack_end = old ? old->main_stack_end : main_stack_end();
    return map;
}

void unwind_map_free(struct unwind_map *m, const struct unwind_map *next)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->modules_len; i++) {
        bool kept = false;

        for (size_t j = 0; next && j < next->modules_len && !kept; j++)
            kept = next->modules[j] == m->modules[i];
        if (!kept)
            module_free(m->modules[i]);
    }
    xfree(m->modules);
    xfree(m);
}

static int on_counts(struct dl_phdr_info *info, size_t size, void *cookie)
{
    struct unwind_map *now = cookie;

    (void)size;
    now->loads = info->dlpi_adds;
    now->unloads = info->dlpi_subs;
    return 1; /* the first object knows */
}

bool unwind_map_stale(const struct unwind_map *m)
{
    struct unwind_map now = { 0 };

    (void)dl_iterate_phdr(on_counts, &now);
    return now.loads != m->loads || now.unloads != m->unloads;
}

const struct module *unwind_module(const struct unwind_map *m, uint64_t pc)
{
    size_t lo = 0, hi = m->modules_len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (m->modules[mid]->start <= pc)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo && pc < m->modules[lo - 1]->end ? m->modules[lo - 1] : NULL;
}

/* ---- the walk -------------------------------------------------------------------------------- */

struct walk {
    struct unwind_regs regs;
    uint64_t low, end; /* what may be read: [low, end) */
};

/* The only place that follows a pointer. It may meet the red zones of ASan and the variables of a
 * running thread: both are what a profiler reads on purpose. */
NO_SANITIZE static bool load(const struct walk *w, uint64_t at, uint64_t *ret)
{
    if (at < w->low || at >= w->end || w->end - at < 8 || (at & 7))
        return false;
    *ret = *(const volatile uint64_t *)(uintptr_t)at;
    return true;
}

static bool step_frame_pointer(struct walk *w)
{
    uint64_t bp = w->regs.bp, next_bp, ra;

    if (bp < w->regs.sp || !load(w, bp, &next_bp) || !load(w, bp + 8, &ra))
        return false;
    w->regs = (struct unwind_regs){ ra, bp + 16, next_bp };
    return true;
}

static bool frame_address(const struct walk *w, const struct cfi_row *row, uint64_t *ret)
{
    uint64_t off = (uint64_t)(int64_t)row->cfa_off;

    switch ((enum cfi_cfa)row->cfa) {
    case CFI_RSP:
        *ret = w->regs.sp + off;
        return true;
    case CFI_RBP:
        *ret = w->regs.bp + off;
        return true;
    case CFI_RBP_DEREF:
        return load(w, w->regs.bp + off, ret);
    case CFI_PLT:
        *ret = w->regs.sp + 8 + ((w->regs.pc & 15) >= off ? 8 : 0);
        return true;
    case CFI_NONE:
    case CFI_END:
    case CFI_SIGNAL:
        break;
    }
    return false;
}

static bool step_table(struct walk *w, const struct cfi_row *row)
{
    uint64_t cfa, ra, bp = w->regs.bp;

    if (!frame_address(w, row, &cfa) || cfa <= w->regs.sp || !load(w, cfa - 8, &ra))
        return false;
    switch ((enum cfi_rbp)row->rbp) {
    case CFI_RBP_SAME:
        break;
    case CFI_RBP_AT_CFA:
        if (!load(w, cfa + (uint64_t)(int64_t)row->rbp_off, &bp))
            return false;
        break;
    case CFI_RBP_AT_RBP:
        if (!load(w, bp + (uint64_t)(int64_t)row->rbp_off, &bp))
            return false;
        break;
    case CFI_RBP_LOST:
        bp = 0; /* outside every stack: a later rule that needs it ends the walk */
        break;
    }
    w->regs = (struct unwind_regs){ ra, cfa, bp };
    return true;
}

/* From the return of a signal handler to the interrupted code. */
static bool step_signal(struct walk *w)
{
    struct unwind_regs next;

    if (!load(w, w->regs.sp + UC_RIP, &next.pc) || !load(w, w->regs.sp + UC_RSP, &next.sp) ||
        !load(w, w->regs.sp + UC_RBP, &next.bp) || next.sp <= w->regs.sp)
        return false;
    w->regs = next;
    return true;
}

enum unwind_end unwind_walk(const struct unwind_map *m, struct unwind_regs regs, uint64_t stack_end,
                            uint64_t *ret_pcs, size_t max, size_t *ret_len)
{
    /* In an epilogue the table still points at registers just popped: they lie in the red zone,
     * which the kernel leaves alone when it delivers a signal. */
    struct walk w = { regs, regs.sp - RED_ZONE, stack_end };
    bool exact = true; /* the address is an instruction that ran, not one to return to */
    size_t n = 0;

    *ret_len = 0;
    while (n < max) {
        uint64_t pc = w.regs.pc - !exact;
        const struct module *mod = unwind_module(m, pc);
        const struct cfi_row *row = mod && mod->cfi ? cfi_find(mod->cfi, pc) : NULL;

        /* Older thread starts leave a zero instead of a rule. */
        if (w.regs.pc == 0)
            return UNWIND_WHOLE;
        ret_pcs[n++] = pc;
        *ret_len = n;
        if (row && row->cfa == CFI_END)
            return UNWIND_WHOLE;
        if (row && row->cfa == CFI_SIGNAL) {
            if (!step_signal(&w))
                return UNWIND_BROKEN;
            exact = true;
            continue;
        }
        if (row && row->cfa != CFI_NONE ? !step_table(&w, row) : !step_frame_pointer(&w))
            return UNWIND_BROKEN;
        exact = false;
    }
    return UNWIND_DEEP;
}

/* ---- the stack's end ------------------------------------------------------------------------- */

static bool pages_mapped(uint64_t from, uint64_t to)
{
    unsigned char there[64];

    from &= ~(uint64_t)(PAGE - 1);
    while (from < to) {
        uint64_t bytes = MIN(to - from, (uint64_t)sizeof(there) * PAGE);

        if (syscall(SYS_mincore, from, bytes, there) != 0)
            return false;
        from += bytes;
    }
    return true;
}

uint64_t unwind_stack_end(const struct unwind_map *m, uint64_t sp)
{
    static _Thread_local uint64_t checked_low, checked_end;
    uint64_t end;

    if (sp >= checked_low && sp < checked_end)
        return checked_end;
    if (syscall(SYS_gettid) == getpid())
        end = m->main_stack_end;
    else
        end = (uint64_t)pthread_self();
    if (end <= sp || end - sp > STACK_BYTES_MAX || !pages_mapped(sp, end))
        return sp;
    checked_low = sp;
    checked_end = end;
    return end;
}
