/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_metrics: cells of embertree_rpc_*, found once and kept.
 *
 * A push updates three of them, and a lookup by label values each time would be visible in
 * profiles: cells of successful calls are kept by method. Cells of errors are looked up each time.
 * The gauge of a peer is freed with the peer (rpc_metrics_peer_gone), since addresses change for
 * years. Thread: the loop's; the cells themselves are atomic.
 */
#include "common/rpc/rpc_metrics.h"

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/rpc/rpc.h"

struct rpc_metrics {
    struct metric *calls, *served, *seconds, *peer_up;
    struct metric_cell *dropped[RPC_DROPS];
    struct metric_cell *frames_out, *frames_in, *bytes_out, *bytes_in;
    struct metric_cell *queued, *stale, *resets;
    /* By method, of what went well: each push would look for three of them. NULL until then. */
    struct metric_cell *calls_ok[RPC_METHODS], *served_ok[RPC_METHODS], *took[RPC_METHODS];
};

const char *rpc_method_name(uint16_t method)
{
    static const char *const names[RPC_METHODS] = {
        [RPC_WRITE] = "write",
        [RPC_MERGE] = "merge",
        [RPC_TIMELINE] = "timeline",
        [RPC_LABELS] = "labels",
        [RPC_STATUS] = "status",
        [RPC_BUILD_NEXT] = "build_next",
        [RPC_BUILD_APPLY] = "build_apply",
        [RPC_DELETE] = "delete",
        [RPC_SPACE] = "space",
        [RPC_EXEMPLARS] = "exemplars",
        [RPC_FUNCTIONS] = "functions",
        [RPC_DOC] = "doc",
        [RPC_ESTIMATE] = "estimate",
        [RPC_WRITE_TOLD] = "write_told",
        [RPC_REPL_PREPARE] = "repl_prepare",
        [RPC_REPL_APPEND] = "repl_append",
        [RPC_REPL_FETCH] = "repl_fetch",
        [RPC_REPL_SNAPSHOT] = "repl_snapshot",
        [RPC_REPL_DIGEST] = "repl_digest",
        [RPC_LEDGER] = "ledger",
        [RPC_RELAY] = "relay",
        [RPC_REPL_COPY] = "repl_copy",
        [RPC_LEDGER_ACCEPT] = "ledger_accept",
        [RPC_GIVE_UP] = "give_up",
    };

    return method < RPC_METHODS && names[method] ? names[method] : "other";
}

static struct metric_cell *cell(struct metric *m, const char *value)
{
    struct str v = str_c(value);

    return metric_at(m, &v, value ? 1 : 0);
}

struct rpc_metrics *rpc_metrics_new(struct metrics *r)
{
    static const double bounds[] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                     0.1,    0.25,  0.5,    1,     2.5,  5,     10 };
    struct rpc_metrics *m = XNEW(struct rpc_metrics);
    struct metric *dropped, *frames, *bytes;

    m->calls = metric_new(r, METRIC_COUNTER, "embertree_rpc_calls_total",
                          "Calls to other nodes that ended, by how", "method,result");
    m->served = metric_new(r, METRIC_COUNTER, "embertree_rpc_served_total",
                           "Requests of other nodes answered, by how", "method,result");
    m->seconds = metric_new_histogram(r, "embertree_rpc_call_seconds",
                                      "Time from call to reply, error or deadline", "method",
                                      bounds, ARRAY_LEN(bounds));
    m->peer_up = metric_new(r, METRIC_GAUGE, "embertree_rpc_peer_up",
                            "1 while a peer this node calls answers pings", "peer");
    dropped = metric_new(r, METRIC_COUNTER, "embertree_rpc_dropped_total",
                         "Frames and messages dropped, by reason", "reason");
    frames = metric_new(r, METRIC_COUNTER, "embertree_rpc_frames_total", "Frames on sockets",
                        "direction");
    bytes = metric_new(r, METRIC_COUNTER, "embertree_rpc_bytes_total", "Bytes of frames on sockets",
                       "direction");
    for (int i = RPC_DROP_NONE + 1; i < RPC_DROPS; i++)
        m->dropped[i] = cell(dropped, rpc_drop_name((enum rpc_drop)i));
    m->frames_out = cell(frames, "out");
    m->frames_in = cell(frames, "in");
    m->bytes_out = cell(bytes, "out");
    m->bytes_in = cell(bytes, "in");
    m->queued = cell(metric_new(r, METRIC_GAUGE, "embertree_rpc_queue_bytes",
                                "Bytes waiting to be sent to peers", NULL),
                     NULL);
    m->stale = cell(metric_new(r, METRIC_COUNTER, "embertree_rpc_stale_replies_total",
                               "Replies to calls that had ended already", NULL),
                    NULL);
    m->resets = cell(metric_new(r, METRIC_COUNTER, "embertree_rpc_reconnects_total",
                                "Connections reopened because a peer fell silent", NULL),
                     NULL);
    return m;
}

