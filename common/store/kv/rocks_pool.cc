/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_pool: a limit for the memtables of several databases; the C interface of RocksDB has only
 * one of its own for each.
 */
#include <rocksdb/c.h>
#include <rocksdb/write_buffer_manager.h>

#include "common/store/kv/kv_rocks_types.h"

struct rocks_buffers {
    std::shared_ptr<rocksdb::WriteBufferManager> rep;
};

extern "C" rocks_buffers *rocks_buffers_new(size_t bytes)
{
    return new rocks_buffers{ std::make_shared<rocksdb::WriteBufferManager>(bytes) };
}

extern "C" void rocks_buffers_free(rocks_buffers *b)
{
    delete b;
}

extern "C" void rocks_buffers_use(const rocks_buffers *b, rocksdb_options_t *o)
{
    o->rep.write_buffer_manager = b->rep; /* takes a share of it */
}

extern "C" size_t rocks_buffers_all(const rocks_buffers *b)
{
    return b->rep->memory_usage();
}

extern "C" size_t rocks_buffers_active(const rocks_buffers *b)
{
    return b->rep->mutable_memtable_memory_usage();
}

extern "C" void rocks_flush_at_once(rocksdb_flushoptions_t *o)
{
    o->rep.wait = false;
    o->rep.allow_write_stall = true; /* else it waits where writers would have to */
}
