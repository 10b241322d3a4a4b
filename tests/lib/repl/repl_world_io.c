/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "tests/lib/repl/repl_world_impl.h"

struct world repl_w;

void world_broken(const char *fmt, ...)
{
    va_list ap;

    if (w.broken[0])
        return;
    va_start(ap, fmt);
    (void)vsnprintf(w.broken, sizeof(w.broken), fmt, ap);
    va_end(ap);
}

uint64_t world_below(uint64_t n)
{
    return prng_below(&w.prng, n);
}

/* ---- events ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->due < b->due || (a->due == b->due && a->number < b->number);
}

void world_push(struct event ev, uint64_t delay)
{
    size_t i = w.heap.len;

    ev.due = w.now + delay;
    ev.number = w.number++;
    vec_push(&w.heap, ev);
    for (; i && before(&w.heap.ptr[i], &w.heap.ptr[(i - 1) / 2]); i = (i - 1) / 2) {
        struct event t = w.heap.ptr[i];
        w.heap.ptr[i] = w.heap.ptr[(i - 1) / 2];
        w.heap.ptr[(i - 1) / 2] = t;
    }
}

struct event world_pop(void)
{
    struct event top = w.heap.ptr[0];
    size_t i = 0;

    w.heap.ptr[0] = w.heap.ptr[--w.heap.len];
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= w.heap.len)
            break;
        if (k + 1 < w.heap.len && before(&w.heap.ptr[k + 1], &w.heap.ptr[k]))
            k++;
        if (!before(&w.heap.ptr[k], &w.heap.ptr[i]))
            break;
        struct event t = w.heap.ptr[i];
        w.heap.ptr[i] = w.heap.ptr[k];
        w.heap.ptr[k] = t;
        i = k;
    }
    return top;
}

void world_node_event(struct node *n, enum event_kind kind, uint64_t delay)
{
    world_push((struct event){ .kind = kind, .node = (int)(n - w.nodes), .life = n->life }, delay);
}

/* ---- what replicas put out ---- */

struct node *world_node(const char *name)
{
    return &w.nodes[name[1] - '0'];
}

static void io_send(void *cookie, const char *to, const struct repl_msg *m)
{
    struct node *n = cookie, *p = world_node(to);
    int copies = prng_chance(&w.prng, w.doubled) ? 2 : 1;

    for (; copies; copies--) {
        struct event ev = { .kind = EV_MESSAGE,
                            .node = (int)(p - w.nodes),
                            .from = (int)(n - w.nodes) };
        if (prng_chance(&w.prng, w.lost))
            continue;
        repl_msg_copy(&ev.msg, m);
        world_push(ev, 1 + world_below(w.delay_max));
    }
}

static void log_later(struct node *n, struct op o)
{
    vec_push(&n->ops, o);
    if (!n->log_event)
        world_node_event(n, EV_LOG, 1 + world_below(8));
    n->log_event = true;
}

uint64_t world_tag(const struct repl_entry *x)
{
    return x->kind == REPL_BATCH ? get_u64le(x->data + x->len - 8) : 0;
}

static void io_append(void *cookie, struct repl_entry *const *list, size_t count, uint64_t seq)
{
    struct node *n = cookie;
    struct op o = { OP_APPEND, 0, 0, seq, xcalloc(count, sizeof(*list)), count };

    for (size_t i = 0; i < count; i++) {
        o.list[i] = entry_ref(list[i]);
        if (list[i]->index >= LOG_MAX) {
            world_broken("the log is too long for this test");
            continue;
        }
        n->mirror[list[i]->index].term = list[i]->term;
        n->mirror[list[i]->index].tag = world_tag(list[i]);
    }
    log_later(n, o);
}

static void io_hard(void *cookie, uint64_t promised, uint64_t commit, uint64_t seq)
{
    log_later(cookie, (struct op){ OP_HARD, promised, commit, seq, NULL, 0 });
}

static void io_reset(void *cookie, uint64_t index, uint64_t term, uint64_t seq)
{
    log_later(cookie, (struct op){ OP_RESET, index, term, seq, NULL, 0 });
}

