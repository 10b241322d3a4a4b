/* SPDX-License-Identifier: Apache-2.0
 *
 * write_secret.c: SipHash-2-4, and the secret as an option, a text and a file.
 *
 * The key is a hash of the text, so that an option of any length gives 128 bits. The file is made
 * once with random bytes; a distributor that has one keeps it, since a new secret would give every
 * retry a new write id.
 */
#include "distributor/base/write_secret.h"

#include <stdio.h>

#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/base/wr.h"

#define SECRET_FILE  "write-id-secret"
#define SECRET_BYTES 32
#define SECRET_MOST  (64 * KIB)

enum { SECRET_PATH_MAX = 4096 };

/* ---- SipHash ----------------------------------------------------------------------------------
 * */

struct sip {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotl(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static void sip_rounds(struct sip *s, int n)
{
    while (n-- > 0) {
        s->v0 += s->v1;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v2 = rotl(s->v2, 32);
    }
}

static void sip_word(struct sip *s, uint64_t m)
{
    s->v3 ^= m;
    sip_rounds(s, 2);
    s->v0 ^= m;
}

struct hash128 siphash128(const struct write_secret *key, const void *p, size_t n)
{
    struct sip s = { key->k0 ^ 0x736f6d6570736575u, key->k1 ^ 0x646f72616e646f6du ^ 0xee,
                     key->k0 ^ 0x6c7967656e657261u, key->k1 ^ 0x7465646279746573u };
    const uint8_t *at = p;
    uint64_t last = (uint64_t)n << 56;
    struct hash128 h;

    for (; n >= 8; at += 8, n -= 8)
        sip_word(&s, get_u64le(at));
    for (size_t i = 0; i < n; i++)
        last |= (uint64_t)at[i] << (8 * i);
    sip_word(&s, last);
    s.v2 ^= 0xee;
    sip_rounds(&s, 4);
    h.lo = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= 0xdd;
    sip_rounds(&s, 4);
    h.hi = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    return h;
}

/* ---- the secret -------------------------------------------------------------------------------
 * */

struct write_secret write_secret_of(struct str text)
{
    const struct write_secret zero = { 0 };
    struct hash128 h = siphash128(&zero, text.ptr, text.len);

    return (struct write_secret){ h.lo, h.hi };
}

static int path_of(const char *data_dir, char path[SECRET_PATH_MAX], struct err *e)
{
    int n = snprintf(path, SECRET_PATH_MAX, "%s/%s", data_dir, SECRET_FILE);

    return n < 0 || n >= SECRET_PATH_MAX ? err_set(e, ERR_CONFIG, "data.dir is too long a path")
                                         : 0;
}

int write_secret_keep(const char *data_dir, struct env *env, struct str text, struct err *e)
{
    char path[SECRET_PATH_MAX];
    struct buf line;
    int rc;

    if (path_of(data_dir, path, e) || env->fs->mkdir_all(env->fs, data_dir, e))
        return e->code;
    buf_init(&line, SECRET_MOST);
    (void)buf_add_str(&line, text);
    buf_add_c(&line, '\n');
    rc = env->fs->write_file(env->fs, path, buf_str(&line), e);
    buf_deinit(&line);
    return rc;
}

static int secret_create(const char *data_dir, struct env *env, struct buf *out, struct err *e)
{
    uint8_t bytes[SECRET_BYTES];

    env->random(env, bytes, sizeof(bytes));
    buf_reset(out);
    hex_add(out, bytes, sizeof(bytes));
    return write_secret_keep(data_dir, env, buf_str(out), e);
}

static int secret_of_file(const char *data_dir, struct env *env, struct buf *out, bool *ret_old,
                          struct err *e)
{
    char path[SECRET_PATH_MAX];
    struct buf text;
    struct err why;
    struct str given;
    int rc;

    if (path_of(data_dir, path, e))
        return e->code;
    buf_init(&text, SECRET_MOST);
    rc = env->fs->read_file(env->fs, path, &text, &why);
    given = str_trim(buf_str(&text));
    *ret_old = !rc;
    if (rc == ERR_NOT_FOUND)
        rc = secret_create(data_dir, env, out, e);
    else if (rc)
        rc = err_set(e, why.code, "%s", why.text);
    else if (given.len < WRITE_ID_SECRET_LEAST)
        rc =
            err_set(e, ERR_CONFIG, "%s has %zu characters, want %d: put the cluster's secret there",
                    path, given.len, WRITE_ID_SECRET_LEAST);
    else
        (void)buf_add_str(out, given);
    buf_deinit(&text);
    return rc;
}

int write_secret_check(const char *option, struct err *e)
{
    struct str given = str_trim(str_c(option));

    if (given.len && given.len < WRITE_ID_SECRET_LEAST)
        return err_set(e, ERR_CONFIG, "distributor.write_id_secret has %zu characters, want %d",
                       given.len, WRITE_ID_SECRET_LEAST);
    return 0;
}

int write_secret_text(const char *option, const char *data_dir, struct env *env, struct buf *out,
                      bool *ret_old, struct err *e)
{
    struct str given = str_trim(str_c(option));

    *ret_old = false;
    if (!given.len)
        return secret_of_file(data_dir, env, out, ret_old, e);
    if (write_secret_check(option, e))
        return e->code;
    (void)buf_add_str(out, given);
    return 0;
}

int write_secret_load(struct write_secret *ret, const char *option, const char *data_dir,
                      struct env *env, struct err *e)
{
    struct buf text;
    bool old;
    int rc;

    buf_init(&text, SECRET_MOST);
    rc = write_secret_text(option, data_dir, env, &text, &old, e);
    if (!rc)
        *ret = write_secret_of(buf_str(&text));
    buf_deinit(&text);
    return rc;
}

struct write_secret write_secret_tenant(const struct write_secret *cluster, struct str tenant)
{
    struct hash128 h = siphash128(cluster, tenant.ptr, tenant.len);

    return (struct write_secret){ h.lo, h.hi };
}
