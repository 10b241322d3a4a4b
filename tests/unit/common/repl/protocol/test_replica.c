/* SPDX-License-Identifier: Apache-2.0
 *
 * One replica by hand: what it says and does to single messages, where the simulated world of
 * tests/prop/test_repl.c would need too much chance.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/repl/protocol/replica.h"

enum { SENT_MAX = 64 };

static struct {
    struct replica *r;
    struct repl_msg sent[SENT_MAX];
    char to[SENT_MAX][8];
    size_t sent_len;
    uint64_t seq, committed, established, snapshots, reads_ok, reads_failed;
    char preferred[8];
} t;

static void on_send(void *cookie, const char *to, const struct repl_msg *m)
{
    (void)cookie;
    assert_true(t.sent_len < SENT_MAX);
    t.sent[t.sent_len] = *m;
    (void)snprintf(t.to[t.sent_len++], sizeof(t.to[0]), "%.7s", to);
}

static void on_log_append(void *cookie, struct repl_entry *const *list, size_t n, uint64_t seq)
{
    (void)cookie;
    (void)list;
    (void)n;
    t.seq = seq;
}

static void on_log_pair(void *cookie, uint64_t a, uint64_t b, uint64_t seq)
{
    (void)cookie;
    (void)a;
    (void)b;
    t.seq = seq;
}

static size_t on_entries(void *cookie, uint64_t from, size_t bytes_max, struct repl_entry **ret,
                         size_t max)
{
    (void)cookie;
    (void)from;
    (void)bytes_max;
    (void)ret;
    (void)max;
    return 0;
}

static void on_commit(void *cookie, uint64_t index)
{
    (void)cookie;
    t.committed = index;
}

static void on_role(void *cookie)
{
    (void)cookie;
}

static void on_establish(void *cookie, uint64_t term)
{
    (void)cookie;
    t.established = term;
}

static void on_confirmed(void *cookie, uint64_t read, bool ok)
{
    (void)cookie;
    (void)read;
    t.reads_ok += ok;
    t.reads_failed += !ok;
}

static void on_snapshot(void *cookie, const char *to)
{
    (void)cookie;
    (void)to;
    t.snapshots++;
}

static void on_prefer(void *cookie, const char *name)
{
    (void)cookie;
    (void)snprintf(t.preferred, sizeof(t.preferred), "%.7s", name);
}

static void begin(uint64_t last, uint64_t last_term, uint64_t promised, uint32_t mutants)
{
    struct replica_opts o = {
        .self = "a",
        .io = { NULL, on_send, on_log_append, on_log_pair, on_log_pair, on_entries, on_commit,
                on_role, on_establish, on_confirmed, on_snapshot, on_prefer },
        .promised = promised,
        .last_index = last,
        .last_term = last_term,
        .mutants = mutants,
    };

    memset(&t, 0, sizeof(t));
    t.r = replica_new(&o);
    if (last)
        replica_log_term(t.r, 1, last_term);
}

static struct repl_record record(uint64_t term, const char *leader, bool established)
{
    struct repl_record rec = { .term = term, .established = established };

    (void)snprintf(rec.leader, sizeof(rec.leader), "%s", leader);
    (void)(name_set_add(&rec.members, "a") && name_set_add(&rec.members, "b") &&
           name_set_add(&rec.members, "c"));
    return rec;
}

static struct repl_msg msg(enum repl_msg_kind kind, const char *from, uint64_t term)
{
    struct repl_msg m = { .kind = kind, .term = term };

    (void)snprintf(m.from, sizeof(m.from), "%s", from);
    return m;
}

/* A leader that was restarted holds an entry of its former run. A majority having it does not
 * commit it: a log with an entry of a run between may win yet. Its first entry of this run does. */
