/* SPDX-License-Identifier: Apache-2.0
 *
 * recover: asks each server what it keeps of the cluster, joins that
 * (common/cluster/rebuild/cluster_dump_merge.h), has one of them compare it with what etcd has,
 * shows the difference, and with --apply has it written. The operator must name every node that
 * did not answer, since what only that node knows may be lost.
 */
#include "deploy/ctl/server/recover.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/json.h"
#include "common/base/vec.h"
#include "common/cluster/rebuild/cluster_dump_merge.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define KEPT       "/api/v1/cluster/kept"
#define RECOVER    "/api/v1/cluster/recover"
#define WAIT_MS    300000
#define SHOWN_MOST 16

struct recovery {
    struct cli *c;
    struct cluster_dump_join *join;
    const struct cluster_dump *all;               /* borrowed from join, as of its end */
    VEC(const char *) spoke;                      /* servers that answered */
    size_t writer;                                /* which of them is to write */
    char stranger[CLUSTER_DUMP_STRANGER_MAX + 1]; /* what the first that has something says of etcd
    */
    struct json_doc *found;                       /* how it differs from what etcd has */
};

/* ---- asking ---------------------------------------------------------------------------------- */

static int take_answer(struct recovery *y, struct str body, const char *url, struct err *e)
{
    struct cluster_dump k;
    struct err why;
    int code;

    if (cluster_dump_parse(body, &k, &why))
        return ask_strange(y->c, why.text, e);
    code = cluster_dump_merge_add(y->join, &k, url, e);
    if (!code && !k.map)
        cli_note(y->c, "%s keeps nothing of a cluster: its folder is new", url);
    if (!y->stranger[0])
        memcpy(y->stranger, k.stranger, sizeof(y->stranger));
    cluster_dump_deinit(&k);
    return code;
}

/* A node that does not answer is not an error yet: the nodes of the map are counted later. */
static int ask_one(struct recovery *y, const char *url, struct err *e)
{
    struct ask a = { .target = STR(KEPT) };
    struct buf body;
    int code = 0;

    if (ask_server(y->c, url, e))
        return e->code;
    buf_init(&body, CLUSTER_DUMP_BYTES_MAX + KIB);
    if (ask_do(y->c, &a, &body, e)) {
        cli_note(y->c, "%s", e->text);
    } else {
        code = take_answer(y, buf_str(&body), url, e);
        vec_push(&y->spoke, url);
    }
    buf_deinit(&body);
    return code;
}

static int ask_all(struct recovery *y, struct err *e)
{
    struct cli *c = y->c;
    int code = c->args_len > 1 ? 0 : ask_one(y, c->o.server, e);

    for (size_t i = 1; !code && i < c->args_len; i++)
        code = ask_one(y, c->args[i], e);
    if (!code && !y->spoke.len)
        code = err_set(e, ERR_UNAVAILABLE, "no server answered; name those of all ingesters");
    return code;
}

/* ---- nodes that are missing ------------------------------------------------------------------ */

static bool is_missing(const struct recovery *y, struct str node)
{
    const char *name;

    for (size_t i = 0; (name = cluster_dump_merge_missing(y->join, i)) != NULL; i++)
        if (str_eqc(node, name))
            return true;
    return false;
}

static bool is_without(const struct recovery *y, const char *node)
{
    struct str rest = str_c(y->c->o.without ? y->c->o.without : ""), one;
    bool more = true, found = false;

    while (str_next(&rest, ',', &more, &one))
        found |= str_eqc(str_trim(one), node);
    return found;
}

static int check_without(const struct recovery *y, struct err *e)
{
    struct str rest = str_c(y->c->o.without ? y->c->o.without : ""), one;
    bool more = y->c->o.without != NULL;

    while (more && str_next(&rest, ',', &more, &one)) {
        one = str_trim(one);
        if (!is_missing(y, one))
            return err_set(
                e, ERR_CONFIG,
                "--without=%.*s: this node answered or is not a member of the cluster; remove it "
                "from the option",
                STR_ARG(str_sub(one, 0, NODE_NAME_MAX)));
    }
    return 0;
}

