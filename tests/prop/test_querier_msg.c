/* SPDX-License-Identifier: Apache-2.0
 *
 * Random requests of every table: written as protobuf (packed or not, unknown fields between,
 * single messages in pieces) and as JSON (either spelling, numbers as text or not, enums by name or
 * number), they are read as the same struct. SEED=n for one run again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/json.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "querier/messages/v1.h"

#define ROUNDS    3000
#define BYTES_MAX (4 * MIB)

static const struct msg_desc *const descs[] = {
    &v1_types_desc,       &v1_label_names_desc,  &v1_label_values_desc, &v1_series_list_desc,
    &v1_stacktraces_desc, &v1_span_profile_desc, &v1_profile_desc,      &v1_series_desc,
    &v1_heatmap_desc,     &v1_diff_desc,         &v1_analyze_desc,      &v1_nothing_desc,
    &v1_setting_desc,     &v1_setting_set_desc,  &v1_setting_name_desc, &v1_rule_desc,
    &v1_stored_rule_desc, &v1_rule_id_desc,
};

static struct prng p;

static bool chance(unsigned one_in)
{
    return prng_u64(&p) % one_in == 0;
}

/* ---- writing both ---- */

static struct str random_text(char room[16])
{
    static const char *const parts[] = { "a", "\"", "\\", "\xc3\xa4", "{", " ", "9", "\n" };
    size_t len = 0;

    for (size_t n = prng_u64(&p) % 6; n > 0; n--) {
        const char *part = parts[prng_u64(&p) % ARRAY_LEN(parts)];
        memcpy(room + len, part, strlen(part));
        len += strlen(part);
    }
    return str_n(room, len);
}

static int64_t random_number(void)
{
    uint64_t v = prng_u64(&p);

    return (int64_t)(v >> (v % 64)) * (chance(4) ? -1 : 1);
}

static void put_tag(struct buf *b, const struct msg_field *f, unsigned wire)
{
    wr_varint(b, (uint64_t)f->number << 3 | wire);
}

