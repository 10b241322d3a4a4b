/* SPDX-License-Identifier: Apache-2.0
 *
 * member: register, stay, report.
 *
 *   OUT ──step, on_grant──> GRANTED ──on_look: the key may be written; put, on_put──> IN
 *    ^                       ^  │                                                     │
 *    │                       │  └── on_look: another node has the name: looks again   │
 *    │                       └──────────── on_keep: the key was deleted ──────────────┤
 *    └─── lost: the lease ended, or the store is not trusted ─────────────────────────┘
 *
 *   any ──member_leave──> LEAVING
 *
 * One request at a time, `step` begins the next. Before every put the key is looked at, since the
 * answer to an earlier put may have been lost:
 *
 *   our own lease in the key: we are in
 *   our own id, another lease: the previous process of this node left the key; it is overwritten,
 *   without waiting for the end of its lease
 *   another id: another node of the same name, an error of the operator's. It is reported in `why`,
 *   and tried again until the other node is gone
 *   another id, but our own address, where no other process can listen: a predecessor of this node
 *   left the key, and its folder was lost. The key ends with its lease. If it stays much longer, it
 *   is another node after all
 *
 * Nothing is registered while the view does not trust what the service holds: it may be another
 * cluster's, or an empty one in which this node would help to make the map of a new cluster.
 *
 * The deadline of the lease is counted from the moment at which the request that renewed it was
 * sent: by our clock it ends no later than by the service's.
 */
#include "common/cluster/node/member.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/rpc/rpc.h"

#define RETRY_MS     300
#define WAIT_MS      50 /* until the view has looked at what the service holds */
#define REPORT_MS    1000
#define KEEP_PART    3  /* renewed after this part of its time */
#define CALL_PART    2  /* a call is sent again after it */
#define MISSING_MOST 2  /* looks at a view without us before we believe it */
#define FORMER_PART  3  /* leases that a key of our own address may stay */
#define MAP_TRIES    10 /* with one map; then this build counts as unable to read it */

enum member_state { MEMBER_OUT, MEMBER_GRANTED, MEMBER_IN, MEMBER_LEAVING };

struct member {
    struct member_opts o;
    char name[NODE_NAME_MAX + 1];
    char *prefix;   /* owned */
    struct live me; /* the value of the key */
    struct coord_key key, state_key;
    enum member_state state;
    struct timer *timer, *report_timer;
    int64_t lease, key_rev;
    int64_t map_rev; /* the view's, at the last put */
    uint32_t map_tries;
    uint64_t sent_ms, deadline_ms;
    uint64_t former_ms; /* when a key of another id with our address was first seen; 0: not seen */
    uint32_t missing;
    bool told_in;
    char rival[ERR_TEXT_MAX]; /* which other node has our name; "": none, when we looked last */
    struct err why;
    struct buf report;
    bool reporting, report_due;
    void (*left)(void *cookie);
    void *left_cookie;
};

static uint64_t now_ms(const struct member *m)
{
    return clock_mono_ms(loop_clock(m->o.loop));
}

static void tell(struct member *m)
{
    bool in = m->state == MEMBER_IN;

    if (in) {
        err_clear(&m->why);
        m->rival[0] = '\0';
    }
    if (in == m->told_in && in)
        return;
    m->told_in = in;
    if (m->o.on_change)
        m->o.on_change(m->o.cookie, in, in ? NULL : &m->why);
}

static void again(struct member *m, uint64_t after_ms)
{
    loop_timer_start(m->timer, after_ms, 0);
}

static void lost(struct member *m, const char *why)
{
    m->state = MEMBER_OUT;
    m->lease = 0;
    m->key_rev = 0;
    (void)err_set(&m->why, ERR_UNAVAILABLE, "%s", why);
    tell(m);
    again(m, RETRY_MS);
}

