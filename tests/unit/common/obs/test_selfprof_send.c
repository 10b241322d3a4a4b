/* SPDX-License-Identifier: Apache-2.0
 *
 * The pushes of the self-profiler over real sockets, against a server of a few lines that keeps the
 * requests and answers as configured.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/obs/http_post.h"
#include "common/obs/selfprof_send.h"
#include "common/sys/thread.h"

enum { ANSWERS_MAX = 8, TEXT_MAX = 1 << 16 };

struct server {
    int listener, stop;
    uint16_t port;
    struct thread thread;
    const char *answers[ANSWERS_MAX]; /* one per connection; "" closes, NULL stays silent */
    char requests[ANSWERS_MAX][TEXT_MAX];
    size_t served;
};

/* Reads a request to the end of its body. */
static void read_request(int fd, char *text)
{
    size_t len = 0;

    for (;;) {
        ssize_t n = recv(fd, text + len, TEXT_MAX - 1 - len, 0);
        const char *body, *length;

        if (n <= 0)
            return;
        len += (size_t)n;
        text[len] = '\0';
        body = strstr(text, "\r\n\r\n");
        length = strstr(text, "Content-Length: ");
        if (body && length && strlen(body + 4) >= strtoul(length + 16, NULL, 10))
            return;
    }
}

static void serve(void *cookie)
{
    struct server *s = cookie;

    for (;;) {
        struct pollfd p[2] = { { s->listener, POLLIN, 0 }, { s->stop, POLLIN, 0 } };
        const char *answer;
        int fd;

        while (poll(p, 2, -1) < 0)
            CHECK(errno == EINTR);
        if (p[1].revents)
            return;
        fd = accept(s->listener, NULL, NULL);
        CHECK(fd >= 0 && s->served < ANSWERS_MAX);
        answer = s->answers[s->served];
        read_request(fd, s->requests[s->served++]);
        if (answer)
            CHECK(send(fd, answer, strlen(answer), MSG_NOSIGNAL) == (ssize_t)strlen(answer));
        else
            CHECK(poll(&p[1], 1, -1) != 0);
        CHECK(close(fd) == 0);
    }
}

static struct server *server_start(const char *first, const char *second, const char *third)
{
    struct server *s = XNEW(struct server);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);

    s->answers[0] = first;
    s->answers[1] = second;
    s->answers[2] = third;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    s->stop = eventfd(0, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)(void *)&a, sizeof(a)), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)(void *)&a, &len), 0);
    s->port = ntohs(a.sin_port);
    thread_start(&s->thread, "server", serve, s);
    return s;
}

static void server_stop(struct server *s)
{
    uint64_t one = 1;

    CHECK(write(s->stop, &one, sizeof(one)) == sizeof(one));
    thread_join(&s->thread);
    CHECK(close(s->listener) == 0 && close(s->stop) == 0);
}

static void server_free(struct server *s)
{
    xfree(s);
}

/* ---- http_post ------------------------------------------------------------------------------- */

static int post_to(uint16_t port, uint32_t timeout_ms, int cancel_fd, int *ret_status)
{
    struct http_target t;
    struct err e = { 0 };
    char url[64];
    int result;

    (void)snprintf(url, sizeof(url), "http://localhost:%u/base/", port);
    assert_int_equal(http_target_parse(url, &t, &e), 0);
    const struct http_post post = { .path = "/x?y=z",
                                    .headers = "A: b\r\n",
                                    .body = STR("hello"),
                                    .timeout_ms = timeout_ms,
                                    .cancel_fd = cancel_fd };
    result = http_post(&t, &post, ret_status, &e);
    assert_int_equal(result == 0, *e.text == '\0');
    return result;
}

static void test_post_and_its_answers(void **state)
{
    struct server *s = server_start("HTTP/1.1 204 No Content\r\n\r\n", "junk\r\n", "");
    int status = 0;

    (void)state;
    assert_int_equal(post_to(s->port, 5000, -1, &status), 0);
    assert_int_equal(status, 204);
    assert_int_equal(post_to(s->port, 5000, -1, &status), ERR_IO);
    assert_int_equal(post_to(s->port, 5000, -1, &status), ERR_IO);
    server_stop(s);
    assert_int_equal(post_to(s->port, 5000, -1, &status), ERR_UNAVAILABLE);
    assert_int_equal(status, 204); /* untouched on failure */
    assert_ptr_equal(strstr(s->requests[0], "POST /base/x?y=z HTTP/1.1\r\nHost: localhost:"),
                     s->requests[0]);
    assert_non_null(strstr(s->requests[0], "\r\nContent-Length: 5\r\n"));
    assert_non_null(strstr(s->requests[0], "\r\nConnection: close\r\n"));
    assert_non_null(strstr(s->requests[0], "\r\nA: b\r\n\r\nhello"));
    server_free(s);
}

