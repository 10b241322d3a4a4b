/* SPDX-License-Identifier: Apache-2.0
 *
 * scrubber: rounds over the shards, one after the other, a step at a time.
 *
 *   WAITING ──timer──> STEPPING (pool: a view, store_scrub) ──> WAITING, so long that the rate
 * holds
 *      ^                    │ a wrong node
 *      └──── MARKING <──────┘  (shard thread: store_scrub_mark, one node after the other)
 *
 * Work that people wait for comes first: no step begins while memory is short or queries wait for
 * their turn. A step holds its view for some tens of milliseconds.
 *
 * What it finds is logged as an error and counted: `nodes_rebuilt` cost nothing but work,
 * `rows_lost` is what must read zero: a row nothing can be built from.
 */
#include "ingester/background/scrubber.h"

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/store/check/scrub.h"
#include "common/store/kv/cold_read.h"
#include "ingester/shard/read_load.h"
#include "ingester/shard/shards.h"

#define ROWS_MAX    1024
#define ARENA_BYTES (64 * MIB)
#define BUSY_MS     1000
#define ERROR_MS    10000
#define FAR_MS      10000

struct scrubber {
    struct ingester *in;
    const struct scrub_conf *conf;
    struct timer *timer;
    struct arena *arena;
    size_t place;        /* of the shard whose turn it is */
    uint32_t number;     /* its number, while at is in the middle of it */
    struct shard *shard; /* held while busy */
    uint64_t round_began_ms;
    bool found_one; /* a shard that is served here, since the first place */
    bool busy;
    struct metric_cell *rows, *nodes, *rounds, *rebuilt, *lost, *errors, *round_seconds;

    /* The pool job's, while busy. */
    struct scrub at;
    struct scrub_found found;
    struct err err;
    bool far; /* holds a place (read_load_far_enter) */

    struct shard_task mark; /* of found.at[marking] */
    size_t marking;
    struct err mark_err;
    uint64_t rows_before, nodes_before;
};

static uint64_t now_ms(const struct scrubber *s)
{
    return clock_mono_ms(s->in->ctx->env->clock);
}

static void wait(struct scrubber *s, uint64_t ms)
{
    s->busy = false;
    shards_put(s->in->shards, s->shard);
    s->shard = NULL;
    if (!s->in->draining)
        loop_timer_start(s->timer, ms, 0);
}

/* ---- what was found: loop ---- */

static void report(struct scrubber *s, const struct scrub_finding *f)
{
    uint32_t number = s->number;

    if (f->kind == SCRUB_NODE) {
        metric_add(s->rebuilt, 1);
        log_error("a node is not the sum of its children; it is built again",
                  KV_U64("shard", number), KV_CSTR("found", f->text));
    } else {
        metric_add(s->lost, 1);
        log_error("a stored row is damaged or missing, and nothing can be built in its place",
                  KV_U64("shard", number), KV_CSTR("found", f->text));
    }
}

static void mark_next(struct scrubber *s);

/* Shard thread. */
static void mark_run(struct shard_task *t, struct store *store)
{
    struct scrubber *s = container_of(t, struct scrubber, mark);

    if (store_scrub_mark(store, &s->found.at.ptr[s->marking].node, &s->mark_err) == 0)
        err_clear(&s->mark_err);
}

static void mark_done(struct shard_task *t)
{
    struct scrubber *s = container_of(t, struct scrubber, mark);

    if (s->mark_err.code)
        log_error("a wrong node could not be marked; the next round finds it again",
                  KV_ERR(&s->mark_err));
    s->marking++;
    mark_next(s);
}

/* Continues with the shard of the next place. After the last place the interval begins. If no shard
 * was served here in this round, it looks again after BUSY_MS. */
static void next_place(struct scrubber *s)
{
    bool found = s->found_one;

    s->at = (struct scrub){ 0 };
    s->rows_before = s->nodes_before = 0;
    s->place = s->place + 1 < shards_len(s->in->shards) ? s->place + 1 : 0;
    s->round_began_ms = now_ms(s);
    if (s->place > 0) {
        wait(s, 0);
        return;
    }
    s->found_one = false;
    wait(s, found ? s->conf->interval_ms : BUSY_MS);
}

static void round_ended(struct scrubber *s)
{
    uint64_t seconds = (now_ms(s) - s->round_began_ms) / 1000;

    metric_add(s->rounds, 1);
    metric_set(s->round_seconds, (int64_t)seconds);
    log_info("scrubbed", KV_U64("shard", s->number), KV_U64("rows", s->at.rows),
             KV_U64("nodes", s->at.nodes), KV_U64("by_entry", s->at.sampled),
             KV_U64("nodes_far_away", s->at.away), KV_U64("seconds", seconds));
    s->found_one = true;
    next_place(s);
}

