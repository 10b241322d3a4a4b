/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "common/base/prng.h"
#include "common/obs/unwind.h"

/* ---- callers of malloc ----------------------------------------------------------------------- */

/* The linker calls these instead of the C library in all that is linked statically (--wrap, in the
 * Makefile), so they count each allocation of our code inside of a callback. */
typedef int (*phdr_fn)(struct dl_phdr_info *info, size_t size, void *cookie);
void *counted_malloc(size_t size) __asm__("__wrap_malloc");
void *counted_calloc(size_t count, size_t size) __asm__("__wrap_calloc");
void *counted_realloc(void *p, size_t size) __asm__("__wrap_realloc");
int counted_phdrs(phdr_fn fn, void *cookie) __asm__("__wrap_dl_iterate_phdr");
void *real_malloc(size_t size) __asm__("__real_malloc");
void *real_calloc(size_t count, size_t size) __asm__("__real_calloc");
void *real_realloc(void *p, size_t size) __asm__("__real_realloc");
int real_phdrs(phdr_fn fn, void *cookie) __asm__("__real_dl_iterate_phdr");

static struct {
    bool inside;
    size_t calls, walks, allocations, outside;
} seen;

static void note_allocation(void)
{
    if (seen.inside)
        seen.allocations++;
    else
        seen.outside++;
}

void *counted_malloc(size_t size)
{
    note_allocation();
    return real_malloc(size);
}

void *counted_calloc(size_t count, size_t size)
{
    note_allocation();
    return real_calloc(count, size);
}

void *counted_realloc(void *p, size_t size)
{
    note_allocation();
    return real_realloc(p, size);
}

struct called {
    phdr_fn fn;
    void *cookie;
};

static int on_phdr(struct dl_phdr_info *info, size_t size, void *cookie)
{
    struct called *c = cookie;

    seen.calls++;
    seen.inside = true;
    int rc = c->fn(info, size, c->cookie);
    seen.inside = false;
    return rc;
}

int counted_phdrs(phdr_fn fn, void *cookie)
{
    struct called c = { fn, cookie };

    seen.walks++;
    return real_phdrs(on_phdr, &c);
}

/* ---- a hand-made .eh_frame ------------------------------------------------------------------- */

/* hdr: version, encodings, frame pointer, count, one (function, FDE) pair; then the records. */
struct made {
    uint8_t bytes[512];
    size_t len, cie, fde;
};
enum { FUNCTION = 0x100000, FUNCTION_BYTES = 0x100 };

static void put(struct made *m, const void *p, size_t n)
{
    assert_true(m->len + n <= sizeof(m->bytes));
    memcpy(m->bytes + m->len, p, n);
    m->len += n;
}

static void put8(struct made *m, uint8_t v)
{
    put(m, &v, 1);
}

static void put32(struct made *m, uint32_t v)
{
    put(m, &v, 4);
}

static void put64(struct made *m, uint64_t v)
{
    put(m, &v, 8);
}

static void patch32(struct made *m, size_t at, uint32_t v)
{
    memcpy(m->bytes + at, &v, 4);
}

static void end_record(struct made *m, size_t start)
{
    while (m->len % 4)
        put8(m, 0);
    patch32(m, start, (uint32_t)(m->len - start - 4));
}

/* One CIE as gcc makes it, one FDE with absolute addresses and the given program. */
static void make(struct made *m, const char *augmentation, const uint8_t *program, size_t n)
{
    static const uint8_t cie_program[] = { 0x0c, 7, 8, 0x80 + 16, 1 }; /* CFA rsp+8, ra at CFA-8 */
    size_t entry;

    *m = (struct made){ .len = 0 };
    put8(m, 1);
    put8(m, 0x03); /* frame pointer: udata4, not used */
    put8(m, 0x03); /* count: udata4 */
    put8(m, 0x3b); /* table: sdata4 relative to the header */
    put32(m, 0);
    put32(m, 1);
    entry = m->len;
    put32(m, 0);
    put32(m, 0);
    m->cie = m->len;
    put32(m, 0);
    put32(m, 0);
    put8(m, 1);
    put(m, augmentation, strlen(augmentation) + 1);
    put8(m, 1);    /* code alignment */
    put8(m, 0x78); /* data alignment -8 */
    put8(m, 16);
    if (*augmentation == 'z') {
        put8(m, 1);
        put8(m, 0x00); /* absolute addresses */
    }
    put(m, cie_program, sizeof(cie_program));
    end_record(m, m->cie);
    m->fde = m->len;
    put32(m, 0);
    put32(m, (uint32_t)(m->len - m->cie));
    put64(m, FUNCTION);
    put64(m, FUNCTION_BYTES);
    if (*augmentation == 'z')
        put8(m, 0);
    put(m, program, n);
    end_record(m, m->fde);
    patch32(m, entry, 0);
    patch32(m, entry + 4, (uint32_t)m->fde);
}

