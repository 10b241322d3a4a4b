/* SPDX-License-Identifier: Apache-2.0
 *
 * record_net: from which addresses a key may be used.
 *
 * IPv4 is kept as ::ffff:a.b.c.d, so that there is one comparison, and a peer that reaches an IPv6
 * port by IPv4 is in the IPv4 range. ::/0 is both. Bits behind the length of a range must be zero:
 * "10.1.2.3/8" is more often a mistake than meant.
 *
 * A peer without an address (a Unix socket: "unix:...") is in no range. Thread: any; no state.
 */
#include "common/identity/record_net.h"

#include <arpa/inet.h>
#include <stdio.h>

#define MAPPED_BITS 96 /* before an IPv4 address */
#define TEXT_MAX    INET6_ADDRSTRLEN

static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

/* False: not an address. *ret_least is the number of bits before it, 96 for IPv4. */
static bool address_of(struct str text, uint8_t ret[16], unsigned *ret_least)
{
    char c[TEXT_MAX];

    if (!text.len || text.len >= sizeof(c) || memchr(text.ptr, '\0', text.len))
        return false;
    memcpy(c, text.ptr, text.len);
    c[text.len] = '\0';
    *ret_least = str_find(text, ':') < 0 ? MAPPED_BITS : 0;
    if (!*ret_least)
        return inet_pton(AF_INET6, c, ret) == 1;
    memcpy(ret, mapped, sizeof(mapped));
    return inet_pton(AF_INET, c, ret + sizeof(mapped)) == 1;
}

/* Are the first `bits` of both the same? */
static bool same_bits(const uint8_t a[16], const uint8_t b[16], unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(a, b, whole) != 0)
        return false;
    return !rest || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

static bool zero_behind(const uint8_t addr[16], unsigned bits)
{
    for (unsigned i = bits; i < 128; i++)
        if (addr[i / 8] >> (7 - i % 8) & 1)
            return false;
    return true;
}

int net_range_parse(struct str text, struct net_range *ret, struct err *e)
{
    ptrdiff_t slash = str_find(text, '/');
    struct str address = slash < 0 ? text : str_sub(text, 0, (size_t)slash);
    struct net_range r = { 0 };
    unsigned least;
    uint64_t bits;

    if (!address_of(address, r.addr, &least))
        return err_set(e, ERR_INPUT,
                       "\"%.*s\" is not an address or range such as 10.0.0.0/8 or 2001:db8::/32",
                       STR_ARG(str_sub(text, 0, TEXT_MAX)));
    bits = 128 - least;
    if (slash >= 0 &&
        (!str_u64(str_sub(text, (size_t)slash + 1, text.len), &bits) || bits > 128 - least))
        return err_set(e, ERR_INPUT, "\"%.*s\": want a length of 0 to %u bits behind the slash",
                       STR_ARG(str_sub(text, 0, TEXT_MAX)), 128 - least);
    r.bits = (uint8_t)(least + bits);
    if (!zero_behind(r.addr, r.bits))
        return err_set(e, ERR_INPUT, "\"%.*s\": the address has bits behind the first %" PRIu64,
                       STR_ARG(str_sub(text, 0, TEXT_MAX)), bits);
    *ret = r;
    return 0;
}

void net_range_format(const struct net_range *r, char to[NET_RANGE_TEXT])
{
    bool v4 = r->bits >= MAPPED_BITS && memcmp(r->addr, mapped, sizeof(mapped)) == 0;
    char text[TEXT_MAX] = "?";

    (void)inet_ntop(v4 ? AF_INET : AF_INET6, r->addr + (v4 ? sizeof(mapped) : 0), text,
                    sizeof(text));
    (void)snprintf(to, NET_RANGE_TEXT, "%s/%d", text, v4 ? r->bits - MAPPED_BITS : r->bits);
}

/* The address of "10.1.2.3:4242" or "[::1]:9"; an interface behind % is left out. */
static struct str host_of(struct str peer)
{
    ptrdiff_t end;

    if (peer.len && peer.ptr[0] == '[') {
        end = str_find(peer, ']');
        struct str host = end < 0 ? STR_NULL : str_sub(peer, 1, (size_t)end);
        ptrdiff_t zone = str_find(host, '%');
        return zone < 0 ? host : str_sub(host, 0, (size_t)zone);
    }
    end = str_rfind(peer, ':');
    return end < 0 ? peer : str_sub(peer, 0, (size_t)end);
}

bool net_range_has(const struct net_range *nets, size_t n, const char *peer)
{
    uint8_t addr[16];
    unsigned least;

    if (!address_of(host_of(str_c(peer)), addr, &least))
        return false;
    for (size_t i = 0; i < n; i++)
        if (same_bits(nets[i].addr, addr, nets[i].bits))
            return true;
    return false;
}