static void failed(struct member *m, const struct err *e)
{
    m->why = *e;
    if (e->code == ERR_NOT_FOUND) {
        lost(m, "the lease ran out");
        return;
    }
    if (m->state == MEMBER_IN && now_ms(m) >= m->deadline_ms) {
        lost(m, "the coordination service was not reached for as long as the lease lasts");
        return;
    }
    again(m, RETRY_MS);
}

/* ---- in -------------------------------------------------------------------------------------- */

static void on_put(void *cookie, const struct coord_reply *r)
{
    struct member *m = cookie;

    if (r->err) {
        failed(m, r->err);
        return;
    }
    if (!r->done) { /* another writer was faster: look again */
        view_suspect_leader(m->o.view, 0, UINT64_MAX - 1);
        again(m, RETRY_MS);
        return;
    }
    m->state = MEMBER_IN;
    m->key_rev = r->rev;
    m->missing = 0;
    m->map_tries = 0;
    m->report_due = m->report.len > 0;
    tell(m);
    again(m, m->o.ttl_ms / KEEP_PART);
    if (m->report_due)
        loop_timer_start(m->report_timer, 0, 0);
}

/* The map of this moment says whether we were drained. If we were away a little, the controller may
 * have removed us from it, and would take us for a new node. */
static bool map_stands(struct member *m, struct coord_key *key, struct coord_compare *ret)
{
    int64_t rev;

    (void)view_map(m->o.view, &rev);
    m->map_tries = rev == m->map_rev ? m->map_tries + 1 : 0;
    m->map_rev = rev;
    *key = key_map(str_c(m->prefix));
    *ret = (struct coord_compare){ .key = key_str(key), .rev = rev };
    return rev && m->map_tries < MAP_TRIES;
}

static void put(struct member *m, int64_t rev)
{
    struct coord_compare cmp[2] = { { .key = key_str(&m->key), .rev = rev } };
    struct coord_change chg = { .key = cmp[0].key, .lease = m->lease };
    struct coord_key map;
    struct buf me;

    if (!view_trusts(m->o.view)) {
        again(m, WAIT_MS);
        return;
    }
    buf_init(&me, KIB);
    m->me.drained = view_drained(m->o.view);
    live_write(&m->me, &me);
    CHECK(buf_ok(&me));
    chg.value = buf_str(&me);
    coord_txn(m->o.coord,
              &(struct coord_txn){ .cmp = cmp,
                                   .cmp_len = map_stands(m, &map, &cmp[1]) ? 2 : 1,
                                   .chg = &chg,
                                   .chg_len = 1 },
              on_put, m);
    buf_deinit(&me);
}

/* The key of a process that had this address and another data folder. */
static bool is_former(struct member *m, const struct live *other)
{
    if (strcmp(other->addr, m->o.addr) != 0)
        return false;
    if (!m->former_ms)
        m->former_ms = MAX(now_ms(m), UINT64_C(1));
    return now_ms(m) < m->former_ms + FORMER_PART * m->o.ttl_ms;
}

static void on_look(void *cookie, const struct coord_reply *r)
{
    struct member *m = cookie;
    const struct coord_kv *kv = NULL;
    struct live other;
    struct err e;

    if (r->err) {
        failed(m, r->err);
        return;
    }
    m->rival[0] = '\0';
    for (size_t i = 0; i < r->kvs_len; i++)
        if (str_eq(r->kvs[i].key, key_str(&m->key)))
            kv = &r->kvs[i];
    if (!kv) {
        m->former_ms = 0;
        put(m, 0);
    } else if (kv->lease == m->lease) { /* the answer to the put was lost */
        on_put(m, &(struct coord_reply){ .done = true, .rev = kv->mod_rev });
    } else if (live_parse(kv->value, &other, &e) == 0 && other.id != m->o.id &&
               is_former(m, &other)) {
        (void)err_set(&m->why, ERR_UNAVAILABLE,
                      "the process that was %s before, with another data folder, is registered for "
                      "some seconds more: its lease runs out by itself",
                      m->name);
        tell(m);
        again(m, RETRY_MS);
    } else if (live_parse(kv->value, &other, &e) == 0 && other.id != m->o.id) {
        (void)err_set(&m->why, ERR_CONFLICT,
                      "another node called %s lives at %s; give each its own cluster.node", m->name,
                      other.addr);
        memcpy(m->rival, m->why.text, sizeof(m->rival));
        tell(m);
        again(m, m->o.ttl_ms / 2);
    } else {
        put(m, kv->mod_rev);
    }
}

