"""The edits of `make mutants`: parsers of outside bytes, their limits, and readers of requests.

One row: a name, the file, the text (exactly once in it), the text that replaces it, and the test program
that must fail. Choose edits that a person could make by mistake: a bound off by one, a condition that is
gone, an order that is turned round.
"""
from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    test: str


H1 = "tests/unit/common/net/http1/test_http1"
H2 = "tests/unit/common/net/http2/test_http2_abuse"
HEAD = "tests/unit/common/net/test_head"
PPROF = "tests/unit/distributor/formats/pprof/test_pprof_hostile"
ARROW = "tests/unit/distributor/parca/arrow/test_arrow"
FRAME = "tests/unit/common/rpc/test_rpc_frame"
BASE = "tests/unit/common/base/test_base"
COMPRESS = "tests/unit/common/base/compress/test_compress"
TREE = "tests/unit/common/conf/test_conf_tree"
SELECTOR = "tests/unit/common/model/test_selector"
TENANT = "tests/unit/common/model/test_tenant_id"
REGEX = "tests/unit/common/model/test_regex"
MULTIPART = "tests/unit/distributor/formats/test_multipart"
JFR = "tests/unit/distributor/formats/jfr/test_jfr_hostile"
JSON = "tests/unit/common/net/test_json_in"
IDENTITY = "tests/unit/common/identity"
REGISTRY = f"{IDENTITY}/test_registry"
COVER = "tests/prop/test_grants_cover"
LEAK = "tests/unit/querier/test_scope_leak"
SET = "tests/unit/distributor/test_set"