static size_t io_entries(void *cookie, uint64_t from, size_t bytes_max, struct repl_entry **ret,
                         size_t max)
{
    struct node *n = cookie;
    size_t len = 0;
    struct err e;

    for (uint64_t i = from; i < LOG_MAX && len < MIN(max, 1 + bytes_max % 7); i++) {
        struct repl_entry *found = NULL;
        for (size_t k = n->ops.len; k-- > 0 && !found;)
            for (size_t j = 0; j < n->ops.ptr[k].n; j++)
                if (n->ops.ptr[k].list[j]->index == i)
                    found = entry_ref(n->ops.ptr[k].list[j]);
        if (!found) {
            size_t got;
            if (rlog_read(n->log, &(struct rlog_range){ .from = i, .max = 1 }, &found, &got, &e))
                break;
        }
        if (found->term != replica_log_term_at(n->r, i)) {
            entry_unref(found); /* cut, and not replaced yet */
            break;
        }
        ret[len++] = found;
    }
    return len;
}

static void io_commit(void *cookie, uint64_t index)
{
    struct node *n = cookie;

    for (uint64_t i = n->commit + 1; i <= index && i < LOG_MAX; i++) {
        if (i < w.committed_len &&
            (w.committed[i].term != n->mirror[i].term || w.committed[i].tag != n->mirror[i].tag))
            world_broken("index %" PRIu64 " was committed with term %" PRIx64 ", %s has %" PRIx64,
                         i, w.committed[i].term, n->name, n->mirror[i].term);
        if (i >= w.committed_len) {
            if (i != w.committed_len)
                world_broken("%s commits %" PRIu64 " and no node its predecessor", n->name, i);
            w.committed[i].term = n->mirror[i].term;
            w.committed[i].tag = n->mirror[i].tag;
            w.committed_len = i + 1;
        }
    }
    n->commit = MAX(n->commit, index);
    if (!n->apply_event)
        world_node_event(n, EV_APPLY, 1 + world_below(6));
    n->apply_event = true;
}

static void io_role(void *cookie)
{
    (void)cookie; /* looked at after each step */
}

static void io_establish(void *cookie, uint64_t term)
{
    struct node *n = cookie;

    n->establish = term;
}

static void io_confirmed(void *cookie, uint64_t read, bool ok)
{
    struct node *n = cookie;

    vec_for (i, &n->asks) {
        if (n->asks.ptr[i].id != read)
            continue;
        if (ok && n->applied < n->asks.ptr[i].need)
            world_broken("%s reads at %" PRIu64 ", %" PRIu64 " was acked before the question",
                         n->name, n->applied, n->asks.ptr[i].need);
        w.stats.reads += ok;
        n->asks.ptr[i] = n->asks.ptr[--n->asks.len];
        return;
    }
    world_broken("a read ended twice");
}

static void io_snapshot(void *cookie, const char *to)
{
    struct node *n = cookie;

    world_push((struct event){ .kind = EV_SNAPSHOT,
                               .node = (int)(world_node(to) - w.nodes),
                               .from = (int)(n - w.nodes),
                               .life = n->life },
               1 + world_below(100));
}

/* Files come in while everything else continues, over restarts of both, however long it takes. */
void world_copy(struct node *n, const struct node *from)
{
    if (!n->copy_index) {
        n->copy_index = from->applied;
        memcpy(n->copy, from->db, (n->copy_index + 1) * sizeof(n->copy[0]));
        memcpy(n->copy_term, from->db_term, (n->copy_index + 1) * sizeof(n->copy_term[0]));
        world_push((struct event){ .kind = EV_COPY, .node = (int)(n - w.nodes) },
                   1 + world_below(w.calm ? 100 : 1500));
    }
    replica_snapshot_sent(from->r, n->name, 0); /* it is offered again */
}

static void io_prefer(void *cookie, const char *name)
{
    struct node *n = cookie;

    (void)snprintf(n->prefer, sizeof(n->prefer), "%s", name);
}

struct replica_io world_io(struct node *n)
{
    return (struct replica_io){ n,           io_send,   io_append, io_hard,      io_reset,
                                io_entries,  io_commit, io_role,   io_establish, io_confirmed,
                                io_snapshot, io_prefer };
}
