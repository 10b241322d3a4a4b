/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/base/options.h"

#define ST struct querier_conf

static const struct conf_row rows[] = {
    CONF_STR(ST, listen, "listen", "",
             "Rpc address that ingesters answer to; empty: a free port on the address they see."),
    CONF_DURATION(ST, timeout_ms, "timeout", "60s", "100ms", "1h",
                  "A query ends with 504 after this time; a client may ask for less."),
    CONF_U64(ST, queries_max, "queries_max", "256", "1", "100000",
             "Queries worked on at once; more wait for their turn."),
    CONF_U64(ST, queue_max, "queue_max", "4096", "0", "1000000",
             "Queries waiting, of all tenants; one more is refused with 503."),
    CONF_U64(ST, tenant_queries, "tenant_queries", "64", "1", "100000",
             "Queries of one tenant worked on at once; more wait, while others have their turns."),
    CONF_U64(ST, tenant_queue, "tenant_queue", "256", "0", "1000000",
             "Queries of one tenant waiting; one more is refused with 429."),
    CONF_BYTES(
        ST, tenant_bytes_max, "tenant_bytes_max", "0", "0", NULL,
        "Memory of all queries of one tenant, over it 429; 0 is half of bytes_max where there "
        "are several tenants, else all of it."),
    CONF_LIST(ST, tenants, "tenants", "",
              "Other limits for some tenants: tenant=queries:8 queue:64 bytes:1GiB "
              "read_bytes:10GiB, for tenant_queries, tenant_queue, tenant_bytes_max and "
              "query_read_bytes_max."),
    CONF_STR(ST, overrides_file, "overrides_file", "",
             "YAML file of limits of tenants' queries, in force besides the options and read again "
             "when it changes; empty: none."),
    CONF_DURATION(ST, overrides_interval_ms, "overrides_interval", "10s", "100ms", "1d",
                  "How often overrides_file is looked at."),
    CONF_BYTES(ST, bytes_max, "bytes_max", "0", "0", NULL,
               "Memory of all queries together; 0 is 9 % of memory.limit, at least 32 MiB."),
    CONF_BYTES(ST, query_bytes_max, "query_bytes_max", "256MiB", "1MiB", NULL,
               "Memory of one query: answers of ingesters, the merged tree, the text."),
    CONF_BYTES(ST, query_read_bytes_max, "query_read_bytes_max", "0", "0", NULL,
               "A query that would read more stored bytes than this from one ingester is refused "
               "before it begins; 0: none is."),
    CONF_U64(ST, nodes_default, "nodes_default", "8192", "1", "1048576",
             "Nodes of a flame graph where the request does not say."),
    CONF_U64(ST, nodes_max, "nodes_max", "1048576", "1", "16777216",
             "Most nodes of a flame graph a request may ask for."),
    CONF_U64(ST, points_max, "points_max", "1000000", "1000", "100000000",
             "Most points in time between start and end; a larger step makes fewer."),
    CONF_U64(ST, labels_max, "labels_max", "100000", "1", "10000000",
             "Most label values, names or label sets in one answer; more are cut, and it says so."),
};

const struct conf_table querier_options = { "querier", "The querier", rows, ARRAY_LEN(rows),
                                            sizeof(ST) };
