/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_mem: frames as timers. Each frame on its way is a struct flight with a timer of its own; when
 * it fires the frame is handed to whoever listens on the address by then, so a node that crashed
 * and came back gets frames meant for its predecessor, as on a real network.
 *
 * A pipe takes pipe_bytes_max under way and then has no room until something arrived: the queues
 * above work as over sockets. All chances are drawn at sending, in the order of sending, so the
 * same seed and the same calls give the same run.
 */
#include "common/rpc/rpc_mem.h"

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/vec.h"
#include "common/rpc/rpc_framed.h"
#include "common/rpc/rpc_net.h"

enum { CUTS_MAX = 4096, SLOW_MAX = 1024, PIPE_BYTES = 1 << 20 };

struct cut {
    char from[RPC_ADDR_MAX + 1], to[RPC_ADDR_MAX + 1];
};
struct slow {
    char addr[RPC_ADDR_MAX + 1];
    uint32_t more_ms;
};

struct rpc_mem {
    struct prng prng;
    struct rpc_mem_faults faults;
    struct rpc_mem_stats stats;
    struct map_str *ears; /* by address, of struct mem_ear, borrowed */
    struct list flights;
    void (*tap)(void *cookie, struct str bytes); /* NULL: none */
    void *tap_cookie;
    uint64_t (*late_ms)(void *cookie, const char *from, const char *to, struct str bytes);
    void *late_cookie; /* of late_ms; NULL: nothing is asked */
    VEC(struct cut) cuts;
    VEC(struct slow) slows;
};

struct mem_ear {
    struct rpc_ear ear;
    struct rpc_mem *mem;
    struct loop *loop; /* borrowed */
    char addr[RPC_ADDR_MAX + 1];
    bool (*on_frame)(void *cookie, struct str frame);
    void *cookie;
};

struct mem_pipe {
    struct rpc_pipe pipe;
    struct mem_ear *from;
    char to[RPC_ADDR_MAX + 1];
    size_t under_way; /* bytes */
    bool waiting;     /* `room` returned false; call on_room when there is room */
    void (*on_room)(void *cookie);
    void *cookie;
};

struct flight {
    struct list link; /* in mem.flights */
    struct rpc_mem *mem;
    struct timer *timer;
    struct mem_pipe *pipe; /* NULL: closed or connected again */
    char from[RPC_ADDR_MAX + 1], to[RPC_ADDR_MAX + 1];
    bool lost;
    size_t len;
    char bytes[];
};

static const struct rpc_pipe_ops mem_pipe_ops;

static struct rpc_mem *mem_of(struct rpc_net *n)
{
    if (!n->mem) {
        n->mem = XNEW(struct rpc_mem);
        prng_init(&n->mem->prng, 1);
        n->mem->ears = map_str_new();
        list_init(&n->mem->flights);
    }
    return n->mem;
}

static void flight_free(struct flight *f)
{
    list_del(&f->link);
    loop_timer_free(f->timer);
    xfree(f);
}

void rpc_mem_free(struct rpc_mem *m)
{
    CHECK(map_str_len(m->ears) == 0);
    list_for (it, &m->flights)
        flight_free(container_of(it, struct flight, link));
    map_str_free(m->ears);
    vec_free(&m->cuts);
    vec_free(&m->slows);
    xfree(m);
}

/* ---- faults ---------------------------------------------------------------------------------- */

void rpc_mem_seed(struct rpc_net *n, uint64_t seed)
{
    prng_init(&mem_of(n)->prng, seed);
}

void rpc_mem_faults(struct rpc_net *n, const struct rpc_mem_faults *f)
{
    CHECK(f->delay_min_ms <= f->delay_max_ms);
    mem_of(n)->faults = *f;
}

static void addr_copy(char to[RPC_ADDR_MAX + 1], const char *from)
{
    CHECK(strlen(from) <= RPC_ADDR_MAX);
    memset(to, 0, RPC_ADDR_MAX + 1);
    memcpy(to, from, strlen(from));
}

void rpc_mem_cut(struct rpc_net *n, const char *from, const char *to)
{
    struct rpc_mem *m = mem_of(n);
    struct cut c;

    CHECK(m->cuts.len < CUTS_MAX);
    addr_copy(c.from, from);
    addr_copy(c.to, to);
    vec_push(&m->cuts, c);
}

void rpc_mem_heal(struct rpc_net *n)
{
    mem_of(n)->cuts.len = 0;
}