static void old_terms(uint32_t mutants, uint64_t want)
{
    uint64_t first = replica_term_of(7, 0), again = replica_term_of(7, 1);
    struct repl_record rec = record(7, "a", true);
    struct repl_msg m;

    begin(1, first, first, mutants);
    replica_record(t.r, &rec);
    assert_int_equal(replica_state(t.r).term, again);
    replica_log_done(t.r, t.seq); /* its own promise */
    m = msg(REPL_PREPARED, "b", again);
    m.ok = true;
    m.last_index = 1;
    m.last_term = first;
    replica_message(t.r, &m);
    assert_int_equal(replica_state(t.r).last_index, 2); /* the term is open */
    replica_log_done(t.r, t.seq);
    m = msg(REPL_APPENDED, "b", again);
    m.ok = true;
    m.last_index = 1;
    m.seq = 1;
    replica_message(t.r, &m);
    assert_int_equal(t.committed, want);
    m.last_index = 2;
    m.seq = 2;
    replica_message(t.r, &m);
    assert_int_equal(t.committed, 2);
    replica_free(t.r);
}

static void test_old_terms(void **state)
{
    (void)state;
    old_terms(0, 0);
    old_terms(MUTANT_COMMIT_OLD_TERMS, 1); /* that is what it looks like */
}

/* Of a shard's first record nothing is committed, and so nothing served, before it is marked as
 * established. */
static void test_established(void **state)
{
    struct repl_record rec = record(1, "a", false);
    uint64_t term = replica_term_of(1, 0);
    struct repl_msg m = msg(REPL_PREPARED, "b", term);

    (void)state;
    begin(0, 0, 0, 0);
    replica_record(t.r, &rec);
    m.ok = true;
    replica_message(t.r, &m); /* one promise, and its own is not on the disk yet */
    assert_int_equal(replica_state(t.r).last_index, 0);
    replica_log_done(t.r, t.seq);
    assert_int_equal(replica_state(t.r).last_index, 1);
    replica_log_done(t.r, t.seq);
    m = msg(REPL_APPENDED, "c", term);
    m.ok = true;
    m.last_index = 1;
    m.seq = 1;
    replica_message(t.r, &m);
    assert_int_equal(t.established, 1);
    assert_int_equal(t.committed, 0);
    rec.established = true;
    replica_record(t.r, &rec);
    assert_int_equal(t.committed, 1);
    assert_int_equal(replica_state(t.r).role, REPLICA_PREPARING);
    replica_applied(t.r, 1);
    assert_int_equal(replica_state(t.r).role, REPLICA_LEADING);
    /* A newer record that is marked: another leads already. */
    rec = record(2, "c", true);
    replica_record(t.r, &rec);
    assert_int_equal(replica_state(t.r).role, REPLICA_FOLLOWER);
    assert_int_equal(replica_state(t.r).epoch, 1);
    replica_free(t.r);
}

static struct name_set set_of(const char *names)
{
    struct name_set set = { 0 };
    char one[2] = "";

    for (; (one[0] = *names); names++)
        (void)name_set_add(&set, one);
    return set;
}

/* `a` is named leader of these, and opens its term: two entries, which it has itself. */
static uint64_t opens(const char *members, const char *former, uint32_t mutants)
{
    uint64_t term = replica_term_of(9, 0), old = replica_term_of(8, 0);
    struct repl_record rec = { .term = 9, .leader = "a" };
    struct repl_msg m = msg(REPL_PREPARED, "", term);

    rec.members = set_of(members);
    rec.prev_members = set_of(former);
    begin(1, old, old, mutants);
    replica_record(t.r, &rec);
    replica_log_done(t.r, t.seq);
    m.ok = true;
    m.last_index = 1;
    m.last_term = old;
    for (const char *c = "bcdef"; *c; c++) {
        m.from[0] = *c;
        replica_message(t.r, &m);
    }
    assert_int_equal(replica_state(t.r).last_index, 2);
    replica_log_done(t.r, t.seq);
    return term;
}

static void has_all(char who, uint64_t term)
{
    struct repl_msg m = msg(REPL_APPENDED, "", term);

    m.from[0] = who;
    m.ok = true;
    m.last_index = 2;
    m.seq = 1;
    m.round = t.sent[t.sent_len - 1].round;
    replica_message(t.r, &m);
}

/* While the record cannot be marked, as when etcd went away just then: an entry on a majority of
 * the members and of the previous ones is committed, and the next leader finds it. */
