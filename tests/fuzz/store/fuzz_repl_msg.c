/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a message of a replica, a part of a snapshot, a question, answer or list about a
 * copy (the first byte chooses): refused, or read, written and read again it is the same; and a
 * replica bears it.
 */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/copy_msg.h"
#include "common/repl/protocol/replica.h"
#include "common/repl/snapshot_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct err e;
static uint64_t seq;

static void on_send(void *c, const char *to, const struct repl_msg *m)
{
    (void)c, (void)to, (void)m;
}
static void on_append(void *c, struct repl_entry *const *l, size_t n, uint64_t s)
{
    (void)c, (void)l, (void)n;
    seq = s;
}
static void on_pair(void *c, uint64_t a, uint64_t b, uint64_t s)
{
    (void)c, (void)a, (void)b;
    seq = s;
}
static size_t on_entries(void *c, uint64_t f, size_t b, struct repl_entry **r, size_t m)
{
    (void)c, (void)f, (void)b, (void)r, (void)m;
    return 0;
}
static void on_u64(void *c, uint64_t v)
{
    (void)c, (void)v;
}
static void on_role(void *c)
{
    (void)c;
}
static void on_confirmed(void *c, uint64_t r, bool ok)
{
    (void)c, (void)r, (void)ok;
}
static void on_name(void *c, const char *n)
{
    (void)c, (void)n;
}

static void into_replica(const struct repl_msg *m, bool lead)
{
    struct replica_opts o = { .self = "a",
                              .shard = m->shard,
                              .io = { NULL, on_send, on_append, on_pair, on_pair, on_entries,
                                      on_u64, on_role, on_u64, on_confirmed, on_name, on_name },
                              .promised = 5,
                              .commit = 1,
                              .last_index = 2,
                              .last_term = 5 };
    struct repl_record rec = { .term = 1, .leader = "a" };
    struct replica *r = replica_new(&o);

    replica_log_term(r, 1, 5);
    (void)(name_set_add(&rec.members, "a") && name_set_add(&rec.members, "b"));
    if (lead)
        replica_record(r, &rec);
    for (int i = 0; i < 3; i++) {
        replica_message(r, m);
        replica_log_done(r, seq);
        replica_tick(r);
    }
    struct replica_state s = replica_state(r);
    CHECK(s.commit <= s.last_index && s.durable <= s.last_index && s.commit >= 1);
    replica_free(r);
}

static void copies(struct str bytes)
{
    struct copy_ask a, a2;
    struct copy_reply r, r2;
    struct copy_list l, l2;
    struct buf out;

    buf_init(&out, GIB);
    if (copy_ask_read(bytes, &a, &e) == 0) {
        copy_ask_write(&a, &out);
        CHECK(copy_ask_read(buf_str(&out), &a2, &e) == 0);
        CHECK(a.kind == a2.kind && a.id == a2.id && a.total == a2.total && a.base == a2.base &&
              a.offset == a2.offset && a.len == a2.len && !strcmp(a.from, a2.from));
    }
    buf_reset(&out);
    if (copy_reply_read(bytes, &r, &e) == 0) {
        copy_reply_write(&r, &out);
        CHECK(copy_reply_read(buf_str(&out), &r2, &e) == 0);
        CHECK(r.state == r2.state && r.sum == r2.sum && str_eq(r.bytes, r2.bytes));
    }
    buf_reset(&out);
    if (copy_list_read(bytes, &l, &e) == 0) {
        copy_list_write(&l, &out);
        CHECK(copy_list_read(buf_str(&out), &l2, &e) == 0);
        CHECK(l.len == l2.len && l.bytes == l2.bytes && l.index == l2.index);
        for (size_t i = 0; i < l.len; i++) {
            CHECK(!strchr(l.files[i].name, '/') && l.files[i].name[0] != '.');
            CHECK(!strcmp(l.files[i].name, l2.files[i].name));
        }
        copy_list_free(&l);
        copy_list_free(&l2);
    }
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snapshot_part p;
    struct repl_msg m, m2;
    struct buf out;

    if (size < 1)
        return 0;
    struct str bytes = str_n(data + 1, size - 1);
    if (data[0] & 4) {
        copies(bytes);
        return 0;
    }
    if (data[0] & 1) {
        (void)(snapshot_part_read(bytes, &p, &e) == 0);
        return 0;
    }
    if (repl_msg_read(bytes, &m, &e))
        return 0;
    buf_init(&out, GIB);
    repl_msg_write(&m, &out);
    CHECK(repl_msg_read(buf_str(&out), &m2, &e) == 0);
    CHECK(m.kind == m2.kind && m.term == m2.term && m.seq == m2.seq && m.ok == m2.ok);
    CHECK(m.entries_len == m2.entries_len && !strcmp(m.from, m2.from));
    into_replica(&m, data[0] & 2);
    repl_msg_free(&m);
    repl_msg_free(&m2);
    buf_deinit(&out);
    return 0;
}