static void on_grant(void *cookie, const struct coord_reply *r)
{
    struct member *m = cookie;

    if (r->err) {
        failed(m, r->err);
        return;
    }
    m->lease = r->lease;
    m->deadline_ms = m->sent_ms + r->ttl_ms;
    m->state = MEMBER_GRANTED;
    coord_list(m->o.coord, key_str(&m->key), on_look, m);
}

/* ---- staying --------------------------------------------------------------------------------- */

static void on_keep(void *cookie, const struct coord_reply *r)
{
    struct member *m = cookie;
    struct view_node me;

    if (r->err) {
        failed(m, r->err);
        return;
    }
    if (r->ttl_ms == 0) {
        lost(m, "the lease ran out");
        return;
    }
    m->deadline_ms = m->sent_ms + r->ttl_ms;
    if (m->state == MEMBER_GRANTED) {
        coord_list(m->o.coord, key_str(&m->key), on_look, m);
        return;
    }
    /* The key was deleted, but not the lease: by an operator, say. */
    bool seen =
        !view_knows_liveness(m->o.view) || (view_node_find(m->o.view, m->name, &me) && me.live);
    m->missing = seen ? 0 : m->missing + 1;
    if (m->missing > MISSING_MOST) {
        m->missing = 0;
        m->state = MEMBER_GRANTED;
        (void)err_set(&m->why, ERR_UNAVAILABLE, "this node's key was deleted in etcd");
        tell(m);
        coord_list(m->o.coord, key_str(&m->key), on_look, m);
        return;
    }
    again(m, m->o.ttl_ms / KEEP_PART);
}

/* While the service is not trusted: nothing is written to it. */
static void stand_by(struct member *m)
{
    bool strange = view_stranger(m->o.view)[0] != '\0';

    if (m->state == MEMBER_OUT && strange)
        (void)err_set(&m->why, ERR_CONFLICT, "%s", view_stranger(m->o.view));
    if (m->state == MEMBER_OUT || (!strange && now_ms(m) < m->deadline_ms))
        again(m, strange ? RETRY_MS : WAIT_MS);
    else
        lost(m, strange ? view_stranger(m->o.view) : "the coordination service is read again");
}

static void step(void *cookie)
{
    struct member *m = cookie;

    /* A request on its way has taken too long: it may be lost, and its timeout could end after the
     * lease. All requests may be sent twice. */
    coord_cancel(m->o.coord, m);
    if (m->state != MEMBER_LEAVING && !view_trusts(m->o.view)) {
        stand_by(m);
        return;
    }
    if (m->state != MEMBER_LEAVING)
        again(m, m->o.ttl_ms / CALL_PART);
    m->sent_ms = now_ms(m);
    switch (m->state) {
    case MEMBER_OUT:
        coord_grant(m->o.coord, m->o.ttl_ms, on_grant, m);
        break;
    case MEMBER_GRANTED:
    case MEMBER_IN:
        coord_keep(m->o.coord, m->lease, on_keep, m);
        break;
    case MEMBER_LEAVING:
        break;
    }
}

/* ---- reports --------------------------------------------------------------------------------- */

static void on_reported(void *cookie, const struct coord_reply *r)
{
    struct timer **at = cookie;
    struct member *m = container_of(at, struct member, report_timer);

    m->reporting = false;
    if (r->err)
        m->report_due = true;
    loop_timer_start(m->report_timer, REPORT_MS, 0);
}

