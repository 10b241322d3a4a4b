/* SPDX-License-Identifier: Apache-2.0
 *
 * lead: take over, establish, hand over, undo a change of members.
 *
 *   led by another node ──take_over: it does not live, and this node's turn has come──> led by us
 *   led by us, a new term ──establish: replicas committed an entry of it──────────────> established
 *   led by us ──give: lead_hand_over, lead_pass──────────────────> a new term of another leader
 *   led by us, members changed ──give: lead_undo_member_change, with record_undo_member_change──>
 * the previous members
 *
 * Each arrow is one swap of the record; on_swapped ends it, and the view shows the result.
 *
 * A tick looks at every shard whose member this node is. Its leader counts as gone when the service
 * says that it does not live, and the service answered less than FRESH_MS ago: a stale view is no
 * reason to act. The members that live take turns, in the order of the record, TURN_MS apart and
 * with jitter, so that mostly one tries and the others find a new term.
 *
 * Nothing is swapped while the view does not trust what the service holds (view_trusts).
 *
 * The swap compares the record's revision, and the revision of our own registration: a node that
 * was taken for dead cannot lead on a late message.
 */
#include "common/cluster/node/lead.h"

#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/node/lead_note.h"

#define TICK_MS      200
#define TURN_MS      400
#define JITTER_MS    200
#define FRESH_MS     3000 /* a view older than this does not say which nodes live */
#define CALLS_MOST   64   /* at once */
#define AFTER_ERR_MS 300
#define ANEW_MS      3000 /* after a store that was not followed: time for all to register */

struct slot {               /* one shard */
    uint64_t gone_since_ms; /* 0: its leader lives */
    uint64_t gone_term;
    uint64_t established; /* the term to say so of; 0: none */
    uint64_t give_term;   /* the term to end by handing over; 0: none */
    char give_to[NODE_NAME_MAX + 1];
    bool give_back;       /* with the previous members */
    const char *give_why; /* a constant */
    uint64_t quiet_until_ms;
    int64_t tried_rev; /* the record that was swapped: no second try before the view has moved */
    bool busy;
};
struct lead_call {
    struct list list;
    struct lead *lead;
    uint32_t shard;
    int64_t rev;
    struct lead_note note;
};
struct lead {
    struct lead_opts o;
    char *prefix;       /* owned */
    struct slot *slots; /* owned; CLUSTER_SHARDS_MAX */
    struct timer *tick;
    struct list calls;
    uint32_t calls_len;
    uint64_t store;   /* of the view: what tried_rev is of */
    bool strange;     /* it was not followed at the last look */
    uint64_t anew_ms; /* it is followed again since; 0: it always was */
};

static uint64_t now_ms(const struct lead *l)
{
    return clock_mono_ms(loop_clock(l->o.loop));
}

/* ---- the swap -------------------------------------------------------------------------------- */

static void on_swapped(void *cookie, const struct coord_reply *r)
{
    struct lead_call *k = cookie;
    struct lead *l = k->lead;
    struct slot *s = &l->slots[k->shard];

    s->busy = false;
    /* Not done, or not known: the view will show it; a doubt makes it look soon. */
    if (!r->err && r->done) {
        s->tried_rev = k->rev;
        lead_note_log(&k->note, k->shard);
    } else {
        s->quiet_until_ms = now_ms(l) + AFTER_ERR_MS;
    }
    if (r->err || !r->done)
        view_suspect_leader(l->o.view, k->shard, UINT64_MAX - 1);
    list_del(&k->list);
    l->calls_len--;
    xfree(k);
}

/* `why`: a constant that says why `next` names another leader; NULL: it does not. */
static void swap(struct lead *l, uint32_t shard, int64_t rev, const struct repl_record *now,
                 const struct repl_record *next, const char *why)
{
    struct coord_key key = key_shard(str_c(l->prefix), shard);
    struct coord_compare cmp[2] = { { .key = key_str(&key), .rev = rev } };
    struct lead_call *k;
    struct buf text;
    struct err e;

    CHECK(record_may_follow(now, next, &e) == 0);
    if (l->calls_len == CALLS_MOST || !member_guard(l->o.member, &cmp[1]))
        return;
    k = XNEW(struct lead_call);
    k->lead = l;
    k->shard = shard;
    k->rev = rev;
    lead_note_set(&k->note, now, next, why);
    list_add_tail(&l->calls, &k->list);
    l->calls_len++;
    l->slots[shard].busy = true;
    buf_init(&text, RECORD_BYTES_MAX);
    record_write(next, &text);
    struct coord_change chg = { .key = cmp[0].key, .value = buf_str(&text) };
    coord_txn(l->o.coord,
              &(struct coord_txn){ .cmp = cmp, .cmp_len = 2, .chg = &chg, .chg_len = 1 },
              on_swapped, k);
    buf_deinit(&text);
}

