/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "distributor/formats/multipart.h"

#define TYPE "multipart/form-data; boundary=B"

/* "name|filename|content" per part, joined by '\n'. */
static int parse(const char *type, struct str body, char *ret, size_t size, struct err *e)
{
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    struct multipart *m = ARENA_NEW(a, struct multipart);
    char *copy = xmemdup(body.len ? body.ptr : "", body.len ? body.len : 1);
    size_t at = 0;
    int rc = multipart_parse(str_c(type), str_n(copy, body.len), a, m, e);

    *ret = '\0';
    for (size_t i = 0; !rc && i < m->len; i++)
        at += (size_t)snprintf(ret + at, size - at, "%s%.*s|%.*s|%.*s", i ? "\n" : "",
                               STR_ARG(m->parts[i].name),
                               STR_ARG(m->parts[i].filename.ptr ? m->parts[i].filename : STR("-")),
                               STR_ARG(m->parts[i].content));
    xfree(copy);
    return rc;
}

#define HEAD(name) "Content-Disposition: form-data; name=\"" name "\"; filename=\"f\"\r\n\r\n"

static void test_parts(void **state)
{
    (void)state;
    static const struct {
        const char *type, *body, *want;
    } rows[] = {
        { TYPE, "--B\r\n" HEAD("p") "data\r\n--B--\r\n", "p|f|data" },
        { TYPE, "--B\r\n" HEAD("p") "data\r\n--B--", "p|f|data" }, /* no line end at the end */
        { TYPE, "--B\r\n" HEAD("a") "1\r\n--B\r\n" HEAD("b") "2\r\n--B--\r\n", "a|f|1\nb|f|2" },
        { TYPE, "--B\r\n" HEAD("p") "\r\n--B--", "p|f|" }, /* empty */
        { TYPE, "--B\r\n" HEAD("p") "--B--", "p|f|" },     /* empty, shorter still */
        { TYPE, "preamble\r\n--B\r\n" HEAD("p") "x\r\n--B--\r\nepilogue --B", "p|f|x" },
        { TYPE, "--B \t\r\n" HEAD("p") "x\r\n--B--  \r\n", "p|f|x" }, /* blanks behind */
        { TYPE, "--B\n" HEAD("p") "x\n--B--\n", "p|f|x" },            /* bare newlines */
        { TYPE, "--B\r\n" HEAD("p") "a\r\n--Bx\r\nb\r\n--B--", "p|f|a\r\n--Bx\r\nb" },
        { TYPE, "--B\r\n" HEAD("p") "x--B--y\r\n--B--", "p|f|x--B--y" }, /* not at a line start */
        { TYPE, "--B\r\n" HEAD("p") "\r\n\r\n\r\n--B--", "p|f|\r\n\r\n" },
        { TYPE, "--B\r\n" HEAD("p") "x\r\n--B--\r\n--B\r\n" HEAD("q") "y\r\n--B--", "p|f|x" },
        { "multipart/form-data; boundary=--", "----\r\n" HEAD("p") "-----\r\n-----\r\n------",
          "p|f|-----\r\n-----" }, /* dashes within, too */
        { TYPE, "--B--", "" },
        { TYPE, "--B\r\nContent-Disposition: form-data; name=\"p\"\r\n\r\nx\r\n--B--", "p|-|x" },
        { TYPE, "--B\r\ncontent-DISPOSITION : Form-Data ;name=p ; filename=g\r\n\r\nx\r\n--B--",
          "p|g|x" },
        { TYPE,
          "--B\r\nContent-Type: a/b\r\nContent-Disposition: form-data; name=\"p\"; "
          "filename=\"\"\r\n\r\nx\r\n--B--",
          "p||x" },
        { TYPE,
          "--B\r\nContent-Disposition: form-data; name=\"a\\\"b\\\\c\\d\"; filename=\"f\"\r\n\r\n"
          "x\r\n--B--",
          "a\"b\\c\\d|f|x" },
        { "multipart/form-data; boundary=\"B\"", "--B\r\n" HEAD("p") "x\r\n--B--", "p|f|x" },
        { "multipart/form-data;charset=x; BOUNDARY=B ;q=1", "--B\r\n" HEAD("p") "x\r\n--B--",
          "p|f|x" },
        { "multipart/form-data; boundary=----a'b(c)+_,-./:=?",
          "------a'b(c)+_\r\n" HEAD("p") "x\r\n------a'b(c)+_--", "p|f|x" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        char got[512];
        int rc = parse(rows[i].type, str_c(rows[i].body), got, sizeof(got), &e);
        if (rc || strcmp(got, rows[i].want) != 0)
            fail_msg("row %zu: got \"%s\" (%s), want \"%s\"", i, got, e.text, rows[i].want);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *type, *body;
    } rows[] = {
        { "multipart/form-data", "--B--" },
        { "multipart/form-data; boundary=", "--B--" },
        { "multipart/form-data; boundary=\"", "--B--" },
        { "multipart/form-data; boundary", "--B--" },
        { TYPE, "" },
        { TYPE, "--B" },
        { TYPE, "--B\r\n" },
        { TYPE, "--B\r\n" HEAD("p") },
        { TYPE, "--B\r\n" HEAD("p") "x" },
        { TYPE, "--B\r\n" HEAD("p") "x\r\n--B" }, /* cut: no closing delimiter */
        { TYPE, "--B\r\n" HEAD("p") "x\r\n--B-" },
        { TYPE, "--B\r\n" HEAD("p") "x\r\n--B\r\n" },
        { TYPE, "--C\r\n" HEAD("p") "x\r\n--C--" },
        { TYPE, "--B\r\nno colon\r\n\r\nx\r\n--B--" },
        { TYPE, "--B\r\n: empty\r\n\r\nx\r\n--B--" },
        { TYPE, "--B\r\nContent-Disposition: attachment; name=p\r\n\r\nx\r\n--B--" },
        { TYPE, "--B\r\nContent-Disposition: form-data; name=\"p\r\n\r\nx\r\n--B--" },
        { TYPE, "--B\r\nContent-Disposition: form-data; name\r\n\r\nx\r\n--B--" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        char got[512];
        if (parse(rows[i].type, str_c(rows[i].body), got, sizeof(got), &e) != ERR_INPUT)
            fail_msg("row %zu was taken: \"%s\" %s", i, got, e.text);
    }
    for (size_t len = 200; len <= 201; len++) { /* of the boundary */
        char boundary[256], type[512], body[1024], got[512];
        struct err e = { 0 };
        memset(boundary, 'b', len);
        boundary[len] = '\0';
        (void)snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", boundary);
        (void)snprintf(body, sizeof(body), "--%s\r\n" HEAD("p") "x\r\n--%s--", boundary, boundary);
        assert_int_equal(parse(type, str_c(body), got, sizeof(got), &e), len > 200 ? ERR_INPUT : 0);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    char got[8192];

    buf_init(&b, 16 * MIB);
    for (int i = 0; i <= MULTIPART_PARTS_MAX; i++)
        buf_add_str(&b, STR("--B\r\n" HEAD("p") "\r\n"));
    buf_add_str(&b, STR("--B--"));
    assert_int_equal(parse(TYPE, buf_str(&b), got, sizeof(got), &e), ERR_LIMIT);
    buf_reset(&b);
    buf_add_str(&b, STR("--B\r\n"));
    for (int i = 0; i <= MULTIPART_HEADERS_MAX; i++)
        buf_add_str(&b, STR("X: y\r\n"));
    buf_add_str(&b, STR("\r\n\r\n--B--"));
    assert_int_equal(parse(TYPE, buf_str(&b), got, sizeof(got), &e), ERR_LIMIT);
    buf_reset(&b);
    buf_add_str(&b, STR("--B\r\nX: "));
    for (int i = 0; i <= MULTIPART_HEADER_BYTES_MAX; i++)
        buf_add_c(&b, 'y');
    buf_add_str(&b, STR("\r\n\r\n\r\n--B--"));
    assert_int_equal(parse(TYPE, buf_str(&b), got, sizeof(got), &e), ERR_LIMIT);
    buf_reset(&b); /* a megabyte of near misses: looked at once each */
    buf_add_str(&b, STR("--B\r\n" HEAD("p")));
    for (int i = 0; i < 200000; i++)
        buf_add_str(&b, STR("\r\n--BB"));
    buf_add_str(&b, STR("\r\n--B--"));
    assert_int_equal(parse(TYPE, buf_str(&b), got, sizeof(got), &e), 0);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
