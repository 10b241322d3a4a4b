/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster: is the cluster well; which nodes are to be emptied, and what is to be spread.
 */
#include <stdio.h>
#include <time.h>

#include "common/cluster/map/record.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/server/places.h"
#include "deploy/ctl/server/rebalance.h"
#include "deploy/ctl/server/recover.h"
#include "deploy/ctl/server/ring.h"

#define WAIT_MS   500
#define HEAR_MOST 20 /* looks until the server asked knows of the drain */

/* `r` is borrowed from *ret_doc. */
static int ask_ring(struct cli *c, struct json_doc **ret_doc, struct ring *r, struct err *e)
{
    if (ask_json(c, STR("/ring"), ret_doc, e))
        return e->code;
    if (ring_read(c, json_root(*ret_doc), r, e)) {
        json_doc_free(*ret_doc);
        return e->code;
    }
    return 0;
}

static int status(struct cli *c, struct err *e)
{
    struct json_doc *doc, *places, *copies;
    struct ring r;
    struct json j;

    if (ask_ring(c, &doc, &r, e))
        return commands_fail(c, e);
    if (places_ask(c, &places, e)) {
        ring_deinit(&r);
        json_doc_free(doc);
        return commands_fail(c, e);
    }
    if (ring_copies_ask(c, &copies, e)) {
        ring_deinit(&r);
        json_doc_free(places);
        json_doc_free(doc);
        return commands_fail(c, e);
    }
    if (copies)
        ring_copies_read(&r, json_root(copies));
    bool ok = ring_healthy(&r);
    if (c->o.json) {
        json_init(&j, &c->out);
        ring_json(&r, &j);
        cli_json_end(c);
    } else {
        ring_text(&c->term, &r, &c->out);
        places_text(places, &c->out);
    }
    ring_deinit(&r);
    json_doc_free(copies);
    json_doc_free(places);
    json_doc_free(doc);
    return ok ? CLI_DONE : CLI_NO;
}

/* ---- drain ---- */

static int change(struct cli *c, const char *node, const char *what, struct err *e)
{
    char target[256];
    struct buf body;

    (void)snprintf(target, sizeof(target), "/api/v1/cluster/nodes/%s/%s", node, what);
    struct ask a = { .method = "POST", .target = str_c(target) };
    buf_init(&body, ASK_JSON_MAX);
    int rc = ask_do(c, &a, &body, e);
    buf_deinit(&body);
    return rc;
}

static void wait_a_little(void)
{
    struct timespec t = { .tv_nsec = WAIT_MS * 1000000L };

    while (nanosleep(&t, &t)) {
    }
}

/* Until the node can be stopped for good. That it stands in no record is not enough: until a
 * shard's new members have begun the old ones still count. The controller knows, and then writes
 * "left". */
static int wait_empty(struct cli *c, const char *node, struct err *e)
{
    struct rebalance_wait w = { .begun = false };
    uint64_t bytes, moves;

    for (uint32_t unheard = 0;;) {
        struct json_doc *doc;
        struct ring r;

        if (ask_ring(c, &doc, &r, e))
            return e->code;
        const struct ring_node *n = ring_node(&r, str_c(node));
        uint32_t left = n ? n->shards : 0;
        bool over = !n || str_eq(n->state, STR("left"));
        if (n && str_eq(n->state, STR("draining")))
            unheard = HEAR_MOST;
        bool used = n && str_eq(n->state, STR("active")) && unheard++ >= HEAR_MOST;
        ring_deinit(&r);
        json_doc_free(doc);
        if (over)
            return 0;
        if (used)
            return err_set(e, ERR_CONFLICT,
                           "draining of %s was cancelled by another operator (undrain)", node);
        if (rebalance_left(c, node, &moves, &bytes, e))
            bytes = 0; /* too few nodes, say: what there is to wait for `cluster status` tells */
        rebalance_say(c, &w, node, left, bytes);
        wait_a_little();
    }
}

static int drain(struct cli *c, const char *what, struct err *e)
{
    const char *node = c->args_len > 1 ? c->args[1] : "";
    bool empties = strcmp(what, "drain") == 0;
    struct json j;

    if (!node_name_ok(str_c(node)) || c->args_len > 2)
        return err_set(e, ERR_CONFIG,
                       "cluster %s wants the name of a node; cluster status has them", what);
    if (c->o.wait && !empties)
        return err_set(e, ERR_CONFIG, "--wait goes with cluster drain");
    if (change(c, node, what, e) || (c->o.wait && wait_empty(c, node, e)))
        return e->code;
    const char *is = !empties    ? "is used again"
                     : c->o.wait ? "has no shard and can be stopped"
                                 : "is being emptied";
    if (c->o.json) {
        json_init(&j, &c->out);
        json_obj(&j);
        json_put_cstr(&j, "node", node);
        json_put_bool(&j, "empty", empties && c->o.wait);
        json_obj_end(&j);
        cli_json_end(c);
    } else {
        (void)buf_addf(&c->out, "%s %s\n", node, is);
    }
    return 0;
}

int ctl_cluster(struct cli *c)
{
    const char *what = c->args_len ? c->args[0] : "status";
    struct err e;

    if (strcmp(what, "drain") == 0 || strcmp(what, "undrain") == 0)
        return drain(c, what, &e) ? commands_fail(c, &e) : CLI_DONE;
    if (strcmp(what, "rebalance") == 0)
        return rebalance(c, &e) ? commands_fail(c, &e) : CLI_DONE;
    if (strcmp(what, "recover") == 0)
        return recover(c);
    if (strcmp(what, "spread") == 0 || strcmp(what, "tenant") == 0)
        return places_change(c, &e) ? commands_fail(c, &e) : CLI_DONE;
    if (strcmp(what, "status") == 0 && c->args_len < 2)
        return status(c, &e);
    (void)err_set(
        &e, ERR_CONFIG,
        "cluster %.60s: want status, drain NODE, undrain NODE, rebalance, spread TENANT SERVICE "
        "SHARDS, tenant TENANT SHARDS or recover URL...",
        what);
    return cli_fail(c, &e);
}