static void on_report_due(void *cookie)
{
    struct member *m = cookie;
    struct coord_change chg = { .key = key_str(&m->state_key),
                                .value = buf_str(&m->report),
                                .lease = m->lease };

    if (m->reporting || !m->report_due || m->state != MEMBER_IN || !view_trusts(m->o.view))
        return;
    m->reporting = true;
    m->report_due = false;
    /* A cookie of its own: leaving cancels the calls of the registration alone. */
    coord_txn(m->o.coord, &(struct coord_txn){ .chg = &chg, .chg_len = 1 }, on_reported,
              &m->report_timer);
}

void member_report(struct member *m, const struct progress *p)
{
    struct buf text;

    buf_init(&text, PROGRESS_BYTES_MAX);
    progress_write(p, &text);
    if (buf_ok(&text) && !str_eq(buf_str(&text), buf_str(&m->report))) {
        buf_move(&m->report, &text);
        m->report_due = true;
        if (!m->reporting)
            loop_timer_start(m->report_timer, 0, 0);
    }
    buf_deinit(&text);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct member *member_new(const struct member_opts *o)
{
    struct member *m = XNEW(struct member);

    CHECK(node_name_ok(str_c(o->name)) && o->ttl_ms > 0);
    m->o = *o;
    m->prefix = xstrdup(o->prefix);
    (void)snprintf(m->name, sizeof(m->name), "%s", o->name);
    m->me = (struct live){ .id = o->id, .methods = RPC_METHODS };
    (void)snprintf(m->me.addr, sizeof(m->me.addr), "%s", o->addr);
    (void)snprintf(m->me.zone, sizeof(m->me.zone), "%s", o->zone);
    buf_init(&m->report, PROGRESS_BYTES_MAX);
    m->key = key_live(str_c(m->prefix), m->name);
    m->state_key = key_state(str_c(m->prefix), m->name);
    m->timer = loop_timer_new(o->loop, step, m);
    m->report_timer = loop_timer_new(o->loop, on_report_due, m);
    (void)err_set(&m->why, ERR_UNAVAILABLE, "not registered yet");
    again(m, 0);
    return m;
}

void member_free(struct member *m)
{
    if (!m)
        return;
    coord_cancel(m->o.coord, m);
    coord_cancel(m->o.coord, &m->report_timer);
    loop_timer_free(m->timer);
    loop_timer_free(m->report_timer);
    buf_deinit(&m->report);
    xfree(m->prefix);
    xfree(m);
}

bool member_in(const struct member *m)
{
    return m->state == MEMBER_IN && now_ms(m) < m->deadline_ms;
}

const char *member_why(const struct member *m)
{
    if (member_in(m))
        return "";
    return m->state == MEMBER_IN ? "the lease ran out by this node's clock" : m->why.text;
}

const char *member_rival(const struct member *m)
{
    return m->rival;
}

const char *member_name(const struct member *m)
{
    return m->name;
}

bool member_guard(const struct member *m, struct coord_compare *ret)
{
    *ret = (struct coord_compare){ .key = key_str(&m->key), .rev = m->key_rev };
    return member_in(m);
}

int64_t member_lease(const struct member *m)
{
    return m->state == MEMBER_IN ? m->lease : 0;
}

static void on_revoked(void *cookie, const struct coord_reply *r)
{
    struct member *m = cookie;

    (void)r;
    m->left(m->left_cookie);
}

static void on_nothing_to_leave(void *cookie)
{
    struct member *m = cookie;

    m->left(m->left_cookie);
}

void member_leave(struct member *m, void (*done)(void *cookie), void *cookie)
{
    CHECK(m->state != MEMBER_LEAVING);
    coord_cancel(m->o.coord, m);
    loop_timer_free(m->timer);
    m->timer = loop_timer_new(m->o.loop, on_nothing_to_leave, m);
    m->left = done;
    m->left_cookie = cookie;
    m->state = MEMBER_LEAVING;
    (void)err_set(&m->why, ERR_UNAVAILABLE, "this node is leaving");
    if (m->lease)
        coord_revoke(m->o.coord, m->lease, on_revoked, m);
    else
        loop_timer_start(m->timer, 0, 0);
}
