/* SPDX-License-Identifier: Apache-2.0
 *
 * upload: files to POST /api/v1/adhoc, one after the other, each answered with a link to look at
 * it. The server finds out what a file is.
 *
 * Exit: 0 all uploaded; 1 some were refused; 2 the server is not there, or wrong usage.
 */
#include <stdio.h>

#include "common/net/json_in.h"
#include "common/sys/fs.h"
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/ctl_http.h"

#define FILE_BYTES (256 * MIB)
#define TIMEOUT_S  120
#define NAME_SENT  200 /* bytes of a name that are sent */

struct opts {
    const char *url, *name, *tenant;
};

static const struct {
    const char *name, *what;
    size_t at;
} options[] = {
    { "--url", "http://127.0.0.1:4040   the server", offsetof(struct opts, url) },
    { "--name", "NAME                    shown in the list; default: the name of the file",
      offsetof(struct opts, name) },
    { "--tenant", "NAME                    X-Scope-OrgID", offsetof(struct opts, tenant) },
};

static int usage(FILE *to)
{
    (void)fprintf(to, "usage: embertree upload [options] FILE...\n\n");
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        (void)fprintf(to, "  %-10s %s\n", options[i].name, options[i].what);
    return 2;
}

/* As it may stand in a query: everything but letters and digits in percent signs. */
static void put_percent(struct buf *b, struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        const uint8_t c = (uint8_t)s.ptr[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '.' || c == '_' || c == '-')
            buf_add_c(b, (char)c);
        else
            buf_addf(b, "%%%02X", c);
    }
}

static int print_link(const struct ctl_reply *r, const char *path, const char *url, struct err *e)
{
    struct json_doc *doc = NULL;
    struct str id = STR_NULL, base = str_c(url);

    if (json_parse(buf_str(&r->body), &doc, e) ||
        json_take_str(json_get(json_root(doc), "id", NULL), "id", &id, e) || !id.len) {
        json_doc_free(doc);
        return err_set(e, ERR_IO, "the server's answer has no id: is it another program?");
    }
    while (str_ends(base, STR("/")))
        base.len--;
    (void)printf("%s: %.*s/#adhoc=%.*s\n", path, STR_ARG(base), STR_ARG(id));
    json_doc_free(doc);
    return 0;
}

static int post(const struct ctl_server *server, const struct opts *o, const char *path,
                struct str content, struct err *e)
{
    const char *slash = strrchr(path, '/');
    struct str name = str_c(o->name ? o->name : slash ? slash + 1 : path);
    struct ctl_reply reply = { 0 };
    struct buf target, headers;
    int rc;

    buf_init(&target, 4 * KIB);
    buf_init(&headers, 4 * KIB);
    buf_add_str(&target, STR("/api/v1/adhoc?name="));
    put_percent(&target, str_sub(name, 0, NAME_SENT));
    buf_add_c(&target, '\0');
    buf_add_str(&headers, STR("Content-Type: application/octet-stream\r\n"));
    if (o->tenant)
        buf_addf(&headers, "X-Scope-OrgID: %.200s\r\n", o->tenant);
    buf_add_c(&headers, '\0');
    buf_init(&reply.body, MIB);
    rc = ctl_post(server, target.ptr, headers.ptr, content, TIMEOUT_S, &reply, e);
    if (!rc && reply.status != 200)
        rc = err_set(e, ERR_INPUT, "the server says %d: %.*s", reply.status,
                     STR_ARG(str_trim(str_sub(buf_str(&reply.body), 0, 400))));
    if (!rc)
        rc = print_link(&reply, path, o->url, e);
    buf_deinit(&reply.body);
    buf_deinit(&target);
    buf_deinit(&headers);
    return rc;
}

static int upload(const struct ctl_server *server, const struct opts *o, const char *path,
                  struct err *e)
{
    struct buf content;
    int rc;

    buf_init(&content, FILE_BYTES);
    rc = fs_real()->read_file(fs_real(), path, &content, e);
    if (!rc)
        rc = post(server, o, path, buf_str(&content), e);
    buf_deinit(&content);
    return rc;
}

/* An option and its value, at argv[*i]. */
static int parse_option(struct opts *o, int argc, char **argv, int *i, struct err *e)
{
    struct str arg = str_c(argv[*i]);

    for (size_t k = 0; k < ARRAY_LEN(options); k++) {
        struct str name = str_c(options[k].name);
        const char **to = (const char **)(void *)((char *)o + options[k].at);
        if (!str_starts(arg, name) || (arg.len > name.len && arg.ptr[name.len] != '='))
            continue;
        if (arg.len == name.len && *i + 1 == argc)
            return err_set(e, ERR_CONFIG, "%s wants a value", argv[*i]);
        *to = arg.len > name.len ? argv[*i] + name.len + 1 : argv[++*i];
        return 0;
    }
    return err_set(e, ERR_CONFIG, "%s is no option", argv[*i]);
}

static int parse(struct opts *o, int argc, char **argv, int *ret_files, struct ctl_server *server,
                 struct err *e)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            argv[1 + (*ret_files)++] = argv[i]; /* files move to the front */
        else if (parse_option(o, argc, argv, &i, e))
            return e->code;
    }
    if (*ret_files == 0)
        return err_set(e, ERR_CONFIG, "no files");
    if (o->tenant && strpbrk(o->tenant, "\r\n"))
        return err_set(e, ERR_CONFIG, "--tenant has a line break in it");
    return ctl_server_parse(o->url, server, e);
}

static int run(int argc, char **argv)
{
    struct opts o = { .url = "http://127.0.0.1:4040" };
    struct ctl_server server;
    int files = 0, code = 0;
    struct err e;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        (void)usage(stdout);
        return 0;
    }
    if (parse(&o, argc, argv, &files, &server, &e)) {
        (void)fprintf(stderr, "embertree upload: %s\n", e.text);
        return usage(stderr);
    }
    for (int i = 1; i <= files; i++) {
        if (upload(&server, &o, argv[i], &e) == 0)
            continue;
        (void)fprintf(stderr, "%s: %s\n", argv[i], e.text);
        code = MAX(code, e.code == ERR_UNAVAILABLE ? 2 : 1);
    }
    return code;
}

const struct command upload_command = {
    .name = "upload",
    .args = "[--url URL] [--name NAME] FILE...",
    .help = "Upload profiles of any format to look at them; prints links.",
    .run = run,
};
