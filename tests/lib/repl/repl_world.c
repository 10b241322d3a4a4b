/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/repl/repl_world.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "tests/lib/repl/repl_world_impl.h"

/* ---- life of a node ---- */

static void on_run(void *cookie, uint64_t from, uint64_t term)
{
    replica_log_term(cookie, from, term);
}

static void load_mirror(struct node *n)
{
    struct rlog_state s = rlog_state(n->log);
    struct repl_entry *x;
    size_t got;
    struct err e;

    for (uint64_t i = s.base_index + 1; i <= s.last_index && i < LOG_MAX; i++) {
        if (rlog_read(n->log, &(struct rlog_range){ .from = i, .max = 1 }, &x, &got, &e)) {
            world_broken("%s: %s", n->name, e.text);
            return;
        }
        n->mirror[i].term = x->term;
        n->mirror[i].tag = world_tag(x);
        entry_unref(x);
    }
}

/* True if another node relies on a promise or answer of its earlier process. */
static bool counted_on(const struct node *n, const struct repl_record *rec)
{
    return (name_set_has(&rec->members, n->name) || name_set_has(&rec->prev_members, n->name)) &&
           (rec->established || rec->prev_members.len);
}

static void admit(struct node *n)
{
    n->lost = n->lost && counted_on(n, &w.rec);
    if (!n->lost)
        replica_admit(n->r);
}

static void node_up(struct node *n)
{
    struct rlog_opts lo = { rlog_fake_fs(n->disk), "log", 2048 };
    struct err e;

    if (rlog_open(&lo, &n->log, &e)) {
        world_broken("%s: %s", n->name, e.text);
        return;
    }
    struct rlog_state s = rlog_state(n->log);
    bool begun = rlog_begun(n->log);
    if (n->applied < s.base_index || (!begun && n->applied > 1)) {
        n->no_db = true;
        n->applied = n->synced = 0;
    }
    if (!n->no_db && n->applied && rlog_term(n->log, n->applied) != n->db_term[n->applied]) {
        int rc = rlog_reset(n->log, n->applied, n->db_term[n->applied], &e);
        if (rc || rlog_sync(n->log, &e))
            world_broken("%s: %s", n->name, e.text);
        s = rlog_state(n->log);
    }
    struct replica_opts o = {
        .self = n->name,
        .io = world_io(n),
        .promised = s.promised,
        .commit = s.commit,
        .base_index = s.base_index,
        .base_term = s.base_term,
        .last_index = s.last_index,
        .last_term = s.last_term,
        .applied = n->applied,
        .no_database = n->no_db,
        .silent = !begun,
        .flight_bytes_max = 2000,
        .message_bytes_max = 1000 + world_below(7),
        .resend_ticks = 8,
        .mutants = w.mutants,
    };
    n->r = replica_new(&o);
    n->lead_epoch = 0;
    rlog_terms(n->log, on_run, n->r);
    load_mirror(n);
    n->commit = n->applied;
    n->up = true;
    n->log_event = n->apply_event = false;
    n->establish = 0;
    n->prefer[0] = '\0';
    world_node_event(n, EV_TICK, world_below(25));
    if (!begun) {
        n->lost = n->begun;
        n->begun = true;
        admit(n);
    }
    if (w.rec.term && prng_chance(&w.prng, 0.7))
        replica_record(n->r, &w.rec);
}

static void drop_ops(struct node *n)
{
    vec_for (i, &n->ops) {
        for (size_t k = 0; k < n->ops.ptr[i].n; k++)
            entry_unref(n->ops.ptr[i].list[k]);
        xfree(n->ops.ptr[i].list);
    }
    n->ops.len = 0;
}

static void node_down(struct node *n, bool power)
{
    if (!n->up)
        return;
    drop_ops(n);
    replica_free(n->r);
    rlog_close(n->log);
    n->r = NULL;
    n->log = NULL;
    n->up = false;
    n->life++;
    n->asks.len = n->puts.len = 0;
    *rlog_fake_faults(n->disk) = (struct rlog_fake_faults){ 0 };
    if (!power)
        return;
    rlog_fake_power_cut(n->disk);
    n->applied = n->synced + world_below(n->applied - n->synced + 1);
    n->synced = n->applied;
}

