/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/net/etcd_run.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/net/client/http_client.h"
#include "tests/lib/store/kv_dir.h"
#include "tests/lib/test_port.h"

enum { TRIES = 2400, TRY_US = 50000 }; /* minutes: only what hangs takes as long */

extern char **environ;

struct etcd_run {
    char *dir;
    char client[64], peer[64];
    pid_t pid; /* 0: not running */
};

static bool answers(const struct etcd_run *r)
{
    const char *const headers[] = { "Content-Type: application/json" };
    struct http_client *c = http_client_new();
    struct http_client_reply reply = { 0 };
    struct http_client_req req = { .method = "POST",
                                   .headers = headers,
                                   .headers_len = 1,
                                   .body = STR("{\"key\":\"Lw==\"}"),
                                   .timeout_ms = 2000 };
    char url[128];
    struct err e;

    (void)snprintf(url, sizeof(url), "%s/v3/kv/range", r->client);
    req.url = url;
    buf_init(&reply.body, MIB);
    int code = http_client_do(c, &req, &reply, &e);
    buf_deinit(&reply.body);
    http_client_free(c);
    return code == 0 && (reply.status == 200 || reply.status / 100 == 4); /* asks who we are */
}

void etcd_run_start(struct etcd_run *r)
{
    char *argv[] = { (char *)(uintptr_t) "etcd",
                     (char *)(uintptr_t) "--data-dir",
                     r->dir,
                     (char *)(uintptr_t) "--listen-client-urls",
                     r->client,
                     (char *)(uintptr_t) "--advertise-client-urls",
                     r->client,
                     (char *)(uintptr_t) "--listen-peer-urls",
                     r->peer,
                     (char *)(uintptr_t) "--log-level",
                     (char *)(uintptr_t) "error",
                     (char *)(uintptr_t) "--logger",
                     (char *)(uintptr_t) "zap",
                     (char *)(uintptr_t) "--unsafe-no-fsync",
                     NULL };
    posix_spawn_file_actions_t files;

    CHECK(!r->pid);
    CHECK(posix_spawn_file_actions_init(&files) == 0);
    CHECK(posix_spawn_file_actions_addopen(&files, 2, "/dev/null", 1, 0) == 0);
    CHECK(posix_spawn(&r->pid, "/usr/bin/etcd", &files, NULL, argv, environ) == 0);
    CHECK(posix_spawn_file_actions_destroy(&files) == 0);
    for (int i = 0; i < TRIES; i++) {
        int status;

        if (answers(r))
            return;
        CHECK(waitpid(r->pid, &status, WNOHANG) == 0);
        (void)usleep(TRY_US);
    }
    (void)fprintf(stderr, "etcd does not answer at %s\n", r->client);
    abort();
}

struct etcd_run *etcd_run_new(void)
{
    struct etcd_run *r;

    if (access("/usr/bin/etcd", X_OK)) {
        (void)printf("SKIPPED: /usr/bin/etcd is missing (package etcd-server)\n");
        return NULL;
    }
    r = XNEW(struct etcd_run);
    r->dir = kv_dir_new();
    (void)snprintf(r->client, sizeof(r->client), "http://127.0.0.1:%d", test_port_new(1));
    (void)snprintf(r->peer, sizeof(r->peer), "http://127.0.0.1:%d", test_port_new(1));
    etcd_run_start(r);
    return r;
}

void etcd_run_kill(struct etcd_run *r)
{
    if (!r->pid)
        return;
    CHECK(kill(r->pid, SIGKILL) == 0);
    CHECK(waitpid(r->pid, NULL, 0) == r->pid);
    r->pid = 0;
}

void etcd_run_stop(struct etcd_run *r, bool stop)
{
    int status;

    CHECK(r->pid && kill(r->pid, stop ? SIGSTOP : SIGCONT) == 0);
    if (stop)
        CHECK(waitpid(r->pid, &status, WUNTRACED) == r->pid && WIFSTOPPED(status));
}

void etcd_run_free(struct etcd_run *r)
{
    if (!r)
        return;
    etcd_run_kill(r);
    kv_dir_remove(r->dir);
    xfree(r);
}

const char *etcd_run_url(const struct etcd_run *r)
{
    return r->client;
}
