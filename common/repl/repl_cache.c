/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_cache: the newest entries of logs in memory.
 *
 * Most entries that are read were appended a moment ago: followers want them, the database wants
 * them. Others are read back from the log, so all but the newest entry may be dropped at any time;
 * the newest stays, as the place to continue from.
 *
 * A process with a hundred replicas cannot give each the memory that a single one may have. So they
 * share: over the hub's limit the log with most in memory loses its oldest half, or as much as is
 * over. A busy log keeps much while the others are idle, and no log is pushed out completely.
 *
 * Thread: the loop's; closing empties a node's cache elsewhere, when the hub counts it no more.
 */
#include "common/base/mem.h"
#include "common/repl/repl_node_impl.h"

#define PART_MIN (512 * KIB)

static size_t cache_len(const struct repl_node *n)
{
    return n->cache.len - n->cache_head;
}

static void cache_count(struct repl_node *n, const struct repl_entry *x, int sign)
{
    size_t bytes = entry_bytes(x->len);

    n->cache_bytes = sign > 0 ? n->cache_bytes + bytes : n->cache_bytes - bytes;
    if (n->counted)
        n->o.hub->log_bytes = sign > 0 ? n->o.hub->log_bytes + bytes : n->o.hub->log_bytes - bytes;
}

/* Threads that close a node empty its cache without the hub. */
void cache_join(struct repl_node *n, bool in)
{
    struct repl_hub *h = n->o.hub;

    CHECK(n->counted != in);
    n->counted = in;
    h->nodes_len = in ? h->nodes_len + 1 : h->nodes_len - 1;
    h->log_bytes = in ? h->log_bytes + n->cache_bytes : h->log_bytes - n->cache_bytes;
}

/* Its part of the hub's memory for logs, for what is read at once and what waits. */
size_t cache_part(const struct repl_node *n, size_t most)
{
    const struct repl_hub *h = n->o.hub;

    return h->o.log_bytes
               ? (size_t)MIN(MAX(h->o.log_bytes / MAX(h->nodes_len, 1u), (uint64_t)PART_MIN), most)
               : most;
}

size_t cache_flight(const struct repl_node *n, size_t most)
{
    uint64_t max = n->o.hub->o.log_bytes;

    return max ? (size_t)MIN(MAX(max / 8, (uint64_t)MIB), most) : most;
}

static void cache_drop_first(struct repl_node *n)
{
    struct repl_entry *x = n->cache.ptr[n->cache_head];

    cache_count(n, x, -1);
    entry_unref(x);
    n->cache_head++;
    n->cache_first++;
    if (n->cache_head < CACHE_MAX && n->cache_head < n->cache.len)
        return;
    n->cache.len -= n->cache_head;
    memmove(n->cache.ptr, n->cache.ptr + n->cache_head, n->cache.len * sizeof(*n->cache.ptr));
    n->cache_head = 0;
}

/* Drops those from `index` on. */
void cache_cut(struct repl_node *n, uint64_t index)
{
    while (cache_len(n) && n->cache_first + cache_len(n) > index) {
        struct repl_entry *x = n->cache.ptr[--n->cache.len];
        cache_count(n, x, -1);
        entry_unref(x);
    }
}

void cache_old_clear(struct repl_node *n)
{
    for (size_t i = 0; i < n->old_len; i++)
        entry_unref(n->old[i]);
    xfree(n->old);
    n->old = NULL;
    n->old_len = 0;
}

void cache_add(struct repl_node *n, struct repl_entry *x)
{
    if (x->index <= n->log_last) { /* replaced */
        cache_cut(n, x->index);
        cache_old_clear(n);
        n->gen++;
    }
    n->log_last = x->index;
    if (!cache_len(n)) {
        n->cache.len = n->cache_head = 0;
        n->cache_first = x->index;
    }
    CHECK(n->cache_first + cache_len(n) == x->index);
    vec_push(&n->cache, entry_ref(x));
    cache_count(n, x, 1);
    while (cache_len(n) > 1 && (n->cache_bytes > CACHE_BYTES || cache_len(n) > CACHE_MAX))
        cache_drop_first(n);
    cache_trim_all(n->o.hub);
}

/* Each keeps its newest entry. */
void cache_trim_all(struct repl_hub *h)
{
    uint64_t max = h->o.log_bytes;

    while (max && h->log_bytes > max) {
        struct repl_node *most = NULL;
        list_for (it, &h->nodes) {
            struct repl_node *n = container_of(it, struct repl_node, link);
            if (cache_len(n) > 1 && (!most || n->cache_bytes > most->cache_bytes))
                most = n;
        }
        if (!most)
            break;
        for (size_t before = most->cache_bytes;
             cache_len(most) > 1 && most->cache_bytes > before / 2 && h->log_bytes > max;)
            cache_drop_first(most);
    }
}

struct repl_entry *cache_at(const struct repl_node *n, uint64_t index)
{
    if (!cache_len(n) || index < n->cache_first || index >= n->cache_first + cache_len(n))
        return NULL;
    return n->cache.ptr[n->cache_head + (index - n->cache_first)];
}