/* False if too many of the disks that others rely on would be lost. */
static bool may_lose(const struct node *n, const struct name_set *s)
{
    uint32_t lost = 0;

    for (uint32_t i = 0; i < s->len; i++) {
        const struct node *m = world_node(s->names[i]);
        lost += m == n || m->lost || !m->kept;
    }
    return !name_set_has(s, n->name) || lost <= (s->len - 1) / 2;
}

static void lose_disk(struct node *n)
{
    if (!may_lose(n, &w.rec.members) || !may_lose(n, &w.rec.prev_members))
        return;
    node_down(n, true);
    rlog_fake_free(n->disk);
    n->disk = rlog_fake_new(w.number);
    n->copy_lost = n->copy_index != 0;
    n->lost = n->begun;
    n->kept = false;
    n->applied = n->synced = 0;
    n->no_db = false;
    w.stats.wiped++;
}

/* ---- steps ---- */

static void log_step(struct node *n)
{
    size_t k = 1 + world_below(n->ops.len), i;
    uint64_t seq = n->ops.ptr[k - 1].seq;
    struct err e;
    int rc = 0;

    n->log_event = false;
    for (i = 0; i < k && !rc; i++) {
        struct op *o = &n->ops.ptr[i];
        if (o->kind == OP_APPEND)
            rc = rlog_append(n->log, o->list, o->n, &e);
        else if (o->kind == OP_HARD)
            rc = rlog_hard(n->log, o->a, o->b, &e);
        else
            rc = rlog_reset(n->log, o->a, o->b, &e);
    }
    if (!rc)
        rc = rlog_sync(n->log, &e);
    if (rc) {
        node_down(n, prng_chance(&w.prng, 0.5));
        if (w.calm)
            node_up(n);
        return;
    }
    for (i = 0; i < k; i++) {
        for (size_t j = 0; j < n->ops.ptr[i].n; j++)
            entry_unref(n->ops.ptr[i].list[j]);
        xfree(n->ops.ptr[i].list);
    }
    n->kept = true;
    n->ops.len -= k;
    memmove(n->ops.ptr, n->ops.ptr + k, n->ops.len * sizeof(*n->ops.ptr));
    if (n->ops.len) {
        world_node_event(n, EV_LOG, 1 + world_below(8));
        n->log_event = true;
    }
    replica_log_done(n->r, seq);
}

static void ack(struct node *n)
{
    struct replica_state s = replica_state(n->r);
    size_t left = 0;

    vec_for (i, &n->puts) {
        struct put p = n->puts.ptr[i];
        if (p.epoch != s.epoch)
            continue; /* outcome unknown */
        if (p.index > n->applied) {
            n->puts.ptr[left++] = p;
            continue;
        }
        if (w.committed[p.index].tag != p.tag)
            world_broken("write %" PRIu64 " is acked, and something else stands at %" PRIu64, p.tag,
                         p.index);
        vec_push(&w.acked, p.tag);
        w.acked_index = MAX(w.acked_index, p.index);
        w.stats.acked++;
        w.stats.unmarked += !w.rec.established && s.record_term == w.rec.term;
    }
    n->puts.len = left;
}

static void apply_step(struct node *n)
{
    struct err e;

    n->apply_event = false;
    if (n->no_db)
        return;
    bool leads = n->lead_epoch == replica_state(n->r).epoch + 1;
    for (uint64_t i = n->applied + 1; i <= n->commit; i++) {
        uint64_t maker = w.maker[n->mirror[i].tag % (1 << 16)];
        if (leads && maker && maker != (uint64_t)(n - w.nodes) + 1)
            world_broken("%s leads in one epoch, and applies what n%" PRIu64 " took", n->name,
                         maker - 1);
        n->db[i] = n->mirror[i].tag;
        n->db_term[i] = n->mirror[i].term;
        n->applied = i;
        if (prng_chance(&w.prng, 0.1))
            break;
    }
    if (prng_chance(&w.prng, 0.2))
        n->synced = n->applied;
    replica_applied(n->r, n->applied);
    if (n->applied < n->commit) {
        world_node_event(n, EV_APPLY, 1 + world_below(6));
        n->apply_event = true;
    }
    ack(n);
    if (prng_chance(&w.prng, 0.1) && n->ops.len == 0) {
        if (rlog_drop(n->log, n->synced, &e))
            world_broken("%s: %s", n->name, e.text);
        replica_dropped(n->r, rlog_state(n->log).base_index);
    }
}

