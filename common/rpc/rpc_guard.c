/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_guard: sealing and opening (bytes and keys: rpc_seal.h).
 *
 * Frames go one way and there is no handshake, so the pings that are sent anyway do its work:
 *
 *    A                                                          B
 *      ping (greeting, sealed for any node with the key) ─────>
 *      <────── pong (greeting): answers that ping, gives ticket t, which is for A's process alone
 *      bound frames: key of cluster key, salt, both epochs, both addresses, t ──────>
 *
 * and the same from B to A, each way by itself. A replayed ping is harmless: the pong is sent to
 * the node that sent the ping first. A pong counts for the process that asked (to_epoch) and the
 * ping it answers (rpc_peer.c), so A knows that B is there now, and binds.
 *
 * A ticket is a random number that B remembers: (address, epoch, ticket). Frames under a ticket
 * that B does not remember cannot be opened, even if an attacker kept them. So all frames sealed
 * for B before it restarted are void, and so are all frames sealed before B forgot their window:
 *
 *    whenever B forgets a session, B forgets the ticket under which it began.          (1)
 *
 * A session is one run of A as B sees it: salt, key, and per lane a window of the numbers that
 * came. A number is taken once. Lanes are two sockets, and one may be far ahead of the other, hence
 * a window each. A new salt opens a session if its first frame proves the key and the ticket. By
 * (1) no frame is ever taken twice, and no clock is asked.
 *
 * When a session of another epoch of A's address begins, A has restarted: the tickets and sessions
 * of its other epochs go, so frames of the dead process that are still somewhere stay out. It is
 * also proof that B's own run towards the dead A is no use: B unbinds and waits for A's pong.
 *
 * Outside, all refusals look the same: nothing happens. Inside, the reason is counted.
 *
 * Bounds: per link four tickets and four sessions; links are bounded by peers. Forged frames cost
 * their senders one packet and us one derivation and one decryption of it.
 */
#include "common/rpc/rpc_guard.h"

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"

enum { WORD_BITS = 64, TICKETS = 4 };
#define FRAMES_MAX UINT64_C(0xffffffff)

struct window {
    uint64_t top;
    uint64_t seen[RPC_GUARD_WINDOW / WORD_BITS];
};

struct session {
    struct list link; /* in owner.sessions, oldest first */
    struct rpc_guard_link *owner;
    uint8_t salt[RPC_SEAL_SALT], key[RPC_KEY_MARK];
    uint64_t epoch, ticket;
    struct rpc_aead *aead; /* owned */
    struct window lanes[RPC_LANES];
};

struct ticket {
    struct rpc_guard_link *owner;
    uint64_t epoch;  /* whose it is; 0: free */
    uint64_t number; /* never 0 */
    uint64_t used;   /* tick of the guard at which it was given last */
};

struct rpc_guard {
    struct rpc_guard_opts o;
    char addr[RPC_ADDR_MAX + 1];
    struct map_str *sessions; /* by salt */
    struct map_str *tickets;  /* by number, of struct ticket in links */
    uint64_t given;           /* tickets given so far, the same ones again counted */
    uint8_t *out, *in;        /* owned; RPC_FRAME_MAX each */
};

struct rpc_guard_link {
    struct rpc_guard *guard;
    char addr[RPC_ADDR_MAX + 1];
    /* in */
    struct ticket tickets[TICKETS];
    struct list sessions;
    size_t sessions_len;
    uint64_t in_epoch; /* of the newest process that proved itself; 0: none */
    /* out */
    uint64_t to_epoch, to_ticket; /* 0: not bound */
    struct rpc_seal run;          /* salt, key, epoch, ticket */
    struct rpc_aead *aead;        /* of the run; owned; NULL: the next frame begins one */
    uint64_t counters[RPC_LANES];
};

struct rpc_guard *rpc_guard_new(const struct rpc_guard_opts *o)
{
    struct rpc_guard *g = XNEW(struct rpc_guard);

    CHECK(o->keys && o->epoch && strlen(o->addr) <= RPC_ADDR_MAX);
    g->o = *o;
    memcpy(g->addr, o->addr, strlen(o->addr));
    g->o.addr = g->addr;
    if (!g->o.frames_max)
        g->o.frames_max = FRAMES_MAX;
    CHECK(g->o.frames_max <= FRAMES_MAX);
    g->sessions = map_str_new();
    g->tickets = map_str_new();
    g->out = xmalloc(RPC_FRAME_MAX);
    g->in = xmalloc(RPC_FRAME_MAX);
    return g;
}

