/* SPDX-License-Identifier: Apache-2.0
 *
 * The examples of the S3 API reference, to the last digit; XML answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/object/s3_xml.h"
#include "common/object/sigv4.h"

#define DATE INT64_C(1369353600000) /* 2013-05-24 00:00:00 */

static const struct sigv4_keys keys = { "AKIAIOSFODNN7EXAMPLE",
                                        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1",
                                        "s3" };

static void expect(struct sigv4_request r, const char *names, const char *signature)
{
    char want[512], date[SIGV4_DATE_LEN + 1];
    struct buf got;

    sigv4_date(DATE, date);
    buf_init(&got, KIB);
    assert_true(sigv4_sign(&keys, &r, date, &got));
    (void)snprintf(want, sizeof(want),
                   "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
                   "aws4_request, SignedHeaders=%s, Signature=%s",
                   names, signature);
    assert_int_equal(got.len, strlen(want));
    assert_memory_equal(got.ptr, want, got.len);
    buf_deinit(&got);
}

static void test_examples(void **state)
{
    char empty[SIGV4_HEX_LEN + 1], body[SIGV4_HEX_LEN + 1];
    struct sigv4_header h[6] = {
        { "x-amz-date", STR("20130524T000000Z") },
        { "host", STR("examplebucket.s3.amazonaws.com") },
        { "x-amz-content-sha256", STR_NULL },
    };

    (void)state;
    sigv4_sha256(STR_NULL, empty);
    sigv4_sha256(STR("Welcome to Amazon S3."), body);
    assert_string_equal(empty, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    h[2].value = str_c(empty);
    h[3] = (struct sigv4_header){ "range", STR("bytes=0-9") };
    expect((struct sigv4_request){ "GET", STR("/test.txt"), STR_NULL, h, 4, empty },
           "host;range;x-amz-content-sha256;x-amz-date",
           "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    expect((struct sigv4_request){ "GET", STR("/"), STR("lifecycle="), h, 3, empty },
           "host;x-amz-content-sha256;x-amz-date",
           "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    expect((struct sigv4_request){ "GET", STR("/"), STR("max-keys=2&prefix=J"), h, 3, empty },
           "host;x-amz-content-sha256;x-amz-date",
           "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    h[2].value = str_c(body);
    h[3] = (struct sigv4_header){ "date", STR("Fri, 24 May 2013 00:00:00 GMT") };
    h[4] = (struct sigv4_header){ "x-amz-storage-class", STR("REDUCED_REDUNDANCY") };
    expect((struct sigv4_request){ "PUT", STR("/test%24file.text"), STR_NULL, h, 5, body },
           "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
           "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

static void test_escape(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 64);
    assert_true(sigv4_escape(&b, STR("a/b c~-_.Z9\xc3\xa4")));
    assert_int_equal(b.len, strlen("a%2Fb%20c~-_.Z9%C3%A4"));
    assert_memory_equal(b.ptr, "a%2Fb%20c~-_.Z9%C3%A4", b.len);
    buf_deinit(&b);
}

static bool collect(void *cookie, struct str key, uint64_t size)
{
    struct buf *b = cookie;

    return buf_addf(b, "%.*s=%" PRIu64 " ", STR_ARG(key), size);
}

static void test_list(void **state)
{
    struct str xml =
        STR("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\"><Name>b</Name>"
            "<IsTruncated>true</IsTruncated><Contents><Key>a/b</Key><Size>12</Size>"
            "<Owner><ID>1</ID></Owner></Contents><Contents><Size>3</Size>"
            "<Key>x&amp;y&#60;</Key></Contents></ListBucketResult>");
    struct err e = { 0 };
    struct buf b;
    bool more = false;

    (void)state;
    buf_init(&b, 1000);
    assert_int_equal(s3_xml_list(xml, collect, &b, &more, &e), 0);
    assert_true(more);
    assert_memory_equal(b.ptr, "a/b=12 x&y<=3 ", b.len);
    /* Cut anywhere: the whole list, a part of it, or an error; never beyond the bytes (ASan). */
    for (size_t n = 0; n < xml.len; n++) {
        char *cut = xmemdup(xml.ptr, n + 1);
        buf_reset(&b);
        if (s3_xml_list(str_n(cut, n), collect, &b, &more, &e))
            assert_true(e.text[0]);
        xfree(cut);
    }
    assert_int_equal(s3_xml_list(STR("<html>no</html>"), collect, &b, &more, &e), ERR_CORRUPT);
    assert_int_equal(s3_xml_list(STR("<ListBucketResult><Contents><Key>a</Key><Size>x</Size>"
                                     "</Contents></ListBucketResult>"),
                                 collect, &b, &more, &e),
                     ERR_CORRUPT);
    assert_int_equal(
        s3_xml_list(STR("<ListBucketResult></ListBucketResult>"), collect, &b, &more, &e), 0);
    assert_false(more);
    buf_deinit(&b);
}

static void test_error(void **state)
{
    char code[32], text[16];

    (void)state;
    s3_xml_error(STR("<Error><Code>NoSuchKey</Code><Message>The specified\nkey does not exist."
                     "</Message></Error>"),
                 code, sizeof(code), text, sizeof(text));
    assert_string_equal(code, "NoSuchKey");
    assert_string_equal(text, "The specified?k");
    s3_xml_error(STR("oops"), code, sizeof(code), text, sizeof(text));
    assert_string_equal(code, "");
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_escape),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