static int check_missing(const struct recovery *y, struct err *e)
{
    struct buf list;
    const char *name;
    size_t n = 0;
    int code = check_without(y, e);

    buf_init(&list, 4 * KIB);
    for (size_t i = 0; (name = cluster_dump_merge_missing(y->join, i)) != NULL; i++)
        if (!is_without(y, name) && n++ < SHOWN_MOST)
            (void)buf_addf(&list, "%s%s", n > 1 ? "," : "", name);
    if (n > SHOWN_MOST)
        (void)buf_addf(&list, " and %zu more", n - SHOWN_MOST);
    if (!code && n)
        code = err_set(
            e, ERR_CONFIG,
            "no server answered for %.*s: name the servers of all ingesters. Name a node that is "
            "lost in --without: what it alone knows is left out then, so what was acked "
            "last may be missing where most copies of a shard are on such nodes",
            STR_ARG(str_sub(buf_str(&list), 0, 200)));
    buf_deinit(&list);
    return code;
}

/* ---- what etcd has --------------------------------------------------------------------------- */

static int post_to(struct recovery *y, const char *url, bool dry, struct err *e)
{
    struct ask a = { .method = "POST",
                     .target = dry ? STR(RECOVER "?dry_run=1") : STR(RECOVER),
                     .type = "application/json",
                     .wait_ms = WAIT_MS };
    struct buf body, out;
    int code = ask_server(y->c, url, e);

    buf_init(&body, CLUSTER_DUMP_BYTES_MAX);
    buf_init(&out, ASK_JSON_MAX);
    cluster_dump_write(y->all, &body);
    a.body = buf_str(&body);
    if (!code && !buf_ok(&body))
        code = err_set(e, ERR_LIMIT, "what the nodes keep is over %zu MiB",
                       CLUSTER_DUMP_BYTES_MAX / MIB);
    if (!code)
        code = ask_do(y->c, &a, &out, e);
    json_doc_free(y->found);
    y->found = NULL;
    if (!code && json_parse(buf_str(&out), &y->found, e))
        code = ask_strange(y->c, "no JSON", e);
    buf_deinit(&body);
    buf_deinit(&out);
    return code;
}

/* Without tokens a server is changed from its own machine only: that of one of them may be ours. */
static int post(struct recovery *y, bool dry, struct err *e)
{
    int code;

    for (;; y->writer++) {
        code = post_to(y, y->spoke.ptr[y->writer], dry, e);
        if (code != ERR_FORBIDDEN || y->writer + 1 == y->spoke.len)
            return code;
    }
}

static const struct json_val *found(const struct recovery *y, const char *key)
{
    return json_get(json_root(y->found), key, NULL);
}

static int64_t number(const struct json_val *v)
{
    int64_t n = 0;
    struct err ignored;

    (void)!json_take_i64(v, "number", &n, &ignored);
    return n;
}

static bool map_missing(const struct recovery *y)
{
    struct str is = ask_text(json_root(y->found), "map");

    return str_eqc(is, "absent") || str_eqc(is, "behind");
}

static bool anything_missing(const struct recovery *y)
{
    return map_missing(y) || ask_truth(json_root(y->found), "idAbsent") ||
           json_len(found(y, "absent")) || json_len(found(y, "behind")) ||
           number(found(y, "notesAbsent")) > 0;
}

/* Of the same term etcd says something else than the nodes: what they know counts, in a new one. */
static int look(struct recovery *y, struct err *e)
{
    bool again = false;
    int code = post(y, true, e);

    if (code)
        return code;
    if (anything_missing(y)) {
        cluster_dump_merge_lost(y->join);
        again = true;
    }
    const struct json_val *differs = found(y, "differs");
    uint64_t there = (uint64_t)MAX(number(found(y, "mapVersion")), 0);

    for (size_t i = 0; !code && i < json_len(differs); i++) {
        int64_t shard = number(json_at(differs, i));

        if (shard < 0 || shard >= y->all->map->shards || !y->all->shards[shard].known)
            return ask_strange(y->c, "a shard that does not exist", e);
        code = cluster_dump_merge_differs(y->join, (uint32_t)shard, 0, e);
        again = true;
    }
    if (!code && str_eqc(ask_text(json_root(y->found), "map"), "differs")) {
        code = cluster_dump_merge_differs(y->join, CLUSTER_SHARDS_MAX, there, e);
        again = true;
    }
    return !code && again ? post(y, true, e) : code;
}

