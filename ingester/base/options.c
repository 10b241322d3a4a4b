/* SPDX-License-Identifier: Apache-2.0
 *
 * options: the option tables of the ingester: sections `ingester`, `exemplars`, `rollups`, `scrub`
 * and `retention`; ingester_tables adds those of other folders.
 *
 * A row gives name, default, bounds and help of one option; --help, the reference and the checks
 * are made from it (common/conf/conf.h). A value that depends on other options is checked in
 * check.c.
 */
#include "ingester/base/options.h"

#include "common/cold/conf.h"
#include "common/store/catalog/group.h"

#define ST struct ingester_conf

static const struct conf_row rows[] = {
    CONF_STR(ST, listen, "listen", "inproc://ingester", "Rpc address to serve under."),
    CONF_STR(ST, advertise, "advertise", "",
             "Own name in cluster.ingesters, if that is not the listen address."),
    CONF_U64(ST, writes_max, "writes_max", "4096", "1", "1000000",
             "Writes waiting for their fsync; one more is refused with 503."),
    CONF_U64(ST, tenants_max, "tenants_max", "10000", "0", "1000000",
             "Tenants that a shard ever takes; a push of a further one is refused with 429. Only "
             "with many tenants. 0: a million."),
    CONF_BYTES(ST, group_bytes_max, "group_bytes_max", "8MiB", "64KiB", "64MiB",
               "Writes that share an fsync hold at most about this much."),
    CONF_DURATION(
        ST, group_wait_ms, "group_wait", "2ms", "0ms", "5ms",
        "Concurrent writes wait up to this long to share an fsync. A single write never waits."),
    CONF_DURATION(ST, seal_delay_ms, "seal_delay", "90s", "0ms", "1h",
                  "A minute is sealed this long after its end; later data waits for a later seal."),
    CONF_DURATION(ST, build_delay_ms, "build_delay", "30s", "0ms", "1h",
                  "A node of 10 minutes or more is built this long after its last minute is due."),
    CONF_DURATION(ST, build_pace_ms, "build_pace", "5m", "0ms", "1d",
                  "Late data wait this long before their 10 minutes are built again; wider nodes "
                  "up to 12 times as long. Answers are exact meanwhile."),
    CONF_U64(ST, seal_rows, "seal_rows", "256", "1", "65536",
             "Raw rows sealed between two groups of writes."),
    CONF_DURATION(ST, wid_horizon_ms, "write_id_horizon", "4h", "1m", "7d",
                  "A retry is recognised for this long."),
    CONF_DURATION(ST, delete_guard_ms, "delete_guard", "1m", "0ms", "1h",
                  "What a delete took is refused with 503 for this long when it is pushed again, "
                  "since it may be a copy that was under way; then it is taken as new. Longer than "
                  "distributor.ack_timeout and the time clients wait for an answer."),
    CONF_U64(ST, reads_max, "reads_max", "1024", "1", "100000",
             "Queries running or waiting; one more is refused with 503."),
    CONF_U64(ST, reads_tenant_max, "reads_tenant_max", "512", "1", "100000",
             "Queries of one tenant waiting; one more is refused with 429."),
    CONF_U64(
        ST, dict_service_nodes, "dictionary_nodes_per_day", "500000", "0", "1000000000",
        "New stack nodes a service may bring in a day, long names counting as several; further "
        "stacks keep their known frames and end in [overflow]. 0: no cap."),
    CONF_U64(ST, dict_tenant_nodes, "dictionary_tenant_nodes_per_day", "5000000", "0", "1000000000",
             "The same for all services of a tenant in one shard; the last quarter is kept for "
             "services that bring less than a hundredth of it."),
    CONF_BYTES(ST, answer_bytes_max, "answer_bytes_max", "0", "0", "1GiB",
               "Largest answer to one query; 0 is a quarter of the queries' share of memory."),
    CONF_DURATION(ST, build_timeout_ms, "build_timeout", "30s", "100ms", "1h",
                  "A compactor's job is given to another one after this."),
    CONF_DURATION(ST, disk_timeout_ms, "disk_timeout", "5s", "0ms", "10m",
                  "A disk that finishes nothing for this long hangs: the ingester is not ready, "
                  "refuses writes with 503 and hands its shards to members that are up to date. A "
                  "slow disk that works is not meant. 0: never."),
};

const struct conf_table ingester_options = { "ingester", "The ingester", rows, ARRAY_LEN(rows),
                                             sizeof(ST) };

#undef ST
#define ST struct exemplar_conf

