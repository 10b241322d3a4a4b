/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_table: slots and a heap.
 *
 * An id is `serial << 20 | slot`: a lookup is one index and one comparison, and an id is not used
 * twice in the life of a node (2^44 calls). Deadlines are a binary heap of the same entries, so the
 * node needs one timer, set to the first.
 */
#include "common/rpc/rpc_table.h"

#include "common/base/mem.h"

#define SLOT_BITS 20
static_assert(RPC_PENDING_MAX == 1u << SLOT_BITS, "a slot fits its bits");

struct rpc_table {
    struct rpc_out **slots; /* max of them; NULL: free */
    uint32_t *free_slots;   /* stack */
    struct rpc_out **heap;  /* len of them, earliest deadline first */
    size_t max, len;
    uint64_t serial;
};

struct rpc_table *rpc_table_new(size_t max)
{
    struct rpc_table *t = XNEW(struct rpc_table);

    CHECK(max >= 1 && max <= RPC_PENDING_MAX);
    t->max = max;
    t->slots = XNEW_ARRAY(struct rpc_out *, max);
    t->heap = XNEW_ARRAY(struct rpc_out *, max);
    t->free_slots = XNEW_ARRAY(uint32_t, max);
    for (size_t i = 0; i < max; i++)
        t->free_slots[i] = (uint32_t)(max - 1 - i);
    return t;
}

void rpc_table_free(struct rpc_table *t)
{
    if (!t)
        return;
    CHECK(t->len == 0);
    xfree(t->slots);
    xfree(t->heap);
    xfree(t->free_slots);
    xfree(t);
}

static void heap_put(struct rpc_table *t, size_t at, struct rpc_out *c)
{
    t->heap[at] = c;
    c->heap_at = at;
}

/* Moves the entry at `at` up or down to its place; the heap has n entries. */
static void heap_settle(struct rpc_table *t, size_t at, size_t n)
{
    struct rpc_out *c = t->heap[at];

    for (; at && t->heap[(at - 1) / 2]->deadline_ns > c->deadline_ns; at = (at - 1) / 2)
        heap_put(t, at, t->heap[(at - 1) / 2]);
    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < n && t->heap[child + 1]->deadline_ns < t->heap[child]->deadline_ns)
            child++;
        if (child >= n || t->heap[child]->deadline_ns >= c->deadline_ns)
            break;
        heap_put(t, at, t->heap[child]);
        at = child;
    }
    heap_put(t, at, c);
}

bool rpc_table_add(struct rpc_table *t, struct rpc_out *c)
{
    uint32_t slot;

    t->serial++;
    if (t->len == t->max) {
        c->id = t->serial << SLOT_BITS | (RPC_PENDING_MAX - 1);
        return false;
    }
    slot = t->free_slots[t->max - 1 - t->len];
    CHECK(!t->slots[slot]);
    t->slots[slot] = c;
    c->id = t->serial << SLOT_BITS | slot;
    heap_put(t, t->len, c);
    t->len++;
    heap_settle(t, t->len - 1, t->len);
    return true;
}

struct rpc_out *rpc_table_get(const struct rpc_table *t, uint64_t id)
{
    size_t slot = id & (RPC_PENDING_MAX - 1);
    struct rpc_out *c = slot < t->max ? t->slots[slot] : NULL;

    return c && c->id == id ? c : NULL;
}

void rpc_table_del(struct rpc_table *t, struct rpc_out *c)
{
    size_t slot = c->id & (RPC_PENDING_MAX - 1), at = c->heap_at;

    CHECK(rpc_table_get(t, c->id) == c && t->heap[at] == c);
    t->slots[slot] = NULL;
    t->len--;
    t->free_slots[t->max - 1 - t->len] = (uint32_t)slot;
    if (at < t->len) {
        heap_put(t, at, t->heap[t->len]);
        heap_settle(t, at, t->len);
    }
}

struct rpc_out *rpc_table_first(const struct rpc_table *t)
{
    return t->len ? t->heap[0] : NULL;
}

size_t rpc_table_len(const struct rpc_table *t)
{
    return t->len;
}
