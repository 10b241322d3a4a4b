/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/repl/place_zones.h"

static const char *zone_of(const struct place_node *nodes, size_t n, const char *name)
{
    size_t i = 0;

    while (i < n && strcmp(nodes[i].name, name) != 0)
        i++;
    CHECK(i < n);
    return nodes[i].zone;
}

uint32_t zones_in(const struct place_node *nodes, size_t n, const struct name_set *s)
{
    uint32_t zones = 0;

    for (uint32_t i = 0; i < s->len; i++) {
        const char *zone = zone_of(nodes, n, s->names[i]);
        bool seen = false;

        for (uint32_t k = 0; k < i; k++)
            seen = seen || (zone[0] && strcmp(zone, zone_of(nodes, n, s->names[k])) == 0);
        zones += !seen;
    }
    return zones;
}
