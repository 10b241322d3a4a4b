/* SPDX-License-Identifier: Apache-2.0
 *
 * rebalance: the controller moves shards by itself, a few at a time. This command shows the shards
 * that are still to be moved, and has more of them moved at once.
 */
#include "deploy/ctl/server/rebalance.h"

#include <time.h>

#include "common/base/json.h"
#include "common/sys/clock.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/server/ring.h"

#define TARGET     "/api/v1/cluster/rebalance"
#define QUIET_MS   5000
#define WAIT_MS    500
#define SAY_MS     5000
#define SHOWN_MOST 64

static int64_t number(const struct json_val *v, const char *key)
{
    int64_t n = 0;
    struct err ignored;

    (void)!json_take_i64(json_get(v, key, NULL), key, &n, &ignored);
    return n;
}

static int64_t in(const struct json_val *v, const char *key, int64_t unit)
{
    return number(v, key) / unit;
}

static void names(const struct json_val *v, const char *key, struct buf *out)
{
    const struct json_val *all = json_get(v, key, NULL);

    for (size_t i = 0; i < json_len(all); i++) {
        struct str name = STR_NULL;
        struct err ignored;

        (void)!json_take_str(json_at(all, i), key, &name, &ignored);
        (void)buf_addf(out, "%s%.*s", i ? " " : "", STR_ARG(name));
    }
}

static bool has_name(const struct json_val *names, struct str name)
{
    for (size_t i = 0; i < json_len(names); i++)
        if (str_eq(ring_name(names, i), name))
            return true;
    return false;
}

/* Its copies are where they belong: only the leader is to change. */
static bool lead_only(const struct json_val *v)
{
    const struct json_val *is = json_get(v, "members", NULL), *to = json_get(v, "membersTo", NULL);
    bool same = json_len(is) == json_len(to);

    for (size_t i = 0; i < json_len(to); i++)
        same &= has_name(is, ring_name(to, i));
    return same;
}

static void put_leads(const struct json_val *shards, struct buf *out)
{
    size_t n = 0;

    for (size_t i = 0; i < json_len(shards); i++)
        n += lead_only(json_at(shards, i));
    if (n)
        (void)buf_addf(out,
                       "%zu of them only to be led by another node: a lead that went stays for "
                       "three minutes, then it goes by itself\n",
                       n);
}

