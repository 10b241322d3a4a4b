/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of this machine: loopback in all its forms, and our own address; no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>

#include "common/net/tcp.h"

static struct sockaddr_storage addr(const char *text)
{
    struct sockaddr_storage a = { 0 };
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&a;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&a;

    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
        a.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
        a.ss_family = AF_INET6;
    return a; /* of no family where it is neither */
}

static void test_own(void **state)
{
    static const struct {
        const char *peer, *here;
        bool own;
    } rows[] = {
        { "127.0.0.1", "127.0.0.1", true },
        { "127.8.9.1", "127.0.0.1", true },
        { "127.0.0.1", "", true }, /* ours is not known */
        { "10.0.0.1", "10.0.0.1", true },
        { "10.0.0.2", "10.0.0.1", false },
        { "128.0.0.1", "127.0.0.1", false },
        { "1.0.0.127", "127.0.0.1", false },
        { "10.0.0.1", "", false },
        { "0.0.0.0", "", false },
        { "10.0.0.1", "::ffff:10.0.0.1", false }, /* a family of its own: never mixed */
        { "::1", "::1", true },
        { "::1", "", true },
        { "::", "", false },
        { "::ffff:127.0.0.1", "::ffff:127.0.0.1", true },
        { "::ffff:127.0.0.1", "", true },
        { "::ffff:10.0.0.1", "::ffff:10.0.0.1", true },
        { "::ffff:10.0.0.2", "::ffff:10.0.0.1", false },
        { "fd00::1", "fd00::1", true },
        { "fd00::2", "fd00::1", false },
        { "7f00::1", "fd00::1", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct sockaddr_storage peer = addr(rows[i].peer), here = addr(rows[i].here);

        if (tcp_own(&peer, &here) != rows[i].own)
            fail_msg("%s at %s", rows[i].peer, rows[i].here);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