static struct cfi *build(const struct made *m)
{
    struct eh_image image = { .segments_len = 1 };
    struct cfi_row rows[1024];

    image.segments[0].start = m->bytes;
    image.segments[0].end = m->bytes + m->len;
    size_t n = cfi_read(FUNCTION, m->bytes, &image, rows, ARRAY_LEN(rows));
    assert_true(n <= ARRAY_LEN(rows));
    return n ? cfi_new(FUNCTION, rows, n) : NULL;
}

/* "0:rsp+8 5:rbp+16,bp@c-16 ..." */
static const char *show(const struct cfi *c)
{
    static const char *const names[] = { "none", "end", "rsp", "rbp", "*rbp", "plt", "signal" };
    static const char *const rbp[] = { "", ",bp@c", ",bp@bp", ",bp?" };
    static char text[1024];
    size_t len = 0;

    text[0] = '\0';
    for (size_t i = 0; c && i < c->rows_len; i++) {
        const struct cfi_row *r = &c->rows[i];

        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%x:%s", i ? " " : "", r->pc,
                                names[r->cfa]);
        if (r->cfa >= CFI_RSP && r->cfa <= CFI_PLT)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%+d", r->cfa_off);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", rbp[r->rbp]);
        if (r->rbp == CFI_RBP_AT_CFA || r->rbp == CFI_RBP_AT_RBP)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%+d", r->rbp_off);
    }
    return text;
}

static void test_programs_become_rows(void **state)
{
    static const struct {
        const char *name, *augmentation;
        uint8_t program[40];
        size_t n;
        const char *want;
    } rows[] = {
        { "empty", "zR", { 0 }, 0, "0:rsp+8 100:none" },
        { "no augmentation", "", { 0 }, 0, "0:rsp+8 100:none" },
        { "push rbp; mov",
          "zR",
          { 0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 0x80, 0x0c, 7, 8 },
          13,
          "0:rsp+8 1:rsp+16,bp@c-16 4:rbp+16,bp@c-16 84:rsp+8,bp@c-16 100:none" },
        { "remember, restore",
          "zR",
          { 0x41, 0x0e, 16, 0x86, 2, 0x45, 0x0a, 0x0e, 8, 0xc6, 0x41, 0x0b },
          12,
          "0:rsp+8 1:rsp+16,bp@c-16 6:rsp+8 7:rsp+16,bp@c-16 100:none" },
        { "no caller", "zR", { 0x07, 16 }, 2, "0:end 100:none" },
        { "return address elsewhere", "zR", { 0x41, 0x90, 2 }, 3, "0:rsp+8 1:none" },
        { "realigned stack",
          "zR",
          { 0x45, 0x0c, 10, 0, 0x45, 0x10, 6, 2, 0x76, 0, 0x44, 0x0f, 3, 0x76, 0x78, 6 },
          16,
          "0:rsp+8 5:none a:none,bp@bp+0 e:*rbp-8,bp@bp+0 100:none" },
        { "linkage table",
          "zR",
          { 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22 },
          13,
          "0:plt+11 100:none" },
        { "unknown expression", "zR", { 0x0f, 2, 0x77, 8 }, 4, "0:none" },
        { "lost rbp", "zR", { 0x41, 0x09, 6, 3 }, 4, "0:rsp+8 1:rsp+8,bp? 100:none" },
        { "signal frame", "zRS", { 0 }, 0, "0:signal 100:none" },
        { "advance by four bytes",
          "zR",
          { 0x04, 0x10, 0, 0, 0, 0x0e, 32 },
          7,
          "0:rsp+8 10:rsp+32 100:none" },
        { "unknown opcode", "zR", { 0x41, 0x0e, 16, 0x42, 0x3f }, 5, "0:rsp+8 1:rsp+16 3:none" },
        { "cut operand", "zR", { 0x42, 0x0f, 99 }, 3, "0:rsp+8 2:none" },
        { "restore without remember", "zR", { 0x0b }, 1, "0:none" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct made m;
        struct cfi *c;

        make(&m, rows[i].augmentation, rows[i].program, rows[i].n);
        c = build(&m);
        if (strcmp(show(c), rows[i].want) != 0)
            fail_msg("%s: %s, want %s", rows[i].name, show(c), rows[i].want);
        assert_int_equal(cfi_function(c, FUNCTION + 0x42), FUNCTION);
        assert_null(cfi_find(c, FUNCTION - 1));
        assert_int_equal(cfi_function(c, FUNCTION - 1), 0);
        cfi_free(c);
    }
}

/* Any bytes in the records: a table or none, never a read outside (ASan, and the page behind). */
/* Rows that do not fit are counted, and those that fit are the same as with enough room. */
static void test_rows_beyond_the_room(void **state)
{
    static const uint8_t program[] = { 0x41, 0x0e, 16, 0x44, 0x0e, 24, 0x44, 0x0e, 8 };
    struct eh_image image = { .segments_len = 1 };
    struct cfi_row all[16], some[16];
    struct made m;
    size_t n;

    (void)state;
    make(&m, "zR", program, sizeof(program));
    image.segments[0].start = m.bytes;
    image.segments[0].end = m.bytes + m.len;
    n = cfi_read(FUNCTION, m.bytes, &image, all, ARRAY_LEN(all));
    assert_int_equal(n, 5);
    for (size_t room = 0; room <= n; room++) {
        memset(some, 0x5a, sizeof(some));
        assert_int_equal(cfi_read(FUNCTION, m.bytes, &image, some, room), n);
        assert_memory_equal(some, all, room * sizeof(*all));
        for (size_t i = room; i < ARRAY_LEN(some); i++)
            assert_int_equal(some[i].pc, 0x5a5a5a5a);
    }
}

static void test_broken_records_are_survived(void **state)
{
    static const uint8_t program[] = { 0x41, 0x0e, 16,   0x86, 2, 0x43, 0x0d,
                                       6,    0x02, 0x80, 0x0c, 7, 8 };
    uint64_t seed = 7;
    struct prng p;

    (void)state;
    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int i = 0; i < 20000; i++) {
        struct made m;
        struct cfi *c;

        make(&m, "zR", program, sizeof(program));
        for (uint64_t k = 1 + prng_below(&p, 4); k > 0; k--)
            m.bytes[prng_below(&p, m.len)] = (uint8_t)prng_u64(&p);
        m.len -= prng_below(&p, 4) ? 0 : prng_below(&p, m.len);
        c = build(&m);
        for (size_t k = 1; c && k < c->rows_len; k++)
            assert_true(c->rows[k - 1].pc < c->rows[k].pc);
        cfi_free(c);
    }
}