static void test_goes_on_unmarked(void **state)
{
    struct repl_entry *x = entry_new(REPL_NOOP, STR_NULL);
    uint64_t term = opens("abc", "abc", 0);
    struct err e;

    (void)state;
    assert_int_equal(t.committed, 0);
    has_all('c', term);
    assert_int_equal(t.committed, 2);
    assert_int_equal(t.established, 9);
    replica_applied(t.r, 2);
    assert_int_equal(replica_state(t.r).role, REPLICA_LEADING);
    assert_false(replica_propose(t.r, x, &e));
    t.established = 0;
    for (int i = 0; i < 50; i++) {
        t.sent_len = 0;
        replica_tick(t.r);
    }
    assert_int_equal(t.established, 9); /* still asked for */
    entry_unref(x);
    replica_free(t.r);
}

/* One comes: three of the four, two of them of those before. Four go, three come: the same three
 * are not enough. */
static void test_both_majorities(void **state)
{
    uint64_t term = opens("abcd", "abc", 0);

    (void)state;
    has_all('d', term);
    assert_int_equal(t.committed, 0);
    has_all('c', term);
    assert_int_equal(t.committed, 2);
    replica_free(t.r);

    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        term = opens("ade", "abcd", wrong ? MUTANT_COMMIT_BY_MEMBERS : 0);
        has_all('d', term);
        has_all('e', term);
        assert_int_equal(t.established, 9);
        assert_int_equal(t.committed, wrong ? 2 : 0);
        replica_free(t.r);
    }
}

/* A read is as much of a decision. */
static void test_reads_unmarked(void **state)
{
    uint64_t term = opens("abcd", "abc", 0);

    (void)state;
    has_all('d', term);
    has_all('c', term);
    replica_applied(t.r, 2);
    assert_int_equal(replica_state(t.r).role, REPLICA_LEADING);
    replica_confirm(t.r, 1);
    has_all('d', term);
    assert_int_equal(t.reads_ok, 0);
    has_all('b', term);
    assert_int_equal(t.reads_ok, 1);
    replica_free(t.r);
}

/* Leads in record 9, and learns of a 10th. */
static uint64_t hears_of(const struct repl_record *next, bool answered)
{
    uint64_t term = opens("abc", "abc", 0);

    has_all('b', term);
    replica_applied(t.r, 2);
    assert_int_equal(replica_state(t.r).role, REPLICA_LEADING);
    for (int i = 0; !answered && i < 60; i++) {
        t.sent_len = 0;
        replica_tick(t.r);
    }
    replica_record(t.r, next);
    assert_int_equal(replica_state(t.r).record_term, 10);
    assert_string_equal(replica_state(t.r).leader, "c");
    return term;
}

static void goes_on(uint64_t term)
{
    struct repl_entry *x = entry_new(REPL_NOOP, STR_NULL);
    struct repl_msg m = msg(REPL_APPENDED, "b", term);
    struct err e;

    assert_int_equal(replica_state(t.r).role, REPLICA_LEADING);
    assert_int_equal(replica_state(t.r).epoch, 0);
    assert_false(replica_propose(t.r, x, &e));
    replica_log_done(t.r, t.seq);
    m.ok = true;
    m.last_index = 3;
    m.seq = 2;
    replica_message(t.r, &m);
    assert_int_equal(t.committed, 3);
    entry_unref(x);
}

static void ends(void)
{
    struct replica_state st = replica_state(t.r);

    assert_int_equal(st.role, REPLICA_FOLLOWER);
    assert_int_equal(st.epoch, 1);
    assert_int_equal(st.record_term, 10);
    assert_string_equal(st.leader, "c");
    replica_free(t.r);
}

/* Another leader is named: it may not know, so this one continues, until that leader asks for
 * promises, or no member answers here. */
