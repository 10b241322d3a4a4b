/* SPDX-License-Identifier: Apache-2.0
 *
 * throttle: a bucket per source of failures.
 *
 * It is asked only after a key was found to be wrong. A right key is checked before, costs less to
 * check than it would to remember its sender, and so is never refused for what others do: a shared
 * address or a known key id locks no owner of a key out.
 *
 * Memory is fixed. Sources share 4,096 counters by a hash with a secret of this process, so that no
 * source can choose with which other one it shares. A counter is one time: when the bucket will be
 * empty (each failure moves it by THROTTLE_EVERY_MS). Refused ones do not move it, so that a source
 * which keeps trying gets one real answer per THROTTLE_EVERY_MS.
 *
 * A source is an IPv4 address, or the first 64 bits of an IPv6 address, since a host has all the
 * others behind these.
 */
#include "common/identity/throttle.h"

#include <arpa/inet.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/secret.h"

#define THROTTLE_MAGIC MAGIC('t', 'h', 'r', 'o')
#define FULL_MS        ((uint64_t)(THROTTLE_BURST - 1) * THROTTLE_EVERY_MS)

struct throttle {
    uint32_t magic;
    uint64_t secret;
    uint64_t empty_ms[THROTTLE_COUNTERS];
};

struct throttle *throttle_new(void)
{
    struct throttle *t = XNEW(struct throttle);

    t->magic = THROTTLE_MAGIC;
    t->secret = secret_word();
    return t;
}

void throttle_free(struct throttle *t)
{
    xfree(t);
}

/* The bytes that stand for a source. Another name than of an address (of a Unix socket, say) stands
 * for itself. */
static struct str source_of(const char *peer, uint8_t to[16])
{
    struct str name = str_c(peer);
    ptrdiff_t colon = str_rfind(name, ':');
    char text[INET6_ADDRSTRLEN];

    if (colon >= 0)
        name = str_sub(name, 0, (size_t)colon);
    if (name.len > 1 && name.ptr[0] == '[')
        name = str_sub(name, 1, name.len - 1);
    if (name.len >= sizeof(text))
        return name;
    memcpy(text, name.ptr, name.len);
    text[name.len] = 0;
    if (inet_pton(AF_INET, text, to) == 1)
        return str_n(to, 4);
    if (inet_pton(AF_INET6, text, to) != 1)
        return name;
    if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)to))
        return str_n(to + 12, 4);
    return str_n(to, 8);
}

uint32_t throttle_fail(struct throttle *t, const char *peer, uint64_t now_ms)
{
    _Alignas(struct in6_addr) uint8_t bytes[16];
    struct str source = source_of(peer, bytes);

    CHECK(t->magic == THROTTLE_MAGIC);
    uint64_t *empty = &t->empty_ms[hash64(source.ptr, source.len, t->secret) % THROTTLE_COUNTERS];
    uint64_t at = MAX(*empty, now_ms);
    if (at - now_ms > FULL_MS)
        return (uint32_t)((at - now_ms - FULL_MS + 999) / 1000);
    *empty = at + THROTTLE_EVERY_MS;
    return 0;
}
