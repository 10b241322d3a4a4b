/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp and ipc with a real process at the other end: this program starts itself with
 * "--serve address queue_max".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/rpc/rpc_frame.h"
#include "tests/lib/net/rpc_bed.h"

extern char **environ;

/* ---- the other process ----------------------------------------------------------------------- */

struct served {
    struct rpc_bed bed;
    struct rpc_node *node;
    bool drained;
};

/* Replies with as many bytes as the request says, in decimal. */
static void serve_bytes(void *cookie, struct rpc_call *call, struct str payload)
{
    uint64_t n = 0;
    struct buf b;

    (void)cookie;
    CHECK(str_u64(payload, &n));
    buf_init(&b, SIZE_MAX);
    rpc_bed_bytes(&b, n, 1);
    rpc_reply(call, &b);
}

static void on_drained(void *cookie)
{
    ((struct served *)cookie)->drained = true;
}

static bool is_drained(void *cookie)
{
    return ((struct served *)cookie)->drained;
}

/* "Leave": an orderly end. */
static void serve_leave(void *cookie, struct rpc_call *call, struct str payload)
{
    struct served *s = cookie;
    struct buf b;

    (void)payload;
    buf_init(&b, 8);
    rpc_reply(call, &b);
    rpc_node_drain(s->node, on_drained, s);
}

