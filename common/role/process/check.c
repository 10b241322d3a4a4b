/* SPDX-License-Identifier: Apache-2.0
 *
 * check: the functions that a start calls, called one after the other, whatever the one before
 * said. A refusal of a start that is not found here is found by
 * tests/cluster/operate/test_check_config.py.
 */
#include "common/role/process/check.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/identity/file.h"
#include "common/identity/identity.h"
#include "common/net/tcp.h"
#include "common/net/tls.h"
#include "common/role/cluster/cluster_source.h"
#include "common/role/core/access.h"
#include "common/role/core/options.h"
#include "common/rpc/rpc_check.h"
#include "common/rpc/rpc_keys.h"

#define FILE_BYTES_MAX (64 * MIB)

void role_check_said(struct role_checks *c, const char *option, const struct err *e)
{
    c->said++;
    c->wrong(c->cookie, option, e);
}

void role_check_file(struct role_checks *c, const char *option, const char *file,
                     role_check_fn check)
{
    struct buf text;
    struct err e;

    if (!file[0])
        return;
    c->files++;
    buf_init(&text, FILE_BYTES_MAX);
    if (fs_real()->read_file(fs_real(), file, &text, &e) ||
        check(c->conf, file, buf_str(&text), &e))
        role_check_said(c, option, &e);
    buf_deinit(&text);
}

void role_check_listen(struct role_checks *c, const char *option, const char *listen,
                       const char *advertise)
{
    const struct role_ctx ctx = { .cluster = conf_get(c->conf, &cluster_options),
                                  .common = conf_get(c->conf, &http_options) };
    struct err e;

    if (role_rpc_listen_check(&ctx, option, listen, &e))
        role_check_said(c, "", &e);
    if (listen[0] && rpc_listen_check(listen, advertise && advertise[0] ? advertise : listen, &e))
        role_check_said(c, option, &e);
}

/* ---- what all roles share -------------------------------------------------------------------- */

static void check_tls(struct role_checks *c, const struct common_conf *http)
{
    struct tls_opts o = { http->tls_cert, http->tls_key, http->tls_client_ca };
    struct tls_ctx *tls;
    struct err e;

    if (!o.cert[0] && !o.key[0] && !o.client_ca[0] && !http->tls_only)
        return;
    c->files += 2 + (o.client_ca[0] != '\0');
    if (!o.cert[0] && !o.key[0])
        (void)err_set(&e, ERR_CONFIG, "TLS is asked for, but there is no http.tls_cert");
    else if (!o.cert[0] || !o.key[0])
        (void)err_set(&e, ERR_CONFIG, "http.tls_cert and http.tls_key need each other");
    else if (!tls_ctx_new(&o, &tls, &e)) {
        tls_ctx_free(tls);
        return;
    }
    role_check_said(c, "", &e);
}

static int check_admin(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    struct access a = { 0 };

    (void)conf, (void)text;
    return access_init(&a, fs_real(), file, e);
}

static int check_identity_file(const struct conf *conf, const char *file, struct str text,
                               struct err *e)
{
    struct key_record **keys;
    size_t n;

    (void)conf;
    if (identity_file_parse(file, text, &keys, &n, e))
        return e->code;
    while (n > 0)
        record_key_unref(keys[--n]);
    xfree(keys);
    return 0;
}

static int check_keys(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    struct rpc_keys *keys;

    (void)conf, (void)text;
    if (rpc_keys_load(file, &keys, e))
        return e->code;
    rpc_keys_free(keys);
    return 0;
}

static void check_cluster(struct role_checks *c, const struct cluster_conf *cluster)
{
    struct err e;

    if (options_check_cluster(cluster, c->all_in_one, &e))
        role_check_said(c, "", &e);
    if (cluster_source_check(cluster, env_real(), &e))
        role_check_said(c, "", &e);
    if (cluster->key_optional && !cluster->key_file[0]) {
        (void)err_set(&e, ERR_CONFIG,
                      "cluster.key_optional is for switching a key on, and there is no "
                      "cluster.key_file");
        role_check_said(c, "", &e);
    }
    role_check_file(c, "cluster.key_file", cluster->key_file, check_keys);
}

