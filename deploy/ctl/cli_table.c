/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_table: all options and all commands; parsing, help, the man page and completion read them.
 */
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/ctl.h"

#define AT(field) offsetof(struct cli_opts, field)
#define DAY_MS    UINT64_C(86400000)

static const struct cli_option ctl_options[] = {
    /* everywhere */
    { "server", 's', CLI_TEXT, AT(server), "URL", NULL,
      "Where the server is, or unix:PATH for its socket on this machine (http.admin_socket); "
      "default: EMBERTREE_URL, else http://127.0.0.1:4040",
      0, true },
    { "tenant", 0, CLI_TEXT, AT(tenant), "NAME", NULL,
      "Whose profiles (X-Scope-OrgID); a|b reads both; default: EMBERTREE_TENANT", 0, true },
    { "token", 0, CLI_TEXT, AT(token), "TEXT", NULL,
      "Bearer token; default: EMBERTREE_TOKEN, which other users of the machine do not see", 0,
      true },
    { "token-file", 0, CLI_TEXT, AT(token_file), "FILE", "@files",
      "A file with the token, its first line that is no remark; default: EMBERTREE_TOKEN_FILE", 0,
      true },
    { "tls-ca", 0, CLI_TEXT, AT(tls_ca), "FILE", "@files",
      "Certificates to trust (PEM) instead of the system's", 0, true },
    { "tls-cert", 0, CLI_TEXT, AT(tls_cert), "FILE", "@files", "Our certificate (PEM)", 0, true },
    { "tls-key", 0, CLI_TEXT, AT(tls_key), "FILE", "@files", "Its key (PEM)", 0, true },
    { "insecure", 0, CLI_FLAG, AT(insecure), NULL, NULL,
      "Take any certificate of the server: others on the network can read and change all data", 0,
      true },
    { "timeout", 0, CLI_DURATION, AT(timeout_ms), "TIME", NULL,
      "How long an answer may take; default: 60s", DAY_MS, true },
    { "json", 0, CLI_FLAG, AT(json), NULL, NULL, "JSON for programs", 0, true },
    { "color", 0, CLI_TEXT, AT(color), "WHEN", "auto always never",
      "Colours: on a terminal (auto, unless NO_COLOR is set), always or never", 0, true },
    { "width", 0, CLI_NUMBER, AT(width), "COLUMNS", NULL,
      "Columns of a line; default: those of the terminal", TERM_WIDTH_MAX, true },
    { "quiet", 0, CLI_FLAG, AT(quiet), NULL, NULL, "No progress, no remarks", 0, true },
    /* what a question is about */
    { "type", 't', CLI_TEXT, AT(type), "TYPE", "@types",
      "Profile type: a short name such as cpu, alloc_space, inuse_space, goroutine, or "
      "name:sample, or a whole id; default: cpu",
      0, false },
    { "query", 'q', CLI_TEXT, AT(query), "SELECTOR", NULL,
      "Labels to match: 'pod=~\"web-.*\",region=\"eu\"', with or without braces; a whole "
      "type{...} too",
      0, false },
    { "service", 0, CLI_TEXT, AT(service), "NAME", "@services", "The service", 0, false },
    { "from", 0, CLI_TEXT, AT(from), "TIME", NULL,
      "Begin: now-1h, now-7d, 20260131, seconds or milliseconds since 1970; default: an hour "
      "before the end",
      0, false },
    { "until", 0, CLI_TEXT, AT(until), "TIME", NULL,
      "End; default: now. key make: when the key ends; default: never", 0, false },
    { "allow-partial", 0, CLI_FLAG, AT(partial), NULL, NULL,
      "Take an answer that lacks ingesters, say so, and exit with 1", 0, false },
    /* how much, in which order and form */
    { "limit", 'n', CLI_NUMBER, AT(limit), "N", NULL, "So many lines or functions at most", 1000000,
      false },
    { "sort", 0, CLI_TEXT, AT(sort), "BY", "self total",
      "Cost of a function itself (self, the default), or with all it calls (total)", 0, false },
    { "depth", 0, CLI_NUMBER, AT(depth), "N", NULL, "So many levels of the tree", 100000, false },
    { "min-percent", 0, CLI_PERCENT, AT(min_percent), "PERCENT", NULL,
      "Leave out what costs less of the whole; default: 0.5", 0, false },
    { "max-nodes", 0, CLI_NUMBER, AT(max_nodes), "N", NULL,
      "Nodes the server sends; smaller ones are `other`; default: the server's", 1048576, false },
    { "format", 'f', CLI_TEXT, AT(format), "FORMAT", "@formats", "Of the file: see there", 0,
      false },
    { "output", 'o', CLI_TEXT, AT(output), "FILE", "@files",
      "Write here instead of to standard output", 0, false },
    { "by", 0, CLI_TEXT, AT(by), "LABELS", NULL, "By these labels, commas between", 0, false },
    { "function", 0, CLI_TEXT, AT(function), "NAME", NULL, "One function instead of everything", 0,
      false },
    { "per-service", 0, CLI_FLAG, AT(per_service), NULL, NULL,
      "Functions of each service by themselves", 0, false },
    { "names", 0, CLI_FLAG, AT(names), NULL, NULL, "Names only, one a line", 0, false },
    /* diff */
    { "base", 0, CLI_TEXT, AT(base), "SERVICE", "@services", "The service of the base", 0, false },
    { "base-query", 0, CLI_TEXT, AT(base_query), "SELECTOR", NULL, "Labels of the base", 0, false },
    { "base-from", 0, CLI_TEXT, AT(base_from), "TIME", NULL, "Begin of the base", 0, false },
    { "base-until", 0, CLI_TEXT, AT(base_until), "TIME", NULL,
      "End of the base; default: as long as the new range", 0, false },
    { "mode", 0, CLI_TEXT, AT(mode), "MODE", "second absolute relative instance second-instance",
      "What is compared: cost per second of each range (default), as it is, in percent of its "
      "side, per instance, or per second and instance",
      0, false },
    { "fail-over", 0, CLI_PERCENT, AT(fail_over), "PERCENT", NULL,
      "Exit with 1 if a function, or everything, grew by more than this, in percent of all the "
      "base cost",
      0, false },
    /* tail */
    { "interval", 0, CLI_DURATION, AT(interval_ms), "TIME", NULL, "Between lines; default: 10s",
      DAY_MS, false },
    { "window", 0, CLI_DURATION, AT(window_ms), "TIME", NULL,
      "What a line is of; default: the interval", 31 * DAY_MS, false },
    { "count", 'c', CLI_NUMBER, AT(count), "N", NULL, "End after so many lines", 0, false },
    /* delete */
    { "all", 0, CLI_FLAG, AT(all), NULL, NULL, "Everything of the tenant", 0, false },
    { "dry-run", 0, CLI_FLAG, AT(dry_run), NULL, NULL, "Say what would go, delete nothing", 0,
      false },
    { "yes", 'y', CLI_FLAG, AT(yes), NULL, NULL, "Do not ask", 0, false },
    { "id", 0, CLI_TEXT, AT(id), "ID", NULL,
      "The same delete under the same id has no second effect", 0, false },
    /* ledger */
    { "reason", 0, CLI_TEXT, AT(reason), "TEXT", NULL, "Why; is kept with it", 0, false },
    { "who", 0, CLI_TEXT, AT(who), "NAME", NULL, "Who accepts it; default: the user's name", 0,
      false },
    { "shard", 0, CLI_TEXT, AT(shard), "N", NULL, "Of this shard alone", 0, false },
    /* cluster */
    { "wait", 0, CLI_FLAG, AT(wait), NULL, NULL, "Until it is done", 0, false },
    { "apply", 0, CLI_FLAG, AT(apply), NULL, NULL, "Do it; else it is only said", 0, false },
    { "without", 0, CLI_TEXT, AT(without), "NODES", NULL,
      "cluster recover: these nodes are gone and cannot be asked, commas between", 0, false },
    /* keys */
    { "for", 0, CLI_TEXT, AT(for_tenants), "TENANTS", NULL,
      "key: whose profiles the key is for, commas between, or '*' for all; default: anonymous, the "
      "tenant of a server without tenants",
      0, false },
    { "roles", 0, CLI_TEXT, AT(roles), "ROLES", NULL,
      "key make: what it may do, commas between: push, read, delete, tenant-admin, server-admin, "
      "gateway, scrape",
      0, false },
    { "match", 0, CLI_TEXT, AT(match), "SELECTOR", NULL,
      "key make: it reads and deletes only what matches: 'team=\"a\"'", 0, false },
    { "set", 0, CLI_TEXT, AT(set), "LABELS", NULL,
      "key make: the server sets these labels on all it pushes: team=a,env=prod", 0, false },
    { "edit", 0, CLI_FLAG, AT(edit), NULL, NULL,
      "key make: a reader may also change notes, settings and uploads", 0, false },
    { "owner", 0, CLI_TEXT, AT(owner), "NAME", NULL,
      "key make: a person or team that is asked about it", 0, false },
    { "valid-for", 0, CLI_TEXT, AT(valid_for), "TIME", NULL,
      "key make, rotate: how long it is good, such as 90d; default: until it is revoked", 0,
      false },
    { "nets", 0, CLI_TEXT, AT(nets), "NETWORKS", NULL,
      "key make: from where it is good, commas between: 10.0.0.0/8,::1", 0, false },
    { "overlap", 0, CLI_TEXT, AT(overlap), "TIME", NULL,
      "key rotate: how long the old key stays good; default: 7d", 0, false },
    { "offline", 0, CLI_FLAG, AT(offline), NULL, NULL,
      "key make: ask no server, and print the entry of identity.file", 0, false },
    /* files */
    { "name", 0, CLI_TEXT, AT(name), "NAME", NULL,
      "upload: what the list shows, else the file's name. import: service and labels, "
      "APP{label=value}; needed",
      0, false },
    { "step", 0, CLI_TEXT, AT(step), "TIME", NULL,
      "timeline: between points; default: a sixtieth. import: one file every step from --from on, "
      "and what a file covers; default: 10s",
      0, false },
    { "level", 0, CLI_TEXT, AT(level), "LEVEL", "@levels",
      "No finer than this: 10s 1m 10m 1h 6h 1d 8d 64d", 0, false },
    { "state", 0, CLI_TEXT, AT(state), "FILE", "@files",
      "Remembers what was imported; give it again to continue", 0, false },
    { "retries", 0, CLI_NUMBER, AT(retries), "N", NULL,
      "Of a body the server has no room for; default: 20", 1000000, false },
};