static int serve_main(const char *addr, const char *queue_max)
{
    struct served s = { 0 };
    struct rpc_node_opts o;
    uint64_t max;
    struct err e;

    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    CHECK(str_u64(str_c(queue_max), &max));
    rpc_bed_init(&s.bed, RPC_BED_TCP, 1);
    o = rpc_bed_opts(&s.bed, addr);
    o.queue_max = max;
    o.dead_ms = 15000;
    if (rpc_node_new(&o, &s.node, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    rpc_bed_echo(s.node, RPC_WRITE);
    rpc_serve(s.node, RPC_MERGE, serve_bytes, &s);
    rpc_serve(s.node, RPC_STATUS, serve_leave, &s);
    (void)rpc_bed_run(&s.bed, is_drained, &s, 120000);
    rpc_node_free(s.node);
    rpc_bed_deinit(&s.bed);
    return 0;
}

/* ---- this process ---------------------------------------------------------------------------- */

struct far {
    struct rpc_bed bed;
    char addr[128];
    pid_t pid;
    struct rpc_node *node;
    struct rpc_peer *peer;
};

static void far_start(struct far *f, size_t queue_max)
{
    char max[24], serve[] = "--serve", self[] = "/proc/self/exe";
    char *argv[] = { self, serve, f->addr, max, NULL };

    (void)snprintf(max, sizeof(max), "%zu", queue_max);
    assert_int_equal(posix_spawn(&f->pid, self, NULL, NULL, argv, environ), 0);
}

static void far_kill(struct far *f)
{
    int status;
    pid_t got;

    if (f->pid <= 0)
        return;
    assert_int_equal(kill(f->pid, SIGKILL), 0);
    do {
        got = waitpid(f->pid, &status, 0);
    } while (got < 0 && errno == EINTR);
    assert_int_equal(got, f->pid);
    f->pid = 0;
}

static void far_init(struct far *f, void **state, size_t queue_max, uint32_t dead_ms)
{
    struct rpc_node_opts o;
    struct err e;

    *f = (struct far){ 0 };
    rpc_bed_init(&f->bed, (enum rpc_bed_kind)(uintptr_t)*state, 3);
    rpc_bed_addr(&f->bed, f->addr);
    far_start(f, queue_max);
    o = rpc_bed_opts(&f->bed, "");
    o.dead_ms = dead_ms;
    o.pending_max = 4096;
    assert_int_equal(rpc_node_new(&o, &f->node, &e), 0);
    if (rpc_peer_get(f->node, f->addr, &f->peer, &e))
        fail_msg("%s", e.text);
}

static void far_deinit(struct far *f)
{
    far_kill(f);
    rpc_node_free(f->node);
    rpc_bed_deinit(&f->bed);
}

static bool is_up(void *cookie)
{
    return rpc_peer_up(cookie);
}

static bool is_down(void *cookie)
{
    return !rpc_peer_up(cookie);
}

static void assert_works(struct far *f)
{
    struct rpc_bed_call c;

    assert_true(rpc_bed_run(&f->bed, is_up, f->peer, 20000));
    rpc_bed_call(&c, f->peer, RPC_WRITE, STR("works"), 10000);
    if (rpc_bed_end(&f->bed, &c))
        fail_msg("%s", c.text);
    rpc_bed_call_deinit(&c);
}

/* Raw REP lost 293 of 300 replies of 64 KiB to a reader that slept a second, saying "sent". */
static void a_slow_reader_loses_nothing(void **state)
{
    static const struct {
        const char *bytes;
        int calls;
    } rows[] = { { "1024", 300 }, { "65536", 300 }, { "1048576", 60 } };
    struct far f;

    far_init(&f, state, 256 * MIB, 15000);
    assert_works(&f);
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        struct rpc_bed_call *c = XNEW_ARRAY(struct rpc_bed_call, (size_t)rows[r].calls);

        for (int i = 0; i < rows[r].calls; i++)
            rpc_bed_call(&c[i], f.peer, RPC_MERGE, str_c(rows[r].bytes), 60000);
        (void)usleep(1000000); /* the loop does not run, nothing is read */
        for (int i = 0; i < rows[r].calls; i++) {
            if (rpc_bed_end(&f.bed, &c[i]))
                fail_msg("%s bytes, call %d: %s", rows[r].bytes, i, c[i].text);
            rpc_bed_call_deinit(&c[i]);
        }
        xfree(c);
    }
    far_deinit(&f);
}

/* nn_close right after 2000 sends lost one; our drain waits for the echo. */
static void leaving_loses_nothing(void **state)
{
    enum { CALLS = 150 };
    struct rpc_bed_call c[CALLS], leave;
    struct far f;
    int status;

    far_init(&f, state, 256 * MIB, 15000);
    assert_works(&f);
    for (int i = 0; i < CALLS; i++)
        rpc_bed_call(&c[i], f.peer, RPC_MERGE, STR("300000"), 60000);
    rpc_bed_call(&leave, f.peer, RPC_STATUS, STR(""), 60000);
    (void)usleep(300000);
    for (int i = 0; i < CALLS; i++) {
        if (rpc_bed_end(&f.bed, &c[i]))
            fail_msg("call %d: %s", i, c[i].text);
        rpc_bed_call_deinit(&c[i]);
    }
    assert_int_equal(rpc_bed_end(&f.bed, &leave), 0);
    rpc_bed_call_deinit(&leave);
    rpc_bed_sleep(&f.bed, 300); /* echoes its FINs */
    assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
    f.pid = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    far_deinit(&f);
}

/* "Sent" only means handed over: kill -9 of the receiver lost 55 of 732,540. */
static void kill_9_under_load(void **state)
{
    enum { CALLS = 400, ROUNDS = 3 };
    struct rpc_bed_call *c = XNEW_ARRAY(struct rpc_bed_call, CALLS);
    struct far f;

    far_init(&f, state, 64 * MIB, 300);
    for (int round = 0; round < ROUNDS; round++) {
        int failed = 0;

        assert_works(&f);
        for (int i = 0; i < CALLS; i++)
            rpc_bed_call(&c[i], f.peer, RPC_MERGE, i % 2 ? STR("100") : STR("40000"), 15000);
        rpc_bed_sleep(&f.bed, 1 + (uint64_t)round * 3);
        far_kill(&f);
        for (int i = 0; i < CALLS; i++) {
            int code = rpc_bed_end(&f.bed, &c[i]);

            assert_true(code == 0 || code == ERR_UNAVAILABLE || code == ERR_BUSY);
            failed += code != 0;
        }
        assert_true(rpc_bed_run(&f.bed, is_down, f.peer, 5000));
        print_message("round %d: %d of %d calls failed\n", round, failed, CALLS);
        far_start(&f, 64 * MIB);
        assert_works(&f);
        for (int i = 0; i < CALLS; i++) {
            assert_int_equal(c[i].ends, 1);
            rpc_bed_call_deinit(&c[i]);
        }
    }
    assert_true(rpc_bed_metric(&f.bed, "embertree_rpc_reconnects_total") >= ROUNDS);
    xfree(c);
    far_deinit(&f);
}

static void stopped_is_down_and_continued_is_up(void **state)
{
    struct rpc_bed_call c, at_once;
    struct far f;

    far_init(&f, state, 8 * MIB, 300);
    assert_works(&f);
    assert_int_equal(kill(f.pid, SIGSTOP), 0);
    rpc_bed_call(&c, f.peer, RPC_WRITE, STR("x"), 20000);
    assert_int_equal(rpc_bed_end(&f.bed, &c), ERR_UNAVAILABLE);
    assert_false(rpc_peer_up(f.peer));
    rpc_bed_call(&at_once, f.peer, RPC_WRITE, STR("x"), 20000);
    assert_int_equal(rpc_bed_end(&f.bed, &at_once), ERR_UNAVAILABLE);
    rpc_bed_call_deinit(&at_once);
    assert_int_equal(kill(f.pid, SIGCONT), 0);
    assert_works(&f);
    assert_int_equal(c.ends, 1);
    rpc_bed_call_deinit(&c);
    far_deinit(&f);
}

/* Our own sleep is not the peer's silence. */
static void our_own_pause_takes_nobody_down(void **state)
{
    struct rpc_bed_call c;
    struct far f;

    far_init(&f, state, 8 * MIB, 300);
    assert_works(&f);
    /* A peer that is slow to start may have taken several attempts. */
    uint64_t before = rpc_bed_metric(&f.bed, "embertree_rpc_reconnects_total");

    rpc_bed_call(&c, f.peer, RPC_MERGE, STR("10"), 20000);
    (void)usleep(1000000);
    assert_int_equal(rpc_bed_end(&f.bed, &c), 0);
    assert_true(rpc_peer_up(f.peer));
    rpc_bed_call_deinit(&c);
    assert_int_equal(rpc_bed_metric(&f.bed, "embertree_rpc_reconnects_total"), before);
    far_deinit(&f);
}

/* EAGAIN ends in a bounded queue, and what was taken arrives. */
static void back_pressure_is_bounded(void **state)
{
    enum { CALLS = 400 }; /* of 100 KB, queue 8 MiB */
    struct rpc_bed_call *c = XNEW_ARRAY(struct rpc_bed_call, CALLS);
    int busy = 0, done = 0;
    struct far f;
    struct buf b;

    far_init(&f, state, 64 * MIB, 15000);
    assert_works(&f);
    assert_int_equal(kill(f.pid, SIGSTOP), 0);
    buf_init(&b, SIZE_MAX);
    rpc_bed_bytes(&b, 100000, 1);
    for (int i = 0; i < CALLS; i++)
        rpc_bed_call(&c[i], f.peer, RPC_WRITE, buf_str(&b), 20000);
    buf_deinit(&b);
    rpc_bed_sleep(&f.bed, 100);
    /* What the kernel does not hold: its buffers grow to some MiB. */
    assert_in_range(rpc_bed_metric(&f.bed, "embertree_rpc_queue_bytes"), MIB, 9 * MIB);
    assert_int_equal(kill(f.pid, SIGCONT), 0);
    for (int i = 0; i < CALLS; i++) {
        int code = rpc_bed_end(&f.bed, &c[i]);

        assert_true(code == 0 || code == ERR_BUSY);
        busy += code == ERR_BUSY;
        done += code == 0;
        rpc_bed_call_deinit(&c[i]);
    }
    print_message("%d answered, %d refused\n", done, busy);
    assert_true(busy > 0 && done >= 80);
    assert_int_equal(rpc_bed_metric(&f.bed, "embertree_rpc_queue_bytes"), 0);
    xfree(c);
    far_deinit(&f);
}

/* Most of them are not there, and connecting to them continues meanwhile. */
static void a_process_has_room_for_thousands_of_peers(void **state)
{
    struct rlimit files = { 0 };
    struct rpc_peer *p;
    struct far f;
    struct err e = { 0 };
    int peers;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    far_init(&f, state, 8 * MIB, 5000);
    for (peers = 1; peers < 5000; peers++) {
        char addr[128];

        rpc_bed_addr(&f.bed, addr);
        if (peers % 100 == 0)
            rpc_bed_sleep(&f.bed, 1);
        if (rpc_peer_get(f.node, addr, &p, &e))
            break;
    }
    assert_int_equal(peers, 4096);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_works(&f);
    far_deinit(&f);
}

static void on_signal(int number)
{
    (void)number;
}

/* The profiler interrupts every system call. */
static void signals_do_no_harm(void **state)
{
    struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    struct sigaction on = { .sa_handler = on_signal }, before;
    struct far f;

    far_init(&f, state, 64 * MIB, 5000);
    assert_int_equal(sigaction(SIGALRM, &on, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (int i = 0; i < 200; i++) {
        struct rpc_bed_call c;

        rpc_bed_call(&c, f.peer, RPC_MERGE, i % 2 ? STR("100") : STR("1000000"), 10000);
        if (rpc_bed_end(&f.bed, &c))
            fail_msg("call %d: %s", i, c.text);
        rpc_bed_call_deinit(&c);
    }
    far_deinit(&f);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

/* Names are looked up on another thread; a node that ends meanwhile leaves nothing behind. */
static void names_are_looked_up(void **state)
{
    struct rpc_bed_call c;
    struct rpc_node *server, *client;
    struct rpc_peer *p, *missing;
    char addr[128], own[128], name[160];
    struct rpc_bed bed;
    struct err e;

    (void)state;
    rpc_bed_init(&bed, RPC_BED_TCP, 3);
    rpc_bed_addr(&bed, addr);
    rpc_bed_addr(&bed, own);
    server = rpc_bed_node(&bed, addr);
    rpc_bed_echo(server, RPC_WRITE);
    client = rpc_bed_node(&bed, own);
    (void)snprintf(name, sizeof(name), "tcp://localhost%s", strrchr(addr, ':'));
    assert_int_equal(rpc_peer_get(client, "tcp://missing.invalid:9", &missing, &e), 0);
    assert_int_equal(rpc_peer_get(client, name, &p, &e), 0);
    for (int i = 0; i < 40; i++) { /* its own pings to the other name must not count as ours */
        rpc_bed_call(&c, p, RPC_WRITE, STR("by name"), 20000);
        if (rpc_bed_end(&bed, &c))
            fail_msg("%s", c.text);
        rpc_bed_call_deinit(&c);
    }
    assert_int_equal(rpc_bed_metric(&bed, "embertree_rpc_dropped_total{reason=\"duplicate\"}"), 0);
    assert_false(rpc_peer_up(missing));
    assert_int_equal(rpc_peer_get(client, "tcp://other.missing.invalid:9", &missing, &e), 0);
    rpc_node_free(client);
    rpc_node_free(server);
    rpc_bed_deinit(&bed);
}

static void configuration_errors_say_what_to_do(void **state)
{
    static const struct {
        const char *listen, *advertise, *text;
    } rows[] = {
        { "tcp://127.0.0.1", NULL, "want tcp://host:port" },
        { "tcp://*:19001", NULL, "configure the address to advertise" },
        { "tcp://127.0.0.1:19002", "inproc://x", "cannot advertise inproc://x" },
        { "ipc:///no/such/folder/s", NULL, "cannot listen on ipc:///no/such/folder/s" },
    };
    struct rpc_bed bed;

    (void)state;
    rpc_bed_init(&bed, RPC_BED_TCP, 3);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rpc_node_opts o = rpc_bed_opts(&bed, rows[i].listen);
        struct rpc_node *n;
        struct err e;

        o.advertise = rows[i].advertise;
        assert_int_not_equal(rpc_node_new(&o, &n, &e), 0);
        if (!strstr(e.text, rows[i].text))
            fail_msg("%s: %s", rows[i].listen, e.text);
    }
    rpc_bed_deinit(&bed);
}

#define OVER(kind, name, fn)                                     \
    {                                                            \
        name ": " #fn, fn, NULL, NULL, (void *)(uintptr_t)(kind) \
    }
#define OVER_BOTH(fn) OVER(RPC_BED_TCP, "tcp", fn), OVER(RPC_BED_IPC, "ipc", fn)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        OVER_BOTH(a_slow_reader_loses_nothing),
        OVER_BOTH(leaving_loses_nothing),
        OVER_BOTH(kill_9_under_load),
        OVER_BOTH(stopped_is_down_and_continued_is_up),
        OVER_BOTH(our_own_pause_takes_nobody_down),
        OVER_BOTH(back_pressure_is_bounded),
        OVER_BOTH(a_process_has_room_for_thousands_of_peers),
        OVER_BOTH(signals_do_no_harm),
        cmocka_unit_test(names_are_looked_up),
        cmocka_unit_test(configuration_errors_say_what_to_do),
    };

    if (argc == 4 && strcmp(argv[1], "--serve") == 0)
        return serve_main(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
