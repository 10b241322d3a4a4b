/* SPDX-License-Identifier: Apache-2.0
 *
 * preload_hang: a library for LD_PRELOAD. While the file $HANG_DIR/<pid> exists, fsync and
 * fdatasync of the process with that id do not return, as on a disk that hangs without an error.
 * They look for the file ten times a second. Without HANG_DIR nothing changes.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 100000000L

static void wait_for_disk(void)
{
    const char *dir = getenv("HANG_DIR");
    char path[PATH_MAX];

    if (!dir || snprintf(path, sizeof(path), "%s/%ld", dir, (long)getpid()) >= PATH_MAX)
        return;
    while (access(path, F_OK) == 0) {
        struct timespec t = { .tv_nsec = LOOK_NS };

        (void)nanosleep(&t, NULL);
    }
}

/* A pointer to a function cannot be cast from one to an object in ISO C. */
static int call_real(const char *name, int fd)
{
    void *found = dlsym(RTLD_NEXT, name);
    int (*real)(int fd);

    if (!found)
        abort();
    memcpy(&real, &found, sizeof(real));
    wait_for_disk();
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
