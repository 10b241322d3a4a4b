/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_text: what holds for a tenant, as the YAML it could have been written as.
 */
#include "distributor/rules/policy_impl.h"

/* Single quotes: the only escape of YAML there is the doubled quote. */
static void add_quoted(struct str s, struct buf *out)
{
    buf_add_c(out, '\'');
    for (size_t i = 0; i < s.len; i++) {
        buf_add_c(out, s.ptr[i]);
        if (s.ptr[i] == '\'')
            buf_add_c(out, '\'');
    }
    buf_add_c(out, '\'');
}

static void add_rules(const struct rule_set *s, struct buf *out)
{
    if (relabel_len(s->relabel)) {
        buf_add_str(out, STR("relabel:\n"));
        relabel_format(s->relabel, 2, out);
    }
    buf_add_str(out, s->drops_len ? STR("drop:\n") : STR(""));
    for (size_t i = 0; i < s->drops_len; i++) {
        buf_add_str(out, STR("  - "));
        add_quoted(s->drops[i].text, out);
        buf_add_c(out, '\n');
    }
    buf_add_str(out, s->groups_len ? STR("usage_groups:\n") : STR(""));
    for (size_t i = 0; i < s->groups_len; i++) {
        buf_add_str(out, STR("  "));
        add_quoted(s->groups[i].name, out);
        buf_add_str(out, STR(": "));
        add_quoted(s->groups[i].text, out);
        buf_add_c(out, '\n');
    }
    buf_add_str(out, s->samples_len ? STR("sampling:\n") : STR(""));
    for (size_t i = 0; i < s->samples_len; i++) {
        const struct rule_sample *r = &s->samples[i];
        buf_addf(out, "  - %s: ", r->group.len ? "usage_group" : "match");
        add_quoted(r->group.len ? r->group : r->text, out);
        buf_addf(out, "\n    probability: %.17g\n", r->probability);
    }
}

void policy_format(const struct policy *p, struct buf *out)
{
    for (size_t i = 0; i < policy_limits_len; i++) {
        const struct limit_row *r = &policy_limits[i];
        uint64_t v = policy_value(p, r);
        if (r->kind == LIMIT_MB)
            buf_addf(out, "%s: %.6f\n", r->key, (double)v / 1e6);
        else
            buf_addf(out, "%s: %" PRIu64 "%s\n", r->key, v, r->kind == LIMIT_MS && v ? "ms" : "");
    }
    buf_addf(out, "ingest: %s\n", p->off ? "off" : "on");
    if (p->ingest_bytes)
        buf_addf(out, "ingest_limits: {bytes: %" PRIu64 ", period: %" PRIu64 "ms}\n",
                 p->ingest_bytes, p->ingest_ms);
    add_rules(p->rules, out);
}