void rpc_metrics_free(struct rpc_metrics *m)
{
    xfree(m);
}

void rpc_metrics_frame_out(struct rpc_metrics *m, size_t bytes)
{
    metric_add(m->frames_out, 1);
    metric_add(m->bytes_out, bytes);
}

void rpc_metrics_frame_in(struct rpc_metrics *m, size_t bytes)
{
    metric_add(m->frames_in, 1);
    metric_add(m->bytes_in, bytes);
}

void rpc_metrics_drop(struct rpc_metrics *m, enum rpc_drop why)
{
    CHECK(why > RPC_DROP_NONE && why < RPC_DROPS);
    metric_add(m->dropped[why], 1);
}

uint64_t rpc_metrics_dropped(const struct rpc_metrics *m, enum rpc_drop why)
{
    CHECK(why > RPC_DROP_NONE && why < RPC_DROPS);
    return metric_value(m->dropped[why]);
}

void rpc_metrics_queued(struct rpc_metrics *m, int64_t bytes)
{
    metric_move(m->queued, bytes);
}

static void count(struct metric *m, struct metric_cell **ok, uint16_t method, int code)
{
    bool keeps = !code && method < RPC_METHODS;

    if (!keeps || !ok[method]) {
        struct str values[] = { str_c(rpc_method_name(method)),
                                str_c(code ? err_connect_name(code) : "ok") };
        struct metric_cell *c = metric_at(m, values, ARRAY_LEN(values));
        metric_add(c, 1);
        if (keeps)
            ok[method] = c;
        return;
    }
    metric_add(ok[method], 1);
}

void rpc_metrics_call(struct rpc_metrics *m, uint16_t method, int code, uint64_t took_ns)
{
    struct metric_cell *took = method < RPC_METHODS ? m->took[method] : NULL;

    count(m->calls, m->calls_ok, method, code);
    if (!took)
        took = cell(m->seconds, rpc_method_name(method));
    if (method < RPC_METHODS)
        m->took[method] = took;
    metric_observe(took, (double)took_ns / 1e9);
}

void rpc_metrics_served(struct rpc_metrics *m, uint16_t method, int code)
{
    count(m->served, m->served_ok, method, code);
}

void rpc_metrics_stale(struct rpc_metrics *m)
{
    metric_add(m->stale, 1);
}

uint64_t rpc_metrics_stales(const struct rpc_metrics *m)
{
    return metric_value(m->stale);
}

void rpc_metrics_peer(struct rpc_metrics *m, const char *addr, bool up)
{
    metric_set(cell(m->peer_up, addr), up);
}

void rpc_metrics_peer_gone(struct rpc_metrics *m, const char *addr)
{
    struct str a = str_c(addr);

    metric_forget(m->peer_up, &a, 1);
}

void rpc_metrics_reset(struct rpc_metrics *m)
{
    metric_add(m->resets, 1);
}
