/* SPDX-License-Identifier: Apache-2.0
 *
 * What etcd's gateway answers: any bytes; what is taken has keys within bounds.
 */
#include <stdlib.h>

#include "common/cluster/coord/etcd_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(32 * MIB);
    struct etcd_answer answer;
    struct err e;

    if (etcd_parse(str_n(data, size), a, &answer, &e)) {
        CHECK(e.code == ERR_INPUT || e.code == ERR_LIMIT);
    } else {
        CHECK(!answer.error.len || answer.kvs_len == 0);
        for (size_t i = 0; i < answer.kvs_len; i++)
            CHECK(answer.kvs[i].key.len <= COORD_KEY_MAX && answer.kvs[i].key.ptr &&
                  answer.kvs[i].value.ptr && answer.kvs[i].value.len <= size);
    }
    arena_free(a);
    return 0;
}
