/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_drop FOLDER raw|fine|coarse: takes the first row of a column family out of a shard's
 * database that no process has open, which the product's programs never do; FOLDER format: spoils
 * the row that says what it is. For tests that must notice it.
 */
#include <stdio.h>
#include <string.h>

#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

static int drop(struct kv *kv, enum kv_cf cf, struct err *e)
{
    struct kv_iter *it = kv_iter_new(kv, NULL, cf, STR_NULL, STR_NULL);
    struct kv_batch *b = kv_batch_new();
    int rc = kv_iter_valid(it) ? 0 : err_set(e, ERR_NOT_FOUND, "there is no row");

    if (!rc)
        kv_batch_del(b, cf, kv_iter_key(it));
    kv_iter_free(it);
    if (!rc)
        rc = kv_write(kv, b, true, e);
    kv_batch_free(b);
    return rc;
}

static int spoil(struct kv *kv, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    struct key k;

    key_format(&k);
    kv_batch_put(b, KV_META, key_str(&k), STR("nonsense"));
    int rc = kv_write(kv, b, true, e);
    kv_batch_free(b);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum kv_cf cf;
    } families[] = {
        { "raw", KV_RAW }, { "fine", KV_FINE }, { "coarse", KV_COARSE }, { "format", KV_META }
    };
    struct kv_opts o = { .block_cache_bytes = 8 * MIB, .memtable_bytes = 8 * MIB };
    struct err e = { 0 };
    struct kv *kv = NULL;
    int rc = ERR_INPUT;

    if (argc != 3)
        return 2;
    o.dir = argv[1];
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        if (strcmp(argv[2], families[i].name) != 0)
            continue;
        rc = kv_rocks_open(&o, &kv, &e);
        if (!rc)
            rc = families[i].cf == KV_META ? spoil(kv, &e) : drop(kv, families[i].cf, &e);
    }
    kv_close(kv);
    if (rc)
        (void)fprintf(stderr, "%s\n", e.text);
    return rc ? 1 : 0;
}
