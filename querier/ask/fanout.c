/* SPDX-License-Identifier: Apache-2.0
 *
 * fanout.c: `pending` counts calls that have not ended. The call that brings it to zero, or fails
 * with an error that decides, ends the whole and cancels the rest.
 *
 *   started ──(a call ends)──> started ──(pending 0, or a deciding error)──> done, freed
 *      └──(fanout_cancel: the client is gone)──> freed
 *
 * An error decides when it is about the query (a bad regex, a limit), since every ingester would
 * say the same, when partial answers are not allowed, and when the query is to be asked again.
 * Otherwise the ingester counts as missing: an answer that lacks it is flagged by the caller, never
 * silent. If no ingester answered there is no answer.
 */
#include "querier/ask/fanout.h"

#include "common/base/mem.h"

struct fanout {
    struct fanout_opts o;
    size_t pending;
    bool ended; /* done runs: late calls change nothing */
};

bool fanout_tolerates(int code)
{
    return code == ERR_UNAVAILABLE || code == ERR_TIMEOUT || code == ERR_BUSY || code == ERR_IO ||
           code == ERR_NO_SPACE || code == ERR_CORRUPT || code == ERR_INTERNAL ||
           code == ERR_CONFLICT;
}

static bool decides(const struct fanout *f, int code)
{
    return !f->o.allow_partial || !fanout_tolerates(code) || (f->o.again && code == ERR_CONFLICT);
}

static void cancel_rest(struct fanout *f)
{
    for (size_t i = 0; i < f->o.len; i++) {
        struct fanout_call *c = &f->o.calls[i];
        route_cancel(c->call);
        c->call = NULL;
    }
}

static void fanout_end(struct fanout *f, const struct err *err)
{
    CHECK(!f->ended);
    f->ended = true;
    cancel_rest(f);
    f->o.done(f->o.cookie, err);
    xfree(f);
}

/* All calls ended without a deciding error. */
static void fanout_all_ended(struct fanout *f)
{
    struct fanout_missing m = fanout_missing_of(f->o.calls, f->o.len, f->o.ingesters);

    if (m.missing == 0 || m.missing < m.asked) {
        fanout_end(f, NULL);
        return;
    }
    fanout_end(f, &m.why);
}

/* The call counts as answered, with nothing. */
static bool is_void(const struct fanout_call *c, int code)
{
    return c->optional && code == ERR_LIMIT;
}

static void on_call_done(void *cookie, struct str reply, const struct err *err)
{
    struct fanout_call *c = cookie;
    struct fanout *f = c->fanout;
    struct err taken = { 0 };

    CHECK(c->call && !f->ended);
    c->call = NULL;
    f->pending--;
    if (!err && f->o.take(f->o.cookie, reply.len, &taken)) {
        if (!is_void(c, taken.code)) {
            fanout_end(f, &taken);
            return;
        }
    } else if (!err) {
        buf_init(&c->reply, reply.len);
        (void)buf_add_str(&c->reply, reply);
    } else if (!is_void(c, err->code)) {
        c->err = *err;
        (void)err_wrap(&c->err, "%s %zu", route_moves(f->o.route) ? "shard" : "ingester",
                       c->ingester);
        if (decides(f, err->code)) {
            fanout_end(f, &c->err);
            return;
        }
    }
    if (f->pending == 0)
        fanout_all_ended(f);
}

struct fanout *fanout_start(const struct fanout_opts *o)
{
    struct fanout *f = XNEW(struct fanout);

    CHECK(o->len > 0);
    f->o = *o;
    f->pending = o->len;
    for (size_t i = 0; i < o->len; i++) {
        struct fanout_call *c = &o->calls[i];
        CHECK(c->ingester < o->ingesters);
        c->fanout = f;
        buf_init(&c->reply, 0);
        c->call = route_ask(o->route,
                            &(struct route_query){ .target = c->ingester,
                                                   .method = c->method,
                                                   .deadline_ms = o->deadline_ms,
                                                   .done = on_call_done,
                                                   .cookie = c },
                            &c->payload);
    }
    return f;
}

void fanout_cancel(struct fanout *f)
{
    if (!f)
        return;
    CHECK(!f->ended);
    cancel_rest(f);
    xfree(f);
}

struct fanout_missing fanout_missing_of(const struct fanout_call *calls, size_t len,
                                        size_t ingesters)
{
    struct fanout_missing m = { 0 };
    CLEANUP(xfreep) uint8_t *state = xcalloc(ingesters, 1); /* 1 asked, 2 missing */

    for (size_t i = 0; i < len; i++) {
        if (calls[i].err.code && m.why.code == 0)
            m.why = calls[i].err;
        state[calls[i].ingester] |= calls[i].err.code ? 3 : 1;
    }
    for (size_t i = 0; i < ingesters; i++) {
        m.asked += state[i] & 1;
        m.missing += state[i] >> 1;
    }
    return m;
}

void fanout_calls_deinit(struct fanout_call *calls, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        buf_deinit(&calls[i].payload);
        buf_deinit(&calls[i].reply);
    }
}