/* All is here: the node ends, what came in takes the place of its database, it begins again. */
static void copy_step(struct node *n)
{
    uint64_t index = n->copy_index;
    bool anyway;

    if (!n->up) {
        world_push((struct event){ .kind = EV_COPY, .node = (int)(n - w.nodes) }, 50);
        return;
    }
    n->copy_index = 0;
    anyway = n->no_db;
    if (n->copy_lost) {
        n->copy_lost = false;
        return;
    }
    if (!replica_wants_snapshot(n->r, replica_state(n->r).term, index))
        return;
    node_down(n, !w.calm && prng_chance(&w.prng, 0.5));
    if (anyway || n->no_db || n->applied < index) {
        memcpy(n->db, n->copy, (index + 1) * sizeof(n->db[0]));
        memcpy(n->db_term, n->copy_term, (index + 1) * sizeof(n->db_term[0]));
        n->applied = n->synced = index;
        n->no_db = false;
        w.stats.copies++;
    }
    if (w.calm || prng_chance(&w.prng, 0.8))
        node_up(n);
}

static void snapshot_step(struct node *n, struct node *from, uint64_t life)
{
    uint64_t index = from->applied, term = from->db_term[from->applied];
    bool ok = false;

    if (!from->up || from->life != life)
        return;
    if (from->applied && !from->no_db && prng_chance(&w.prng, 0.5)) {
        world_copy(n, from);
        return;
    }
    if (n->up && !w.cut[from - w.nodes][n - w.nodes] && prng_chance(&w.prng, 0.8) &&
        replica_wants_snapshot(n->r, replica_state(from->r).term, index)) {
        replica_installing(n->r); /* a crash from here on leaves no database */
        n->no_db = true;
        n->applied = n->synced = 0;
        if (!w.calm && prng_chance(&w.prng, 0.3)) {
            if (prng_chance(&w.prng, 0.5))
                node_down(n, true);
            replica_snapshot_sent(from->r, n->name, 0);
            return;
        }
        n->no_db = false;
        memcpy(n->db, from->db, (index + 1) * sizeof(n->db[0]));
        memcpy(n->db_term, from->db_term, (index + 1) * sizeof(n->db_term[0]));
        n->applied = n->synced = index;
        n->commit = index;
        if (index < LOG_MAX) {
            n->mirror[index].term = term;
            n->mirror[index].tag = n->db[index];
        }
        replica_installed(n->r, index, term);
        w.stats.snapshots++;
        ok = true;
        if (!w.calm && prng_chance(&w.prng, 0.1)) /* before the log knows */
            node_down(n, true);
    }
    replica_snapshot_sent(from->r, n->name, ok ? index : 0);
}

static void look(struct node *n)
{
    struct replica_state s;
    struct repl_record next;

    if (!n->up)
        return;
    s = replica_state(n->r);
    if (s.role == REPLICA_LEADING)
        n->lead_epoch = s.epoch + 1;
    if (s.role == REPLICA_LEADING && s.term != n->seen_role_term) {
        n->seen_role_term = s.term;
        for (size_t i = 0; i + 1 < w.leader_terms.len; i += 2)
            if (w.leader_terms.ptr[i] == s.term &&
                w.leader_terms.ptr[i + 1] != (uint64_t)(n - w.nodes))
                world_broken("term %" PRIx64 " has two leaders", s.term);
        vec_push(&w.leader_terms, s.term);
        vec_push(&w.leader_terms, (uint64_t)(n - w.nodes));
        w.stats.leaders++;
    }
    if (n->establish == w.rec.term && !w.rec.established && prng_chance(&w.prng, w.marking)) {
        record_established(&w.rec, &next);
        world_record(&next);
        n->establish = 0;
    }
    if (n->prefer[0]) {
        if (w.rec.term == s.record_term) {
            world_prefer(n->prefer, &next);
            world_record(&next);
        }
        n->prefer[0] = '\0';
    }
}

