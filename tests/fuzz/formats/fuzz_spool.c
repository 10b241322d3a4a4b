/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of a spool as a crash or a disk may leave them: the first byte says how many bytes (times
 * eight) are the position file, the rest is a segment. Whatever it is, the spool opens, gives
 * whole records, and continues to work.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "distributor/forward/forward_req.h"
#include "distributor/forward/spool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_file(const char *dir, const char *name, const uint8_t *data, size_t n)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(n == 0 || write(fd, data, n) == (ssize_t)n);
    (void)close(fd);
}

static void remove_file(const char *dir, const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    (void)unlink(path);
}

static size_t take_all(struct spool *s)
{
    struct forward_req r;
    struct buf b;
    int64_t at;
    uint64_t ticket;
    struct err e;
    size_t n = 0;
    int rc;

    buf_init(&b, 64 * KIB);
    while ((rc = spool_take(s, &b, &at, &ticket, &e)) != 0) {
        CHECK(n++ < 1000000);
        if (rc < 0)
            continue;
        (void)forward_req_read(buf_str(&b), &r, &e);
        spool_finish(s, ticket);
    }
    buf_deinit(&b);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/embertree-fuzz-XXXXXX";
    struct spool_opts o = { .fs = fs_real(), .bytes_max = MIB, .record_max = 64 * KIB };
    struct spool *s;
    struct err e;

    if (size < 1)
        return 0;
    CHECK(mkdtemp(dir));
    o.dir = dir;
    size_t position = MIN((size_t)data[0] * 8, size - 1);
    put_file(dir, "position", data + 1, position);
    put_file(dir, "0000000000000001.spool", data + 1 + position, size - 1 - position);
    CHECK(spool_open(&o, &s, &e) == 0);
    (void)take_all(s);
    CHECK(spool_append(s, STR("x"), 1, &e) == 0);
    CHECK(take_all(s) == 1);
    spool_close(s);
    for (unsigned long long i = 1; i < 4; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%016llx.spool", i);
        remove_file(dir, name);
    }
    remove_file(dir, "position");
    char command[128];
    if (rmdir(dir)) { /* segments of other numbers: the position named them */
        (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
        CHECK(system(command) == 0);
    }
    return 0;
}