static const struct conf_row exemplar_rows[] = {
    CONF_DURATION(ST, retention_ms, "retention", "24h", "0ms", "30d",
                  "Exemplars (samples by span, trace or profile id) are kept this long; 0: none "
                  "are. Their samples stay in the profiles."),
    CONF_U64(ST, rows_per_minute, "rows_per_minute", "256", "1", "1000000",
             "Exemplars stored per minute of one series and profile type; more are left out."),
    CONF_BYTES(ST, bytes_per_minute, "bytes_per_minute", "4MiB", "4KiB", "4GiB",
               "Bytes of exemplars stored per minute of one tenant, before compression; more are "
               "left out."),
    CONF_U64(ST, list_max, "list_max", "100000", "1", "1000000",
             "Exemplars in one answer; of more the largest are shown."),
};

const struct conf_table exemplar_options = { "exemplars", "Spans, traces, single profiles",
                                             exemplar_rows, ARRAY_LEN(exemplar_rows), sizeof(ST) };

#undef ST
#define ST struct rollup_conf

static const struct conf_row rollup_rows[] = {
    CONF_LIST(ST, drop, "drop", GROUP_DROP,
              "Labels that tell instances of a service apart: series that differ in nothing else "
              "are also stored summed up. A name with * at its end means all that begin so."),
    CONF_LIST(ST, tenants, "tenants", "",
              "Other labels for some tenants: tenant=label label ..., in place of drop."),
};

const struct conf_table rollup_options = { "rollups", "Sums over the instances of a service",
                                           rollup_rows, ARRAY_LEN(rollup_rows), sizeof(ST) };

#undef ST
#define ST struct scrub_conf

static const struct conf_row scrub_rows[] = {
    CONF_U64(ST, rate, "rate", "2000", "0", "10000000",
             "Stored rows verified per second, in the background; 0: none."),
    CONF_DURATION(ST, delay_ms, "delay", "1m", "0ms", "1d",
                  "The first round begins this long after the start."),
    CONF_DURATION(ST, interval_ms, "interval", "1d", "0ms", "365d",
                  "The next round begins this long after the end of the one before."),
    CONF_U64(ST, sample, "sample", "16", "0", "1000000",
             "One in so many nodes is compared entry by entry, the others by total, writes and "
             "fingerprint; 0: none is."),
    CONF_BOOL(ST, cold, "cold", "false",
              "Rows in the cold tier are read and verified, too; a bucket may charge for that."),
    CONF_U64(ST, audit_rate, "audit_rate", "20000", "0", "10000000",
             "Heads of rows compared per second with the ledger of what came in; 0: none."),
    CONF_DURATION(ST, audit_delay_ms, "audit_delay", "30s", "0ms", "1d",
                  "The first audit begins this long after the start."),
    CONF_DURATION(ST, audit_interval_ms, "audit_interval", "10m", "100ms", "365d",
                  "The next audit begins this long after the end of the one before."),
};

const struct conf_table scrub_options = { "scrub", "Verifying what is stored", scrub_rows,
                                          ARRAY_LEN(scrub_rows), sizeof(ST) };

#undef ST
#define ST struct retention_conf
#define KEEP(level, name, days, what)                             \
    CONF_DURATION(ST, keep_ms[level], name, days, "1m", "73000d", \
                  "Nodes of " what " are kept this long; at least as long as finer ones.")

static const struct conf_row retention_rows[] = {
    KEEP(0, "10s", "7d", "10 seconds"),
    KEEP(1, "1m", "30d", "a minute, which only services as a whole have,"),
    KEEP(2, "10m", "90d", "10 minutes"),
    KEEP(3, "1h", "400d", "an hour"),
    KEEP(4, "6h", "400d", "6 hours"),
    KEEP(5, "1d", "400d", "a day"),
    KEEP(6, "8d", "400d", "8 days"),
    KEEP(7, "64d", "400d", "64 days"),
    CONF_STR(ST, overrides, "overrides", "",
             "File of rules for tenants, services and profile types, one a line: "
             "tenant=a service=shop-* type=memory:* 10s=2d 1m=14d; read again every interval."),
    CONF_DURATION(ST, interval_ms, "interval", "10m", "1s", "1d",
                  "What is too old is looked for this often."),
};

const struct conf_table retention_options = { "retention", "How long which resolution is kept",
                                              retention_rows, ARRAY_LEN(retention_rows),
                                              sizeof(ST) };

const struct conf_table *const ingester_tables[INGESTER_TABLES] = {
    &ingester_options, &retention_options, &exemplar_options,
    &rollup_options,   &scrub_options,     &cold_options,
};