static void test_leads_on(void **state)
{
    struct repl_record next = record(10, "c", false), marked = record(10, "c", true);
    struct repl_msg m = msg(REPL_PREPARE, "c", replica_term_of(10, 0));

    (void)state;
    goes_on(hears_of(&next, true));
    replica_message(t.r, &m);
    ends();

    goes_on(hears_of(&next, true));
    m = msg(REPL_APPENDED, "b", replica_term_of(10, 0)); /* b has promised */
    replica_message(t.r, &m);
    ends();

    goes_on(hears_of(&next, true));
    replica_record(t.r, &marked);
    ends();

    goes_on(hears_of(&next, true));
    for (int i = 0; i < 41; i++) {
        assert_int_equal(replica_state(t.r).role, i < 40 ? REPLICA_LEADING : REPLICA_FOLLOWER);
        t.sent_len = 0;
        replica_tick(t.r);
    }
    ends();

    (void)hears_of(&next, false); /* alone already */
    ends();

    goes_on(hears_of(&next, true));
    next = record(11, "a", false); /* named again: between, that other one may have led */
    replica_record(t.r, &next);
    assert_int_equal(replica_state(t.r).role, REPLICA_PREPARING);
    assert_int_equal(replica_state(t.r).epoch, 1);
    replica_free(t.r);
}

/* Leads, by two records that follow each other: one epoch. With a record between them that never
 * came here, another node may have led and written: a new epoch, whatever its own log holds. */
static void records_of_its_own(uint64_t next, uint64_t want)
{
    struct repl_record rec = record(1, "a", true);
    struct repl_msg m = msg(REPL_PREPARED, "b", replica_term_of(1, 0));

    begin(0, 0, 0, 0);
    replica_record(t.r, &rec);
    m.ok = true;
    replica_message(t.r, &m);
    replica_log_done(t.r, t.seq);
    replica_log_done(t.r, t.seq);
    m = msg(REPL_APPENDED, "c", replica_term_of(1, 0));
    m.ok = true;
    m.last_index = 1;
    m.seq = 1;
    replica_message(t.r, &m);
    replica_applied(t.r, 1);
    assert_int_equal(replica_state(t.r).role, REPLICA_LEADING);
    rec = record(next, "a", true);
    replica_record(t.r, &rec);
    assert_int_equal(replica_state(t.r).role, REPLICA_PREPARING);
    assert_int_equal(replica_state(t.r).epoch, want);
    replica_free(t.r);
}

static void test_epoch(void **state)
{
    (void)state;
    records_of_its_own(2, 0);
    records_of_its_own(3, 1);
}

/* A read that no majority confirms ends: the caller holds memory for it, and while no new record
 * can be written this replica may stay leader for days. A read that is confirmed late is fine. */
static void test_reads_do_not_wait_for_ever(void **state)
{
    struct repl_record rec = record(1, "a", true);
    struct repl_msg m = msg(REPL_PREPARED, "b", replica_term_of(1, 0));

    (void)state;
    begin(0, 0, 0, 0);
    replica_record(t.r, &rec);
    m.ok = true;
    replica_message(t.r, &m);
    replica_log_done(t.r, t.seq);
    replica_log_done(t.r, t.seq);
    m = msg(REPL_APPENDED, "c", replica_term_of(1, 0));
    m.ok = true;
    m.last_index = 1;
    m.seq = 1;
    replica_message(t.r, &m);
    replica_applied(t.r, 1);
    assert_int_equal(replica_state(t.r).role, REPLICA_LEADING);

    replica_confirm(t.r, 1);
    for (int i = 0; i < 399; i++) {
        t.sent_len = 0;
        replica_tick(t.r);
    }
    assert_int_equal(t.reads_ok + t.reads_failed, 0);
    m.round = t.sent[0].round;
    assert_true(m.round > 0);
    replica_message(t.r, &m);
    assert_int_equal(t.reads_ok, 1);

    for (int i = 0; i < 3; i++)
        replica_confirm(t.r, 2);
    for (int i = 0; i < 401; i++) {
        t.sent_len = 0;
        replica_tick(t.r);
    }
    assert_int_equal(t.reads_ok, 1);
    assert_int_equal(t.reads_failed, 3);
    assert_int_equal(replica_state(t.r).role, REPLICA_LEADING);
    replica_free(t.r);
}

