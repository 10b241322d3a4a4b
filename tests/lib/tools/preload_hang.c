/* SPDX-License-Identifier: Apache-2.0
 *
 * preload_hang: a library for LD_PRELOAD. While the file $HANG_DIR/<pid> exists, fsync and
 * fdatasync of the process with that id do not return, as on a disk that hangs without an error.
 * They look for the file ten times a second. While $HANG_DIR/<pid>.ro exists they fail, as on a
 * file system that became read-only. Without HANG_DIR nothing changes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 100000000L

static bool has_file(const char *end)
{
    const char *dir = getenv("HANG_DIR");
    char path[PATH_MAX];

    return dir && snprintf(path, sizeof(path), "%s/%ld%s", dir, (long)getpid(), end) < PATH_MAX &&
           access(path, F_OK) == 0;
}

/* A pointer to a function cannot be cast from one to an object in ISO C. */
static int call_real(const char *name, int fd)
{
    void *found = dlsym(RTLD_NEXT, name);
    int (*real)(int fd);

    if (!found)
        abort();
    memcpy(&real, &found, sizeof(real));
    while (has_file("")) {
        struct timespec t = { .tv_nsec = LOOK_NS };

        (void)nanosleep(&t, NULL);
    }
    if (has_file(".ro")) {
        errno = EROFS;
        return -1;
    }
    return real(fd);
}

int fsync(int fd);
int fdatasync(int fd);

int fsync(int fd)
{
    return call_real("fsync", fd);
}

int fdatasync(int fd)
{
    return call_real("fdatasync", fd);
}
