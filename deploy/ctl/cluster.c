/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster: is the cluster well?
 */
#include "deploy/ctl/ask.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/ring.h"

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
    struct json_doc *doc;
    struct ring r;
    struct json j;

    if (ask_ring(c, &doc, &r, e))
        return commands_fail(c, e);
    bool ok = ring_healthy(&r);
    if (c->o.json) {
        json_init(&j, &c->out);
        ring_json(&r, &j);
        cli_json_end(c);
    } else {
        ring_text(&c->term, &r, &c->out);
    }
    ring_deinit(&r);
    json_doc_free(doc);
    return ok ? CLI_DONE : CLI_NO;
}

int ctl_cluster(struct cli *c)
{
    const char *what = c->args_len ? c->args[0] : "status";
    struct err e;

    if (strcmp(what, "status") == 0)
        return status(c, &e);
    (void)err_set(&e, ERR_CONFIG, "cluster %.60s: want status", what);
    return cli_fail(c, &e);
}
