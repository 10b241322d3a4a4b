/* SPDX-License-Identifier: Apache-2.0
 *
 * fdlimit: the usual soft limit (1,024) is for programs that use select(); the hard one is what the
 * machine's owner allows.
 */
#include "common/role/fdlimit.h"

#include <sys/resource.h>

uint64_t fdlimit_raise(uint64_t want)
{
    struct rlimit rl;

    if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
        return 0;
    if (rl.rlim_cur < want && rl.rlim_cur < rl.rlim_max) {
        struct rlimit more = { .rlim_cur = MIN((rlim_t)want, rl.rlim_max),
                               .rlim_max = rl.rlim_max };
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            rl = more;
    }
    return (uint64_t)rl.rlim_cur;
}
