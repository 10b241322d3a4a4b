/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/prng.h"
#include "common/obs/elfsym.h"
#include "common/obs/symbolize.h"
#include "common/sys/fs.h"

/* Extern, so that it has a symbol whatever the compiler does. */
void symbolize_test_landmark(void);
void symbolize_test_landmark(void)
{
}

static void test_names_of_this_program(void **state)
{
    struct unwind_map *map = unwind_map_new(NULL);
    const struct module *m = unwind_module(map, (uintptr_t)symbolize_test_landmark);
    uint8_t other[BUILD_ID_MAX] = { 1 };
    struct elfsym *s = NULL, *no = NULL;
    struct err e = { 0 };
    struct str name;

    (void)state;
    assert_int_equal(elfsym_open("/proc/self/exe", m->build_id, m->build_id_len, &s, &e), 0);
    assert_true(elfsym_len(s) > 10);
    assert_true(elfsym_find(s, (uintptr_t)symbolize_test_landmark - m->bias, 0, &name));
    assert_true(str_eqc(name, "symbolize_test_landmark"));
    assert_false(elfsym_find(s, 0, 0, &name));
    assert_false(elfsym_find(s, UINT64_MAX, 0, &name));
    elfsym_close(s);
    assert_int_equal(elfsym_open("/proc/self/exe", other, m->build_id_len, &no, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "another build"));
    assert_int_equal(elfsym_open("/nonexistent", NULL, 0, &no, &e), ERR_IO);
    assert_int_equal(elfsym_open("/proc/self/status", NULL, 0, &no, &e), ERR_CORRUPT);
    assert_null(no);
    elfsym_close(NULL);
    unwind_map_free(map, NULL);
}

static const char *name_at(struct symbolizer *s, const struct unwind_map *map, uint64_t pc,
                           struct buf *b)
{
    buf_reset(b);
    symbolizer_name(s, map, pc, b);
    assert_true(buf_add_c(b, '\0'));
    return b->ptr;
}

static void test_names_of_addresses(void **state)
{
    struct unwind_map *map = unwind_map_new(NULL);
    struct symbolizer *s = symbolizer_new();
    uint64_t libc_end = 0;
    struct buf b;

    (void)state;
    buf_init(&b, KIB);
    assert_string_equal(name_at(s, map, (uintptr_t)symbolize_test_landmark, &b),
                        "symbolize_test_landmark");
    assert_string_equal(name_at(s, map, 16, &b), "[unknown]");
#ifndef __SANITIZE_THREAD__ /* it puts a qsort of its own in front */
    assert_string_equal(name_at(s, map, (uintptr_t)dlsym(RTLD_DEFAULT, "qsort") + 1, &b), "qsort");
#endif
    /* Behind the last function: the place in the library. */
    for (size_t i = 0; i < map->modules_len; i++)
        if (strstr(map->modules[i]->path, "/libc.so"))
            libc_end = map->modules[i]->end;
    assert_ptr_equal(strstr(name_at(s, map, libc_end - 1, &b), "[libc.so"), b.ptr);
    assert_non_null(strstr(b.ptr, "+0x"));
    symbolizer_free(s);
    symbolizer_free(NULL);
    buf_deinit(&b);
    unwind_map_free(map, NULL);
}