/* ---- the tables of what is loaded here ------------------------------------------------------- */

static void test_tables_of_loaded_objects(void **state)
{
    struct unwind_map *m = unwind_map_new(NULL);
    const struct module *mine = unwind_module(m, (uintptr_t)test_tables_of_loaded_objects);
    size_t functions = 0, usual = 0, none = 0;

    (void)state;
    assert_non_null(mine);
    assert_string_equal(mine->path, "/proc/self/exe");
    assert_int_equal(mine->build_id_len > 0, true);
    assert_int_equal(cfi_function(mine->cfi, (uintptr_t)test_tables_of_loaded_objects + 5),
                     (uintptr_t)test_tables_of_loaded_objects);
    assert_null(unwind_module(m, 0));
    assert_null(unwind_module(m, UINT64_MAX));
    for (size_t i = 0; i < m->modules_len; i++) {
        const struct cfi *c = m->modules[i]->cfi;

        for (size_t k = 0; c && k < c->rows_len; k++) {
            if (!c->rows[k].starts_function)
                continue;
            functions++;
            usual += c->rows[k].cfa == CFI_RSP && c->rows[k].cfa_off == 8;
            none += c->rows[k].cfa == CFI_NONE;
        }
    }
    printf("%zu objects, %zu functions, %zu start with rsp+8, %zu unreadable\n", m->modules_len,
           functions, usual, none);
    assert_true(functions > 3000);
    assert_true(usual * 100 > functions * 85); /* the others are cold halves of functions */
    assert_true(none * 1000 < functions);
    unwind_map_free(m, NULL);
}

/* With the linker's lock held, an allocation may wait for a thread that waits for this lock. */
static void test_nothing_is_allocated_under_the_lock(void **state)
{
    struct unwind_map *a, *b;

    (void)state;
    memset(&seen, 0, sizeof(seen));
    a = unwind_map_new(NULL);
    assert_int_equal(seen.allocations, 0);
    assert_true(seen.walks >= 2 + a->modules_len);
    assert_true(seen.calls > 2 * a->modules_len);
    assert_true(seen.outside > 2 * a->modules_len); /* the hooks are in place */
    b = unwind_map_new(a);
    assert_false(unwind_map_stale(b));
    assert_int_equal(seen.allocations, 0);
    unwind_map_free(a, b);
    unwind_map_free(b, NULL);
}

