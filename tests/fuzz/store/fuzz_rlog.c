/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as files of a replication log: it opens or says why not; what it says it has can be
 * read, and it takes another entry and has it after a reopen. The first byte says how many good
 * entries a file has before the bytes; sums are not repaired, entries of our own make them right.
 */
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/log/rlog.h"
#include "tests/lib/repl/rlog_fake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct err e;

static void append(struct rlog *l)
{
    struct repl_entry *x = entry_new(REPL_FLUSH, STR("\x01"));
    struct rlog_state s = rlog_state(l);

    x->index = s.last_index + 1;
    x->term = MAX(s.last_term, 1);
    x->prev_term = s.last_term;
    if (x->index < UINT64_MAX / 2)
        CHECK(!rlog_append(l, &x, 1, &e) && !rlog_sync(l, &e));
    entry_unref(x);
}

static void read_all(struct rlog *l)
{
    struct rlog_state s = rlog_state(l);
    struct repl_entry *x;
    size_t n;

    CHECK(s.base_index <= s.last_index);
    for (uint64_t i = s.base_index + 1; i <= s.last_index; i++) {
        CHECK(rlog_read(l, &(struct rlog_range){ .from = i, .max = 1 }, &x, &n, &e) == 0 &&
              n == 1 && x->index == i);
        CHECK(x->term == rlog_term(l, i));
        entry_unref(x);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rlog_fake *fake = rlog_fake_new(1);
    const struct rlog_fs *fs = rlog_fake_fs(fake);
    struct rlog_opts o = { fs, "d", 512 };
    struct rlog_file *f;
    struct rlog *l;
    uint64_t at;

    if (size > 1) {
        CHECK(rlog_open(&o, &l, &e) == 0);
        for (unsigned i = 0; i < data[0] % 5u; i++)
            append(l);
        rlog_close(l);
        struct str rest = str_n(data + 1, size - 1);
        CHECK(fs->open(fs, "d/0000000000000001.rlog", false, &f, &at, &e) == 0);
        if (data[0] & 0x40)
            at = 0; /* over the head */
        CHECK(fs->write(fs, f, at, &rest, 1, &e) == 0);
        fs->close(fs, f);
    }
    if (rlog_open(&o, &l, &e) == 0) {
        read_all(l);
        append(l);
        struct rlog_state s = rlog_state(l);
        rlog_close(l);
        CHECK(rlog_open(&o, &l, &e) == 0 && rlog_state(l).last_index == s.last_index);
        read_all(l);
        rlog_close(l);
    }
    rlog_fake_free(fake);
    return 0;
}