/* Needs the C++ library, which the program does not link: loaded here, as RocksDB does. */
static void test_symbols_are_made_readable(void **state)
{
    static const struct {
        const char *raw, *want;
        bool cpp;
    } rows[] = {
        { "plain", "plain", false },
        { "work.constprop.0", "work", false },
        { "work.part.1.isra.0", "work", false },
        { "work.cold", "work", false },
        { "work.lto_priv.12", "work", false },
        { "work.llvm.1234567890", "work", false },
        { "version.two", "version.two", false },
        { "memcpy@@GLIBC_2.14", "memcpy", false },
        { "@odd", "@odd", false },
        { ".hidden", ".hidden", false },
        { "a;b c\nd\x80", "a_b_c_d_", false },
        { "", "", false },
        { "_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write", true },
        { "_ZN7rocksdb6DBImpl5WriteERKNS_12WriteOptionsEPNS_10WriteBatchE",
          "rocksdb::DBImpl::Write", true },
        { "_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int,_std::allocator<int>_>::push_back",
          true },
        { "_ZSt4sortIPiEvT_S1_", "std::sort<int*>", true },
        { "_ZNK7rocksdb5SliceixEm", "rocksdb::Slice::operator[]", true },
        { "_ZN12_GLOBAL__N_13fooEv", "(anonymous_namespace)::foo", true },
        { "_ZNK3FooclEi", "Foo::operator()", true },
        { "_Znwm", "operator_new", true },
        { "_ZN3FoolsEi", "Foo::operator<<", true },
        { "_ZZN3Foo3barEvENKUlvE_clEv", "Foo::bar()::{lambda()#1}::operator()", true },
        { "_Znotmangled", "_Znotmangled", true },
    };
    void *cpp = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);

    (void)state;
    if (!cpp)
        printf("SKIPPED: no C++ library here, demangling is not tested\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf b;

        if (rows[i].cpp && !cpp)
            continue;
        buf_init(&b, KIB);
        symbol_clean(str_c(rows[i].raw), &b);
        if (!str_eqc(buf_str(&b), rows[i].want))
            fail_msg("%s: %.*s, want %s", rows[i].raw, STR_ARG(buf_str(&b)), rows[i].want);
        buf_deinit(&b);
    }
}

/* Symbol files of any contents: names or an error. */
static void test_damaged_files_are_survived(void **state)
{
    char name[] = "/tmp/embertree-elf-XXXXXX";
    int fd = mkstemp(name);
    uint64_t seed = 3, fine = 0;
    struct err e = { 0 };
    struct prng p;
    struct buf file;

    (void)state;
    assert_true(fd >= 0);
    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    buf_init(&file, 64 * MIB);
    /* A small library: the damage hits something in most rounds. */
    if (fs_real()->read_file(fs_real(), "/lib/x86_64-linux-gnu/libanl.so.1", &file, &e) ||
        file.len < 4096) {
        printf("SKIPPED: no small library to damage\n");
        skip();
    }
    for (int round = 0; round < 1500; round++) {
        size_t len = prng_below(&p, 3) ? file.len : prng_below(&p, file.len);
        struct elfsym *s = NULL;
        struct str found;

        assert_int_equal(pwrite(fd, file.ptr, file.len, 0), (ssize_t)file.len);
        for (uint64_t k = prng_below(&p, 8); k > 0; k--) {
            size_t half = prng_below(&p, 2) ? 64 : file.len; /* the header, or anywhere */
            uint64_t junk = prng_u64(&p) >> prng_below(&p, 64);
            size_t at = half == 64 ? prng_below(&p, 64)
                                   : file.len - 1 - prng_below(&p, MIN(file.len, (size_t)3000));

            assert_true(pwrite(fd, &junk, MIN(sizeof(junk), file.len - at), (off_t)at) > 0);
        }
        assert_int_equal(ftruncate(fd, (off_t)len), 0);
        if (elfsym_open(name, NULL, 0, &s, &e) == 0) {
            fine++;
            for (int k = 0; k < 100; k++)
                (void)elfsym_find(s, prng_below(&p, 2 * file.len), 0, &found);
        }
        elfsym_close(s);
    }
    printf("%" PRIu64 " of 1500 could be read\n", fine);
    assert_in_range(fine, 100, 1400);
    buf_deinit(&file);
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(name), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_this_program),
        cmocka_unit_test(test_names_of_addresses),
        cmocka_unit_test(test_symbols_are_made_readable),
        cmocka_unit_test(test_damaged_files_are_survived),
    };

    return cmocka_run_group_tests_name("symbolize", tests, NULL, NULL);
}
