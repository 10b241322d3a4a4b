/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_quiet: a logger for RocksDB that says nothing; the C interface can set one, but has none.
 *
 * RocksDB's own writes a file LOG into the database. Once a line of it fails on a full disk, the
 * next one fails an assertion of builds that have them, and opening writes a thousand lines: a
 * shard that is opened on a full disk, or whose disk fills up meanwhile, took the process along.
 * Nothing is lost: what matters comes back as errors.
 */
#include <rocksdb/c.h>

#include "common/store/kv/kv_rocks_types.h"

namespace {
class quiet : public rocksdb::Logger {
  public:
    quiet() : rocksdb::Logger(rocksdb::InfoLogLevel::FATAL_LEVEL)
    {
    }
    using rocksdb::Logger::Logv;
    void Logv(const char *, va_list) override
    {
    }
};
} // namespace

extern "C" void rocks_quiet(rocksdb_options_t *o)
{
    rocksdb_logger_t logger{ std::make_shared<quiet>() };

    rocksdb_options_set_info_log(o, &logger); /* takes a share of it */
}
