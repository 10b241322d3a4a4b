/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS over memory streams: which protocol comes out of it, what a port refuses, new files, bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/net/tls.h"
#include "tests/lib/net/net_site.h"
#include "tests/lib/net/net_tls.h"

static char dir[64];

static const char *file(const char *name)
{
    static char paths[4][128];
    static int next;
    char *p = paths[next++ % 4];

    (void)snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
    return p;
}

static void open_tls(struct net_world *w, const char *ca, bool only)
{
    net_world_init_tls(w, file("a.crt"), file("a.key"), ca ? file(ca) : NULL, only);
    site_routes(w);
}

static void finish(struct net_tls *t)
{
    struct net_mem *m = t->m;

    net_tls_free(t);
    if (!m->ended)
        net_end(m, false);
    net_take(m, 64 * MIB);
    net_pass(m->world, 3000);
    assert_true(m->closed);
    net_mem_free(m);
}

#define GET(path) STR("GET " path " HTTP/1.1\r\n" HOST "\r\n")

static void test_http1_over_tls(void **state)
{
    struct net_world w;
    struct net_tls *t;
    const char *got;

    (void)state;
    open_tls(&w, NULL, false);
    t = net_tls_connect(&w, NULL, NULL, NULL);
    assert_true(SSL_is_init_finished(t->ssl));
    for (int i = 0; i < 3; i++) {
        net_tls_send(t, GET("/p/x"));
        EXPECT(net_tls_got(t), "HTTP/1.1 200 OK\r\n", "X-Path: /p/x\r\n");
        net_tls_send(t, GET("/big?n=900000")); /* many records, in portions */
        got = net_tls_got(t);
        assert_int_equal(strlen(strstr(got, "\r\n\r\n") + 4), 900000);
    }
    assert_int_equal(w.budget.used, 0);
    net_tls_send(t, STR("nonsense\r\n\r\n"));
    EXPECT(net_tls_got(t), "HTTP/1.1 400 ");
    assert_true(t->ended && t->m->shut); /* close_notify, then the end */
    finish(t);
    t = net_tls_connect(&w, "\x08http/1.1", NULL, NULL);
    net_tls_send(t, GET("/p/x"));
    EXPECT(net_tls_got(t), "HTTP/1.1 200 OK\r\n");
    finish(t);
    net_world_deinit(&w);
}

static void test_alpn(void **state)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    const unsigned char *p;
    unsigned n;
    struct net_world w;
    struct net_tls *t;

    (void)state;
    open_tls(&w, NULL, false);
    t = net_tls_connect(&w, "\x02h2\x08http/1.1", NULL, NULL);
    SSL_get0_alpn_selected(t->ssl, &p, &n);
    assert_int_equal(n, 2);
    net_tls_send(t, (struct str){ preface, sizeof(preface) - 1 });
    assert_true(t->plain.len >= 9 && t->plain.ptr[3] == 4); /* SETTINGS */
    finish(t);
    /* h2 was agreed on: nothing else is taken. */
    t = net_tls_connect(&w, "\x02h2", NULL, NULL);
    net_tls_send(t, GET("/p/x"));
    assert_true(t->m->closed);
    assert_int_equal(seen.handled, 0);
    finish(t);
    /* Without ALPN the preface says it. */
    t = net_tls_connect(&w, NULL, NULL, NULL);
    net_tls_send(t, (struct str){ preface, sizeof(preface) - 1 });
    assert_true(t->plain.len >= 9 && t->plain.ptr[3] == 4);
    finish(t);
    t = net_tls_connect(&w, "\x06spdy/1", NULL, NULL);
    net_tls_talk(t);
    assert_true(t->failed && t->m->closed);
    finish(t);
    net_world_deinit(&w);
}

