/* SPDX-License-Identifier: Apache-2.0
 *
 * kept: the text and its limits.
 *
 * The input was written by another process, or by a sender that claims to be one. So every document
 * in it is checked by its own parser, no shard may come twice, and the text has at most
 * CLUSTER_DUMP_BYTES_MAX bytes.
 */
#include "common/cluster/rebuild/cluster_dump.h"

#include <stdio.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/net/json_in.h"

void cluster_dump_init(struct cluster_dump *k, const struct map *map)
{
    *k = (struct cluster_dump){ .map = map };
    if (map)
        k->shards = XNEW_ARRAY(struct cluster_dump_shard, map->shards);
}

void cluster_dump_deinit(struct cluster_dump *k)
{
    map_unref(k->map);
    xfree(k->shards);
    *k = (struct cluster_dump){ .map = NULL };
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_records(const struct cluster_dump *k, struct buf *text, struct json *j)
{
    json_key(j, "records");
    json_arr(j);
    for (uint32_t i = 0; k->map && i < k->map->shards; i++) {
        if (!k->shards[i].known)
            continue;
        buf_reset(text);
        record_write(&k->shards[i].record, text);
        json_obj(j);
        json_put_u64(j, "shard", i);
        json_put_str(j, "record", buf_str(text));
        if (k->shards[i].seen)
            json_put_u64(j, "seen", k->shards[i].seen);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void put_fresh(const struct name_set *fresh, struct json *j)
{
    if (!fresh->len)
        return;
    json_key(j, "fresh");
    json_arr(j);
    for (uint32_t i = 0; i < fresh->len; i++)
        json_cstr(j, fresh->names[i]);
    json_arr_end(j);
}

static void put_logs(const struct cluster_dump *k, struct json *j)
{
    json_key(j, "logs");
    json_arr(j);
    for (uint32_t i = 0; k->map && i < k->map->shards; i++) {
        if (!k->shards[i].promised && !k->shards[i].fresh.len)
            continue;
        json_obj(j);
        json_put_u64(j, "shard", i);
        json_put_u64(j, "promised", k->shards[i].promised);
        put_fresh(&k->shards[i].fresh, j);
        json_obj_end(j);
    }
    json_arr_end(j);
}

void cluster_dump_write(const struct cluster_dump *k, struct buf *out)
{
    struct buf text;
    struct json j;

    buf_init(&text, MAP_BYTES_MAX * 2);
    json_init(&j, out);
    json_obj(&j);
    json_put_str(&j, "cluster", str_c(k->cluster));
    json_put_str(&j, "node", str_c(k->node));
    json_put_bool(&j, "keeps", k->keeps);
    json_put_str(&j, "stranger", str_c(k->stranger));
    if (k->map) {
        map_write(k->map, &text);
        json_put_str(&j, "map", buf_str(&text));
    }
    put_records(k, &text, &j);
    put_logs(k, &j);
    json_obj_end(&j);
    buf_deinit(&text);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int take_name(const struct json_val *root, struct cluster_dump *k, struct err *e)
{
    struct str s = STR_NULL;
    int code = json_take_str(json_get(root, "node", NULL), "node", &s, e);

    if (!code && s.len && !node_name_ok(s))
        code = err_set(e, ERR_INPUT, "node: \"%.*s\" is no name of a node",
                       STR_ARG(str_sub(s, 0, 80)));
    if (!code && s.len)
        memcpy(k->node, s.ptr, s.len);
    return code;
}

static int take_head(const struct json_val *root, struct cluster_dump *k, struct err *e)
{
    struct str id = STR_NULL, why = STR_NULL;
    int code = json_take_str(json_get(root, "cluster", NULL), "cluster", &id, e);

    if (!code && id.len && !cluster_id_ok(id))
        code = err_set(e, ERR_INPUT, "cluster: \"%.*s\" is no id; want %d hex digits",
                       STR_ARG(str_sub(id, 0, 80)), CLUSTER_ID_LEN);
    if (!code && id.len)
        memcpy(k->cluster, id.ptr, id.len);
    if (!code)
        code = take_name(root, k, e);
    if (!code)
        code = json_take_bool(json_get(root, "keeps", NULL), "keeps", &k->keeps, e);
    if (!code)
        code = json_take_str(json_get(root, "stranger", NULL), "stranger", &why, e);
    if (!code)
        (void)snprintf(k->stranger, sizeof(k->stranger), "%.*s",
                       STR_ARG(str_sub(why, 0, CLUSTER_DUMP_STRANGER_MAX)));
    return code;
}

static int take_map(const struct json_val *root, struct cluster_dump *k, struct err *e)
{
    const struct map *m = NULL;
    struct str text = STR_NULL;
    int code = json_take_str(json_get(root, "map", NULL), "map", &text, e);

    if (!code && text.len)
        code = map_parse("map", text, false, &m, e);
    if (!code && m && m->replicas_of) {
        code = err_set(e, ERR_INPUT, "map: it is one of a file (replicas_of)");
        map_unref(m);
    } else if (!code && m) {
        k->map = m;
        k->shards = XNEW_ARRAY(struct cluster_dump_shard, m->shards);
    }
    return code;
}

static int take_shard(const struct json_val *v, const struct cluster_dump *k, int64_t *ret,
                      struct err *e)
{
    int64_t shards = k->map ? k->map->shards : 0;

    *ret = -1;
    if (json_take_i64(json_get(v, "shard", NULL), "shard", ret, e))
        return e->code;
    if (*ret < 0 || *ret >= shards)
        return err_set(e, ERR_INPUT, "shard %" PRId64 ", but the map has %" PRId64, *ret, shards);
    return 0;
}

static int take_seen(const struct json_val *v, struct cluster_dump_shard *s, struct err *e)
{
    int64_t seen = 0;

    if (json_take_i64(json_get(v, "seen", NULL), "seen", &seen, e))
        return e->code;
    if (seen < 0 || (uint64_t)seen >= s->record.term)
        return err_set(e, ERR_INPUT, "seen: %" PRId64 " is no term before %" PRIu64, seen,
                       s->record.term);
    s->seen = (uint64_t)seen;
    return 0;
}

static int take_record(const struct json_val *v, struct cluster_dump *k, struct err *e)
{
    struct str text = STR_NULL;
    int64_t shard;
    int code = take_shard(v, k, &shard, e);

    if (!code)
        code = json_take_str(json_get(v, "record", NULL), "record", &text, e);
    if (code)
        return code;
    if (k->shards[shard].known)
        return err_set(e, ERR_INPUT, "shard %" PRId64 " has two records", shard);
    code = record_parse(text, &k->shards[shard].record, e);
    if (!code && k->shards[shard].record.term > CLUSTER_DUMP_TERM_MAX)
        code = err_set(e, ERR_INPUT, "term %" PRIu64 ", at most %" PRIu64,
                       k->shards[shard].record.term, CLUSTER_DUMP_TERM_MAX);
    if (code)
        return err_wrap(e, "record of shard %" PRId64, shard);
    k->shards[shard].known = true;
    return take_seen(v, &k->shards[shard], e);
}

static int take_fresh(const struct json_val *list, struct name_set *to, struct err *e)
{
    char name[NODE_NAME_MAX + 1];
    struct str s = STR_NULL;
    int code = 0;

    for (size_t i = 0; i < json_len(list) && !code; i++) {
        code = json_take_str(json_at(list, i), "fresh", &s, e);
        if (code)
            break;
        if (!node_name_ok(s))
            return err_set(e, ERR_INPUT, "fresh: \"%.*s\" is no name of a node",
                           STR_ARG(str_sub(s, 0, 80)));
        (void)snprintf(name, sizeof(name), "%.*s", STR_ARG(s));
        if (!name_set_add(to, name))
            return err_set(e, ERR_INPUT, "fresh: %s twice, or more than %d names", name,
                           RECORD_SET_MAX);
    }
    return code;
}

static int take_log(const struct json_val *v, struct cluster_dump *k, struct err *e)
{
    int64_t shard, promised = 0;
    int code = take_shard(v, k, &shard, e);

    if (!code)
        code = json_take_i64(json_get(v, "promised", NULL), "promised", &promised, e);
    if (!code && (promised < 0 || (uint64_t)promised > CLUSTER_DUMP_TERM_MAX))
        code = err_set(e, ERR_INPUT, "promised: %" PRId64 " is no term", promised);
    if (code)
        return code;
    k->shards[shard].promised = (uint64_t)promised;
    k->shards[shard].fresh.len = 0;
    return take_fresh(json_get(v, "fresh", NULL), &k->shards[shard].fresh, e);
}

static int take_all(const struct json_val *root, struct cluster_dump *k, struct err *e)
{
    const struct json_val *records = json_get(root, "records", NULL);
    const struct json_val *logs = json_get(root, "logs", NULL);
    int code = take_head(root, k, e);

    if (!code)
        code = take_map(root, k, e);
    for (size_t i = 0; !code && i < json_len(records); i++)
        code = take_record(json_at(records, i), k, e);
    for (size_t i = 0; !code && i < json_len(logs); i++)
        code = take_log(json_at(logs, i), k, e);
    return code;
}

int cluster_dump_parse(struct str text, struct cluster_dump *ret, struct err *e)
{
    struct json_doc *doc;
    int code;

    *ret = (struct cluster_dump){ .map = NULL };
    if (text.len > CLUSTER_DUMP_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "%zu bytes for the state of a cluster, at most %zu", text.len,
                       (size_t)CLUSTER_DUMP_BYTES_MAX);
    code = json_parse(text, &doc, e);
    if (code)
        return code;
    code = take_all(json_root(doc), ret, e);
    json_doc_free(doc);
    if (code)
        cluster_dump_deinit(ret);
    return code;
}