/* ---- one shard ------------------------------------------------------------------------------- */

/* How many live members come before this node, except the record's leader. */
static uint32_t turn_of(const struct lead *l, const struct repl_record *r)
{
    const char *me = member_name(l->o.member);
    uint32_t turn = 0;

    for (uint32_t i = 0; i < r->members.len && strcmp(r->members.names[i], me) != 0; i++) {
        struct view_node n;

        if (strcmp(r->members.names[i], r->leader) != 0 &&
            view_node_find(l->o.view, r->members.names[i], &n) && n.live)
            turn++;
    }
    return turn;
}

static void take_over(struct lead *l, uint32_t shard, const struct repl_record *r, int64_t rev)
{
    struct slot *s = &l->slots[shard];
    const char *me = member_name(l->o.member);
    struct repl_record next;
    struct view_node leader;
    uint64_t wait;

    if (strcmp(r->leader, me) == 0 ||
        (view_node_find(l->o.view, r->leader, &leader) && leader.live) ||
        (l->anew_ms && now_ms(l) < l->anew_ms + ANEW_MS)) {
        s->gone_since_ms = 0;
        return;
    }
    if (s->gone_since_ms == 0 || s->gone_term != r->term) {
        s->gone_since_ms = MAX(now_ms(l), UINT64_C(1));
        s->gone_term = r->term;
    }
    wait = (uint64_t)turn_of(l, r) * TURN_MS +
           hash_u64(l->o.seed ^ hash_mix(r->term + 1, shard + 1)) % JITTER_MS;
    if (now_ms(l) < s->gone_since_ms + wait || (l->o.able && !l->o.able(l->o.cookie, shard)))
        return;
    record_next_leader(r, me, &next);
    swap(l, shard, rev, r, &next, "the lease of the leader before ended");
}

static void give(struct lead *l, uint32_t shard, const struct repl_record *r, int64_t rev)
{
    struct slot *s = &l->slots[shard];
    struct repl_record next;

    if (r->term != s->give_term || (s->give_back ? !record_undo_member_change(r, s->give_to, &next)
                                                 : !name_set_has(&r->members, s->give_to))) {
        s->give_term = 0;
        return;
    }
    if (!s->give_back)
        record_next_leader(r, s->give_to, &next);
    swap(l, shard, rev, r, &next, s->give_why);
}

static void establish(struct lead *l, uint32_t shard, const struct repl_record *r, int64_t rev)
{
    struct slot *s = &l->slots[shard];
    struct repl_record next;

    if (r->term > s->established || (r->term == s->established && r->established)) {
        s->established = 0;
        return;
    }
    if (r->term < s->established) /* the view is behind */
        return;
    record_established(r, &next);
    swap(l, shard, rev, r, &next, NULL);
}

static void look(struct lead *l, uint32_t shard)
{
    struct slot *s = &l->slots[shard];
    const char *me = member_name(l->o.member);
    const struct repl_record *r;
    int64_t rev;

    r = view_record(l->o.view, shard, &rev);
    if (!r || rev == 0 || !view_trusts(l->o.view) || s->busy || now_ms(l) < s->quiet_until_ms ||
        rev == s->tried_rev || !name_set_has(&r->members, me))
        return;
    if (s->give_term)
        give(l, shard, r, rev);
    if (s->established && !s->busy)
        establish(l, shard, r, rev);
    if (!s->busy && view_age_ms(l->o.view) < FRESH_MS)
        take_over(l, shard, r, rev);
}

static void look_at_all(struct lead *l)
{
    bool strange = view_stranger(l->o.view)[0] != '\0';

    if (l->store != view_store(l->o.view))
        for (uint32_t i = 0; i < CLUSTER_SHARDS_MAX; i++)
            l->slots[i].tried_rev = 0;
    l->store = view_store(l->o.view);
    if (l->strange && !strange)
        l->anew_ms = now_ms(l);
    l->strange = strange;
    if (!member_in(l->o.member) || !view_knows_liveness(l->o.view))
        return;
    for (uint32_t i = 0; i < view_shards(l->o.view); i++)
        look(l, i);
}