static void test_plain_beside_tls_and_refused(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct net_tls *t;

    (void)state;
    open_tls(&w, NULL, false);
    m = net_connect(&w);
    net_send(m, GET("/p/x"));
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n");
    site_finish(&w, m);
    net_world_deinit(&w);

    open_tls(&w, NULL, true);
    m = net_connect(&w);
    net_send(m, GET("/p/x"));
    EXPECT(net_got(m), "HTTP/1.1 400 ", "speaks only TLS: use https://", "Connection: close\r\n");
    site_finish(&w, m);
    t = net_tls_connect(&w, NULL, NULL, NULL);
    net_tls_send(t, GET("/p/x"));
    EXPECT(net_tls_got(t), "HTTP/1.1 200 OK\r\n");
    finish(t);
    net_world_deinit(&w);

    site_open(&w); /* no certificate */
    m = net_connect(&w);
    net_send(m, STR("\x16\x03\x01\x02"));
    EXPECT(net_got(m), "HTTP/1.1 400 ", "speaks plain HTTP, not TLS");
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_bad_handshakes(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct net_tls *t;

    (void)state;
    open_tls(&w, NULL, false);
    m = net_connect(&w);
    net_send(m, STR("\x16\x03\x01\x00\x05hello and more"));
    assert_true(m->closed);
    net_mem_free(m);
    m = net_connect(&w);
    net_send(m, STR("\x16\x03\x01\x02")); /* and nothing more */
    net_pass(&w, 9000);
    assert_false(m->closed);
    net_pass(&w, 2000);
    assert_true(m->closed);
    net_mem_free(m);
    m = net_connect(&w);
    net_send(m, STR("\x16\x03"));
    net_end(m, true);
    net_mem_free(m);
    /* A handshake and silence. */
    t = net_tls_connect(&w, NULL, NULL, NULL);
    net_pass(&w, 11000);
    assert_true(t->m->closed);
    finish(t);
    /* Garbage instead of a record, in the middle of a connection. */
    t = net_tls_connect(&w, NULL, NULL, NULL);
    net_tls_send(t, GET("/hold"));
    net_send(t->m, STR("\x17\x03\x03\x00\x20"
                       "0123456789abcdef0123456789abcdef"));
    assert_true(t->m->closed);
    assert_int_equal(seen.gone, 1);
    site_reply_held("to no one");
    finish(t);
    net_world_deinit(&w);
}

static void test_client_certificates(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct net_tls *t;

    (void)state;
    open_tls(&w, "b.crt", false);
    t = net_tls_connect(&w, NULL, NULL, NULL);
    net_tls_send(t, GET("/p/x"));
    assert_true(t->failed && t->m->closed);
    assert_string_equal(net_tls_got(t), "");
    finish(t);
    t = net_tls_connect(&w, NULL, dir, "c"); /* the certificate of another CA */
    net_tls_send(t, GET("/p/x"));
    assert_true(t->failed && t->m->closed);
    finish(t);
    t = net_tls_connect(&w, NULL, dir, "b");
    net_tls_send(t, GET("/p/x"));
    EXPECT(net_tls_got(t), "HTTP/1.1 200 OK\r\n");
    finish(t);
    m = net_connect(&w); /* plain would be a way around */
    net_send(m, GET("/p/x"));
    EXPECT(net_got(m), "HTTP/1.1 400 ");
    site_finish(&w, m);
    net_world_deinit(&w);
}

/* A reader that stops takes back-pressure all the way up, and no more memory than portions. */
static void test_slow_reader(void **state)
{
    struct net_world w;
    struct net_tls *t;

    (void)state;
    open_tls(&w, NULL, false);
    t = net_tls_connect(&w, NULL, NULL, NULL);
    net_tls_send(t, GET("/p/x"));
    (void)net_tls_got(t);
    t->m->room = 1000;
    net_tls_send(t, GET("/big?n=900000"));
    assert_true(t->m->late_bytes < 100 * KIB);
    for (int i = 0; i < 100; i++) {
        net_take(t->m, 8000);
        assert_true(t->m->late_bytes < 100 * KIB);
        net_pass(&w, 1000);
    }
    assert_false(t->m->closed);
    net_take(t->m, 64 * MIB);
    net_tls_talk(t);
    assert_int_equal(strlen(strstr(net_tls_got(t), "\r\n\r\n") + 4), 900000);
    t->m->room = 1000;
    net_tls_send(t, GET("/big?n=900000"));
    net_pass(&w, 11000);
    assert_true(t->m->closed);
    finish(t);
    net_world_deinit(&w);
}

static void copy(const char *from, const char *to)
{
    char b[8192];
    FILE *in = fopen(file(from), "r"), *out = fopen(file(to), "w");

    assert_true(in && out);
    size_t n = fread(b, 1, sizeof(b), in);
    assert_int_equal(fwrite(b, 1, n, out), n);
    (void)fclose(in);
    (void)fclose(out);
}

static const char *common_name(struct net_tls *t)
{
    static char name[64];
    X509 *x = SSL_get1_peer_certificate(t->ssl);

    assert_non_null(x);
    X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, name, sizeof(name));
    X509_free(x);
    return name;
}