void rpc_mem_slow(struct rpc_net *n, const char *addr, uint32_t more_ms)
{
    struct rpc_mem *m = mem_of(n);
    struct slow s = { .more_ms = more_ms };

    vec_for (i, &m->slows) {
        if (strcmp(m->slows.ptr[i].addr, addr) == 0) {
            m->slows.ptr[i].more_ms = more_ms;
            return;
        }
    }
    CHECK(m->slows.len < SLOW_MAX);
    addr_copy(s.addr, addr);
    vec_push(&m->slows, s);
}

static bool is_cut(const struct rpc_mem *m, const char *from, const char *to)
{
    vec_for (i, &m->cuts) {
        const struct cut *c = &m->cuts.ptr[i];

        if ((strcmp(c->from, "*") == 0 || strcmp(c->from, from) == 0) &&
            (strcmp(c->to, "*") == 0 || strcmp(c->to, to) == 0))
            return true;
    }
    return false;
}

static uint32_t extra_ms(const struct rpc_mem *m, const char *addr)
{
    vec_for (i, &m->slows) {
        if (strcmp(m->slows.ptr[i].addr, addr) == 0)
            return m->slows.ptr[i].more_ms;
    }
    return 0;
}

struct rpc_mem_stats rpc_mem_stats(const struct rpc_net *n)
{
    return n->mem ? n->mem->stats : (struct rpc_mem_stats){ 0 };
}

void rpc_mem_rename(struct rpc_net *n, const char *addr, const char *to)
{
    struct rpc_mem *m = mem_of(n);
    struct mem_ear *ear = map_str_del(m->ears, str_c(addr));

    if (!ear)
        return;
    addr_copy(ear->addr, to);
    CHECK(map_str_put(m->ears, str_c(ear->addr), ear) == NULL);
}

bool rpc_mem_inject(struct rpc_net *n, const char *addr, struct str bytes)
{
    struct mem_ear *ear = map_str_get(mem_of(n)->ears, str_c(addr));

    if (ear)
        (void)ear->on_frame(ear->cookie, bytes);
    return ear != NULL;
}

void rpc_mem_tap(struct rpc_net *n, void (*on_frame)(void *, struct str), void *cookie)
{
    mem_of(n)->tap = on_frame;
    mem_of(n)->tap_cookie = cookie;
}

void rpc_mem_late(struct rpc_net *n,
                  uint64_t (*late_ms)(void *, const char *, const char *, struct str), void *cookie)
{
    mem_of(n)->late_ms = late_ms;
    mem_of(n)->late_cookie = cookie;
}

/* ---- frames on their way --------------------------------------------------------------------- */

static void flight_arrive(void *cookie)
{
    struct flight *f = cookie;
    struct rpc_mem *m = f->mem;
    struct mem_pipe *p = f->pipe;
    struct mem_ear *ear = map_str_get(m->ears, str_c(f->to));
    bool cut = is_cut(m, f->from, f->to);

    if (p) {
        CHECK(p->under_way >= f->len);
        p->under_way -= f->len;
        f->pipe = NULL;
        if (p->waiting) {
            p->waiting = false;
            p->on_room(p->cookie);
        }
    }
    m->stats.lost += f->lost;
    m->stats.cut += !f->lost && cut;
    m->stats.nobody += !f->lost && !cut && !ear;
    if (!f->lost && !cut && ear) {
        m->stats.delivered++;
        (void)ear->on_frame(ear->cookie, str_n(f->bytes, f->len));
    }
    flight_free(f);
}

static uint64_t delay_of(struct rpc_mem *m, const struct flight *f)
{
    uint64_t delay = m->faults.delay_min_ms, late;

    delay += prng_below(&m->prng, (uint64_t)m->faults.delay_max_ms - delay + 1);
    delay += extra_ms(m, f->from) + extra_ms(m, f->to);
    if (m->faults.late > 0 && prng_chance(&m->prng, m->faults.late))
        delay += prng_below(&m->prng, (uint64_t)m->faults.late_max_ms + 1);
    late = m->late_ms ? m->late_ms(m->late_cookie, f->from, f->to, str_n(f->bytes, f->len)) : 0;
    return late ? late : delay;
}

static void fly(struct mem_pipe *p, struct str head, struct str body, bool lost, bool charge)
{
    struct rpc_mem *m = p->from->mem;
    size_t len = head.len + body.len;
    struct flight *f = xcalloc(1, sizeof(*f) + len);
    uint64_t delay;

    f->mem = m;
    f->lost = lost;
    f->len = len;
    memcpy(f->from, p->from->addr, sizeof(f->from));
    memcpy(f->to, p->to, sizeof(f->to));
    memcpy(f->bytes, head.ptr, head.len);
    if (body.len)
        memcpy(f->bytes + head.len, body.ptr, body.len);
    delay = delay_of(m, f);
    if (m->tap)
        m->tap(m->tap_cookie, str_n(f->bytes, len));
    if (prng_chance(&m->prng, m->faults.damaged)) {
        uint64_t bit = prng_below(&m->prng, len * 8);

        f->bytes[bit / 8] = (char)(f->bytes[bit / 8] ^ 1 << bit % 8);
        m->stats.damaged++;
    }
    if (charge) {
        f->pipe = p;
        p->under_way += len;
    }
    list_add_tail(&m->flights, &f->link);
    f->timer = loop_timer_new(p->from->loop, flight_arrive, f);
    loop_timer_start(f->timer, delay, 0);
}