/* ---- showing it ------------------------------------------------------------------------------ */

static uint32_t count_why(const struct recovery *y, enum kept_why why)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < y->all->map->shards; i++)
        n += cluster_dump_merge_why(y->join, i) == why;
    return n;
}

static void list_text(const struct recovery *y, const char *key, const char *what, struct buf *out)
{
    const struct json_val *list = found(y, key);
    size_t n = json_len(list);

    if (!n)
        return;
    (void)buf_addf(out, "  %zu record%s %s (shard", n, n == 1 ? "" : "s", what);
    for (size_t i = 0; i < MIN(n, (size_t)SHOWN_MOST); i++)
        (void)buf_addf(out, " %" PRId64, number(json_at(list, i)));
    (void)buf_addf(out, n > SHOWN_MOST ? " ...)\n" : ")\n");
}

static void whys_text(const struct recovery *y, struct buf *out)
{
    static const struct {
        enum kept_why why;
        const char *text;
    } rows[] = {
        { KEPT_MISSING, "since nodes did not answer" },
        { KEPT_PROMISED, "since a log knows of a later one than any record" },
        { KEPT_UNTOLD, "since a copy is not open" },
        { KEPT_DIFFERS, "since etcd says something else of the one they have" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (count_why(y, rows[i].why))
            (void)buf_addf(out, "  %" PRIu32 " shards get a new term, %s\n",
                           count_why(y, rows[i].why), rows[i].text);
}

static void nodes_text(const struct recovery *y, struct buf *out)
{
    const char *name;

    (void)buf_addf(out, "cluster %s, as %zu nodes keep it",
                   y->all->cluster[0] ? y->all->cluster : "without an id",
                   cluster_dump_merge_answers(y->join));
    for (size_t i = 0; (name = cluster_dump_merge_missing(y->join, i)) != NULL; i++)
        (void)buf_addf(out, "%s%s", i ? "," : "; without ", name);
    (void)buf_addf(out, ": map %" PRIu64 ", %" PRIu32 " shards\n", y->all->map->version,
                   y->all->map->shards);
    if (!y->stranger[0])
        return;
    (void)buf_addf(out, "  they say: ");
    (void)term_name(&y->c->term, str_c(y->stranger), sizeof(y->stranger), out);
    (void)buf_addf(out, "\n");
}

static void text(const struct recovery *y, struct buf *out)
{
    int64_t notes = number(found(y, "notesAbsent")), version = number(found(y, "mapVersion"));

    nodes_text(y, out);
    if (!anything_missing(y)) {
        (void)buf_addf(out, "etcd has all of it\n");
        return;
    }
    (void)buf_addf(out, "etcd, compared with that:\n");
    if (ask_truth(json_root(y->found), "idAbsent"))
        (void)buf_addf(out, "  has no id of a cluster\n");
    if (map_missing(y) && version)
        (void)buf_addf(out, "  has map %" PRId64 "\n", version);
    else if (map_missing(y))
        (void)buf_addf(out, "  has no map\n");
    list_text(y, "absent", "not there", out);
    list_text(y, "behind", "older there", out);
    list_text(y, "ahead", "newer there, which stay", out);
    if (notes)
        (void)buf_addf(out, "  %" PRId64 " notes of begun logs not there\n", notes);
    whys_text(y, out);
}

static void names_json(const struct recovery *y, struct json *j)
{
    const char *name;

    json_key(j, "answered");
    json_arr(j);
    for (size_t i = 0; i < y->all->map->nodes_len; i++)
        if (cluster_dump_merge_answered(y->join, y->all->map->nodes[i].name))
            json_cstr(j, y->all->map->nodes[i].name);
    json_arr_end(j);
    json_key(j, "missing");
    json_arr(j);
    for (size_t i = 0; (name = cluster_dump_merge_missing(y->join, i)) != NULL; i++)
        json_cstr(j, name);
    json_arr_end(j);
}

static void list_json(const struct recovery *y, const char *key, struct json *j)
{
    const struct json_val *list = found(y, key);

    json_key(j, key);
    json_arr(j);
    for (size_t i = 0; i < json_len(list); i++)
        json_i64(j, number(json_at(list, i)));
    json_arr_end(j);
}

static void as_json(const struct recovery *y, bool written, struct json *j)
{
    static const char *const lists[] = { "absent", "behind", "ahead" };

    json_obj(j);
    json_put_cstr(j, "cluster", y->all->cluster);
    json_put_u64(j, "mapVersion", y->all->map->version);
    json_put_u64(j, "shards", y->all->map->shards);
    names_json(y, j);
    json_put_u64(j, "newTerms", y->all->map->shards - count_why(y, KEPT_AS_IS));
    json_key(j, "etcd");
    json_obj(j);
    json_put_str(j, "map", ask_text(json_root(y->found), "map"));
    json_put_i64(j, "mapVersion", number(found(y, "mapVersion")));
    json_put_i64(j, "notesAbsent", number(found(y, "notesAbsent")));
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        list_json(y, lists[i], j);
    json_obj_end(j);
    json_put_bool(j, "needed", anything_missing(y));
    json_put_bool(j, "written", written);
    json_obj_end(j);
}

/* ---- doing it -------------------------------------------------------------------------------- */

static void show(const struct recovery *y, bool needed)
{
    struct cli *c = y->c;
    struct json j;

    if (c->o.json) {
        json_init(&j, &c->out);
        as_json(y, c->o.apply && needed, &j);
        cli_json_end(c);
        return;
    }
    text(y, &c->out);
    if (needed && !c->o.apply)
        (void)buf_addf(&c->out, "--apply writes it\n");
}

/* True if the one at the terminal types yes. */
static bool agreed(const struct recovery *y)
{
    char line[16];
    struct buf b;

    buf_init(&b, 64 * KIB);
    text(y, &b);
    (void)fprintf(stderr, "%.*sWrite what is missing there? Type yes: ", STR_ARG(buf_str(&b)));
    (void)fflush(stderr);
    buf_deinit(&b);
    return fgets(line, sizeof(line), stdin) && str_eqc(str_trim(str_c(line)), "yes");
}

static int apply(struct recovery *y, struct err *e)
{
    struct json_doc *before = y->found;

    y->found = NULL;
    if (post(y, false, e)) {
        json_doc_free(before);
        return commands_fail(y->c, e);
    }
    json_doc_free(y->found);
    y->found = before;
    show(y, true);
    if (!y->c->o.json)
        (void)buf_addf(&y->c->out, "written: etcd has all of it now; cluster status tells when the "
                                   "nodes are back in. Then restart one distributor: it puts back "
                                   "the secret of write ids\n");
    return CLI_DONE;
}

static int run(struct recovery *y, struct err *e)
{
    const struct cli *c = y->c;

    if (ask_all(y, e) || cluster_dump_merge_end(y->join, &y->all, e) || check_missing(y, e) ||
        look(y, e))
        return commands_fail(c, e);
    if (!c->o.apply || !anything_missing(y)) {
        show(y, anything_missing(y));
        return CLI_DONE;
    }
    if (!c->o.yes && !isatty(STDIN_FILENO)) {
        (void)err_set(
            e, ERR_CONFIG,
            "standard input is not a terminal: without --apply it says what would be written, "
            "--yes writes it");
        return cli_fail(c, e);
    }
    if (!c->o.yes && !agreed(y)) {
        cli_note(c, "nothing was written");
        return CLI_NO;
    }
    return apply(y, e);
}

int recover(struct cli *c)
{
    struct recovery y = { .c = c, .join = cluster_dump_merge_new() };
    const char *server = c->o.server;
    struct err e;
    int code = run(&y, &e);

    c->o.server = server;
    json_doc_free(y.found);
    cluster_dump_merge_free(y.join);
    vec_free(&y.spoke);
    return code;
}
