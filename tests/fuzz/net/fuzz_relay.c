/* SPDX-License-Identifier: Apache-2.0
 *
 * A call that another node wants passed on: any bytes; what is taken lies in them, and is again the
 * same when it is packed.
 */
#include "common/role/route/relay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_n(data, size);
    struct relay_call call, again;
    struct buf packed;
    struct err e;

    if (relay_unpack(in, &call, &e)) {
        CHECK(e.code == ERR_INPUT);
        return 0;
    }
    CHECK(call.payload.len + RELAY_HEAD <= size && call.method != RPC_RELAY);
    relay_pack(&call, &packed);
    CHECK(relay_unpack(buf_str(&packed), &again, &e) == 0);
    CHECK(again.method == call.method && again.shard == call.shard &&
          str_eq(again.payload, call.payload));
    buf_deinit(&packed);
    return 0;
}