static void check_memory(struct role_checks *c)
{
    uint64_t limit = ((const struct memory_conf *)conf_get(c->conf, &memory_options))->limit;
    char text[200];

    if (!limit || limit >= OPTIONS_MEMORY_LEAST)
        return;
    (void)snprintf(text, sizeof(text),
                   "memory.limit is %" PRIu64 " bytes, less than a process can live in: it takes "
                   "%" PRIu64 " MiB; give 64MiB or more",
                   limit, OPTIONS_MEMORY_LEAST / MIB);
    c->odd(c->cookie, text);
}

/* As identity_start refuses it. */
static int check_identity(const struct identity_conf *i, const struct cluster_conf *cluster,
                          struct err *e)
{
    if (strcmp(i->mode, "require") == 0 && strcmp(cluster->coordination, "etcd") == 0 &&
        !cluster->key_file[0])
        return err_set(e, ERR_CONFIG,
                       "require with etcd needs cluster.key_file, which signs the keys of callers");
    return 0;
}

void role_check(const struct role *const *list, struct role_checks *c)
{
    const struct common_conf *http = conf_get(c->conf, &http_options);
    const struct identity_conf *identity = conf_get(c->conf, &identity_conf_table);
    struct common_conf checked = options_http(c->conf);
    struct err e;

    if (options_check_http(&checked, &e))
        role_check_said(c, "", &e);
    if (tcp_addr_check(http->listen, &e))
        role_check_said(c, "http.listen", &e);
    check_tls(c, http);
    role_check_file(c, "http.admin_token_file", http->admin_token_file, check_admin);
    role_check_file(c, "identity.file", identity->file, check_identity_file);
    if (check_identity(identity, conf_get(c->conf, &cluster_options), &e))
        role_check_said(c, "identity.mode", &e);
    check_cluster(c, conf_get(c->conf, &cluster_options));
    check_memory(c);
    for (; *list; list++)
        if ((*list)->check)
            (*list)->check(c);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void print_wrong(void *cookie, const char *option, const struct err *e)
{
    (void)cookie;
    (void)fprintf(stderr, "%s%s%s\n", option, option[0] ? ": " : "", e->text);
}

static void print_conf(void *cookie, const struct err *e)
{
    print_wrong(cookie, "", e);
}

static void print_odd(void *cookie, const char *text)
{
    (void)cookie;
    (void)fprintf(stderr, "warning: %s\n", text);
}

/* All in one has its own ingester; a configuration that names others is of a role of its own. */
static bool all_in_one(const struct role *const *list, const struct cluster_conf *c)
{
    return list[0] && list[1] && c->ingesters.len == 1 &&
           str_starts(str_c(c->ingesters.items[0]), STR("inproc://"));
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: check-config [--config=FILE] [--section.name=value ...]\n"
                          "  Options are those of the server. Says all that is wrong with them and "
                          "with\n"
                          "  the files that they name, and ends with 1 then.\n");
    return 2;
}

int role_check_main(const struct role *const *list, int argc, char **argv)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    struct conf_wrong wrong = { .fn = print_conf };
    struct role_checks c = { .wrong = print_wrong, .odd = print_odd };
    struct conf *conf;

    if (conf_load_all(tables, options_collect(list, tables), argc, argv, &wrong, &conf))
        return 1;
    if (conf_action(conf) != CONF_RUN) {
        conf_free(conf);
        return usage();
    }
    c.conf = conf;
    c.all_in_one = all_in_one(list, conf_get(conf, &cluster_options));
    role_check(list, &c);
    conf_free(conf);
    if (!c.said && !wrong.said)
        (void)printf("fine; files read beside it: %zu\n", c.files);
    return c.said || wrong.said ? 1 : 0;
}