void rpc_guard_free(struct rpc_guard *g)
{
    if (!g)
        return;
    CHECK(map_str_len(g->sessions) == 0 && map_str_len(g->tickets) == 0);
    map_str_free(g->sessions);
    map_str_free(g->tickets);
    xfree(g->out);
    xfree(g->in);
    xfree(g);
}

/* ---- tickets --------------------------------------------------------------------------------- */

static struct str ticket_key(const uint64_t *number)
{
    return str_n(number, sizeof(*number));
}

static void ticket_forget(struct rpc_guard *g, struct ticket *t)
{
    if (!t->epoch)
        return;
    CHECK(map_str_del(g->tickets, ticket_key(&t->number)) == t);
    t->epoch = 0;
}

/* The ticket of this process of the link's address; made if it does not exist. */
static uint64_t ticket_give(struct rpc_guard_link *l, uint64_t epoch)
{
    struct rpc_guard *g = l->guard;
    struct ticket *t = &l->tickets[0];

    g->given++;
    for (size_t i = 0; i < TICKETS; i++) {
        struct ticket *it = &l->tickets[i];

        if (it->epoch == epoch) {
            it->used = g->given;
            return it->number;
        }
        if (t->epoch && (!it->epoch || it->used < t->used))
            t = it;
    }
    ticket_forget(g, t);
    do {
        g->o.env->random(g->o.env, &t->number, sizeof(t->number));
    } while (!t->number || map_str_get(g->tickets, ticket_key(&t->number)));
    t->owner = l;
    t->epoch = epoch;
    t->used = g->given;
    CHECK(map_str_put(g->tickets, ticket_key(&t->number), t) == NULL);
    return t->number;
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* Forgets its window, and by invariant (1) its ticket. */
static void session_forget(struct rpc_guard *g, struct session *s)
{
    struct rpc_guard_link *l = s->owner;

    for (size_t i = 0; i < TICKETS; i++) {
        if (l->tickets[i].epoch && l->tickets[i].number == s->ticket)
            ticket_forget(g, &l->tickets[i]);
    }
    CHECK(map_str_del(g->sessions, str_n(s->salt, RPC_SEAL_SALT)) == s);
    list_del(&s->link);
    l->sessions_len--;
    rpc_aead_free(s->aead);
    xfree(s);
}

/* The address has a new process: out with everything of the others. */
static void others_forget(struct rpc_guard_link *l, uint64_t epoch)
{
    list_for (it, &l->sessions) {
        struct session *s = container_of(it, struct session, link);

        if (s->epoch != epoch)
            session_forget(l->guard, s);
    }
    for (size_t i = 0; i < TICKETS; i++) {
        if (l->tickets[i].epoch != epoch)
            ticket_forget(l->guard, &l->tickets[i]);
    }
    l->in_epoch = epoch;
    if (l->to_epoch != epoch)
        rpc_guard_unbind(l);
}

/* Takes in a session whose first frame was opened by `aead`, which is moved. */
static struct session *session_begin(struct rpc_guard_link *l, const struct rpc_seal *seal,
                                     struct rpc_aead *aead)
{
    struct session *s = XNEW(struct session);

    if (l->in_epoch != seal->epoch)
        others_forget(l, seal->epoch);
    if (l->sessions_len == RPC_GUARD_SESSIONS)
        session_forget(l->guard, container_of(l->sessions.next, struct session, link));
    s->owner = l;
    memcpy(s->salt, seal->salt, RPC_SEAL_SALT);
    memcpy(s->key, seal->key, RPC_KEY_MARK);
    s->epoch = seal->epoch;
    s->ticket = seal->ticket;
    s->aead = aead;
    list_add_tail(&l->sessions, &s->link);
    l->sessions_len++;
    CHECK(map_str_put(l->guard->sessions, str_n(s->salt, RPC_SEAL_SALT), s) == NULL);
    return s;
}

static bool window_seen(const struct window *w, uint64_t n)
{
    if (n > w->top)
        return false;
    if (w->top - n >= RPC_GUARD_WINDOW)
        return true;
    return w->seen[n % RPC_GUARD_WINDOW / WORD_BITS] >> n % WORD_BITS & 1;
}

static void window_mark(struct window *w, uint64_t n)
{
    if (n > w->top) {
        if (n - w->top >= RPC_GUARD_WINDOW) {
            memset(w->seen, 0, sizeof(w->seen));
        } else {
            for (uint64_t i = w->top + 1; i <= n; i++)
                w->seen[i % RPC_GUARD_WINDOW / WORD_BITS] &= ~(UINT64_C(1) << i % WORD_BITS);
        }
        w->top = n;
    }
    w->seen[n % RPC_GUARD_WINDOW / WORD_BITS] |= UINT64_C(1) << n % WORD_BITS;
}

/* ---- links ----------------------------------------------------------------------------------- */

struct rpc_guard_link *rpc_guard_link_new(struct rpc_guard *g, const char *addr)
{
    struct rpc_guard_link *l = XNEW(struct rpc_guard_link);

    CHECK(strlen(addr) <= RPC_ADDR_MAX);
    l->guard = g;
    memcpy(l->addr, addr, strlen(addr));
    list_init(&l->sessions);
    return l;
}

void rpc_guard_link_free(struct rpc_guard_link *l)
{
    if (!l)
        return;
    list_for (it, &l->sessions)
        session_forget(l->guard, container_of(it, struct session, link));
    for (size_t i = 0; i < TICKETS; i++)
        ticket_forget(l->guard, &l->tickets[i]);
    rpc_aead_free(l->aead);
    xfree(l);
}

static void run_end(struct rpc_guard_link *l)
{
    rpc_aead_free(l->aead);
    l->aead = NULL;
}

void rpc_guard_bind(struct rpc_guard_link *l, uint64_t epoch, uint64_t ticket)
{
    CHECK(epoch && ticket);
    if (l->to_epoch == epoch && l->to_ticket == ticket)
        return;
    run_end(l);
    l->to_epoch = epoch;
    l->to_ticket = ticket;
}

void rpc_guard_unbind(struct rpc_guard_link *l)
{
    run_end(l);
    l->to_epoch = l->to_ticket = 0;
}

uint64_t rpc_guard_bound(const struct rpc_guard_link *l)
{
    return l->to_epoch;
}

/* ---- out ------------------------------------------------------------------------------------- */

static struct str seal(struct rpc_guard *g, struct rpc_seal *s, struct rpc_aead *aead,
                       struct str head, struct str body)
{
    uint8_t nonce[RPC_NONCE_BYTES];
    size_t len = head.len + body.len;

    CHECK(len + RPC_SEAL_MORE <= RPC_FRAME_MAX);
    s->length = (uint32_t)len;
    rpc_seal_put(s, g->out);
    rpc_seal_nonce(s, nonce);
    rpc_aead_seal(aead, nonce, str_n(g->out, RPC_SEAL_HEAD), head, body, g->out + RPC_SEAL_HEAD);
    return str_n(g->out, len + RPC_SEAL_MORE);
}

struct str rpc_guard_seal_greeting(struct rpc_guard_link *l, uint64_t to_epoch, struct str head,
                                   struct str body)
{
    struct rpc_guard *g = l->guard;
    const struct rpc_key *with = rpc_keys_first(g->o.keys);
    struct rpc_seal s = { .cls = RPC_SEAL_GREETING, .epoch = g->o.epoch };
    uint8_t key[RPC_KEY_BYTES];
    struct rpc_aead *aead;
    struct str sealed;

    s.ticket = to_epoch ? ticket_give(l, to_epoch) : 0;
    memcpy(s.key, with->mark, RPC_KEY_MARK);
    g->o.env->random(g->o.env, s.salt, sizeof(s.salt));
    rpc_seal_greeting_key(with->secret, &s, key);
    aead = rpc_aead_new(key, true);
    sealed = seal(g, &s, aead, head, body);
    rpc_aead_free(aead);
    rpc_wipe(key, sizeof(key));
    return sealed;
}

static void run_begin(struct rpc_guard_link *l)
{
    struct rpc_guard *g = l->guard;
    const struct rpc_key *with = rpc_keys_first(g->o.keys);
    uint8_t key[RPC_KEY_BYTES];

    run_end(l);
    l->run = (struct rpc_seal){
        .cls = RPC_SEAL_BOUND,
        .epoch = g->o.epoch,
        .ticket = l->to_ticket,
    };
    memcpy(l->run.key, with->mark, RPC_KEY_MARK);
    g->o.env->random(g->o.env, l->run.salt, sizeof(l->run.salt));
    rpc_seal_bound_key(with->secret, &l->run, l->to_epoch, str_c(g->addr), str_c(l->addr), key);
    l->aead = rpc_aead_new(key, true);
    rpc_wipe(key, sizeof(key));
    memset(l->counters, 0, sizeof(l->counters));
}

struct str rpc_guard_seal(struct rpc_guard_link *l, enum rpc_lane lane, struct str head,
                          struct str body)
{
    struct rpc_guard *g = l->guard;
    const struct rpc_key *with = rpc_keys_first(g->o.keys);

    CHECK(rpc_guard_bound(l));
    if (!l->aead || l->counters[lane] >= g->o.frames_max ||
        memcmp(with->mark, l->run.key, RPC_KEY_MARK) != 0)
        run_begin(l);
    l->run.lane = (uint8_t)lane;
    l->run.counter = ++l->counters[lane];
    return seal(g, &l->run, l->aead, head, body);
}

/* ---- in -------------------------------------------------------------------------------------- */

static bool open_with(struct rpc_guard *g, struct rpc_aead *aead, const struct rpc_seal *s,
                      struct str in, struct str *ret)
{
    uint8_t nonce[RPC_NONCE_BYTES];

    rpc_seal_nonce(s, nonce);
    if (!rpc_aead_open(aead, nonce, str_sub(in, 0, RPC_SEAL_HEAD),
                       str_sub(in, RPC_SEAL_HEAD, in.len), g->in))
        return false;
    *ret = str_n(g->in, s->length);
    return true;
}

static enum rpc_drop open_greeting(struct rpc_guard *g, const struct rpc_key *with,
                                   const struct rpc_seal *s, struct str in, struct str *ret)
{
    uint8_t key[RPC_KEY_BYTES];
    struct rpc_aead *aead;
    bool ok;

    rpc_seal_greeting_key(with->secret, s, key);
    aead = rpc_aead_new(key, false);
    ok = open_with(g, aead, s, in, ret);
    rpc_aead_free(aead);
    rpc_wipe(key, sizeof(key));
    return ok ? RPC_DROP_NONE : RPC_DROP_FORGED;
}

/* The first frame of a run that we see. */
static enum rpc_drop open_first(struct rpc_guard *g, const struct rpc_key *with,
                                const struct rpc_seal *s, struct str in, struct str *ret)
{
    const struct ticket *t = map_str_get(g->tickets, ticket_key(&s->ticket));
    uint8_t key[RPC_KEY_BYTES];
    struct session *made;
    struct rpc_aead *aead;

    if (!t || t->epoch != s->epoch)
        return RPC_DROP_TICKET;
    rpc_seal_bound_key(with->secret, s, g->o.epoch, str_c(t->owner->addr), str_c(g->addr), key);
    aead = rpc_aead_new(key, false);
    rpc_wipe(key, sizeof(key));
    if (!open_with(g, aead, s, in, ret)) {
        rpc_aead_free(aead);
        return RPC_DROP_FORGED;
    }
    made = session_begin(t->owner, s, aead);
    window_mark(&made->lanes[s->lane], s->counter);
    return RPC_DROP_NONE;
}

static enum rpc_drop open_next(struct rpc_guard *g, struct session *in_session,
                               const struct rpc_seal *s, struct str in, struct str *ret)
{
    struct window *w = &in_session->lanes[s->lane];

    if (window_seen(w, s->counter))
        return RPC_DROP_REPLAYED;
    if (!open_with(g, in_session->aead, s, in, ret))
        return RPC_DROP_FORGED;
    window_mark(w, s->counter);
    return RPC_DROP_NONE;
}

enum rpc_drop rpc_guard_open(struct rpc_guard *g, struct str in, struct str *ret,
                             struct rpc_seal *ret_seal)
{
    enum rpc_drop why = rpc_seal_parse(in, ret_seal);
    const struct rpc_key *with;
    struct session *s;

    if (why != RPC_DROP_NONE)
        return why;
    with = rpc_keys_find(g->o.keys, ret_seal->key);
    if (!with)
        return RPC_DROP_KEY;
    if (ret_seal->cls == RPC_SEAL_GREETING)
        return open_greeting(g, with, ret_seal, in, ret);
    s = map_str_get(g->sessions, str_n(ret_seal->salt, RPC_SEAL_SALT));
    return s ? open_next(g, s, ret_seal, in, ret) : open_first(g, with, ret_seal, in, ret);
}

static bool agrees(const struct rpc_guard *g, const struct rpc_seal *s, const struct rpc_frame *f)
{
    bool greeting = f->kind == RPC_PING || f->kind == RPC_PONG;

    if (f->epoch != s->epoch || f->lane != s->lane || greeting != (s->cls == RPC_SEAL_GREETING))
        return false;
    if (greeting)
        return (f->kind == RPC_PONG) == (s->ticket != 0);
    const struct session *in_session = map_str_get(g->sessions, str_n(s->salt, RPC_SEAL_SALT));

    return in_session && str_eq(f->addr, str_c(in_session->owner->addr));
}

enum rpc_drop rpc_guard_check(const struct rpc_guard *g, const struct rpc_seal *s,
                              const struct rpc_frame *f)
{
    if (!agrees(g, s, f))
        return RPC_DROP_FORGED;
    /* The sender holds the key, so this is a late answer to a ping of the previous process on this
     * address. */
    if (f->kind == RPC_PONG && f->to_epoch != g->o.epoch)
        return RPC_DROP_EPOCH;
    return RPC_DROP_NONE;
}
