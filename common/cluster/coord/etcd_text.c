/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_text: requests to etcd's JSON gateway, and its answers.
 *
 * Facts from etcd's rpc.proto and the proto3 JSON mapping. A range over a prefix ends at the prefix
 * with its last byte one higher; our prefixes end with '/' or a letter, so that byte is never 0xff.
 */
#include "common/cluster/coord/etcd_text.h"

#include "common/base/base64.h"
#include "common/base/json.h"
#include "common/net/json_in.h"

#define KVS_MAX 100000

/* ---- requests -------------------------------------------------------------------------------- */

static void put_bytes(struct json *j, const char *key, struct str bytes)
{
    struct buf text;

    buf_init(&text, 2 * COORD_VALUE_MAX);
    (void)base64_encode(bytes, &text);
    CHECK(buf_ok(&text));
    json_put_str(j, key, buf_str(&text));
    buf_deinit(&text);
}

static void put_prefix(struct json *j, struct str prefix)
{
    char end[COORD_KEY_MAX];

    CHECK(prefix.len > 0 && prefix.len < sizeof(end));
    memcpy(end, prefix.ptr, prefix.len);
    end[prefix.len - 1]++;
    put_bytes(j, "key", prefix);
    put_bytes(j, "range_end", str_n(end, prefix.len));
}

void etcd_put_range(struct buf *out, struct str prefix, bool count)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    put_prefix(&j, prefix);
    if (count)
        json_put_bool(&j, "count_only", true);
    json_obj_end(&j);
}

static void put_change(struct json *j, const struct coord_change *c)
{
    json_obj(j);
    json_key(j, c->del ? "requestDeleteRange" : "requestPut");
    json_obj(j);
    put_bytes(j, "key", c->key);
    if (!c->del) {
        put_bytes(j, "value", c->value);
        json_put_i64_str(j, "lease", c->lease);
    }
    json_obj_end(j);
    json_obj_end(j);
}

void etcd_put_txn(struct buf *out, const struct coord_compare *cmp, size_t cmp_len,
                  const struct coord_change *chg, size_t chg_len)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_key(&j, "compare");
    json_arr(&j);
    for (size_t i = 0; i < cmp_len; i++) {
        json_obj(&j);
        put_bytes(&j, "key", cmp[i].key);
        json_put_cstr(&j, "result", "EQUAL");
        json_put_cstr(&j, "target", cmp[i].create ? "CREATE" : "MOD");
        json_put_i64_str(&j, cmp[i].create ? "create_revision" : "mod_revision", cmp[i].rev);
        json_obj_end(&j);
    }
    json_arr_end(&j);
    json_key(&j, "success");
    json_arr(&j);
    for (size_t i = 0; i < chg_len; i++)
        put_change(&j, &chg[i]);
    json_arr_end(&j);
    json_obj_end(&j);
}

void etcd_put_grant(struct buf *out, uint64_t ttl_ms)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_i64_str(&j, "TTL", (int64_t)((ttl_ms + 999) / 1000));
    json_obj_end(&j);
}

void etcd_put_lease(struct buf *out, int64_t lease)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_i64_str(&j, "ID", lease);
    json_obj_end(&j);
}

void etcd_put_watch(struct buf *out, struct str prefix, int64_t from_rev)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_key(&j, "create_request");
    json_obj(&j);
    put_prefix(&j, prefix);
    json_put_i64_str(&j, "start_revision", from_rev);
    json_obj_end(&j);
    json_obj_end(&j);
}

void etcd_put_login(struct buf *out, const char *user, const char *password)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_cstr(&j, "name", user);
    json_put_cstr(&j, "password", password);
    json_obj_end(&j);
}

/* ---- answers --------------------------------------------------------------------------------- */

static int take_i64(const struct json_val *v, const char *key, const char *alt, int64_t *ret,
                    struct err *e)
{
    return json_take_i64(json_get(v, key, alt), key, ret, e);
}

static int no_room(struct err *e)
{
    return err_set(e, ERR_LIMIT, "an answer of the coordination service takes too much memory");
}

static int take_text(const struct json_val *v, const char *key, struct arena *a, struct str *ret,
                     struct err *e)
{
    struct str s = STR_NULL;
    int code = json_take_str(json_get(v, key, NULL), key, &s, e);

    if (code || !s.ptr)
        return code;
    *ret = arena_strdup(a, s);
    return ret->ptr ? 0 : no_room(e);
}

static int take_bytes(const struct json_val *v, const char *key, size_t most, struct arena *a,
                      struct str *ret, struct err *e)
{
    struct str s = STR_NULL;
    struct buf out;
    int code = json_take_str(json_get(v, key, NULL), key, &s, e);

    *ret = STR("");
    if (code || !s.len)
        return code;
    buf_init(&out, most);
    if (!base64_decode(s, &out)) {
        code = err_set(e, ERR_INPUT, "%s is no base64 of at most %zu bytes", key, most);
    } else {
        *ret = arena_strdup(a, buf_str(&out));
        code = ret->ptr ? 0 : no_room(e);
    }
    buf_deinit(&out);
    return code;
}