static void mark_next(struct scrubber *s)
{
    uint64_t rows = s->at.rows - s->rows_before;

    while (s->marking < s->found.at.len && s->found.at.ptr[s->marking].kind != SCRUB_NODE)
        s->marking++;
    if (s->marking < s->found.at.len && !s->in->draining) {
        shard_run(s->shard, &s->mark);
        return;
    }
    metric_add(s->rows, rows);
    metric_add(s->nodes, s->at.nodes - s->nodes_before);
    s->rows_before = s->at.rows;
    s->nodes_before = s->at.nodes;
    if (s->at.done)
        round_ended(s);
    else
        wait(s, s->err.code ? ERROR_MS : MAX(rows * 1000 / s->conf->rate, 1));
}

/* ---- steps ---- */

static bool far_enter(void *cookie)
{
    struct scrubber *s = cookie;

    s->far = read_load_far_enter(s->in->read_load);
    return s->far;
}

/* Pool thread. */
static void step_work(void *cookie)
{
    struct scrubber *s = cookie;
    struct store_view *v = store_view_get(shard_store(s->shard));

    struct cold_read reach = {
        .local = !s->conf->cold, .deadline_ms = now_ms(s) + FAR_MS, .enter = far_enter, .cookie = s
    };
    struct cold_read *before = cold_read_policy_set(&reach);

    err_clear(&s->err);
    s->found.at.len = 0;
    s->found.more = 0;
    const struct scrub_opts o = { .rows_max = ROWS_MAX,
                                  .sample = (uint32_t)s->conf->sample,
                                  .arena = s->arena };
    if (store_scrub(v, &s->at, &o, &s->found, &s->err) == 0)
        err_clear(&s->err); /* what was tried on the way may have left its mark */
    store_view_put(v);
    (void)cold_read_policy_set(before);
}

static void step_done(void *cookie)
{
    struct scrubber *s = cookie;

    if (s->far)
        read_load_far_leave(s->in->read_load);
    s->far = false;
    if (s->err.code) {
        metric_add(s->errors, 1);
        log_warn("scrubbing could not read; it continues later", KV_ERR(&s->err));
    }
    vec_for (i, &s->found.at)
        report(s, &s->found.at.ptr[i]);
    if (s->found.more)
        log_error("more was found than one step can name", KV_U64("more", s->found.more));
    s->marking = 0;
    mark_next(s);
}

static void on_timer(void *cookie)
{
    struct scrubber *s = cookie;
    struct ingester *in = s->in;
    struct err skip;

    if (in->draining)
        return;
    s->shard = s->place < shards_len(in->shards)
                   ? shards_get(in->shards, shards_number(in->shards, s->place), &skip)
                   : NULL;
    if (!s->shard) { /* served elsewhere: if it comes back, its round restarts */
        next_place(s);
        return;
    }
    s->number = shard_number(s->shard);
    s->busy = !role_memory_check(in->ctx, &skip) && !read_load_waiting(in->read_load) &&
              !shard_state(s->shard)->read_only &&
              pool_submit(in->ctx->pool, in->ctx->loop, step_work, step_done, s);
    if (!s->busy)
        wait(s, BUSY_MS);
}

/* ---- life ---- */

static struct metric_cell *counter(struct scrubber *s, const char *name, const char *help)
{
    return metric_at(metric_new(s->in->ctx->metrics, METRIC_COUNTER, name, help, NULL), NULL, 0);
}

static void make_metrics(struct scrubber *s)
{
    struct str rebuilt = STR("nodes_rebuilt"), lost = STR("rows_lost");
    struct metric *ledger =
        metric_new(s->in->ctx->metrics, METRIC_COUNTER, "embertree_loss_ledger_total",
                   "What was found wrong in stored data: rebuilt from its parts, or lost", "what");

    s->rebuilt = metric_at(ledger, &rebuilt, 1);
    s->lost = metric_at(ledger, &lost, 1);
    s->rows = counter(s, "embertree_ingester_scrub_rows_total", "Stored rows verified");
    s->nodes =
        counter(s, "embertree_ingester_scrub_nodes_total", "Nodes verified against their children");
    s->rounds = counter(s, "embertree_ingester_scrub_rounds_total", "Rounds over a whole shard");
    s->errors = counter(s, "embertree_ingester_scrub_errors_total",
                        "Steps of scrubbing that could not read");
    s->round_seconds = metric_at(metric_new(s->in->ctx->metrics, METRIC_GAUGE,
                                            "embertree_ingester_scrub_round_seconds",
                                            "How long the last round over a shard took", NULL),
                                 NULL, 0);
}

struct scrubber *scrubber_new(struct ingester *in)
{
    struct scrubber *s = XNEW(struct scrubber);

    s->in = in;
    s->conf = conf_get(in->ctx->conf, &scrub_options);
    s->mark = (struct shard_task){ .run = mark_run, .done = mark_done };
    s->arena = arena_new(ARENA_BYTES);
    s->timer = loop_timer_new(in->ctx->loop, on_timer, s);
    make_metrics(s);
    s->round_began_ms = now_ms(s);
    if (s->conf->rate)
        wait(s, s->conf->delay_ms);
    return s;
}

bool scrubber_idle(const struct scrubber *s)
{
    return !s->busy;
}

void scrubber_free(struct scrubber *s)
{
    if (!s)
        return;
    CHECK(!s->busy);
    loop_timer_free(s->timer);
    arena_free(s->arena);
    vec_free(&s->found.at);
    xfree(s);
}
