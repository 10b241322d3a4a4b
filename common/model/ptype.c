/* SPDX-License-Identifier: Apache-2.0 */
#include "common/model/ptype.h"

int ptype_parse(struct str id, struct ptype *ret, struct err *e)
{
    struct str part[6], one, rest = id;
    size_t n = 0;
    bool more = true;

    for (; str_next(&rest, ':', &more, &one); n++)
        if (n < ARRAY_LEN(part))
            part[n] = one;
    if (n < 5 || n > 6 || (n == 6 && !str_eqc(part[5], "delta")))
        return err_set(e, ERR_INPUT,
                       "profile type \"%.*s\" is not of the form "
                       "name:sample_type:sample_unit:period_type:period_unit",
                       STR_ARG(str_sub(id, 0, 200)));
    if (!part[0].len || !part[1].len)
        return err_set(e, ERR_INPUT, "profile type \"%.*s\" has an empty %s",
                       STR_ARG(str_sub(id, 0, 200)), part[0].len ? "sample type" : "name");
    *ret = (struct ptype){ part[0], part[1], part[2], part[3], part[4] };
    return 0;
}

void ptype_format(const struct ptype *t, struct buf *out)
{
    buf_add_str(out, t->name);
    buf_add_c(out, ':');
    buf_add_str(out, t->sample_type);
    buf_add_c(out, ':');
    buf_add_str(out, t->sample_unit);
    buf_add_c(out, ':');
    buf_add_str(out, t->period_type);
    buf_add_c(out, ':');
    buf_add_str(out, t->period_unit);
}

/*
 * Sample types that state what exists at one instant. Adding two snapshots of the same heap would
 * show twice the memory, so these are averaged over time. Everything else is something that
 * happened (CPU time, allocations, lock waits) and adds up. Names as the agents send them, after
 * '-' became '_':
 *
 *   inuse_objects, inuse_space, inuse_*      Go, jemalloc, Rust, .NET heap profiles
 *   live, live_*, heap_live_*                JFR live objects, PHP and Datadog live heap
 *   goroutine, goroutines, threadcreate      Go counts of what exists now
 *   objects, space                           Node and tcmalloc heap: the live heap; what was
 *                                            allocated is called alloc_* there as everywhere
 */
bool ptype_is_gauge(const struct ptype *t)
{
    static const char *const exact[] = {
        "goroutine", "goroutines", "threadcreate", "live", "objects", "space",
    };
    static const char *const prefix[] = { "inuse_", "inuse-", "live_", "heap_live_" };

    for (size_t i = 0; i < ARRAY_LEN(exact); i++)
        if (str_eqc(t->sample_type, exact[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(prefix); i++)
        if (str_starts(t->sample_type, str_c(prefix[i])))
            return true;
    return false;
}