static void put_block(struct buf *b, const struct msg_field *f, struct str s)
{
    put_tag(b, f, 2);
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

static void put_unknown(struct buf *b)
{
    static const struct msg_field strange = { .number = 90 };

    if (chance(3)) {
        put_tag(b, &strange, 0);
        wr_varint(b, prng_u64(&p));
    }
    if (chance(3))
        put_block(b, &strange, STR("\xff\x00?"));
}

static void put_number(const struct msg_field *f, struct buf *b, struct json *j)
{
    int64_t v = random_number();

    put_tag(b, f, 0);
    wr_varint(b, (uint64_t)v);
    if (chance(2))
        json_i64_str(j, v);
    else
        json_i64(j, v);
}

static void put_double(const struct msg_field *f, struct buf *b, struct json *j)
{
    double v = (double)(random_number() % 100000) / 8;
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    put_tag(b, f, 1);
    wr_u64le(b, bits);
    json_double(j, v);
}

static void put_enum(const struct msg_field *f, struct buf *b, struct json *j)
{
    uint64_t v = prng_u64(&p) % f->names->len;

    put_tag(b, f, 0);
    wr_varint(b, v);
    if (chance(2))
        json_cstr(j, f->names->names[v]);
    else
        json_u64(j, v);
}

static void put_message(const struct msg_desc *d, struct buf *b, struct json *j);

static void put_value(const struct msg_field *f, struct buf *b, struct json *j)
{
    char room[16];
    struct str text;
    struct buf sub;

    switch (f->kind) {
    case MSG_I64:
        put_number(f, b, j);
        return;
    case MSG_BOOL:
        put_tag(b, f, 0);
        wr_varint(b, 1);
        json_bool(j, true);
        return;
    case MSG_DOUBLE:
        put_double(f, b, j);
        return;
    case MSG_ENUM:
        put_enum(f, b, j);
        return;
    case MSG_STR:
        text = random_text(room);
        put_block(b, f, text);
        json_str(j, text);
        return;
    case MSG_MSG:
        break;
    }
    buf_init(&sub, BYTES_MAX);
    put_message(f->desc, &sub, j);
    assert_true(buf_ok(&sub));
    /* One message may come in two pieces, the first of them empty. */
    if (!f->max && chance(3))
        put_block(b, f, STR(""));
    put_block(b, f, buf_str(&sub));
    buf_deinit(&sub);
}

static void put_message(const struct msg_desc *d, struct buf *b, struct json *j)
{
    json_obj(j);
    for (size_t i = 0; i < d->len; i++) {
        const struct msg_field *f = &d->fields[i];
        if (chance(3)) {
            if (chance(4)) { /* as good as absent */
                json_key(j, f->json);
                json_null(j);
            }
            continue;
        }
        put_unknown(b);
        json_key(j, f->proto && chance(2) ? f->proto : f->json);
        if (f->max) {
            json_arr(j);
            for (uint64_t n = prng_u64(&p) % 4; n > 0; n--)
                put_value(f, b, j);
            json_arr_end(j);
        } else {
            put_value(f, b, j);
        }
    }
    if (chance(4)) {
        json_key(j, "unknownToUs");
        json_arr(j);
        json_arr_end(j);
    }
    json_obj_end(j);
}

/* ---- comparing ---- */

static bool same(const struct msg_desc *d, const void *a, const void *b);

static bool same_value(const struct msg_field *f, const void *a, const void *b)
{
    switch (f->kind) {
    case MSG_I64:
    case MSG_ENUM:
        return *(const int64_t *)a == *(const int64_t *)b;
    case MSG_BOOL:
        return *(const bool *)a == *(const bool *)b;
    case MSG_DOUBLE:
        return memcmp(a, b, sizeof(double)) == 0;
    case MSG_STR:
        return str_eq(*(const struct str *)a, *(const struct str *)b);
    case MSG_MSG:
        break;
    }
    return same(f->desc, a, b);
}

static bool same_list(const struct msg_field *f, const struct msg_list *a, const struct msg_list *b)
{
    size_t size = f->kind == MSG_MSG ? f->desc->size : sizeof(struct str);

    for (size_t i = 0; a->len == b->len && i < a->len; i++)
        if (!same_value(f, (const char *)a->ptr + i * size, (const char *)b->ptr + i * size))
            return false;
    return a->len == b->len;
}

static bool same(const struct msg_desc *d, const void *a, const void *b)
{
    for (size_t i = 0; i < d->len; i++) {
        const struct msg_field *f = &d->fields[i];
        const void *x = (const char *)a + f->at, *y = (const char *)b + f->at;
        if (!f->max && f->kind == MSG_MSG) {
            const void *sub_x, *sub_y;
            memcpy(&sub_x, x, sizeof(sub_x));
            memcpy(&sub_y, y, sizeof(sub_y));
            if (!sub_x != !sub_y || (sub_x && !same(f->desc, sub_x, sub_y)))
                return false;
        } else if (f->max ? !same_list(f, x, y) : !same_value(f, x, y)) {
            return false;
        }
    }
    return true;
}

static void one_round(void)
{
    const struct msg_desc *d = descs[prng_u64(&p) % ARRAY_LEN(descs)];
    struct arena *a = arena_new(BYTES_MAX);
    struct json_doc *doc;
    struct buf proto, text;
    struct json j;
    struct err e;

    buf_init(&proto, BYTES_MAX);
    buf_init(&text, BYTES_MAX);
    json_init(&j, &text);
    put_message(d, &proto, &j);
    put_unknown(&proto);
    assert_true(buf_ok(&proto) && buf_ok(&text));
    void *from_proto = arena_calloc(a, 1, d->size), *from_json = arena_calloc(a, 1, d->size);
    assert_int_equal(json_parse(buf_str(&text), &doc, &e), 0);
    if (msg_in_proto(d, buf_str(&proto), a, from_proto, &e) ||
        msg_in_json(d, json_root(doc), a, from_json, &e))
        fail_msg("%s: %s\n%.*s", d->name, e.text, STR_ARG(buf_str(&text)));
    if (!same(d, from_proto, from_json))
        fail_msg("%s differs: %.*s", d->name, STR_ARG(buf_str(&text)));
    /* Cut anywhere: an error or another message, never more than its bytes. */
    char *copy = malloc(proto.len + 1);
    size_t cut = prng_u64(&p) % (proto.len + 1);
    memcpy(copy, proto.ptr ? proto.ptr : "", cut);
    int code = msg_in_proto(d, str_n(copy, cut), a, from_proto, &e);
    assert_true(code == 0 || code == ERR_INPUT || code == ERR_LIMIT);
    free(copy);
    json_doc_free(doc);
    buf_deinit(&proto);
    buf_deinit(&text);
    arena_free(a);
}

static void test_both_encodings_say_the_same(void **state)
{
    (void)state;
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 20261121;

    printf("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (int i = 0; i < ROUNDS; i++)
        one_round();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_encodings_say_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
