/* SPDX-License-Identifier: Apache-2.0
 *
 * key_offline: `key make --offline`: a key, and the entry of identity.file that lets servers know
 * it. No server is asked, so none of its pepper is known: the hash is made with a pepper of zeros,
 * and "offline:" says so. It guards as well, since the secret is 256 random bits; all that is lost
 * is that hashes of two clusters differ.
 *
 * The entry is checked by the code that a server reads it with, before the key is shown: what is
 * printed here is taken there. It is JSON, which is YAML, on one line.
 */
#include <string.h>

#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/identity/file.h"
#include "common/rpc/rpc_crypto.h"
#include "common/sys/env.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define ENTRY_MAX (64 * KIB)
#define DAY_MS    INT64_C(86400000)
#define HASH_HEX  (2 * KEY_HASH_BYTES)

struct made {
    char key[KEY_TEXT_LEN + 1];
    struct key_text text; /* slices of key */
    char hash[sizeof("offline:") + HASH_HEX];
};

static void make(struct made *m)
{
    const uint8_t pepper[KEY_PEPPER_BYTES] = { 0 };
    uint8_t hash[KEY_HASH_BYTES];
    struct env *env = env_real();

    key_make(env, KEY_API, m->key);
    CHECK(key_text_parse(str_c(m->key), &m->text));
    key_hash(pepper, m->text.id, m->text.secret, hash);
    (void)memcpy(m->hash, "offline:", 8);
    hex_put_c(hash, sizeof(hash), m->hash + 8);
}

static int valid_for(const struct cli *c, struct json *j, struct err *e)
{
    uint64_t ms;

    if (!c->o.valid_for)
        return 0;
    if (!str_duration_ms(str_c(c->o.valid_for), &ms) || ms < 1000 ||
        ms > (uint64_t)(100 * 366 * DAY_MS))
        return err_set(e, ERR_CONFIG, "--valid-for: \"%.40s\" is no duration such as 90d",
                       c->o.valid_for);
    json_put_i64(j, "until", c->now_ms + (int64_t)ms);
    return 0;
}

/* {"id":..,"hash":..,"name":..,...} */
static int put_entry(const struct cli *c, const struct made *m, struct buf *out, struct err *e)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_str(&j, "id", m->text.id);
    json_put_cstr(&j, "hash", m->hash);
    if (ctl_key_want_put(c, &j, e) || valid_for(c, &j, e))
        return e->code;
    json_obj_end(&j);
    return 0;
}

/* Would a server take it? */
static int check(struct str entry, struct err *e)
{
    struct key_record **r = NULL;
    size_t n = 0;
    struct buf b;
    int code;

    buf_init(&b, ENTRY_MAX * 2);
    (void)buf_addf(&b, "{\"keys\":[%.*s]}", STR_ARG(entry));
    code = identity_file_parse("entry", buf_str(&b), &r, &n, e);
    buf_deinit(&b);
    for (size_t i = 0; i < n; i++)
        record_key_unref(r[i]);
    xfree(r);
    return code;
}

static void put_answer(struct cli *c, const struct made *m, struct str entry)
{
    struct json j;

    json_init(&j, &c->out);
    json_obj(&j);
    json_put_str(&j, "id", m->text.id);
    if (!c->o.output)
        json_put_cstr(&j, "key", m->key);
    json_put_cstr(&j, "hash", m->hash);
    json_put_str(&j, "entry", entry);
    json_obj_end(&j);
    cli_json_end(c);
}

static int run(struct cli *c, struct made *m, struct buf *entry, struct err *e)
{
    if (put_entry(c, m, entry, e) || check(buf_str(entry), e))
        return e->code;
    if ((!c->o.json || c->o.output) && ctl_key_write(c, str_c(m->key), e))
        return e->code;
    if (c->o.json) {
        put_answer(c, m, buf_str(entry));
        return 0;
    }
    cli_flush(c);
    cli_note(c, "put this into the file of identity.file, below \"keys:\"; the key is shown this "
                "once");
    (void)buf_addf(&c->out, "  - %.*s\n", STR_ARG(buf_str(entry)));
    cli_flush(c);
    return 0;
}

int ctl_key_offline(struct cli *c)
{
    struct made m;
    struct buf entry;
    struct err e;

    buf_init(&entry, ENTRY_MAX);
    make(&m);
    int rc = run(c, &m, &entry, &e);
    buf_deinit(&entry);
    rpc_wipe(&m, sizeof(m));
    return rc ? cli_fail(c, &e) : CLI_DONE;
}