void rebalance_text(const struct json_val *root, struct buf *out)
{
    const struct json_val *nodes = json_get(root, "nodes", NULL);
    const struct json_val *shards = json_get(root, "shards", NULL);
    size_t n = json_len(shards);

    for (size_t i = 0; i < json_len(nodes); i++) {
        const struct json_val *v = json_at(nodes, i);

        (void)buf_addf(out,
                       "%.*s: %" PRId64 " copies, will have %" PRId64 "; leads %" PRId64
                       ", will lead %" PRId64 "; stores %" PRId64 " MiB, will store %" PRId64
                       "; takes %" PRId64 " KiB/s, will take %" PRId64 "\n",
                       STR_ARG(ask_text(v, "name")), number(v, "copies"), number(v, "copiesTo"),
                       number(v, "leads"), number(v, "leadsTo"), in(v, "bytes", MIB),
                       in(v, "bytesTo", MIB), in(v, "bytesPerSecond", KIB),
                       in(v, "bytesPerSecondTo", KIB));
    }
    for (size_t i = 0; i < MIN(n, (size_t)SHOWN_MOST); i++) {
        const struct json_val *v = json_at(shards, i);

        (void)buf_addf(out, "shard %" PRId64 ": on ", number(v, "shard"));
        names(v, "members", out);
        (void)buf_addf(out, " led by %.*s, to be on ", STR_ARG(ask_text(v, "leader")));
        names(v, "membersTo", out);
        (void)buf_addf(out, " led by %.*s; %" PRId64 " MiB: %.*s\n",
                       STR_ARG(ask_text(v, "leaderTo")), in(v, "bytes", MIB),
                       STR_ARG(ask_text(v, "why")));
    }
    if (n > SHOWN_MOST)
        (void)buf_addf(out, "and %zu more\n", n - SHOWN_MOST);
    if (n)
        (void)buf_addf(out, "%zu shard%s to be moved, %" PRId64 " MiB are to be copied\n", n,
                       n == 1 ? " is" : "s are", in(root, "bytesToCopy", MIB));
    else
        (void)buf_add_str(out, STR("every shard is where it belongs\n"));
    put_leads(shards, out);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* How much of a shard is not there where it goes. The plan counts what is under way in whole. */
static uint64_t shard_left(const struct json_val *v, const struct json_val *copies)
{
    const struct json_val *is = json_get(v, "members", NULL), *to = json_get(v, "membersTo", NULL);
    uint64_t bytes = (uint64_t)MAX(number(v, "bytes"), INT64_C(0)), left = 0;

    for (size_t i = 0; i < json_len(to); i++) {
        struct str name = ring_name(to, i);

        if (!has_name(is, name))
            left += bytes - MIN(bytes, ring_coming_of(copies, (uint64_t)number(v, "shard"), name));
    }
    return left;
}

int rebalance_left(struct cli *c, const char *node, uint64_t *ret_shards, uint64_t *ret_bytes,
                   struct err *e)
{
    struct json_doc *doc, *copies;
    uint64_t shards = 0, bytes = 0;

    if (ask_json(c, STR(TARGET), &doc, e))
        return e->code;
    if (ring_copies_ask(c, &copies, e)) {
        json_doc_free(doc);
        return e->code;
    }
    const struct json_val *all = json_get(json_root(doc), "shards", NULL);
    for (size_t i = 0; i < json_len(all); i++) {
        const struct json_val *v = json_at(all, i);

        if (node && has_name(json_get(v, "membersTo", NULL), str_c(node)))
            continue; /* it stays there, or comes */
        shards++;
        bytes += shard_left(v, copies ? json_root(copies) : NULL);
    }
    json_doc_free(copies);
    json_doc_free(doc);
    *ret_shards = shards;
    *ret_bytes = bytes;
    return 0;
}

void rebalance_say(struct cli *c, struct rebalance_wait *w, const char *node, uint64_t shards,
                   uint64_t bytes)
{
    uint64_t now = clock_mono_ms(clock_real());
    struct progress_now p = { 0 };
    struct buf b;

    if (!w->begun || bytes > w->most) { /* more shards were added: the speed is measured again */
        w->most = bytes;
        w->speed.len = 0;
    }
    rate_estimate_note(&w->speed, now, w->most - bytes);
    if (w->begun && shards == w->shards && (bytes == w->bytes || now < w->said_ms + SAY_MS))
        return;
    w->begun = true;
    w->shards = shards;
    w->bytes = bytes;
    w->said_ms = now;
    p.timed = rate_estimate_of(&w->speed, &p.per_s);
    buf_init(&b, KIB);
    if (node)
        (void)buf_addf(&b, "%s has ", node);
    (void)buf_addf(&b, "%" PRIu64 " shard%s%s", shards, shards == 1 ? "" : "s",
                   node          ? ""
                   : shards == 1 ? " is to be moved"
                                 : " are to be moved");
    if (bytes || !node) {
        (void)buf_add_str(&b, STR(", "));
        term_value((double)bytes, STR("bytes"), &b);
        (void)buf_add_str(&b, STR(" to be copied"));
        progress_speed(&p, bytes, &b);
    }
    cli_note(c, "%.*s", STR_ARG(buf_str(&b)));
    buf_deinit(&b);
}

/* The leads are made even once the new copies have reported what their shards cost, seconds after
 * the last copy has moved: so it is done when nothing has been left for QUIET_MS. */
static int wait_done(struct cli *c, struct err *e)
{
    struct rebalance_wait w = { .begun = false };
    uint64_t left_ms = 0;

    for (;;) {
        struct timespec t = { .tv_nsec = WAIT_MS * 1000000L };
        uint64_t shards, bytes;

        if (rebalance_left(c, NULL, &shards, &bytes, e))
            return e->code;
        uint64_t now = clock_mono_ms(clock_real());
        if (!shards && (!w.begun || now >= left_ms + QUIET_MS))
            return 0;
        if (shards) {
            left_ms = now;
            rebalance_say(c, &w, NULL, shards, bytes);
        }
        while (nanosleep(&t, &t)) {
        }
    }
}

int rebalance(struct cli *c, struct err *e)
{
    struct ask a = { .method = c->o.apply ? "POST" : "GET", .target = STR(TARGET) };
    struct json_doc *doc;
    struct buf body;
    int code;

    if (c->args_len > 1)
        return err_set(e, ERR_CONFIG, "cluster rebalance takes no names");
    if (c->o.wait && !c->o.apply)
        return err_set(e, ERR_CONFIG, "--wait goes with --apply");
    buf_init(&body, ASK_JSON_MAX);
    code = ask_do(c, &a, &body, e);
    if (!code)
        code = json_parse(buf_str(&body), &doc, e);
    if (!code) {
        if (c->o.json)
            (void)buf_add_str(&c->out, buf_str(&body));
        else
            rebalance_text(json_root(doc), &c->out);
        json_doc_free(doc);
    }
    if (!code && c->o.wait)
        code = wait_done(c, e);
    buf_deinit(&body);
    return code;
}