static void test_silence_ends_by_timeout_or_cancel(void **state)
{
    struct server *s = server_start(NULL, NULL, NULL);
    uint64_t one = 1;
    int status = 0, cancel = eventfd(0, 0);

    (void)state;
    assert_int_equal(post_to(s->port, 50, -1, &status), ERR_TIMEOUT);
    assert_int_equal(write(cancel, &one, sizeof(one)), sizeof(one));
    assert_int_equal(post_to(s->port, 60000, cancel, &status), ERR_CANCELED);
    assert_int_equal(close(cancel), 0);
    server_stop(s);
    server_free(s);
}

static void test_targets(void **state)
{
    static const struct {
        const char *url, *host, *prefix;
        bool ok;
    } rows[] = {
        { "http://127.0.0.1:4040", "127.0.0.1:4040", "", true },
        { "http://127.0.0.1:4040/", "127.0.0.1:4040", "", true },
        { "http://127.1.2.3/a/b/", "127.1.2.3", "/a/b", true },
        { "http://LOCALHOST:1", "LOCALHOST:1", "", true },
        { "http://[::1]:80/x", "[::1]:80", "/x", true },
        { "http://[::1]", "[::1]", "", true },
        { "http://[::2]:80", "", "", false },
        { "http://128.0.0.1", "", "", false },
        { "http://0.0.0.0:1", "", "", false },
        { "http://127.1:1", "", "", false },
        { "http://user@127.0.0.1:1", "", "", false },
        { "http://127.0.0.1:0", "", "", false },
        { "http://127.0.0.1:65536", "", "", false },
        { "http://127.0.0.1:", "", "", false },
        { "http://", "", "", false },
        { "127.0.0.1:4040", "", "", false },
        { "", "", "", false },
        { "http://127.0.0.1/a b", "", "", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http_target t;
        struct err e = { 0 };
        bool ok = http_target_parse(rows[i].url, &t, &e) == 0;

        if (ok != rows[i].ok ||
            (ok && (strcmp(t.host, rows[i].host) != 0 || strcmp(t.prefix, rows[i].prefix) != 0)))
            fail_msg("%s: %s", rows[i].url, ok ? t.host : e.text);
    }
}

/* ---- the queue in front of it ---------------------------------------------------------------- */

struct bed {
    struct clock_fake clock;
    struct env_sim env;
    struct metrics *metrics;
    struct selfprof_opts o;
    struct selfprof_sender *sender;
    char url[64];
    int errors;
};

static void on_error(void *cookie, const struct err *e)
{
    struct bed *b = cookie;

    CHECK(*e->text);
    b->errors++;
}

static void bed_init(struct bed *b, uint16_t port)
{
    struct err e = { 0 };

    *b = (struct bed){ .errors = 0 };
    clock_fake_init(&b->clock, 1700000000000);
    env_sim_init(&b->env, &b->clock.clock, fs_real(), 1);
    b->metrics = metrics_new();
    (void)snprintf(b->url, sizeof(b->url), "http://127.0.0.1:%u", port);
    b->o = (struct selfprof_opts){ .env = &b->env.env,
                                   .metrics = b->metrics,
                                   .hz = 100,
                                   .url = b->url,
                                   .tenant = "team-a",
                                   .service = "my/app",
                                   .labels = "version=v1,region=eu west",
                                   .on_error = on_error,
                                   .cookie = b };
    assert_int_equal(selfprof_sender_new(&b->o, &b->sender, &e), ERR_CONFIG); /* a blank */
    b->o.labels = "version=v1,region=eu";
    assert_int_equal(selfprof_sender_new(&b->o, &b->sender, &e), 0);
}

static void bed_deinit(struct bed *b)
{
    selfprof_sender_free(b->sender);
    metrics_free(b->metrics);
}

static void add(struct bed *b, const char *thread)
{
    struct selfprof_push p = { "ingester",    thread, 1700000000000,
                               1700000010000, 3,      STR("main;work 3\n") };

    selfprof_sender_add(b->sender, &p);
}

static uint64_t pushes(struct bed *b, const char *result)
{
    struct str v = str_c(result);

    return metric_value(metric_at(
        metric_new(b->metrics, METRIC_COUNTER, "embertree_selfprof_pushes_total", "", "result"), &v,
        1));
}

static const char *key_of(const char *request)
{
    static char keys[4][64];
    static size_t next;
    const char *at = strstr(request, "Idempotency-Key: ");
    char *to = keys[next++ % ARRAY_LEN(keys)];

    assert_non_null(at);
    (void)snprintf(to, sizeof(keys[0]), "%.32s", at + 17);
    return to;
}

static void test_a_push_is_a_folded_ingest(void **state)
{
    struct server *s = server_start("HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "");
    struct bed b;

    (void)state;
    bed_init(&b, s->port);
    add(&b, "shard-0");
    add(&b, "shard-1");
    selfprof_sender_run(b.sender, -1);
    assert_int_equal(selfprof_sender_waiting(b.sender), 0);
    assert_int_equal(pushes(&b, "ok"), 2);
    server_stop(s);
    assert_ptr_equal(strstr(s->requests[0],
                            "POST /ingest?name=my/app.cpu%7Brole=ingester,thread=shard-0,"
                            "version=v1,region=eu%7D&from=1700000000000&until=1700000010000"
                            "&sampleRate=100&format=folded&"),
                     s->requests[0]);
    assert_non_null(strstr(s->requests[0], "\r\nX-Scope-OrgID: team-a\r\n"));
    assert_non_null(strstr(s->requests[0], "\r\n\r\nmain;work 3\n"));
    assert_non_null(strstr(s->requests[1], "thread=shard-1"));
    assert_string_not_equal(key_of(s->requests[0]), key_of(s->requests[1]));
    bed_deinit(&b);
    server_free(s);
}

static void test_a_busy_server_gets_it_again_with_the_same_key(void **state)
{
    struct server *s = server_start("HTTP/1.1 503 Busy\r\n\r\n", "", "HTTP/1.1 200 OK\r\n\r\n");
    struct bed b;

    (void)state;
    bed_init(&b, s->port);
    add(&b, "shard-0");
    selfprof_sender_run(b.sender, -1);
    selfprof_sender_run(b.sender, -1); /* not before a second is over */
    assert_int_equal(b.errors, 1);
    clock_fake_advance(&b.clock, 1000);
    selfprof_sender_run(b.sender, -1);
    clock_fake_advance(&b.clock, 1000);
    selfprof_sender_run(b.sender, -1);
    assert_int_equal(b.errors, 2);
    assert_int_equal(pushes(&b, "ok"), 1);
    assert_int_equal(pushes(&b, "failed"), 0);
    server_stop(s);
    assert_int_equal(s->served, 3);
    assert_string_equal(key_of(s->requests[0]), key_of(s->requests[1]));
    assert_string_equal(key_of(s->requests[0]), key_of(s->requests[2]));
    bed_deinit(&b);
    server_free(s);
}

static void test_refused_old_or_too_many_are_counted_and_go(void **state)
{
    struct server *s = server_start("HTTP/1.1 400 Bad\r\n\r\n", "HTTP/1.1 429 Slow\r\n\r\n",
                                    "HTTP/1.1 500 No\r\n\r\n");
    struct bed b;

    (void)state;
    bed_init(&b, s->port);
    add(&b, "refused");
    selfprof_sender_run(b.sender, -1);
    assert_int_equal(selfprof_sender_waiting(b.sender), 0);
    assert_int_equal(pushes(&b, "failed"), 1);
    add(&b, "old");
    selfprof_sender_run(b.sender, -1);
    assert_int_equal(selfprof_sender_waiting(b.sender), 1);
    clock_fake_advance(&b.clock, 60000);
    selfprof_sender_run(b.sender, -1);
    assert_int_equal(selfprof_sender_waiting(b.sender), 0);
    assert_int_equal(pushes(&b, "failed"), 2);
    for (int i = 0; i < 300; i++)
        add(&b, "many");
    assert_int_equal(selfprof_sender_waiting(b.sender), 256);
    assert_int_equal(pushes(&b, "failed"), 46);
    server_stop(s);
    bed_deinit(&b);
    server_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_post_and_its_answers),
        cmocka_unit_test(test_silence_ends_by_timeout_or_cancel),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_a_push_is_a_folded_ingest),
        cmocka_unit_test(test_a_busy_server_gets_it_again_with_the_same_key),
        cmocka_unit_test(test_refused_old_or_too_many_are_counted_and_go),
    };

    return cmocka_run_group_tests_name("selfprof_send", tests, NULL, NULL);
}