static void propose(void)
{
    struct node *n = &w.nodes[world_below(NODES)];
    struct err e;
    struct buf b;

    for (int i = 0; i < NODES && (!n->up || replica_state(n->r).role != REPLICA_LEADING); i++)
        n = &w.nodes[((n - w.nodes) + 1) % NODES];
    if (!n->up || replica_state(n->r).role != REPLICA_LEADING)
        return;
    buf_init(&b, KIB);
    wr_u8(&b, 6);
    wr_varint(&b, 0);
    size_t pad = world_below(200);
    wr_varint(&b, 8 + pad);
    CHECK(buf_room(&b, pad));
    memset(b.ptr + b.len, 'x', pad);
    b.len += pad;
    wr_u64le(&b, ++w.tags);
    w.maker[w.tags % (1 << 16)] = (uint8_t)(n - w.nodes + 1);
    struct repl_entry *x = entry_new(REPL_BATCH, buf_str(&b));
    buf_deinit(&b);
    if (!replica_propose(n->r, x, &e))
        vec_push(&n->puts, ((struct put){ x->index, x->term, w.tags, replica_state(n->r).epoch }));
    entry_unref(x);
}

static void ask_at(struct node *n)
{
    if (!n->up || n->asks.len > 20)
        return;
    vec_push(&n->asks, ((struct ask){ ++w.ids, w.acked_index }));
    replica_confirm(n->r, w.ids);
}

static void ask(void)
{
    struct node *n = &w.nodes[world_below(NODES)];

    for (int i = 0; i < 3 && (!n->up || replica_state(n->r).role != REPLICA_LEADING); i++)
        n = &w.nodes[world_below(NODES)];
    ask_at(n);
}

static void heal_net(void)
{
    if (w.now >= w.hold)
        memset(w.cut, 0, sizeof(w.cut));
}

/* Leaders come and go faster than their entries spread. */
static void mean(void)
{
    struct node *leader = world_node(w.rec.leader);
    struct repl_record next;
    int i = (int)(leader - w.nodes);

    switch (world_below(10)) {
    case 8: /* two leaders, one of which does not know, and followers that forget */
        w.blind[i] = true;
        w.hold = 0;
        heal_net();
        for (int k = 0; k < 3 * NODES; k++)
            world_push((struct event){ .kind = EV_BLINK, .node = k % NODES },
                       world_below(10 + 3 * w.delay_max));
        record_next_leader(&w.rec, w.rec.members.names[world_below(w.rec.members.len)], &next);
        world_record(&next);
        break;
    case 9:
        for (int k = 0; k < NODES; k++)
            if (w.nodes[k].up && replica_state(w.nodes[k].r).role == REPLICA_FOLLOWER) {
                node_down(&w.nodes[k], true);
                node_up(&w.nodes[k]);
            }
        break;
    case 0:
        node_down(leader, prng_chance(&w.prng, 0.7));
        break;
    case 6:
    case 7: /* a short loss of power */
        if (prng_chance(&w.prng, 0.5))
            leader = &w.nodes[world_below(NODES)];
        node_down(leader, true);
        if (!leader->up)
            node_up(leader);
        break;
    case 1:
        for (int k = 0; k < NODES; k++)
            if (!w.nodes[k].up && prng_chance(&w.prng, 0.7))
                node_up(&w.nodes[k]);
        break;
    case 2:
        record_next_leader(&w.rec, w.rec.members.names[world_below(w.rec.members.len)], &next);
        world_record(&next);
        break;
    case 3:
        for (int k = 0; k < NODES; k++)
            w.cut[i][k] = w.cut[k][i] = prng_chance(&w.prng, 0.9);
        w.blind[i] = true;
        w.hold = w.now + 3000;
        for (int k = 0; k < 20; k++) /* of one who believes to lead */
            world_push((struct event){ .kind = EV_ASK, .node = i }, world_below(3000));
        record_next_leader(&w.rec, w.rec.members.names[world_below(w.rec.members.len)], &next);
        world_record(&next);
        break;
    case 4:
        for (int k = 0; k < NODES; k++)
            node_down(&w.nodes[k], prng_chance(&w.prng, 0.7));
        break;
    default:
        heal_net();
        memset(w.blind, 0, sizeof(w.blind));
    }
}