static void test_map_follows_dlopen(void **state)
{
    struct unwind_map *a = unwind_map_new(NULL), *b;
    const struct module *mine = unwind_module(a, (uintptr_t)test_map_follows_dlopen);
    void *h;

    (void)state;
    assert_false(unwind_map_stale(a));
    h = dlopen("libanl.so.1", RTLD_NOW);
    if (!h) {
        print_message("SKIPPED: no library to load\n");
        unwind_map_free(a, NULL);
        skip();
    }
    assert_true(unwind_map_stale(a));
    b = unwind_map_new(a);
    assert_int_equal(b->modules_len, a->modules_len + 1);
    /* What did not change is taken over, not read again. */
    assert_ptr_equal(unwind_module(b, (uintptr_t)test_map_follows_dlopen), mine);
    unwind_map_free(a, b);
    assert_int_equal(dlclose(h), 0);
    assert_true(unwind_map_stale(b));
    a = unwind_map_new(b);
    unwind_map_free(b, a);
    unwind_map_free(a, NULL);
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* Registers and stack of random words, half of them addresses of code or of the stack itself. The
 * stack ends at a page that cannot be read, so one word too far is a crash. */
static void test_no_stack_contents_crash_the_walk(void **state)
{
    enum { WORDS = 512, PAGES = 4096 };
    struct unwind_map *m = unwind_map_new(NULL);
    char *pages = mmap(NULL, 3 * PAGES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *stack = (uint64_t *)(void *)(pages + PAGES);
    uint64_t end = (uintptr_t)(stack + WORDS), seed = 11, ends[3] = { 0 };
    struct prng p;

    (void)state;
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(stack, PAGES, PROT_READ | PROT_WRITE), 0);
    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 30000; round++) {
        struct unwind_regs r;
        uint64_t pcs[64];
        size_t n;

        for (size_t i = round % 16 ? WORDS - 64 : 0; i < WORDS; i++) {
            const struct module *mod = m->modules[prng_below(&p, m->modules_len)];

            stack[i] = prng_u64(&p) >> prng_below(&p, 64);
            if (prng_below(&p, 3) == 0)
                stack[i] = mod->start + prng_below(&p, mod->end - mod->start);
            else if (prng_below(&p, 2) == 0)
                stack[i] = (uintptr_t)stack + prng_below(&p, PAGES + 64);
        }
        r.sp = end - 8 * prng_below(&p, WORDS - 16);
        r.bp = prng_below(&p, 2) ? stack[WORDS - 1 - prng_below(&p, 60)]
                                 : (uintptr_t)stack + prng_below(&p, PAGES + 16);
        r.pc = stack[WORDS - 1 - prng_below(&p, 60)];
        ends[unwind_walk(m, r, end, pcs, ARRAY_LEN(pcs), &n)]++;
        assert_true(n <= ARRAY_LEN(pcs));
    }
    printf("whole %" PRIu64 ", broken %" PRIu64 ", deep %" PRIu64 "\n", ends[UNWIND_WHOLE],
           ends[UNWIND_BROKEN], ends[UNWIND_DEEP]);
    assert_true(ends[UNWIND_BROKEN] > 10000);
    assert_int_equal(munmap(pages, 3 * PAGES), 0);
    unwind_map_free(m, NULL);
}

static void test_walk_of_this_very_function(void **state)
{
    struct unwind_map *m = unwind_map_new(NULL);
    uint64_t pcs[64], end;
    struct unwind_regs r;
    ucontext_t uc;
    size_t n;

    (void)state;
    assert_int_equal(getcontext(&uc), 0);
    r = (struct unwind_regs){ (uint64_t)uc.uc_mcontext.gregs[REG_RIP],
                              (uint64_t)uc.uc_mcontext.gregs[REG_RSP],
                              (uint64_t)uc.uc_mcontext.gregs[REG_RBP] };
    end = unwind_stack_end(m, r.sp);
    assert_int_equal(end, m->main_stack_end);
    assert_int_equal(unwind_walk(m, r, end, pcs, ARRAY_LEN(pcs), &n), UNWIND_WHOLE);
    assert_true(n > 4);
    assert_int_equal(unwind_walk(m, r, end, pcs, 3, &n), UNWIND_DEEP);
    assert_int_equal(n, 3);
    /* A stack that ends too early counts as broken, with the frames found so far. */
    assert_int_equal(unwind_walk(m, r, r.sp, pcs, ARRAY_LEN(pcs), &n), UNWIND_BROKEN);
    assert_int_equal(n, 1);
    unwind_map_free(m, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_become_rows),
        cmocka_unit_test(test_rows_beyond_the_room),
        cmocka_unit_test(test_broken_records_are_survived),
        cmocka_unit_test(test_tables_of_loaded_objects),
        cmocka_unit_test(test_nothing_is_allocated_under_the_lock),
        cmocka_unit_test(test_map_follows_dlopen),
        cmocka_unit_test(test_no_stack_contents_crash_the_walk),
        cmocka_unit_test(test_walk_of_this_very_function),
    };

    return cmocka_run_group_tests_name("unwind", tests, NULL, NULL);
}
