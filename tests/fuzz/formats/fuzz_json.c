/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON from outside: every value of an accepted text is taken as every type. Holds: no crash, no
 * leak, a value has at most one type that fits, keys of an object are distinct and found again.
 */
#include "common/base/vec.h"
#include "common/net/json_in.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct json_val *v)
{
    struct str s = STR_NULL;
    struct err e;
    int64_t i = 0;
    double f = 0;
    bool b = false;
    bool is_str = json_take_str(v, "x", &s, &e) == 0 && s.ptr;
    bool is_number = json_take_i64(v, "x", &i, &e) == 0 || json_take_double(v, "x", &f, &e) == 0;
    bool is_bool = json_take_bool(v, "x", &b, &e) == 0 && b;

    CHECK(!is_str || (!is_bool && str_utf8_valid(s)));
    CHECK(!(json_is_obj(v) || json_is_arr(v)) || (!is_bool && !is_str && !is_number));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    VEC(const struct json_val *) left = { 0 };
    struct json_doc *d = NULL;
    struct err e = { 0 };

    if (json_parse(str_n(data, size), &d, &e)) {
        CHECK(e.code == ERR_INPUT || e.code == ERR_LIMIT);
        CHECK(e.text[0] && !d);
        return 0;
    }
    vec_push(&left, json_root(d));
    while (left.len) {
        const struct json_val *v = left.ptr[--left.len], *one;
        struct str key;
        void *pos = NULL;

        look(v);
        for (size_t i = 0; i < json_len(v); i++)
            vec_push(&left, json_at(v, i));
        while (json_each(v, &pos, &key, &one)) {
            CHECK(key.ptr[key.len] == '\0' && strlen(key.ptr) == key.len);
            const struct json_val *again = json_get(v, key.ptr, NULL);
            CHECK(!again || again == one);
            vec_push(&left, one);
        }
    }
    vec_free(&left);
    json_doc_free(d);
    return 0;
}