static void trouble(void)
{
    uint64_t what = world_below(100);
    struct node *n = &w.nodes[world_below(NODES)];
    int i = (int)world_below(NODES), k = (int)world_below(NODES);

    if (w.returns && world_returns())
        return;
    if (w.blinks && prng_chance(&w.prng, 0.15)) {
        n = prng_chance(&w.prng, 0.6) ? world_node(w.rec.leader) : n;
        node_down(n, prng_chance(&w.prng, 0.9));
        if (prng_chance(&w.prng, 0.7))
            node_up(n);
    } else if (w.mean && prng_chance(&w.prng, 0.1))
        mean();
    else if (what < 50)
        for (uint64_t times = 1 + world_below(4); times; times--)
            propose();
    else if (what < 68)
        ask();
    else if (what < 71)
        w.cut[i][k] = true;
    else if (what < 73) {
        for (k = 0; k < NODES; k++)
            w.cut[i][k] = w.cut[k][i] = true;
    } else if (what < 79)
        heal_net();
    else if (what < 82)
        node_down(n, prng_chance(&w.prng, 0.7));
    else if (what < 92) {
        if (!n->up)
            node_up(n);
    } else if (what < 94 && !w.blinks)
        world_change_record();
    else if (what < 95 && w.wipes)
        prng_chance(&w.prng, 0.5) ? lose_disk(n) : world_mend();
    else if (what < 98)
        world_push((struct event){ .kind = EV_RECORD, .node = i }, world_below(100));
    else if (what < 99 && n->up)
        rlog_fake_faults(n->disk)->fail_sync_in = 1 + world_below(10);
    else if (prng_chance(&w.prng, 0.3)) /* the machine room */
        for (k = 0; k < NODES; k++)
            node_down(&w.nodes[k], true);
}

static void step(void)
{
    struct event ev = world_pop();
    struct node *n = &w.nodes[ev.node];

    w.now = MAX(w.now, ev.due);
    if (ev.kind == EV_MESSAGE) {
        if (n->up && !w.cut[ev.from][ev.node])
            replica_message(n->r, &ev.msg);
        repl_msg_free(&ev.msg);
    } else if (ev.kind == EV_RECORD) {
        if (n->up && w.rec.term && !w.blind[ev.node]) {
            replica_record(n->r, &w.rec);
            admit(n);
        }
    } else if (ev.kind == EV_ASK) {
        ask_at(n);
    } else if (ev.kind == EV_BLINK) {
        if (n->up && !w.calm && replica_state(n->r).role == REPLICA_FOLLOWER) {
            node_down(n, true);
            node_up(n);
        }
    } else if (ev.kind == EV_COPY) {
        copy_step(n);
    } else if (ev.kind == EV_SNAPSHOT) {
        snapshot_step(n, &w.nodes[ev.from], ev.life);
    } else if (n->up && n->life == ev.life) {
        if (ev.kind == EV_TICK) {
            replica_tick(n->r);
            world_node_event(n, EV_TICK, 20 + world_below(10));
        } else if (ev.kind == EV_LOG && n->ops.len) {
            log_step(n);
        } else if (ev.kind == EV_APPLY) {
            apply_step(n);
        }
    }
    for (int i = 0; i < NODES; i++)
        look(&w.nodes[i]);
}