static void on_tick(void *cookie)
{
    look_at_all(cookie);
}

static void on_view(void *cookie)
{
    look_at_all(cookie);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct lead *lead_new(const struct lead_opts *o)
{
    struct lead *l = XNEW(struct lead);

    l->o = *o;
    l->prefix = xstrdup(o->prefix);
    l->slots = XNEW_ARRAY(struct slot, CLUSTER_SHARDS_MAX);
    list_init(&l->calls);
    l->tick = loop_timer_new(o->loop, on_tick, l);
    loop_timer_start(l->tick, TICK_MS, TICK_MS);
    view_watch(o->view, on_view, l);
    return l;
}

void lead_free(struct lead *l)
{
    if (!l)
        return;
    view_unwatch(l->o.view, on_view, l);
    list_for (it, &l->calls) {
        struct lead_call *k = container_of(it, struct lead_call, list);

        coord_cancel(l->o.coord, k);
        xfree(k);
    }
    loop_timer_free(l->tick);
    xfree(l->slots);
    xfree(l->prefix);
    xfree(l);
}

void lead_established(struct lead *l, uint32_t shard, uint64_t term)
{
    CHECK(shard < CLUSTER_SHARDS_MAX && term > 0);
    l->slots[shard].established = term;
    if (member_in(l->o.member))
        look(l, shard);
}

static void note_give(struct lead *l, uint32_t shard, const char *to, bool back, const char *why)
{
    const struct repl_record *r = view_record(l->o.view, shard, NULL);
    struct slot *s = &l->slots[shard];

    CHECK(shard < CLUSTER_SHARDS_MAX && node_name_ok(str_c(to)));
    if (!r)
        return;
    s->give_term = r->term;
    s->give_back = back;
    s->give_why = why;
    memset(s->give_to, 0, sizeof(s->give_to));
    memcpy(s->give_to, to, strlen(to));
    if (member_in(l->o.member))
        look(l, shard);
}

void lead_hand_over(struct lead *l, uint32_t shard, const char *to, const char *why)
{
    note_give(l, shard, to, false, why);
}

/* A random member of the set that lives and is not this node. */
static const char *another(const struct lead *l, uint32_t shard, uint64_t term,
                           const struct name_set *set)
{
    const char *live[RECORD_SET_MAX];
    struct view_node n;
    size_t len = 0;

    for (uint32_t i = 0; i < set->len; i++)
        if (strcmp(set->names[i], member_name(l->o.member)) != 0 &&
            view_node_find(l->o.view, set->names[i], &n) && n.live)
            live[len++] = set->names[i];
    return len ? live[hash_u64(l->o.seed ^ hash_mix(term + 1, shard + 1)) % len] : NULL;
}

static const struct repl_record *led(const struct lead *l, uint32_t shard)
{
    const struct repl_record *r = view_record(l->o.view, shard, NULL);

    return r && strcmp(r->leader, member_name(l->o.member)) == 0 ? r : NULL;
}

const char *lead_pass(struct lead *l, uint32_t shard, const char *why)
{
    const struct repl_record *r = led(l, shard);
    const char *to = r ? another(l, shard, r->term, &r->members) : NULL;

    if (to)
        note_give(l, shard, to, false, why);
    return to;
}

const char *lead_undo_member_change(struct lead *l, uint32_t shard)
{
    const struct repl_record *r = led(l, shard);
    const char *to = member_name(l->o.member);
    struct repl_record next;

    if (r && !name_set_has(&r->prev_members, to))
        to = another(l, shard, r->term, &r->prev_members);
    if (!r || !to || !record_undo_member_change(r, to, &next))
        return NULL;
    note_give(l, shard, to, true,
              "no majority of the members answers, and they have just been changed: undone");
    return to;
}

size_t lead_count(const struct lead *l)
{
    const struct repl_record *r;
    size_t n = 0;

    for (uint32_t i = 0; i < view_shards(l->o.view); i++) {
        r = view_record(l->o.view, i, NULL);
        n += r && strcmp(r->leader, member_name(l->o.member)) == 0;
    }
    return n;
}
