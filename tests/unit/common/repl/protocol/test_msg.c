/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of replicas: what is written by hand is what protobuf-c reads, and the other way round;
 * what is damaged is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/wr.h"
#include "common/repl/protocol/msg.h"
#include "common/repl/snapshot_msg.h"
#include "proto/repl.pb-c.h"

static struct err e;

static struct repl_msg sample(struct repl_entry **list)
{
    struct repl_msg m = { .kind = REPL_APPEND,
                          .shard = 3,
                          .from = "node-1",
                          .term = UINT64_C(5) << 40,
                          .prev_index = 9,
                          .prev_term = 7,
                          .last_index = 1,
                          .last_term = 2,
                          .commit = 300,
                          .round = 4,
                          .seq = 1000000,
                          .base = 6,
                          .known_term = 11,
                          .known_map = 12,
                          .entries = list,
                          .entries_len = 2 };

    list[0] = entry_new(REPL_NOOP, STR_NULL);
    list[1] = entry_new(REPL_FLUSH, STR("\x03"));
    for (size_t i = 0; i < 2; i++) {
        list[i]->index = 10 + i;
        list[i]->term = 8;
        list[i]->prev_term = i ? 8 : 7;
    }
    return m;
}

static void test_same_as_protobuf(void **state)
{
    struct repl_entry *list[2];
    struct repl_msg m = sample(list), back;
    struct buf out, again;

    (void)state;
    buf_init(&out, MIB);
    buf_init(&again, MIB);
    repl_msg_write(&m, &out);
    Embertree__ReplMessage *p =
        embertree__repl_message__unpack(NULL, out.len, (const uint8_t *)(const void *)out.ptr);
    assert_non_null(p);
    assert_int_equal(p->kind, REPL_APPEND);
    assert_int_equal(p->shard, 3);
    assert_true(str_eqc(str_n(p->from.data, p->from.len), "node-1"));
    assert_int_equal(p->term, m.term);
    assert_int_equal(p->prev_index, 9);
    assert_int_equal(p->prev_term, 7);
    assert_int_equal(p->last_index, 1);
    assert_int_equal(p->last_term, 2);
    assert_int_equal(p->commit, 300);
    assert_int_equal(p->round, 4);
    assert_true(p->known_term == 11 && p->known_map == 12);
    assert_int_equal(p->seq, 1000000);
    assert_int_equal(p->base_index, 6);
    assert_int_equal(p->entries.len, entry_bytes(0) + entry_bytes(1));
    p->wants_snapshot = p->no_room = p->ok = 1;
    p->reclaimed = 1u << 31;
    p->all_have = 12;
    size_t n = embertree__repl_message__get_packed_size(p);
    assert_non_null(buf_room(&again, n));
    again.len = embertree__repl_message__pack(p, (uint8_t *)(void *)again.ptr);
    embertree__repl_message__free_unpacked(p, NULL);
    assert_int_equal(repl_msg_read(buf_str(&again), &back, &e), 0);
    assert_true(back.ok && back.wants_snapshot && back.no_room && back.seq == m.seq &&
                back.entries_len == 2);
    assert_true(back.reclaimed == 1u << 31 && back.all_have == 12);
    buf_reset(&again);
    repl_msg_write(&back, &again);
    repl_msg_free(&back);
    assert_int_equal(repl_msg_read(buf_str(&again), &back, &e), 0);
    assert_true(back.reclaimed == 1u << 31 && back.all_have == 12);
    assert_string_equal(back.from, "node-1");
    assert_int_equal(back.entries[1]->index, 11);
    assert_int_equal(back.entries[1]->kind, REPL_FLUSH);
    repl_msg_free(&back);
    for (size_t i = 0; i < 2; i++)
        entry_unref(list[i]);
    buf_deinit(&out);
    buf_deinit(&again);
}

/* No flipped bit of an entry goes through, and no message that ends early. */
static void test_damaged(void **state)
{
    struct repl_entry *list[2];
    struct repl_msg m = sample(list), back;
    struct buf out;
    size_t entries = entry_bytes(0) + entry_bytes(1);

    (void)state;
    buf_init(&out, MIB);
    repl_msg_write(&m, &out);
    for (size_t i = out.len - entries; i < out.len; i++) {
        if (i >= out.len - 7)
            break; /* padding */
        out.ptr[i] = (char)(out.ptr[i] ^ 4);
        assert_int_not_equal(repl_msg_read(buf_str(&out), &back, &e), 0);
        out.ptr[i] = (char)(out.ptr[i] ^ 4);
    }
    for (size_t i = out.len - entries; i < out.len; i++)
        assert_int_not_equal(repl_msg_read(str_n(out.ptr, i), &back, &e), 0);
    assert_int_equal(repl_msg_read(buf_str(&out), &back, &e), 0);
    repl_msg_free(&back);
    assert_int_not_equal(repl_msg_read(STR_NULL, &back, &e), 0);
    for (size_t i = 0; i < 2; i++)
        entry_unref(list[i]);
    buf_deinit(&out);
}

static void test_snapshot_part(void **state)
{
    struct snapshot_part p = { 1, 2, 3, 4, 5, 6, true, STR("\x06\x01k\x01v") }, back;
    struct buf out;
    bool ok;

    (void)state;
    buf_init(&out, MIB);
    snapshot_part_write(&p, &out);
    Embertree__ReplSnapshotPart *x = embertree__repl_snapshot_part__unpack(
        NULL, out.len, (const uint8_t *)(const void *)out.ptr);
    assert_true(x && x->shard == 1 && x->term == 2 && x->index == 3 && x->index_term == 4 &&
                x->id == 5 && x->part == 6 && x->last == 1 && x->rows.len == p.rows.len);
    embertree__repl_snapshot_part__free_unpacked(x, NULL);
    assert_int_equal(snapshot_part_read(buf_str(&out), &back, &e), 0);
    assert_true(back.last && str_eq(back.rows, p.rows) && back.part == 6);
    out.ptr[out.len - 1] ^= 1;
    assert_int_equal(snapshot_part_read(buf_str(&out), &back, &e), ERR_CORRUPT);
    buf_reset(&out);
    snapshot_reply_write(true, &out);
    assert_int_equal(snapshot_reply_read(buf_str(&out), &ok, &e), 0);
    assert_true(ok);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_protobuf),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_snapshot_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