#define WHAT "type query service from until allow-partial"

static const struct cli_command top_cli = {
    .name = "top",
    .args = "[SERVICE]",
    .help = "The most costly functions.",
    .more =
        "SELF is what a function costs itself, TOTAL what it costs with all it calls; a function "
        "that calls itself counts once. Both are exact, whatever the range.\n"
        "--json: {\"query\",\"profileType\",\"unit\",\"fromMs\",\"untilMs\",\"total\","
        "\"partial\",\"functions\":[{\"name\",\"self\",\"total\"}]}",
    .options = WHAT " limit sort",
    .words = "@services",
    .args_max = 1,
    .run = ctl_top,
};
static const struct cli_command tree_cli = {
    .name = "tree",
    .args = "[SERVICE]",
    .help = "The call tree, largest first.",
    .more = "A function that is the only one its caller calls stands below it, not beside it. "
            "\"(3 more)\" are callees below --min-percent, or deeper than --depth.\n"
            "--json: as top has it, with \"nodes\":[{\"name\",\"depth\",\"self\",\"total\"}] "
            "instead of functions, each behind its caller.",
    .options = WHAT " limit depth min-percent max-nodes",
    .words = "@services",
    .args_max = 1,
    .run = ctl_tree,
};
static const struct cli_command query_cli = {
    .name = "query",
    .args = "[SERVICE]",
    .help = "Profiles of a range as a file.",
    .more =
        "Formats: folded (default), json (flame graph as /pyroscope/render has it), pprof, pgo "
        "(pprof with what a Go compiler wants: query my-service -f pgo -o default.pgo), html, svg, "
        "dot, tree (binary).",
    .options = WHAT " format output max-nodes",
    .words = "@services",
    .args_max = 1,
    .run = ctl_query,
};
static const struct cli_command diff_cli = {
    .name = "diff",
    .args = "[SERVICE]",
    .help = "What changed, by function; a gate for CI.",
    .more =
        "The new side is what the usual options say. The base is the same question with what the "
        "--base options say otherwise; without any, of the time just before. CHANGE is in percent "
        "of the function's own base, OF BASE in percent of all the base cost.\n"
        "--json: {\"mode\", \"by\", \"base\":{.., \"total\", \"value\"}, \"new\":{..}, "
        "\"growthPercent\", \"worst\", \"worstPercent\", \"failed\", \"partial\", \"functions\":["
        "{\"name\", \"baseSelf\", \"newSelf\", \"baseTotal\", \"newTotal\", \"base\", \"new\", "
        "\"delta\", \"changePercent\", \"growthPercent\"}]}; a percentage of nothing is null.",
    .options = WHAT " base base-query base-from base-until mode sort limit fail-over",
    .words = "@services",
    .args_max = 1,
    .run = ctl_diff,
};
static const struct cli_command grew_cli = {
    .name = "grew",
    .args = "[SERVICE]",
    .help = "Which functions grew, in the whole fleet.",
    .more =
        "Against --base-from and --base-until, else the time just before. --mode second, absolute "
        "or relative. Columns as of diff.\n"
        "--json: what GET /api/v1/functions/grew answers.",
    .options = WHAT " base-from base-until mode sort limit per-service",
    .words = "@services",
    .args_max = 1,
    .run = ctl_grew,
};
static const struct cli_command sandwich_cli = {
    .name = "sandwich",
    .args = "FUNCTION [SERVICE]",
    .help = "One function: its callers, and the functions it calls.",
    .more =
        "Callers are turned round: what stands below a function called it. A stack counts once, at "
        "the outermost call.\n"
        "--json: as tree has it, with \"function\", \"self\", \"total\", \"all\", and "
        "nodes in \"callers\" and \"callees\".",
    .options = WHAT " limit depth min-percent max-nodes",
    .args_min = 1,
    .args_max = 2,
    .run = ctl_sandwich,
};
static const struct cli_command timeline_cli = {
    .name = "timeline",
    .args = "[SERVICE]",
    .help = "Cost over time, of everything or of a function, by labels.",
    .more = "--json: {\"query\", \"profileType\", \"unit\", \"fromMs\", \"untilMs\", "
            "\"stepMs\", \"function\", \"partial\", \"series\": [{\"labels\":{..}, "
            "\"sum\", \"values\":[..]}]}; value k covers [fromMs + k stepMs, fromMs + (k + 1) "
            "stepMs).",
    .options = WHAT " step by function sort limit",
    .words = "@services",
    .args_max = 1,
    .run = ctl_timeline,
};
static const struct cli_command tail_cli = {
    .name = "tail",
    .args = "[SERVICE]",
    .help = "A line every interval: what it costs now, and the costly functions.",
    .more = "--json: one object a line, as top has it.",
    .options = "type query service interval window count limit allow-partial",
    .words = "@services",
    .args_max = 1,
    .run = ctl_tail,
};
static const struct cli_command services_cli = {
    .name = "services",
    .args = "",
    .help = "Services that have profiles.",
    .more = "--json: {\"services\":[{\"name\",\"types\":[..]}]}",
    .options = "query service from until names",
    .run = ctl_services,
};
static const struct cli_command types_cli = {
    .name = "types",
    .args = "[SERVICE]",
    .help = "Profile types there are.",
    .more = "--json: {\"types\":[..]}",
    .options = "query service from until",
    .words = "@services",
    .args_max = 1,
    .run = ctl_types,
};
static const struct cli_command labels_cli = {
    .name = "labels",
    .args = "[LABEL [SERVICE]]",
    .help = "Names of labels, or the values of one.",
    .more = "--json: {\"names\":[..]}, or {\"name\",\"values\":[..]}",
    .options = "query service from until",
    .args_max = 2,
    .run = ctl_labels,
};
static const struct cli_command series_cli = {
    .name = "series",
    .args = "[SERVICE]",
    .help = "Sets of labels there are.",
    .more = "--json: {\"series\":[{LABEL:VALUE,..}]}",
    .options = "query service from until by limit",
    .words = "@services",
    .args_max = 1,
    .run = ctl_series,
};
static const struct cli_command space_cli = {
    .name = "space",
    .args = "",
    .help = "Whose bytes the files are.",
    .more = "--json: what GET /api/v1/space answers.",
    .options = "",
    .run = ctl_space,
};
static const struct cli_command ledger_cli = {
    .name = "ledger",
    .args = "[accept]",
    .help = "Compares what was accepted with what is stored.",
    .more =
        "Ends with 1 if they do not. --json: what GET /api/v1/ledger answers.\n"
        "accept takes what differs now as it is, for what cannot be mended: of the tenant of "
        "--tenant (default: anonymous), in all shards or that of --shard. It stays listed, with "
        "time, operator and reason, and a later difference is reported again. It wants a token "
        "of http.admin_token_file where there is one (--token-file), else to be asked on the "
        "server's own machine, by its user. --json: {\"tenant\", \"places\", \"services\", "
        "\"missing\", \"surplus\", \"servicesLeft\", \"shardsNotAudited\"}.",
    .options = "reason who shard",
    .words = "accept",
    .args_max = 1,
    .run = ctl_ledger,
};
static const struct cli_command delete_cli = {
    .name = "delete",
    .args = "[SERVICE]",
    .help = "Delete profiles for good, after asking.",
    .more =
        "Says what would go and asks for a yes; scripts give --yes. Without --from and --until it "
        "is any time. --json: what POST /api/v1/delete answers.",
    .options = "query service from until all dry-run yes id",
    .words = "@services",
    .args_max = 1,
    .run = ctl_delete,
};
static const struct cli_command deletes_cli = {
    .name = "deletes",
    .args = "",
    .help = "How far deletes are.",
    .more = "--json: what GET /api/v1/deletes answers.",
    .options = "",
    .run = ctl_deletes,
};
static const struct cli_command admin_cli = {
    .name = "admin",
    .args = "[status|ready|ring|config|metrics]",
    .help = "What a server says about itself.",
    .more = "status (default) and ready exit with 1 if it is not ready. ring is JSON; --json wraps "
            "the texts of config and metrics.",
    .options = "",
    .words = "status ready ring config metrics",
    .args_max = 1,
    .run = ctl_admin,
};
static const struct cli_command cluster_cli = {
    .name = "cluster",
    .args = "[status|drain NODE|undrain NODE|rebalance|spread TENANT SERVICE N|tenant TENANT N|"
            "recover [URL...]]",
    .help = "Nodes and shards: leaders, missing copies, drains and spread services.",
    .more =
        "status exits with 1 unless every shard has a leader and all of its copies, and etcd takes "
        "changes. It is the same whichever server is asked; what is wrong, and what to do, stands "
        "below the tables.\n"
        "drain has the shards of a node moved to others, a step at a time; --wait until none is "
        "left, and the node can be stopped for good. It stays drained, also when it is started "
        "again, until undrain takes it back; with an empty data folder it is a new node. Both want "
        "etcd, and a token of http.admin_token_file where there is one (--token-file), else to be "
        "asked on the server's own machine, by its user. --json: {\"node\", \"empty\"}.\n"
        "rebalance says which shards are yet to be moved and what each node has and will have. "
        "They move by themselves, a few at once; --apply lets many go at once until all are "
        "there, --wait until then. --json: {\"pending\", \"atOnce\", \"nodes\":[{\"name\", "
        "\"copies\", \"copiesTo\", \"leads\", \"leadsTo\"}], \"shards\":[{\"shard\", "
        "\"members\", \"membersTo\", \"leader\", \"leaderTo\"}]}.\n"
        "spread has the series of a service go to N shards instead of one, tenant all of a "
        "tenant's to N of all shards (0: all; tenant \"*\": every tenant without a number): for "
        "profiles from some minutes ahead on (cluster.place_after), as status says once all "
        "ingesters that must know of it do; until then, whom it waits for. What was stored stays "
        "where it is and is found. --json: {\"tenant\", \"service\", \"shards\", \"from\", "
        "\"wanted\", \"changed\"}.\n"
        "recover is for an etcd that lost its data, or has those of an old snapshot. It asks the "
        "servers named (the ingesters; any others too) what they keep of the cluster, and says "
        "what of it etcd lacks; --apply has it written, after asking (--yes: without). Leaders "
        "continue meanwhile. Every node must answer; name a node that is lost for good in "
        "--without: its shards get new terms then, and what it alone knew is left out. --json: "
        "{\"cluster\", \"mapVersion\", \"shards\", \"answered\", \"missing\", "
        "\"newTerms\", \"etcd\":{\"map\", \"mapVersion\", \"notesAbsent\", \"absent\", "
        "\"behind\", \"ahead\"}, \"needed\", \"written\"}.\n"
        "status --json: {\"healthy\", \"summary\", \"coordination\", \"mapVersion\", "
        "\"replicas\", \"ageMs\", \"moving\", \"nodes\":[{\"name\", \"zone\", \"addr\", "
        "\"state\", \"live\", \"shards\", \"leads\"}], \"shards\":[{\"shard\", \"is\", "
        "\"term\", \"leader\", \"leaderLive\", \"established\", \"members\", "
        "\"learners\", \"peers\":[{\"name\", \"member\", \"behind\", \"snapshot\"}]}]}",
    .options = "wait apply without yes",
    .words = "status drain undrain rebalance spread tenant recover",
    .args_max = SIZE_MAX,
    .run = ctl_cluster,
};
static const struct cli_command key_cli = {
    .name = "key",
    .args = "[list|make|rotate ID|revoke ID...]",
    .help = "Keys by which callers prove who they are.",
    .more =
        "list (default) shows the keys that yours covers: what they may do, until when, and when "
        "this server last saw them; --for shows those of a tenant.\n"
        "make prints a new key, once: key make --name agents --for shop --roles push. It may do no "
        "more than yours. --output puts it into a file that others cannot read. With --offline no "
        "server is asked, and the entry for identity.file is printed, too; it has the key's hash, "
        "not the key.\n"
        "rotate prints a successor with the same rights; the old key ends after --overlap.\n"
        "revoke ends keys, at once on the server asked and within seconds on the others. Exits "
        "with 1 while the coordination service is away, and others may not know yet.\n"
        "All want a key of an admin (--token-file), a token of http.admin_token_file, or to be "
        "asked on the server's own machine, by its user. --json: what /api/v1/keys answers; of "
        "revoke one object a line; of make --offline {\"id\", \"key\", \"hash\", "
        "\"entry\"}.",
    .options = "name for roles match set edit owner until valid-for nets overlap reason offline "
               "output",
    .words = "list make rotate revoke",
    .args_max = SIZE_MAX,
    .run = ctl_key,
};
static const struct cli_command upload_cli = {
    .name = "upload",
    .args = "FILE...",
    .help = "Upload profiles of any format to look at them; prints links.",
    .more = "--json: [{\"file\",\"id\",\"link\"}]",
    .options = "name",
    .words = "@files",
    .args_min = 1,
    .args_max = SIZE_MAX,
    .run = ctl_upload,
};
static const struct cli_command import_cli = {
    .name = "import",
    .args = "--name APP FILE|FOLDER...",
    .help = "Send profiles from files, with the times they are of; old ones as well.",
    .more =
        "The time of a file is from --from, else from its name, its body, or its date. Formats: "
        "pprof, groups, lines, ...; default: groups for .txt .folded .collapsed, else found by "
        "looking at the file. "
        "What was imported before is known by --state, and for a while by the server.",
    .options = "name format from until step level state retries",
    .words = "@files",
    .args_min = 0,
    .args_max = SIZE_MAX,
    .run = ctl_import,
};
static const struct cli_command fsck_cli = {
    .name = "fsck",
    .args = "[--mark] [--findings=N] [--quiet] DIR",
    .help = "Check a stopped database: everything it holds against everything it says about it.",
    .options = "",
    .words = "@files",
    .plain = &fsck_command,
};
static const struct cli_command check_overrides_cli = {
    .name = "check-overrides",
    .args = "FILE [TENANT]",
    .help = "Checks an overrides file, and prints what would hold for a tenant.",
    .options = "",
    .words = "@files",
    .plain = &check_overrides_command,
};
static const struct cli_command check_config_cli = {
    .name = "check-config",
    .args = "[--config=FILE] [--section.name=value ...]",
    .help = "Says what is wrong with a server's options and with the files that they name.",
    .options = "",
    .words = "@files",
    .plain = &check_config_command,
};
static const struct cli_command completion_cli = {
    .name = "completion",
    .args = "bash|zsh|fish",
    .help = "Prints completion for a shell.",
    .more = "bash: source <(embertreectl completion bash). zsh: embertreectl completion zsh > "
            "\"${fpath[1]}/_embertreectl\". fish: embertreectl completion fish > "
            "~/.config/fish/completions/embertreectl.fish",
    .options = "",
    .words = "bash zsh fish",
    .args_min = 1,
    .args_max = 1,
    .run = ctl_completion,
};
static const struct cli_command man_cli = {
    .name = "man",
    .args = "",
    .help = "Prints the manual page.",
    .more = "embertreectl man | man -l -",
    .options = "",
    .run = ctl_man,
};

