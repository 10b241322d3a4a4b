/* SPDX-License-Identifier: Apache-2.0
 *
 * embertree-demo: a small shop that really works, in four processes, so that a fresh Embertree has
 * something to show: service demo-shop with two versions in two regions. Version 2 has a slow spot.
 *
 *   main ── fork ──> shop-1 (v1, eu)   shop-2 (v1, us)   shop-3 (v2, eu)   shop-4 (v2, us)
 *
 * It ends on SIGTERM, SIGINT or SIGHUP, after --seconds, and when its parent dies (the kernel
 * sends SIGTERM then); its children end likewise when it dies. It runs at nice 10, and in all uses
 * about a third of one core.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/obs/http_post.h"
#include "deploy/demo/pod.h"
#include "version.h"

enum { NICE = 10, GRACE_S = 8 };

static const struct pod_opts pods[] = {
    { SHOP_V1, "eu-west", "shop-1", NULL, 0, 0.055, 1 },
    { SHOP_V1, "us-east", "shop-2", NULL, 0, 0.045, 2 },
    { SHOP_V2, "eu-west", "shop-3", NULL, 0, 0.055, 3 },
    { SHOP_V2, "us-east", "shop-4", NULL, 0, 0.045, 4 },
};
enum { PODS = ARRAY_LEN(pods) };

static int usage(FILE *to, int code)
{
    (void)fprintf(to, "Usage: embertree-demo [--url http://127.0.0.1:4040] [--seconds n]\n"
                      "       embertree-demo --version\n\n"
                      "Runs a small shop and pushes its profiles to an Embertree on this machine,\n"
                      "until a signal, or for n seconds.\n");
    return code;
}

/* "--name value", "--name=value". True if argv[*i] is that option; *ret NULL if its value lacks. */
static bool option(const char *name, int argc, char **argv, int *i, const char **ret)
{
    size_t n = strlen(name);

    if (strncmp(argv[*i], name, n) != 0)
        return false;
    if (argv[*i][n] == '=') {
        *ret = argv[*i] + n + 1;
        return true;
    }
    if (argv[*i][n] != '\0')
        return false;
    *ret = *i + 1 < argc ? argv[++*i] : NULL;
    return true;
}

/* 0: continue; else the exit code + 1. */
static int parse(int argc, char **argv, const char **ret_url, uint64_t *ret_seconds)
{
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return usage(stdout, 0) + 1;
        if (strcmp(argv[i], "--version") == 0) {
            (void)printf("embertree-demo %s\n", EMBERTREE_BUILD);
            return 1;
        }
        if (option("--url", argc, argv, &i, &value) && value)
            *ret_url = value;
        else if (option("--seconds", argc, argv, &i, &value) && value &&
                 str_u64(str_c(value), ret_seconds) && *ret_seconds < 1000000000)
            continue;
        else if (argv[i][0] != '-')
            *ret_url = argv[i];
        else
            return usage(stderr, 2) + 1;
    }
    return 0;
}

/* Ask the kernel for SIGTERM when the parent dies; it may have died before we asked. */
static bool tie_to(pid_t parent)
{
    CHECK(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
    return getppid() == parent;
}

static void block_signals(sigset_t *set)
{
    CHECK(sigemptyset(set) == 0 && sigaddset(set, SIGTERM) == 0 && sigaddset(set, SIGINT) == 0 &&
          sigaddset(set, SIGHUP) == 0 && sigaddset(set, SIGCHLD) == 0);
    CHECK(sigprocmask(SIG_BLOCK, set, NULL) == 0);
}

static pid_t start_pod(const struct pod_opts *pod, const char *url, uint64_t seconds)
{
    struct pod_opts o = *pod;
    pid_t parent = getpid(), pid = fork();

    if (pid != 0)
        return pid;
    o.url = url;
    o.seconds = seconds;
    _exit(tie_to(parent) ? pod_run(&o) : 0);
}

/* Collects children that ended; false once none is left. */
static bool collect(pid_t pids[PODS], int *code)
{
    bool left = false;

    for (size_t i = 0; i < PODS; i++) {
        int status = 0;

        if (pids[i] > 0 && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
            pids[i] = 0; /* the number is free again: never signal it */
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                *code = 1;
        }
        left |= pids[i] > 0;
    }
    return left;
}

static void signal_all(const pid_t pids[PODS], int number)
{
    for (size_t i = 0; i < PODS; i++)
        if (pids[i] > 0)
            (void)kill(pids[i], number);
}

/* Until all children ended: by themselves, or because a signal told us to stop. */
static int supervise(pid_t pids[PODS], const sigset_t *set)
{
    struct timespec tick = { 1, 0 };
    int code = 0, grace_s = -1; /* -1: not stopping */

    while (collect(pids, &code)) {
        int got = sigtimedwait(set, NULL, &tick);

        if (grace_s < 0 && (got == SIGTERM || got == SIGINT || got == SIGHUP)) {
            signal_all(pids, SIGTERM);
            grace_s = GRACE_S;
        } else if (grace_s >= 0 && got < 0 && grace_s-- == 0) {
            signal_all(pids, SIGKILL);
        }
    }
    return code;
}

int main(int argc, char **argv)
{
    const char *url = "http://127.0.0.1:4040";
    pid_t parent = getppid(), pids[PODS];
    uint64_t seconds = 0;
    struct http_target target;
    struct err e = { 0 };
    sigset_t set;
    int code = parse(argc, argv, &url, &seconds);

    if (code)
        return code - 1;
    if (http_target_parse(url, &target, &e)) {
        (void)fprintf(stderr, "embertree-demo: %s\n", e.text);
        return 2;
    }
    if (!tie_to(parent))
        return 0;
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    block_signals(&set);
    for (size_t i = 0; i < PODS; i++)
        pids[i] = start_pod(&pods[i], url, seconds);
    return supervise(pids, &set);
}