/* A replica that promised refuses lower terms, reports its promise, and promises a term once. */
static void test_promise(void **state)
{
    struct repl_msg m = msg(REPL_PREPARE, "b", replica_term_of(3, 0));

    (void)state;
    begin(5, replica_term_of(2, 0), replica_term_of(2, 0), 0);
    m.ref = 99;
    replica_message(t.r, &m);
    assert_int_equal(t.sent_len, 0); /* not before it is on the disk */
    replica_log_done(t.r, t.seq);
    assert_int_equal(t.sent_len, 1);
    assert_true(t.sent[0].ok && t.sent[0].ref == 99 && t.sent[0].last_index == 5);
    m = msg(REPL_APPEND, "c", replica_term_of(2, 5));
    m.prev_index = 5;
    m.prev_term = replica_term_of(2, 0);
    replica_message(t.r, &m);
    assert_int_equal(t.sent_len, 2);
    assert_false(t.sent[1].ok);
    assert_int_equal(t.sent[1].term, replica_term_of(3, 0));
    /* Nonsense does nothing: of another shard, entries that do not follow, its own name. */
    m = msg(REPL_APPEND, "b", replica_term_of(3, 0));
    m.shard = 1;
    replica_message(t.r, &m);
    m.shard = 0;
    memcpy(m.from, "a", 2);
    replica_message(t.r, &m);
    assert_int_equal(t.sent_len, 2);
    replica_free(t.r);
}

/* Entries of a later record's term name its leader, until that record comes. */
static void test_follows(void **state)
{
    struct repl_record rec = record(7, "a", true);
    struct repl_msg m = msg(REPL_APPEND, "b", replica_term_of(8, 1));

    (void)state;
    begin(0, 0, 0, 0);
    replica_record(t.r, &rec);
    assert_string_equal(replica_state(t.r).follows, "");
    replica_message(t.r, &m);
    assert_string_equal(replica_state(t.r).leader, "a");
    assert_string_equal(replica_state(t.r).follows, "b");
    m = msg(REPL_PREPARE, "c", replica_term_of(9, 0)); /* it may never lead */
    replica_message(t.r, &m);
    assert_string_equal(replica_state(t.r).follows, "");
    m = msg(REPL_APPEND, "c", replica_term_of(9, 0));
    replica_message(t.r, &m);
    assert_string_equal(replica_state(t.r).follows, "c");
    rec = record(10, "a", false); /* named, and not begun: c leads on */
    replica_record(t.r, &rec);
    replica_log_done(t.r, t.seq);
    assert_int_equal(replica_state(t.r).role, REPLICA_PREPARING);
    assert_string_equal(replica_state(t.r).follows, "");
    replica_free(t.r);

    begin(0, 0, 0, 0);
    m = msg(REPL_APPEND, "c", replica_term_of(9, 0));
    replica_message(t.r, &m);
    rec = record(10, "b", false);
    replica_record(t.r, &rec);
    assert_string_equal(replica_state(t.r).follows, "c"); /* b is named, and has not begun */
    for (int i = 0; i < 81; i++)
        replica_tick(t.r);
    assert_string_equal(replica_state(t.r).follows, ""); /* nor is c there any more */
    replica_free(t.r);

    begin(0, 0, 0, 0);
    replica_message(t.r, &m);
    rec = record(9, "c", false);
    replica_record(t.r, &rec);
    assert_string_equal(replica_state(t.r).follows, "");
    assert_string_equal(replica_state(t.r).leader, "c");
    replica_free(t.r);
}

/* A promise that is kept in memory only would be given at once; power lost then, an older leader is
 * believed again. */
static void test_promise_mutant(void **state)
{
    struct repl_msg m = msg(REPL_PREPARE, "b", replica_term_of(3, 0));

    (void)state;
    begin(0, 0, 0, MUTANT_PROMISE_NOT_STORED);
    replica_message(t.r, &m);
    assert_int_equal(t.sent_len, 1);
    assert_int_equal(t.seq, 0); /* nothing went to the log */
    replica_free(t.r);
    begin(0, 0, 0, 0);
    replica_message(t.r, &m);
    assert_int_equal(t.sent_len, 0);
    assert_int_equal(t.seq, 1);
    replica_free(t.r);
}

/* The longer log is another replica's, and begins behind ours: that replica should lead. And a
 * replica without a database asks for one and leaves the lead to others. */