static bool mem_pipe_room(struct rpc_pipe *pipe, size_t bytes)
{
    struct mem_pipe *p = container_of(pipe, struct mem_pipe, pipe);
    const struct rpc_mem *m = p->from->mem;
    size_t max = m->faults.pipe_bytes_max ? m->faults.pipe_bytes_max : PIPE_BYTES;

    if (p->under_way == 0 || p->under_way + bytes <= max)
        return true;
    p->waiting = true;
    return false;
}

static bool mem_pipe_send(struct rpc_pipe *pipe, struct str head, struct str body)
{
    struct mem_pipe *p = container_of(pipe, struct mem_pipe, pipe);
    struct rpc_mem *m = p->from->mem;
    bool lost, repeated;

    if (!mem_pipe_room(pipe, head.len + body.len))
        return false;
    lost = prng_chance(&m->prng, m->faults.lost);
    repeated = prng_chance(&m->prng, m->faults.repeated);
    m->stats.sent++;
    m->stats.repeated += repeated;
    fly(p, head, body, lost, true);
    if (repeated)
        fly(p, head, body, false, false);
    return true;
}

static void pipe_detach(struct mem_pipe *p)
{
    list_for (it, &p->from->mem->flights) {
        struct flight *f = container_of(it, struct flight, link);

        if (f->pipe == p)
            f->pipe = NULL;
    }
    p->under_way = 0;
}

static void mem_pipe_reset(struct rpc_pipe *pipe)
{
    struct mem_pipe *p = container_of(pipe, struct mem_pipe, pipe);

    pipe_detach(p);
    if (p->waiting) {
        p->waiting = false;
        p->on_room(p->cookie);
    }
}

static void mem_pipe_close(struct rpc_pipe *pipe)
{
    struct mem_pipe *p = container_of(pipe, struct mem_pipe, pipe);

    pipe_detach(p);
    xfree(p);
}

static int mem_pipe_open(struct rpc_ear *from, const char *addr, void (*on_room)(void *),
                         void *cookie, struct rpc_pipe **ret, struct err *e)
{
    struct mem_pipe *p = XNEW(struct mem_pipe);

    (void)e;
    p->pipe.ops = &mem_pipe_ops;
    p->from = container_of(from, struct mem_ear, ear);
    addr_copy(p->to, addr);
    p->on_room = on_room;
    p->cookie = cookie;
    *ret = &p->pipe;
    return 0;
}

static int mem_ear_open(const struct rpc_ear_opts *o, struct rpc_ear **ret, struct err *e)
{
    struct rpc_mem *m = mem_of(o->net);
    struct mem_ear *n;

    if (map_str_get(m->ears, str_c(o->listen)))
        return err_set(e, ERR_CONFIG, "%s is taken", o->listen);
    n = XNEW(struct mem_ear);
    n->ear.ops = &mem_pipe_ops;
    n->mem = m;
    n->loop = o->loop;
    addr_copy(n->addr, o->listen);
    n->on_frame = o->on_frame;
    n->cookie = o->cookie;
    CHECK(map_str_put(m->ears, str_c(n->addr), n) == NULL);
    *ret = &n->ear;
    return 0;
}

static void mem_ear_close(struct rpc_ear *ear)
{
    struct mem_ear *n = container_of(ear, struct mem_ear, ear);

    CHECK(map_str_del(n->mem->ears, str_c(n->addr)) == n);
    xfree(n);
}

static const struct rpc_pipe_ops mem_pipe_ops = {
    .ear_open = mem_ear_open,
    .ear_close = mem_ear_close,
    .open = mem_pipe_open,
    .close = mem_pipe_close,
    .reset = mem_pipe_reset,
    .room = mem_pipe_room,
    .send = mem_pipe_send,
};

static int mem_open(const struct rpc_wire_opts *o, struct rpc_port **ret, struct err *e)
{
    return rpc_framed_open(&mem_pipe_ops, true, o, ret, e);
}

const struct rpc_wire_ops rpc_mem_ops = { .open = mem_open };
