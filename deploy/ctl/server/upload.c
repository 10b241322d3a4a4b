/* SPDX-License-Identifier: Apache-2.0
 *
 * upload: files to POST /api/v1/adhoc, one after the other, each answered with a link to look at
 * it. The server finds out what a file is.
 *
 * Exit: 0 all uploaded; 1 some were refused; 2 the server is not there, or wrong usage.
 */
#include <stdio.h>

#include "common/sys/fs.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/progress.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/ctl.h"

#define FILE_BYTES (256 * MIB)
#define WAIT_MS    120000
#define NAME_SENT  200 /* bytes of a name that are sent */

static int put_link(struct cli *c, struct str body, const char *path, struct json *j, struct err *e)
{
    struct json_doc *doc = NULL;
    struct str id = STR_NULL, base = str_c(c->o.server);
    struct buf link;

    if (json_parse(body, &doc, e) ||
        json_take_str(json_get(json_root(doc), "id", NULL), "id", &id, e) || !id.len) {
        json_doc_free(doc);
        return ask_strange(c, "no id", e);
    }
    while (str_ends(base, STR("/")))
        base.len--;
    buf_init(&link, 64 * KIB);
    (void)buf_addf(&link, "%.*s/#adhoc=%.*s", STR_ARG(base), STR_ARG(id));
    if (c->o.json) {
        json_obj(j);
        json_put_cstr(j, "file", path);
        json_put_str(j, "id", id);
        json_put_str(j, "link", buf_str(&link));
        json_obj_end(j);
    } else {
        (void)term_name(&c->term, str_c(path), 4096, &c->out);
        (void)buf_add_str(&c->out, STR(": "));
        (void)term_name(&c->term, buf_str(&link), 4096, &c->out);
        (void)buf_add_c(&c->out, '\n');
        cli_flush(c);
    }
    buf_deinit(&link);
    json_doc_free(doc);
    return 0;
}

static int upload(struct cli *c, const char *path, struct json *j, struct err *e)
{
    const char *slash = strrchr(path, '/');
    struct str name = str_c(c->o.name ? c->o.name : slash ? slash + 1 : path);
    struct buf content, target, reply;
    int rc;

    buf_init(&content, FILE_BYTES);
    buf_init(&target, ASK_TARGET_MAX);
    buf_init(&reply, MIB);
    (void)buf_add_str(&target, STR("/api/v1/adhoc"));
    ask_param(&target, "name", str_sub(name, 0, NAME_SENT));
    rc = fs_real()->read_file(fs_real(), path, &content, e);
    struct ask a = { .method = "POST",
                     .wait_ms = WAIT_MS,
                     .target = buf_str(&target),
                     .type = "application/octet-stream",
                     .body = buf_str(&content) };
    if (!rc)
        rc = ask_do(c, &a, &reply, e);
    if (!rc)
        rc = put_link(c, buf_str(&reply), path, j, e);
    buf_deinit(&content);
    buf_deinit(&target);
    buf_deinit(&reply);
    return rc ? err_wrap(e, "%.200s", path) : 0;
}

int ctl_upload(struct cli *c)
{
    struct json j;
    struct err e;
    int code = CLI_DONE;

    json_init(&j, &c->out);
    if (c->o.json)
        json_arr(&j);
    for (size_t i = 0; i < c->args_len; i++) {
        if (upload(c, c->args[i], &j, &e)) {
            (void)cli_fail(c, &e);
            code =
                MAX(code, e.code == ERR_UNAVAILABLE || e.code == ERR_CONFIG ? CLI_FAILED : CLI_NO);
        }
        progress_bar(c, "uploaded", i + 1, c->args_len);
    }
    if (c->o.json) {
        json_arr_end(&j);
        cli_json_end(c);
    }
    return code;
}
