/* SPDX-License-Identifier: Apache-2.0
 *
 * cold_place: dir:/path, or s3://bucket/prefix with an endpoint and a file of keys, which
 * is read again for each request.
 */
#include "common/cold/conf.h"

#include <stdio.h>

#include "common/base/mem.h"

#define ST struct cold_conf

static const struct conf_row rows[] = {
    CONF_STR(ST, url, "url", "",
             "Where old data go: dir:/path, or s3://bucket/prefix. Empty: they stay here."),
    CONF_STR(ST, s3_endpoint, "s3_endpoint", "",
             "Server of the S3 API, such as https://s3.eu-central-1.amazonaws.com."),
    CONF_STR(ST, s3_region, "s3_region", "us-east-1", "Region that requests are signed for."),
    CONF_STR(ST, s3_credentials_file, "s3_credentials_file", "",
             "File with the access key, the secret key and, if there is one, the session token: a "
             "line each. Read again for each request."),
    CONF_STR(ST, s3_ca_file, "s3_ca_file", "",
             "Certificates (PEM) to trust instead of the system's."),
    CONF_BOOL(ST, s3_path_style, "s3_path_style", "false",
              "Name the bucket in the path, not in the host: most servers other than Amazon's."),
    CONF_DURATION(ST, after_ms, "after", "2d", "1h", "400d",
                  "A bucket of sealed data leaves this long after its last slot; until then, and "
                  "while it gets late data, it stays."),
    CONF_DURATION(ST, interval_ms, "interval", "10m", "1s", "1d",
                  "How often data that are old enough are looked for."),
    CONF_BYTES(ST, cache_bytes, "cache_bytes", "1GiB", "16MiB", "1TiB",
               "Pieces of remote objects, kept in the data folder for queries."),
    CONF_DURATION(ST, backup_interval_ms, "backup_interval", "1d", "0ms", "30d",
                  "All of each shard is written there this often, as far as it changed; 0: never. "
                  "If every disk is lost, only backups remain."),
    CONF_U64(ST, backups, "backups", "2", "1", "1000", "Backups of each shard that are kept."),
    CONF_BOOL(
        ST, take_over, "take_over", "false",
        "Take over the objects of the database that this one was restored from; that database "
        "must never run again."),
};
const struct conf_table cold_options = { "cold", "Cold tier: old data in an object store", rows,
                                         ARRAY_LEN(rows), sizeof(ST) };

static int open_bucket(const struct cold_conf *c, struct str rest, struct env *env,
                       const atomic_bool *stop, struct object_store **ret, struct err *e)
{
    ptrdiff_t slash = str_find(rest, '/');
    struct str bucket = slash < 0 ? rest : str_sub(rest, 0, (size_t)slash);
    struct str prefix = slash < 0 ? STR_NULL : str_sub(rest, (size_t)slash + 1, rest.len);
    char name[80], path[260];
    int rc = 0;

    if (!c->s3_credentials_file[0])
        rc = err_set(e, ERR_CONFIG, "cold.url is a bucket; give cold.s3_credentials_file");
    if (!rc && (bucket.len >= sizeof(name) || prefix.len + 2 > sizeof(path)))
        rc = err_set(e, ERR_CONFIG, "cold.url is too long");
    if (!rc) {
        (void)snprintf(name, sizeof(name), "%.*s", STR_ARG(bucket));
        (void)snprintf(path, sizeof(path), "%.*s%s", STR_ARG(prefix),
                       prefix.len && !str_ends(prefix, STR("/")) ? "/" : "");
        struct object_s3_opts o = {
            .env = env,
            .endpoint = c->s3_endpoint,
            .bucket = name,
            .prefix = path,
            .region = c->s3_region,
            .keys_file = c->s3_credentials_file,
            .path_style = c->s3_path_style,
            .ca_file = c->s3_ca_file,
            .stop = stop,
        };
        rc = object_s3_open(&o, ret, e) ? err_wrap(e, "section cold") : 0;
    }
    return rc;
}

int cold_conf_open(const struct cold_conf *c, struct env *env, const atomic_bool *stop,
                   struct object_store **ret, struct err *e)
{
    struct str url = str_c(c->url);

    if (str_starts(url, STR("dir:/")))
        return object_dir_open(c->url + 4, ret, e) ? err_wrap(e, "cold.url") : 0;
    if (str_starts(url, STR("s3://")))
        return open_bucket(c, str_sub(url, 5, url.len), env, stop, ret, e);
    return err_set(e, ERR_CONFIG, "cold.url \"%.100s\": want dir:/path or s3://bucket/prefix",
                   c->url);
}

int cold_conf_check(const struct cold_conf *c, struct env *env, struct err *e)
{
    struct object_store *o;

    if (str_starts(str_c(c->url), STR("dir:/"))) /* opening it would make the folder */
        return object_dir_check(c->url + 4, e) ? err_wrap(e, "cold.url") : 0;
    if (cold_conf_open(c, env, NULL, &o, e))
        return e->code;
    object_close(o);
    return 0;
}
