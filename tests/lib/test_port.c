/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"

enum { FIRST = 10240, END = 32768, GIVEN_MAX = 4096 };

static uint16_t given[GIVEN_MAX];
static uint32_t given_len;
static pid_t given_by; /* a child that ends gives nothing back */

static void file_of(char path[4096], uint32_t port)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(path, 4096, "%s/embertree-test-ports", tmp ? tmp : "/tmp");

    CHECK(n > 0 && n < 4000);
    CHECK(mkdir(path, 0777) == 0 || errno == EEXIST);
    (void)snprintf(path + n, 4096 - (size_t)n, "/%u", port);
}

void test_port_give_back(uint16_t first, uint32_t count)
{
    char path[4096];
    uint32_t kept = 0;

    for (uint32_t i = 0; i < given_len; i++) {
        if (given[i] < first || given[i] >= first + count) {
            given[kept++] = given[i];
            continue;
        }
        file_of(path, given[i]);
        (void)unlink(path);
    }
    given_len = kept;
}

static void on_exit_give_back(void)
{
    if (getpid() == given_by)
        test_port_give_back(0, END);
}

/* The ports of a program that was killed may be taken by the next caller. */
static void forget_if_dead(const char *path)
{
    FILE *f = fopen(path, "r");
    int pid = 0;

    if (!f)
        return;
    if (fscanf(f, "%d", &pid) == 1 && pid > 0 && kill(pid, 0) && errno == ESRCH)
        (void)unlink(path);
    (void)fclose(f);
}

static bool reserve(uint32_t port)
{
    char path[4096], pid[16];
    int fd, n = snprintf(pid, sizeof(pid), "%d", (int)getpid());

    file_of(path, port);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        forget_if_dead(path);
        return false;
    }
    CHECK(write(fd, pid, (size_t)n) == n);
    CHECK(close(fd) == 0);
    CHECK(given_len < GIVEN_MAX);
    given[given_len++] = (uint16_t)port;
    return true;
}

static bool is_free(uint32_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fine;

    CHECK(fd >= 0);
    fine = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
    CHECK(close(fd) == 0);
    return fine;
}

uint16_t test_port_new(uint32_t count)
{
    if (given_by != getpid()) {
        given_by = getpid();
        given_len = 0;
        CHECK(atexit(on_exit_give_back) == 0);
    }
    for (;;) {
        uint32_t random, first, n = 0;

        CHECK(getrandom(&random, sizeof(random), 0) == sizeof(random));
        first = FIRST + random % (END - FIRST - count);
        while (n < count && is_free(first + n) && reserve(first + n))
            n++;
        if (n == count)
            return (uint16_t)first;
        test_port_give_back((uint16_t)first, n);
    }
}