MUTANTS = [
    # ---- requests that can be read in two ways
    Mutant("h2_host_differs", "common/net/http2/http2_in.c", "} else if (!str_eq(l.value, authority)) {",
           "} else if (0) {", H2),
    Mutant("h2_path", "common/net/http2/http2_in.c", "if (!path_ok(h->target))", "if (0)", H2),
    Mutant("h2_scheme", "common/net/http2/http2_in.c",
           'if (!str_eqc(scheme, "http") && !str_eqc(scheme, "https"))', "if (0)", H2),
    Mutant("h2_authority", "common/net/http2/http2_in.c", "if (!http_host_ok(authority))", "if (0)", H2),
    Mutant("h2_method", "common/net/http2/http2_in.c", "if (!http_method_of(h->method))", "if (0)", H2),
    Mutant("h1_host_once", "common/net/http_head.c", "if (f.hosts != 1)", "if (f.hosts < 1)", HEAD),
    Mutant("h1_host_bytes", "common/net/http_head.c", "if (!http_host_ok(value))", "if (0)", HEAD),
    Mutant("h1_coding_old", "common/net/http_head.c", "if (f.codings && h->minor == 0)", "if (0)", HEAD),
    Mutant("h1_coding_known", "common/net/http_head.c", "if (f.codings > 1 || (f.codings && !f.chunked))",
           "if (f.codings > 1)", HEAD),
    Mutant("h1_target_bytes", "common/net/http_head.c", "if (c <= ' ' || c == '#')", "if (c < ' ')", HEAD),
    Mutant("h1_expect", "common/net/http_head.c", "if (f.expects > 1 || (f.expects && !f.continue_ok))", "if (0)", HEAD),
    # ---- pprof
    Mutant("pprof_two_profiles", "distributor/formats/pprof/pprof.c", "if (p->has_time)", "if (0)", PPROF),
    Mutant("pprof_bad_strings", "distributor/formats/pprof/pprof_ids.c", "if (p->bad_string_refs > all / 100)",
           "if (p->bad_string_refs > all / 2)", PPROF),
    Mutant("pprof_bad_strings_few", "distributor/formats/pprof/pprof_ids.c", "if (p->bad_string_refs <= 100)",
           "if (p->bad_string_refs < 100)", PPROF),
    Mutant("pprof_budget", "distributor/formats/pprof/pprof.c", "more > s->p->bytes_max - s->p->bytes", "0", PPROF),
    # ---- Arrow
    Mutant("arrow_ratio", "distributor/parca/arrow/arrow_batch.c", "total / l->inflated_ratio > r->budget->body_bytes",
           "0", ARROW),
    Mutant("arrow_total", "distributor/parca/arrow/arrow_batch.c", "|| total > l->inflated_bytes", "", ARROW),
    Mutant("arrow_lz4_claim", "distributor/parca/arrow/arrow_batch.c",
           "if (r->codec == CODEC_LZ4 && (size_t)size / LZ4_RATIO > packed)", "if (0)", ARROW),
    Mutant("arrow_short_buffer", "distributor/parca/arrow/arrow_batch.c", "!u64_mul(n, size, &need) || b.len < need",
           "!u64_mul(n, size, &need) || b.len + 1 < need", ARROW),
    # ---- frames between processes
    Mutant("rpc_chunk", "common/rpc/rpc_frame.c", "f->offset % RPC_FRAME_CHUNK || ", "", FRAME),
    Mutant("rpc_length", "common/rpc/rpc_frame.c", "length != MIN(RPC_FRAME_CHUNK, f->total - f->offset)",
           "length > RPC_FRAME_CHUNK", FRAME),
    Mutant("rpc_flags", "common/rpc/rpc_frame.c", "f->flags & ~RPC_FLAG_ZSTD ||", "", FRAME),
    Mutant("rpc_small", "common/rpc/rpc_frame.c", "tiny ? RPC_FRAME_SMALL_MAX :", "tiny ? 2 * RPC_FRAME_SMALL_MAX :", FRAME),
    Mutant("rpc_epoch", "common/rpc/rpc_frame.c", "if (f->epoch == 0 || f->seq == 0)", "if (f->epoch == 0)", FRAME),
    # ---- JSON
    Mutant("json_pairs", "common/net/json_in.c", "COST_PAIR = 112", "COST_PAIR = 0", JSON),
    Mutant("json_depth", "common/net/json_in.c", "if (depth > depth_max)", "if (depth > 4 * depth_max)", JSON),
    # ---- cursors, compression, configuration, selectors
    Mutant("rd_bytes", "common/base/rd.c", "    if (rd_left(r) < n)\n        return false;\n    *ret =",
           "    if (rd_left(r) + 1 < n)\n        return false;\n    *ret =", BASE),
    Mutant("rd_varint_bits", "common/base/rd.c", "if (shift == 63 && c > 1)", "if (shift == 63 && c > 3)", BASE),
    Mutant("rd_field_number", "common/base/rd.c", "tag >> 3 == 0 ||", "", BASE),
    Mutant("gzip_ratio", "common/base/compress/compress.c", "if (by_ratio < most) {", "if (0) {", COMPRESS),
    Mutant("zstd_total", "common/base/compress/compress.c", "if (size > bytes_max)", "if (size > 2 * bytes_max)", COMPRESS),
    Mutant("zlib_rest", "common/base/compress/compress.c", "if (in_used != in.len)", "if (0)", COMPRESS),
    Mutant("tree_depth", "common/conf/conf_tree.c", "if (r->depth == CONF_TREE_DEPTH_MAX)",
           "if (r->depth + 1 == CONF_TREE_DEPTH_MAX)", TREE),
    Mutant("tree_nodes", "common/conf/conf_tree.c", "if (++r->nodes > CONF_TREE_NODES_MAX)", "if (0)", TREE),
    Mutant("tree_bytes", "common/conf/conf_tree.c", "if (text.len > CONF_TREE_BYTES_MAX)", "if (0)", TREE),
    Mutant("selector_text", "common/model/selector.c", "if (text.len > SELECTOR_TEXT_MAX)", "if (0)", SELECTOR),
    Mutant("selector_count", "common/model/selector.c", "if (sel->len == SELECTOR_LEN_MAX)",
           "if (sel->len + 1 == SELECTOR_LEN_MAX)", SELECTOR),
    Mutant("tenant_length", "common/model/tenant_id.c", "if (id.len > TENANT_ID_BYTES_MAX)",
           "if (id.len > TENANT_ID_BYTES_MAX + 1)", TENANT),
    Mutant("tenant_dots", "common/model/tenant_id.c", 'if (str_eq(id, STR(".")) || str_eq(id, STR("..")))',
           'if (str_eq(id, STR(".")))', TENANT),
    Mutant("regex_hex", "common/model/regex.c", "if (hex_digit(gate_peek(g, 0)) < 0 || hex_digit(gate_peek(g, 1)) < 0)",
           "if (hex_digit(gate_peek(g, 0)) < 0)", REGEX),
    # ---- uploads, JFR, JSON of OTLP
    Mutant("multipart_parts", "distributor/formats/multipart.c", "if (ret->len == MULTIPART_PARTS_MAX)",
           "if (ret->len == 2 * MULTIPART_PARTS_MAX)", MULTIPART),
    Mutant("multipart_headers", "distributor/formats/multipart.c", "if (n == MULTIPART_HEADERS_MAX ||", "if (", MULTIPART),
    Mutant("multipart_boundary", "distributor/formats/multipart.c", "value.len > BOUNDARY_MAX", "0", MULTIPART),
    Mutant("jfr_chunk_size", "distributor/formats/jfr/jfr.c", "if (size < JFR_HEADER_BYTES || size > left.len)",
           "if (size < JFR_HEADER_BYTES)", JFR),
    Mutant("jfr_ticks", "distributor/formats/jfr/jfr.c", "if (c->ticks_per_s == 0 ||", "if (", JFR),
    Mutant("jfr_chunks", "distributor/formats/jfr/jfr.c", "if (++n > JFR_CHUNKS_MAX)", "if (0)", JFR),
    Mutant("jfr_strings", "distributor/formats/jfr/jfr_meta.c", "|| i >= m->c->strings.len", "", JFR),
    Mutant("speedscope_backwards", "distributor/formats/speedscope.c", "if (now < before)", "if (0)",
           "tests/unit/distributor/formats/test_speedscope"),
    Mutant("jpull_depth", "common/net/jpull.c", "} else if (depth == j->depth_max) {",
           "} else if (depth == 2 * j->depth_max) {", "tests/unit/common/net/test_jpull"),
    # ---- keys, grants, records
    Mutant("key_check", "common/identity/key.c", "memcmp(check, text.ptr + AT_CHECK, KEY_CHECK_LEN) != 0", "0",
           f"{IDENTITY}/test_key"),
    Mutant("key_letters", "common/identity/key.c", "if (!are_digits(id) ||", "if (", f"{IDENTITY}/test_key"),
    Mutant("key_id_unfair", "common/identity/key.c", "if (bytes[i] < FAIR)", "if (1)", f"{IDENTITY}/test_key"),
    Mutant("key_label", "common/identity/key.c", '"embertree key 1"', '"embertree key 2"', f"{IDENTITY}/test_key"),
    Mutant("grant_null", "common/identity/grant.c", " && json_get(v, known[i], NULL)", "", f"{IDENTITY}/test_grant"),
    Mutant("grant_match_role", "common/identity/grant.c", "if (!(g->roles & (ROLE_READ | ROLE_DELETE)))", "if (0)",
           f"{IDENTITY}/test_grant"),
    Mutant("grant_server", "common/identity/grant.c", "if ((g->roles & ROLES_OF_SERVER) && !g->everywhere)", "if (0)",
           f"{IDENTITY}/test_grant"),
    Mutant("grant_escapes", "common/identity/grant.c", "if (!match_fits(&s))", "if (0)", f"{IDENTITY}/test_grant"),
    Mutant("cover_all_tenants", "common/identity/grant_cover.c",
           "return covers_in(c, other) && covers_named(c, c->mine)", "return covers_named(c, c->mine)", COVER),
    Mutant("cover_named", "common/identity/grant_cover.c", "covers_named(c, c->mine) && ", "", COVER),
    Mutant("cover_matchers", "common/identity/grant_cover.c", "selects_within(&theirs->match, &g->match)",
           "selects_within(&g->match, &theirs->match)", COVER),
    Mutant("cover_op", "common/identity/grant_cover.c", "s->matchers[i].op == m->op && ", "", COVER),
    Mutant("cover_admin_limited", "common/identity/grant_cover.c", "(ROLE_READ | ROLE_DELETE | ROLE_TENANT_ADMIN)",
           "(ROLE_READ | ROLE_DELETE)", COVER),
    Mutant("cover_edit", "common/identity/grant_cover.c", "if (g->edit && ", "if (0 && ", COVER),
    Mutant("cover_labels", "common/identity/grant_cover.c", "return covers_push(c, tenant);", "return true;", COVER),
    Mutant("record_nets", "common/identity/registry.c", "if (r->nets_len && ", "if (0 && ", REGISTRY),
    Mutant("record_unknown", "common/identity/record.c", "if (check_names(v, e))\n        return e->code;", "",
           f"{IDENTITY}/test_record"),
    Mutant("record_size", "common/identity/record.c", "KEY_RECORD_BYTES_MAX - SIG_ROOM", "KEY_RECORD_BYTES_MAX",
           f"{IDENTITY}/test_record"),
    Mutant("record_label", "common/identity/record.c", "finish(&j, from, BLOCK_SIGNED, sign);",
           "finish(&j, from, KEY_SIGNED, sign);", f"{IDENTITY}/test_record"),
    Mutant("range_bits", "common/identity/record_net.c", ">> (8 - rest) == 0", ">> (7 - rest) == 0",
           f"{IDENTITY}/test_record"),
    Mutant("range_zeros", "common/identity/record_net.c", "if (!zero_behind(r.addr, r.bits))", "if (0)",
           f"{IDENTITY}/test_record"),
    Mutant("registry_secret", "common/identity/registry.c", "!r || !right ||", "!r ||", REGISTRY),
    Mutant("registry_blocked", "common/identity/registry.c", "    if (n->block)\n        return CREDENTIAL_REVOKED;", "",
           REGISTRY),
    Mutant("registry_offline", "common/identity/registry.c", "r && r->offline_hash ? g->by_zeros : g->by_pepper",
           "g->by_pepper", REGISTRY),
    Mutant("registry_rank", "common/identity/registry.c", "return n->file ? n->file : n->stored;",
           "return n->stored ? n->stored : n->file;", REGISTRY),
    Mutant("registry_skew", "common/identity/registry.c", "now_ms - REGISTRY_SKEW_MS < r->until_ms",
           "now_ms - REGISTRY_SKEW_MS <= r->until_ms", REGISTRY),
    Mutant("registry_clear", "common/identity/registry.c", "if (in_force(n) || n->block)\n        return;",
           "if (in_force(n))\n        return;", REGISTRY),
    Mutant("registry_sig", "common/identity/registry_text.c", "if (!d->sign || record_sig_ok(json, d->sign))", "if (1)",
           REGISTRY),
    Mutant("registry_no_blocks", "common/identity/registry_text.c", "if (d->has_keys && d->has_blocks)",
           "if (d->has_keys)", REGISTRY),
    # ---- the answer to a push
    Mutant("intake_urgency", "distributor/intake/intake_answer.c", "ERR_TIMEOUT, ERR_BUSY,  ERR_NO_SPACE",
           "ERR_BUSY, ERR_TIMEOUT,  ERR_NO_SPACE", "tests/unit/distributor/test_refused"),
    # ---- keys that see, delete and push some series only
    Mutant("scope_packer", "querier/ask/scoped.c", "    if (s->added)\n        pack_selector(s->added, &to);\n    CHECK(to.len == n);",
           "    n = to.len;", LEAK),
    Mutant("scope_tenant", "common/identity/scope.c", "    bool found = g->everywhere;", "    bool found = true;", LEAK),
    Mutant("scope_none", "common/identity/scope.c", "    if (!found)\n", "    if (!found && 0)\n", LEAK),
    Mutant("scope_fingerprint", "querier/async/async.c",
           "strcmp(x->owner, owner) == 0 &&\n                  memcmp(x->scope, f->scope, SCOPE_BYTES) == 0))",
           "strcmp(x->owner, owner) == 0))", LEAK),
    Mutant("scope_shared", "querier/async/async_share.c", "if (memcmp(ret->scope, scope, SCOPE_BYTES) != 0)", "if (0)",
           LEAK),
    Mutant("scope_cached", "common/net/http_reply.c", "if (x->req.identity) {", "if (0) {", LEAK),
    Mutant("scope_delete_all", "querier/api/tenant/api_delete.c", "if (!added || d->what.len || d->op == OP_LIST)",
           "if (1)", "tests/unit/querier/test_delete"),
    Mutant("set_off", "distributor/intake/intake_decode.c",
           "    if (stamp_push(&p->push, &k->set, e) ||\n        rules_run(", "    if (rules_run(", SET),
    Mutant("set_undone", "distributor/intake/intake_decode.c", "    if (stamp_push(&p->push, &k->set, e))\n        return e->code;\n",
           "", SET),
    Mutant("set_import", "distributor/api/import_msg.c", "for (size_t i = 0; set && i < set->len; i++) {",
           "for (size_t i = 0; 0 && i < set->len; i++) {", SET),
    Mutant("set_merge", "distributor/rules/stamp.c", "if (changed && !rules_merge(p))", "if (0)", SET),
]
