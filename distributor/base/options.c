/* SPDX-License-Identifier: Apache-2.0
 *
 * One row per option: key, default, bounds, help. limits_default reads the defaults from here, so
 * that tests, fuzz targets and benchmarks run with what a server runs with.
 */
#include "distributor/base/options.h"

#define ST   struct distributor_conf
#define L(f) limits.f

static const struct conf_row rows[] = {
    CONF_STR(ST, listen, "listen", "",
             "Rpc address that ingesters answer to; empty: one is picked."),
    CONF_BYTES(ST, L(inflated_bytes), "inflated_bytes", "64MiB", "1KiB", "4GiB",
               "Most bytes a gzip'd profile may inflate to."),
    CONF_U64(ST, L(inflated_ratio), "inflated_ratio", "200", "2", "1100",
             "Most bytes out per byte of gzip in, once over 1 MiB came out."),
    CONF_BYTES(ST, L(decode_bytes), "decode_bytes", "256MiB", "1MiB", "4GiB",
               "Most memory one push may take while it is decoded."),
    CONF_U64(ST, L(samples), "samples", "1000000", "1", "100000000",
             "Most samples, or lines of text, in one push."),
    CONF_U64(
        ST, L(stacks), "stacks", "65536", "1", "100000000",
        "Stacks of one push that differ; further ones keep the frames they share with those and "
        "end in [overflow]."),
    CONF_U64(ST, L(frames_keep), "frames_keep", "1024", "16", "65536",
             "Deeper stacks lose their middle to one mark."),
    CONF_U64(ST, L(frames), "frames", "8192", "16", "1048576",
             "A profile with a deeper stack is refused; inlined frames count."),
    CONF_U64(ST, L(text_frames), "text_frames", "65536", "16", "1048576",
             "The same for stacks of text formats."),
    CONF_U64(ST, L(lines_per_location), "lines_per_location", "256", "1", "65536",
             "Most functions inlined at one location."),
    CONF_U64(ST, L(labels_per_sample), "labels_per_sample", "100", "1", "65536",
             "Most labels of one sample, numeric ones included."),
    CONF_BYTES(ST, L(symbol_keep_bytes), "symbol_keep_bytes", "64KiB", "64", "1MiB",
               "Of a longer symbol the last bytes are kept."),
    CONF_BYTES(ST, L(symbol_bytes), "symbol_bytes", "1MiB", "64", "64MiB",
               "A profile with a longer symbol is refused."),
    CONF_U64(ST, L(series), "series", "1000", "1", "100000",
             "Most series of one push; label sets beyond share one with [overflow]."),
    CONF_U64(ST, request_profiles, "request_profiles", "1000", "1", "100000",
             "Most profiles in one request of Push, OTLP or Parca; more are refused as a whole."),
    CONF_U64(ST, L(label_names), "label_names", "30", "2", "1000", "Most labels of one series."),
    CONF_BYTES(ST, L(label_name_bytes), "label_name_bytes", "1024", "16", "64KiB",
               "Longest name of a label."),
    CONF_BYTES(ST, L(label_value_bytes), "label_value_bytes", "2048", "16", "64KiB",
               "Longest value of a label."),
    CONF_U64(ST, L(exemplars), "exemplars", "10000", "0", "1000000",
             "Most exemplars (span or trace id, by type) of one push; of more only their samples "
             "are kept."),
    CONF_U64(ST, L(leaves), "leaves", "360", "1", "10000",
             "A push over a long time is spread over so many points at most."),
    CONF_DURATION(ST, past_ms, "past", "400d", "1m", "100y",
                  "Older pushes are refused; the retention of the coarsest level."),
    CONF_DURATION(ST, future_ms, "future", "10m", "0", "1d", "Later pushes are refused."),
    CONF_DURATION(ST, ack_ms, "ack_timeout", "10s", "100ms", "5m",
                  "A push that no ingester has stored by then is refused with 503."),
    CONF_DURATION(ST, attempt_ms, "attempt_timeout", "3s", "100ms", "5m",
                  "One attempt to reach an ingester; it is repeated until ack_timeout."),
    CONF_DURATION(ST, ledger_epoch_ms, "ledger_epoch", "1m", "0ms", "10m",
                  "What was acked in so much time is asked for later: is it there? 0: not."),
    CONF_BYTES(ST, in_flight_bytes, "in_flight_bytes", "0", NULL, NULL,
               "Memory of all pushes in work; over it 503. 0: 11 % of the memory limit."),
    CONF_BOOL(
        ST, known_stacks, "known_stacks", "true",
        "Remember stacks by service, and send ingesters their numbers instead of the stacks."),
    CONF_BYTES(ST, symbol_session_bytes, "known_bytes", "0", NULL, NULL,
               "Memory of what is remembered of services. 0: 2 % of the memory limit."),
    CONF_U64(ST, tenant_requests, "tenant_requests", "256", "1", "1000000",
             "Pushes of one tenant in work at once; over it 429. Only with many tenants."),
    CONF_BYTES(ST, tenant_rate_bytes, "tenant_rate_bytes", "0", NULL, NULL,
               "Bytes of bodies per second and tenant; over it 429. 0: no limit, or with many "
               "tenants that of tenant_limits."),
    CONF_BOOL(ST, tenant_limits, "tenant_limits", "true",
              "With many tenants, one for which nothing else is set may send 16 MB a second and "
              "have 100000 active series and 5000 active services. overrides_file sets others for "
              "all (defaults) or one tenant; false: no such limits."),
    CONF_U64(ST, limits_of, "limits_of", "0", "0", "10000",
             "Distributors among which each tenant's pushes are spread evenly: each allows the "
             "rate and the ingest_limits of a tenant divided by this. 0: as many as live, which "
             "they know by etcd; 1 without etcd."),
    CONF_DURATION(ST, stored_interval_ms, "stored_interval", "1m", "100ms", "1d",
                  "Ingesters are asked this often what each tenant has stored, where an "
                  "overrides_file limits that (max_stored_bytes_per_tenant); less often where the "
                  "answers take long."),
    CONF_BYTES(ST, tenant_burst_bytes, "tenant_burst_bytes", "64MiB", "1KiB", NULL,
               "What a tenant may send at once after a pause."),
    CONF_ENUM(
        ST, otlp_layout, "otlp_layout", "auto", "auto|1.5|1.7|1.8|1.9|1.10",
        "Revision of the profiles schema that OTLP senders speak; auto: told from each body."),
    CONF_STR(ST, parca_drop_labels, "parca_drop_labels", "cpu,thread_id",
             "Labels of Parca's samples that name no series, separated by commas."),
    CONF_BYTES(
        ST, parca_last_bytes, "parca_last_bytes", "64MiB", "0", NULL,
        "Memory of the last profile of each series that Parca's scraper sends, from which the "
        "next is subtracted where it counts since the start of its process. 0: such counters "
        "are stored as they come."),
    CONF_BYTES(ST, debuginfo_file_bytes, "debuginfo_file_bytes", "1GiB", "1KiB", NULL,
               "Most bytes of one uploaded file of debug info."),
    CONF_BYTES(ST, debuginfo_tenant_bytes, "debuginfo_tenant_bytes", "8GiB", "1KiB", NULL,
               "Debug info kept of one tenant; over it what was not used for longest goes."),
    CONF_BYTES(ST, debuginfo_bytes, "debuginfo_bytes", "32GiB", "0", NULL,
               "Debug info kept of all tenants. 0: none is taken."),
    CONF_DURATION(ST, debuginfo_stale_ms, "debuginfo_stale", "17m", "1s", "1d",
                  "An unfinished upload of debug info may be restarted after this time."),
    CONF_U64(ST, adhoc_max, "adhoc_max", "200", "0", "1000",
             "Uploaded profiles kept of one tenant; over it no more are taken."),
    CONF_BYTES(
        ST, adhoc_bytes_max, "adhoc_bytes_max", "256MiB", "0", NULL,
        "Bytes of uploaded profiles kept of one tenant, as stored; over it no more are taken."),
    CONF_STR(
        ST, overrides_file, "overrides_file", "",
        "YAML file of limits and rules by tenant (overrides.yaml is an example); empty: none."),
    CONF_DURATION(ST, overrides_interval_ms, "overrides_interval", "10s", "100ms", "1d",
                  "How often that file is looked at for changes."),
    CONF_STR(ST, forward_config_file, "forward_config_file", "",
             "YAML file of the servers that pushes are forwarded to; read again when it changes."),
    CONF_STR(ST, scrape_config_file, "scrape_config_file", "",
             "File of scrape_configs: what is fetched from programs that serve profiles; empty: "
             "nothing. It is read again when it changes."),
    CONF_DURATION(ST, scrape_refresh_ms, "scrape_refresh", "5s", "100ms", "1h",
                  "How often that file and those of file_sd_configs are looked at."),
    CONF_U64(ST, scrape_running, "scrape_running", "1000", "1", "100000",
             "Most fetches at once; more wait for a place."),
    CONF_U64(ST, scrape_targets, "scrape_targets", "20000", "1", "1000000",
             "Most profiles of targets that are fetched; of more the rest is left out."),
    CONF_BYTES(ST, scrape_bytes, "scrape_bytes", "64MiB", "1MiB", NULL,
               "Memory of profiles being fetched, and of the last ones that count since the start "
               "of their process, from which the next are subtracted."),
    CONF_U64(ST, scrape_of, "scrape_of", "1", "1", "10000",
             "Distributors that share the targets of one scrape_config_file."),
    CONF_U64(ST, scrape_index, "scrape_index", "0", "0", "9999",
             "Which of them this one is, from 0: it fetches targets whose hash mod scrape_of is "
             "that."),
    CONF_STR(ST, tokens_file, "tokens_file", "",
             "YAML file of tenants by bearer token or user, for senders without X-Scope-OrgID."),
    CONF_STR(ST, write_id_secret, "write_id_secret", "",
             "Secret of the write ids, equal on all distributors; empty: a file in data.dir."),
    CONF_STR(ST, write_id_secret_file, "write_id_secret_file", "",
             "File with that secret, which other users cannot read; instead of write_id_secret, "
             "which the list of processes shows. Read at the start."),
};

const struct conf_table distributor_table = {
    .section = "distributor",
    .title = "What one push may cost, and how it reaches the ingesters",
    .rows = rows,
    .rows_len = ARRAY_LEN(rows),
    .size = sizeof(struct distributor_conf),
};
const struct conf_table *const distributor_tables[DISTRIBUTOR_TABLES] = { &distributor_table };

struct limits limits_default(void)
{
    struct distributor_conf c = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str def = str_c(rows[i].def);
        uint64_t v = 0;
        if (rows[i].type == CONF_T_BYTES)
            CHECK(str_bytes(def, &v));
        else if (rows[i].type == CONF_T_U64)
            CHECK(str_u64(def, &v));
        else
            continue;
        memcpy((char *)&c + rows[i].offset, &v, sizeof(v));
    }
    return c.limits;
}
