/* SPDX-License-Identifier: Apache-2.0
 *
 * rebalance: shards find their places by themselves, a few at a time. This shows what is left, and
 * has more of them moved at once.
 */
#include "deploy/ctl/rebalance.h"

#include <time.h>

#include "common/base/json.h"
#include "deploy/ctl/ask.h"

#define TARGET     "/api/v1/cluster/rebalance"
#define WAIT_MS    500
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

static void plan_text(const struct json_val *root, struct buf *out)
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
        (void)buf_addf(out, "%zu shards are to be moved, %" PRId64 " MiB are to be copied\n", n,
                       in(root, "bytesToCopy", MIB));
    else
        (void)buf_add_str(out, STR("every shard is where it belongs\n"));
}

static int wait_done(struct cli *c, struct err *e)
{
    int64_t said = -1, said_bytes = -1;

    for (;;) {
        struct timespec t = { .tv_nsec = WAIT_MS * 1000000L };
        struct json_doc *doc;

        if (ask_json(c, STR(TARGET), &doc, e))
            return e->code;
        int64_t left = number(json_root(doc), "pending");
        int64_t bytes = in(json_root(doc), "bytesToCopy", MIB);
        json_doc_free(doc);
        if (!left)
            return 0;
        if (left != said || bytes != said_bytes)
            cli_note(c, "%" PRId64 " shards are to be moved, %" PRId64 " MiB to be copied", left,
                     bytes);
        said = left;
        said_bytes = bytes;
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
            plan_text(json_root(doc), &c->out);
        json_doc_free(doc);
    }
    if (!code && c->o.wait)
        code = wait_done(c, e);
    buf_deinit(&body);
    return code;
}