static void heal(void)
{
    w.calm = true;
    w.lost = w.doubled = 0;
    memset(w.blind, 0, sizeof(w.blind));
    memset(w.cut, 0, sizeof(w.cut));
    for (int i = 0; i < NODES; i++) {
        if (!w.nodes[i].up)
            node_up(&w.nodes[i]);
        if (w.broken[0])
            return;
        *rlog_fake_faults(w.nodes[i].disk) = (struct rlog_fake_faults){ 0 };
        replica_record(w.nodes[i].r, &w.rec);
    }
    w.marking = w.marking < 0.5 && world_does_unmarked() ? 0 : 0.5;
    for (uint64_t s = 0; s < HEAL_STEPS && !w.broken[0]; s++) {
        if (s % 50 == 0)
            for (int i = 0; i < NODES; i++) {
                replica_record(w.nodes[i].r, &w.rec);
                admit(&w.nodes[i]);
            }
        if (s % 500 == 499)
            world_mend();
        if (s % 100 == 99 && world_whole()) {
            world_check_end();
            return;
        }
        step();
    }
    world_broken("the world is whole again, and the replicas do not become the same");
}

static void free_world(void)
{
    for (int i = 0; i < NODES; i++) {
        struct node *n = &w.nodes[i];
        node_down(n, false);
        rlog_fake_free(n->disk);
        vec_free(&n->ops);
        vec_free(&n->asks);
        vec_free(&n->puts);
    }
    vec_for (i, &w.heap)
        if (w.heap.ptr[i].kind == EV_MESSAGE)
            repl_msg_free(&w.heap.ptr[i].msg);
    vec_free(&w.heap);
    vec_free(&w.acked);
    vec_free(&w.leader_terms);
}

const char *repl_world_run(uint64_t seed, uint32_t mutants, struct repl_world_stats *ret)
{
    static char text[300];

    memset(&w, 0, sizeof(w));
    prng_init(&w.prng, seed);
    w.mutants = mutants;
    w.committed_len = 1;
    w.lost = prng_chance(&w.prng, 0.5) ? 0.02 : 0.2;
    w.doubled = prng_chance(&w.prng, 0.5) ? 0 : 0.1;
    w.delay_max = prng_chance(&w.prng, 0.5) ? 10 : 200;
    w.blinks = prng_chance(&w.prng, 0.2);
    w.mean = !w.blinks && prng_chance(&w.prng, 0.7);
    w.wipes = prng_chance(&w.prng, 0.3);
    w.returns = seed % 16 == 5; /* no random number is drawn: all other worlds stay the same */
    w.marking = seed % 8 == 3 ? 0.001 : 0.5; /* no chance taken here, either */
    (void)prng_chance(&w.prng, 0.6);
    w.rec.term = 1;
    for (uint64_t i = 0; i < 1 + 2 * world_below(2) + world_below(2); i++)
        (void)snprintf(w.rec.members.names[w.rec.members.len++], sizeof(w.rec.leader), "n%" PRIu64,
                       i);
    memcpy(w.rec.leader, w.rec.members.names[0], sizeof(w.rec.leader));
    for (int i = 0; i < NODES; i++) {
        (void)snprintf(w.nodes[i].name, sizeof(w.nodes[i].name), "n%d", i);
        w.nodes[i].disk = rlog_fake_new(seed * NODES + (uint64_t)i);
        node_up(&w.nodes[i]);
    }
    for (int i = 0; i < NODES; i++)
        world_push((struct event){ .kind = EV_RECORD, .node = i }, world_below(50));
    uint64_t every = 2 + world_below(12);
    for (uint64_t s = 0; s < STEPS && !w.broken[0]; s++) {
        if (w.heap.len == 0 || s % every == 0)
            trouble();
        if (w.heap.len)
            step();
    }
    if (!w.broken[0])
        heal();
    *ret = w.stats;
    memcpy(text, w.broken, sizeof(text));
    free_world();
    return text[0] ? text : NULL;
}