static void expect_name(struct net_world *w, const char *name)
{
    struct net_tls *t = net_tls_connect(w, NULL, NULL, NULL);

    assert_string_equal(common_name(t), name);
    net_tls_send(t, GET("/p/x"));
    EXPECT(net_tls_got(t), "HTTP/1.1 200 OK\r\n");
    finish(t);
}

static void test_files_change(void **state)
{
    struct net_world w;
    struct net_tls *old;

    (void)state;
    copy("a.crt", "live.crt");
    copy("a.key", "live.key");
    net_world_init_tls(&w, file("live.crt"), file("live.key"), NULL, false);
    site_routes(&w);
    old = net_tls_connect(&w, NULL, NULL, NULL);
    net_tls_send(old, GET("/p/x"));
    (void)net_tls_got(old);
    copy("b.crt", "live.crt");
    net_pass(&w, 61000); /* the key is not there yet */
    expect_name(&w, "a");
    assert_int_equal(w.tls_failed, 1);
    copy("b.key", "live.key");
    net_pass(&w, 61000);
    expect_name(&w, "b");
    assert_int_equal(w.tls_changed, 1);
    expect_name(&w, "b");
    assert_int_equal(w.tls_changed, 1);
    finish(old);
    net_world_deinit(&w);
}

static void test_configuration_errors(void **state)
{
    static const struct {
        const char *cert, *key, *ca;
        bool only;
        const char *text;
    } rows[] = {
        { "a.crt", NULL, NULL, false, "need each other" },
        { NULL, "a.key", NULL, false, "need each other" },
        { NULL, NULL, NULL, true, "no http.tls_cert" },
        { NULL, NULL, "b.crt", false, "no http.tls_cert" },
        { "a.crt", "b.key", NULL, false, "b.key: it is not the key of http.tls_cert" },
        { "none.crt", "a.key", NULL, false, "none.crt: No such file or directory" },
        { "a.crt", "a.locked", NULL, false, "a.locked: it is encrypted with a password" },
        { "a.crt", "none.key", NULL, false, "none.key: No such file or directory" },
        { "a.crt", "a.key", "none.crt", false, "none.crt: No such file or directory" },
        { "a.crt", "a.key", "a.key", false, "a.key: there is no such block in PEM in it" },
        { "a.key", "a.crt", NULL, false, "a.key: there is no such block in PEM in it" },
    };
    struct clock_fake clock;
    struct loop *loop;

    (void)state;
    clock_fake_init(&clock, 1750000000000);
    loop = loop_sim_new(&clock);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http_server_opts o = { .loop = loop, .connections_max = 1, .head_bytes_max = 4096 };
        struct http_server *s = NULL;
        struct err e;

        o.tls_cert = rows[i].cert ? file(rows[i].cert) : "";
        o.tls_key = rows[i].key ? file(rows[i].key) : "";
        o.tls_client_ca = rows[i].ca ? file(rows[i].ca) : NULL;
        o.tls_only = rows[i].only;
        assert_int_equal(http_server_new(&o, &s, &e), ERR_CONFIG);
        if (!strstr(e.text, rows[i].text))
            fail_msg("%s: %s", rows[i].text, e.text);
    }
    loop_free(loop);
}

/* The key of a.key, encrypted with a password. */
static void lock_key(void)
{
    FILE *in = fopen(file("a.key"), "r");
    EVP_PKEY *key = in ? PEM_read_PrivateKey(in, NULL, NULL, NULL) : NULL;
    FILE *out = fopen(file("a.locked"), "w");

    assert_true(key && out &&
                PEM_write_PKCS8PrivateKey(out, key, EVP_aes_128_cbc(), "x", 1, NULL, NULL));
    (void)fclose(in);
    (void)fclose(out);
    EVP_PKEY_free(key);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/test_tls.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    net_cert(dir, "a");
    net_cert(dir, "b");
    net_cert(dir, "c");
    lock_key();
    return 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = { "a.crt", "a.key",    "b.crt",    "b.key",   "c.crt",
                                         "c.key", "live.crt", "live.key", "a.locked" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        (void)unlink(file(names[i]));
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http1_over_tls),
        cmocka_unit_test(test_alpn),
        cmocka_unit_test(test_plain_beside_tls_and_refused),
        cmocka_unit_test(test_bad_handshakes),
        cmocka_unit_test(test_client_certificates),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_files_change),
        cmocka_unit_test(test_configuration_errors),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
