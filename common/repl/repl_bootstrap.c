/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_adopt: first the note in the database, then the log. After a crash in between the next try
 * finds the note of entry 1 and a log that has not begun, and continues from there.
 */
#include "common/repl/repl_bootstrap.h"

#include "common/repl/apply.h"
#include "common/repl/log/rlog.h"

enum { FIRST = 1 }; /* index and term of "as of this database" */

static int begin(struct rlog *log, struct kv *db, struct err *e)
{
    uint64_t index, term;
    int code = apply_read(db, &index, &term, e);

    if (!code && index != 0 && (index != FIRST || term != FIRST))
        return err_set(e, ERR_CONFLICT,
                       "the database is a copy, as of entry %" PRIu64
                       " of a log that is not here: it may lack what others have",
                       index);
    if (!code)
        code = apply_note(db, FIRST, FIRST, e);
    if (!code)
        code = rlog_reset(log, FIRST, FIRST, e);
    return code ? code : rlog_sync(log, e);
}

int repl_adopt(const struct rlog_fs *fs, const char *dir, struct kv *db, struct err *e)
{
    struct rlog_opts o = { .fs = fs, .dir = dir };
    struct rlog *log;
    int code = rlog_open(&o, &log, e);

    if (code)
        return code;
    if (!rlog_begun(log))
        code = begin(log, db, e);
    rlog_close(log);
    return code;
}