static void test_prefer(void **state)
{
    struct repl_record rec = record(4, "a", false);
    struct repl_msg m = msg(REPL_PREPARED, "c", replica_term_of(4, 0));

    (void)state;
    begin(0, 0, 0, 0);
    replica_record(t.r, &rec);
    m.ok = true;
    m.base = 100;
    m.last_index = 120;
    m.last_term = replica_term_of(3, 0);
    replica_message(t.r, &m);
    replica_log_done(t.r, t.seq);
    for (int i = 0; i < 19; i++)
        replica_tick(t.r);
    assert_string_equal(t.preferred, ""); /* b may have more to say */
    replica_tick(t.r);
    assert_string_equal(t.preferred, "c");
    assert_int_equal(replica_state(t.r).role, REPLICA_FOLLOWER);
    replica_installing(t.r);
    m = msg(REPL_APPEND, "c", replica_term_of(5, 0));
    replica_message(t.r, &m);
    replica_log_done(t.r, t.seq);
    assert_true(t.sent[t.sent_len - 1].wants_snapshot);
    assert_true(replica_wants_snapshot(t.r, replica_term_of(5, 0), 110));
    replica_installed(t.r, 110, replica_term_of(3, 0));
    assert_int_equal(replica_state(t.r).base_index, 110);
    assert_int_equal(replica_state(t.r).applied, 110);
    assert_false(replica_wants_snapshot(t.r, replica_term_of(5, 0), 110));
    assert_false(replica_wants_snapshot(t.r, replica_term_of(4, 9), 500));
    replica_free(t.r);
}

/* A term that is opened waits for a majority to have its entry, however long that takes them. */
static void test_opened(void **state)
{
    struct repl_record rec = record(4, "a", false);
    struct repl_msg m = msg(REPL_PREPARED, "b", replica_term_of(4, 0));

    (void)state;
    begin(0, 0, 0, 0);
    replica_record(t.r, &rec);
    replica_log_done(t.r, t.seq);
    assert_false(replica_state(t.r).opened);
    m.ok = true;
    replica_message(t.r, &m);
    replica_log_done(t.r, t.seq);
    assert_true(replica_state(t.r).opened);
    assert_int_equal(replica_state(t.r).role, REPLICA_PREPARING);
    rec = record(5, "b", false);
    replica_record(t.r, &rec);
    assert_false(replica_state(t.r).opened);
    replica_free(t.r);
}

/* An answer to term 4: a log from behind `base` up to `last`, which is of a term of record `of`. */
static void prepared(const char *from, uint64_t base, uint64_t last, uint64_t of)
{
    struct repl_msg m = msg(REPL_PREPARED, from, replica_term_of(4, 0));

    m.ok = true;
    m.base = base;
    m.last_index = last;
    m.last_term = replica_term_of(of, 0);
    replica_message(t.r, &m);
}

/* A replica without a database, and another that lacks entries dropped here, answer each other
 * first. The third one, whose answer takes longer, can lead; at once when it came. Where its log is
 * as long as the other's and goes back far enough, it is asked for the entries that are missing
 * here. */
static void test_prefer_who_answers_late(void **state)
{
    struct repl_record rec = record(4, "a", false);

    (void)state;
    for (int equal = 0; equal < 2; equal++) {
        begin(0, 0, 0, 0);
        replica_record(t.r, &rec);
        replica_log_done(t.r, t.seq);
        prepared("b", 100, 120, 2);
        replica_tick(t.r);
        assert_string_equal(t.preferred, "");
        prepared("c", equal ? 0 : 100, equal ? 120 : 140, equal ? 2 : 3);
        assert_string_equal(t.preferred, equal ? "" : "c");
        assert_int_equal(t.sent[t.sent_len - 1].kind == REPL_FETCH, equal);
        replica_free(t.r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_terms),       cmocka_unit_test(test_established),
        cmocka_unit_test(test_follows),         cmocka_unit_test(test_goes_on_unmarked),
        cmocka_unit_test(test_both_majorities), cmocka_unit_test(test_reads_unmarked),
        cmocka_unit_test(test_leads_on),        cmocka_unit_test(test_promise),
        cmocka_unit_test(test_promise_mutant),  cmocka_unit_test(test_prefer),
        cmocka_unit_test(test_epoch),           cmocka_unit_test(test_prefer_who_answers_late),
        cmocka_unit_test(test_opened),          cmocka_unit_test(test_reads_do_not_wait_for_ever),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