static const struct cli_command *const ctl_commands[] = {
    &top_cli,        &tree_cli,         &sandwich_cli,
    &query_cli,      &diff_cli,         &grew_cli,
    &timeline_cli,   &tail_cli,         &services_cli,
    &types_cli,      &labels_cli,       &series_cli,
    &ledger_cli,     &space_cli,        &delete_cli,
    &deletes_cli,    &admin_cli,        &cluster_cli,
    &key_cli,        &upload_cli,       &import_cli,
    &fsck_cli,       &check_config_cli, &check_overrides_cli,
    &completion_cli, &man_cli,          NULL,
};

const struct cli_table ctl_table = {
    .options = ctl_options,
    .options_len = ARRAY_LEN(ctl_options),
    .commands = ctl_commands,
};

/* ---- commands of the all-in-one binary that read the same options ---- */

static int run_upload(int argc, char **argv)
{
    return cli_run_plain(&ctl_table, &upload_cli, "embertree upload", argc, argv);
}

const struct command upload_command = {
    .name = "upload",
    .args = "[--server URL] [--name NAME] FILE...",
    .help = "Upload profiles of any format to look at them; prints links.",
    .run = run_upload,
};

static int run_import(int argc, char **argv)
{
    return cli_run_plain(&ctl_table, &import_cli, "embertree import", argc, argv);
}

const struct command import_command = {
    .name = "import",
    .args = "--name APP [--server URL] [--from TIME] [--level 1m] [--state FILE] FILE|FOLDER...",
    .help = "Send profiles from files, with the times they are of; old ones as well.",
    .run = run_import,
};