static int take_kv(const struct json_val *v, struct arena *a, struct coord_kv *ret, struct err *e)
{
    int code = take_bytes(v, "key", COORD_KEY_MAX, a, &ret->key, e);

    if (!code)
        code = take_bytes(v, "value", 2 * COORD_VALUE_MAX, a, &ret->value, e);
    if (!code)
        code = take_i64(v, "create_revision", "createRevision", &ret->create_rev, e);
    if (!code)
        code = take_i64(v, "mod_revision", "modRevision", &ret->mod_rev, e);
    if (!code)
        code = take_i64(v, "lease", NULL, &ret->lease, e);
    return code;
}

/* A list of keys, or of events with a key in each. */
static int take_kvs(const struct json_val *list, bool events, struct arena *a,
                    struct etcd_answer *ret, struct err *e)
{
    size_t n = json_len(list);
    int code = 0;

    if (n > KVS_MAX)
        return err_set(e, ERR_LIMIT, "%zu keys in one answer, at most %d", n, KVS_MAX);
    ret->kvs = ARENA_ARRAY(a, struct coord_kv, MAX(n, 1));
    if (!ret->kvs)
        return no_room(e);
    ret->kvs_len = n;
    for (size_t i = 0; i < n && !code; i++) {
        const struct json_val *one = json_at(list, i);
        struct str type = STR("PUT");

        if (events) {
            code = json_take_str(json_get(one, "type", NULL), "type", &type, e);
            ret->kvs[i].deleted = str_eq(type, STR("DELETE"));
            one = json_get(one, "kv", NULL);
        }
        if (!code)
            code = take_kv(one, a, &ret->kvs[i], e);
    }
    return code;
}

static int take_header(const struct json_val *v, struct etcd_answer *ret, struct err *e)
{
    const struct json_val *header = json_get(v, "header", NULL);
    struct str cluster = STR_NULL;
    int code = take_i64(header, "revision", NULL, &ret->rev, e);

    /* Unsigned: may not fit an int64_t. */
    if (!code)
        code =
            json_take_str(json_get(header, "cluster_id", "clusterId"), "cluster_id", &cluster, e);
    if (!code && cluster.len && !str_u64(cluster, &ret->cluster))
        code = err_set(e, ERR_INPUT, "cluster_id is not a number");
    return code;
}

static int take_error(const struct json_val *root, struct arena *a, struct etcd_answer *ret,
                      struct err *e)
{
    const struct json_val *error = json_get(root, "error", NULL);
    bool nested = json_is_obj(error); /* in streams */
    int code = take_text(nested ? error : root, nested ? "message" : "error", a, &ret->error, e);

    if (!code)
        code = take_i64(nested ? error : root, nested ? "grpc_code" : "code", "code",
                        &ret->error_code, e);
    if (!code && error && !ret->error.len)
        ret->error = STR("an error without a text");
    return code;
}

static int take_all(const struct json_val *root, struct arena *a, struct etcd_answer *ret,
                    struct err *e)
{
    const struct json_val *v = json_get(root, "result", NULL);
    int64_t ttl = 0;
    int code;

    if (!json_is_obj(root))
        return err_set(e, ERR_INPUT, "the coordination service's answer is no object");
    v = v ? v : root;
    code = take_header(v, ret, e);
    if (!code && json_get(v, "kvs", NULL))
        code = take_kvs(json_get(v, "kvs", NULL), false, a, ret, e);
    if (!code && json_get(v, "events", NULL))
        code = take_kvs(json_get(v, "events", NULL), true, a, ret, e);
    if (!code)
        code = json_take_bool(json_get(v, "succeeded", NULL), "succeeded", &ret->succeeded, e);
    if (!code)
        code = take_i64(v, "ID", NULL, &ret->lease, e);
    if (!code)
        code = take_i64(v, "TTL", NULL, &ttl, e);
    if (!code)
        code = json_take_bool(json_get(v, "created", NULL), "created", &ret->created, e);
    if (!code)
        code = json_take_bool(json_get(v, "canceled", NULL), "canceled", &ret->canceled, e);
    if (!code)
        code = take_i64(v, "compact_revision", "compactRevision", &ret->compacted, e);
    if (!code)
        code = take_text(v, "token", a, &ret->token, e);
    ret->ttl_ms = ttl > 0 && ttl < INT32_MAX ? (uint64_t)ttl * 1000 : 0;
    return code;
}

int etcd_parse(struct str text, struct arena *a, struct etcd_answer *ret, struct err *e)
{
    struct etcd_answer answer = { 0 };
    struct json_doc *doc;
    int code;

    if (text.len > ETCD_ANSWER_MAX)
        return err_set(e, ERR_LIMIT, "an answer of %zu bytes, at most %zu", text.len,
                       (size_t)ETCD_ANSWER_MAX);
    code = json_parse(text, &doc, e);
    if (code)
        return err_wrap(e, "the coordination service's answer");
    code = take_error(json_root(doc), a, &answer, e);
    if (!code && !answer.error.len)
        code = take_all(json_root(doc), a, &answer, e);
    json_doc_free(doc);
    if (!code)
        *ret = answer;
    return code ? err_wrap(e, "the coordination service's answer") : 0;
}
