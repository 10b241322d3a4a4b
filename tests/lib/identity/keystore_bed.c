/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore_bed: processes that share a loop, a clock and the service, and nothing else.
 */
#include "tests/lib/identity/keystore_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"

/* ---- files ----------------------------------------------------------------------------------- */

static int disk_read(const struct fs *fs, const char *path, struct buf *out, struct err *e)
{
    const struct keystore_disk *d =
        container_of((struct fs *)(uintptr_t)fs, struct keystore_disk, fs);

    if (!d->there)
        return err_set(e, ERR_NOT_FOUND, "%s is not there", path);
    (void)buf_add_str(out, buf_str(&d->bytes));
    return 0;
}

static int disk_write(const struct fs *fs, const char *path, struct str data, struct err *e)
{
    struct keystore_disk *d = container_of((struct fs *)(uintptr_t)fs, struct keystore_disk, fs);

    if (d->fails)
        return err_set(e, ERR_IO, "%s: no space left", path);
    d->there = true;
    d->writes++;
    buf_reset(&d->bytes);
    (void)buf_add_str(&d->bytes, data);
    return 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

int keystore_bed_try(struct keystore_bed *w, size_t i, struct err *e)
{
    const uint8_t none[KEY_PEPPER_BYTES] = { 0 };
    struct keystore_one *p = &w->at[i];

    env_sim_init(&p->env, &w->clock.clock, &p->disk.fs, ++w->seed);
    p->registry = registry_new(none);
    p->coord = w->site ? coord_sim_new(w->site) : NULL;
    struct keystore_opts o = { .env = &p->env.env,
                               .loop = w->loop,
                               .coord = p->coord,
                               .prefix = KEYSTORE_PREFIX,
                               .dir = "/data",
                               .cluster_key = w->cluster,
                               .other_keys = w->others,
                               .other_keys_len = w->others_len,
                               .registry = p->registry };
    return keystore_new(&o, &p->store, e);
}

void keystore_bed_start(struct keystore_bed *w, size_t i)
{
    struct err e;

    if (keystore_bed_try(w, i, &e))
        fail_msg("process %zu: %s", i, e.text);
}

void keystore_bed_stop(struct keystore_bed *w, size_t i)
{
    struct keystore_one *p = &w->at[i];

    keystore_free(p->store);
    registry_free(p->registry);
    coord_free(p->coord);
    p->store = NULL;
    p->registry = NULL;
    p->coord = NULL;
}

void keystore_bed_run(struct keystore_bed *w, uint64_t ms)
{
    uint64_t until = clock_mono_ms(loop_clock(w->loop)) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < until)
        (void)loop_sim_step(w->loop);
    if (until > clock_mono_ms(loop_clock(w->loop)))
        clock_fake_advance(&w->clock, (int64_t)(until - clock_mono_ms(loop_clock(w->loop))));
}

void keystore_bed_open(struct keystore_bed *w, struct str cluster, bool coord)
{
    *w = (struct keystore_bed){ .cluster = cluster, .seed = 5 };
    clock_fake_init(&w->clock, INT64_C(1700000000000));
    w->loop = loop_sim_new(&w->clock);
    if (coord)
        w->site = coord_site_new(w->loop, 7);
    for (size_t i = 0; i < KEYSTORE_BED; i++) {
        struct keystore_disk *d = &w->at[i].disk;

        d->fs = *fs_real();
        d->fs.read_file = disk_read;
        d->fs.write_file = disk_write;
        buf_init(&d->bytes, 64 * MIB);
    }
}

void keystore_bed_all(struct keystore_bed *w)
{
    for (size_t i = 0; i < KEYSTORE_BED; i++)
        keystore_bed_start(w, i);
    keystore_bed_run(w, 2000);
    for (size_t i = 0; i < KEYSTORE_BED; i++)
        assert_true(keystore_fresh(w->at[i].store));
}

void keystore_bed_close(struct keystore_bed *w)
{
    for (size_t i = 0; i < KEYSTORE_BED; i++) {
        keystore_bed_stop(w, i);
        buf_deinit(&w->at[i].disk.bytes);
    }
    coord_site_free(w->site);
    loop_free(w->loop);
}

/* ---- keys ------------------------------------------------------------------------------------ */

void keystore_bed_answer(void *cookie, const struct err *e, bool away)
{
    struct keystore_answer *a = cookie;

    assert_false(a->ended);
    a->ended = true;
    a->away = away;
    a->code = e ? e->code : 0;
    (void)snprintf(a->text, sizeof(a->text), "%s", e ? e->text : "");
    if (a->of)
        a->in_file = str_contains(buf_str(&a->of->disk.bytes), str_c(a->id));
}

struct key_record *keystore_bed_record(struct keystore_one *p, struct keystore_key *key,
                                       unsigned roles, int64_t until)
{
    struct grant g = { .everywhere = true, .roles = roles };
    struct key_record r = { .name = STR("n"),
                            .owner = STR("o"),
                            .made_by = STR("test"),
                            .grants = { &g, 1 },
                            .until_ms = until };
    struct key_text text;
    struct key_record *ret;
    struct buf b;
    struct err e;

    if (!key->text[0])
        key_make(&p->env.env, KEY_API, key->text);
    assert_true(key_text_parse(str_c(key->text), &text));
    (void)snprintf(key->id, sizeof(key->id), "%.*s", STR_ARG(text.id));
    r.id = text.id;
    keystore_hash(p->store, text.id, text.secret, r.hash);
    buf_init(&b, KEY_RECORD_BYTES_MAX);
    record_key_write(&r, NULL, &b);
    if (record_key_read(buf_str(&b), &ret, &e))
        fail_msg("%s", e.text);
    buf_deinit(&b);
    return ret;
}

void keystore_bed_add(struct keystore_one *p, struct keystore_key *key, struct keystore_answer *a)
{
    struct key_record *r = keystore_bed_record(p, key, ROLE_PUSH, 0);

    *a = (struct keystore_answer){ 0 };
    keystore_add(p->store, r, keystore_bed_answer, a);
    record_key_unref(r);
}

void keystore_bed_block(struct keystore_one *p, const struct keystore_key *key,
                        struct keystore_answer *a)
{
    *a = (struct keystore_answer){ .of = p, .id = key->id };
    keystore_block(p->store, str_c(key->id), STR("lost"), keystore_bed_answer, a);
}

enum credential_fault keystore_bed_prove(const struct keystore_bed *w, size_t i,
                                         const struct keystore_key *key)
{
    struct key_record *r;

    return registry_prove(w->at[i].registry, str_c(key->text), clock_wall_ms(&w->clock.clock),
                          "10.0.0.1:1", &r);
}

void keystore_bed_say(const struct keystore_bed *w, const struct keystore_key *key,
                      enum credential_fault want)
{
    for (size_t i = 0; i < KEYSTORE_BED; i++)
        if (keystore_bed_prove(w, i, key) != want)
            fail_msg("process %zu says %d of %s, want %d", i, (int)keystore_bed_prove(w, i, key),
                     key->id, (int)want);
}

void keystore_bed_known(struct keystore_bed *w, size_t i, struct keystore_key *key)
{
    struct keystore_answer a;

    keystore_bed_add(&w->at[i], key, &a);
    keystore_bed_run(w, 1000);
    assert_true(a.ended);
    if (a.code)
        fail_msg("%s", a.text);
    keystore_bed_say(w, key, CREDENTIAL_OK);
}
