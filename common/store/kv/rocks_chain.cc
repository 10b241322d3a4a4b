/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_chain: reads the values of one row in the records of write-ahead logs, while RocksDB opens
 * a database to read it. It sees each record, and has it passed over: nothing of the logs
 * comes into memory. Values begin with a number, u64be; a deletion counts as KV_CHAIN_ANY.
 *
 * Thread: that which opens the database.
 */
#include <rocksdb/c.h>
#include <rocksdb/wal_filter.h>
#include <rocksdb/write_batch.h>

#include <string>
#include <vector>

#include "common/store/kv/kv_rocks_types.h"

namespace rdb = ROCKSDB_NAMESPACE;
using rdb::Slice;
using rdb::Status;

namespace {
struct found {
    uint64_t log, number;
};

class rows : public rdb::WriteBatch::Handler {
  public:
    rows(std::vector<found> *o, uint32_t f, const std::string &k, uint64_t l)
        : out(o), family(f), key(k), log(l)
    {
    }
    Status PutCF(uint32_t cf, const Slice &k, const Slice &value) override
    {
        if (cf == family && k == key && value.size() >= 8) {
            uint64_t n = 0;
            for (size_t i = 0; i < 8; i++)
                n = n << 8 | static_cast<unsigned char>(value[i]);
            out->push_back({ log, n });
        }
        return Status::OK();
    }
    Status DeleteCF(uint32_t cf, const Slice &k) override
    {
        if (cf == family && k == key)
            out->push_back({ log, UINT64_MAX });
        return Status::OK();
    }
    Status SingleDeleteCF(uint32_t, const Slice &) override
    {
        return Status::OK();
    }
    Status DeleteRangeCF(uint32_t, const Slice &, const Slice &) override
    {
        return Status::OK();
    }
    Status MergeCF(uint32_t, const Slice &, const Slice &) override
    {
        return Status::OK();
    }
    void LogData(const Slice &) override
    {
    }

  private:
    std::vector<found> *out;
    uint32_t family;
    const std::string &key;
    uint64_t log;
};
} // namespace

struct rocks_chain : public rdb::WalFilter {
    std::string name, key;
    uint32_t family = UINT32_MAX;
    uint64_t needs = 0; /* the first log whose rows the family does not have in tables */
    std::vector<found> all;

    void ColumnFamilyLogNumberMap(const std::map<uint32_t, uint64_t> &logs,
                                  const std::map<std::string, uint32_t> &names) override
    {
        auto it = names.find(name);

        if (it == names.end())
            return;
        family = it->second;
        needs = logs.at(family);
    }
    WalProcessingOption LogRecordFound(unsigned long long log, const std::string &,
                                       const rdb::WriteBatch &batch, rdb::WriteBatch *,
                                       bool *) override
    {
        rows r(&all, family, key, log);

        return batch.Iterate(&r).ok() ? WalProcessingOption::kIgnoreCurrentRecord
                                      : WalProcessingOption::kCorruptedRecord;
    }
    const char *Name() const override
    {
        return "embertree.chain";
    }
};

extern "C" {
rocks_chain *rocks_chain_new(const char *family, const char *key, size_t len)
{
    auto *c = new rocks_chain;

    c->name = family;
    c->key.assign(key, len);
    return c;
}

void rocks_chain_free(rocks_chain *c)
{
    delete c;
}

void rocks_chain_use(rocks_chain *c, rocksdb_options_t *o)
{
    o->rep.wal_filter = c;
}

size_t rocks_chain_len(const rocks_chain *c)
{
    return c->all.size();
}

uint64_t rocks_chain_at(const rocks_chain *c, size_t i)
{
    return c->all[i].number;
}

bool rocks_chain_behind(const rocks_chain *c, size_t i)
{
    return c->all[i].log >= c->needs;
}
}
