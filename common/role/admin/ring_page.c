/* SPDX-License-Identifier: Apache-2.0
 *
 * ring_page: one page that loads nothing from elsewhere. Its names may come from any client that
 * may write to the coordination service, so all of them are escaped.
 */
#include "common/role/admin/ring_page.h"

#include "common/cluster/view/view.h"
#include "common/render/escape.h"
#include "common/role/core/readiness.h"
#include "version.h"

#define PAGE_MAX (16 * MIB)
#define POLICY   "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

static const char head[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" "
    "content=\"5\"><meta name=\"viewport\" content=\"width=device-width\"><title>Embertree: the "
    "ring</title><style>:root{color-scheme:light dark}body{font:14px/1.5 system-ui,sans-serif;"
    "margin:1.5rem}table{border-collapse:collapse;margin:0 0 1.5rem}th,td{text-align:left;"
    "padding:.15rem .8rem .15rem 0;border-bottom:1px solid #8884}.bad{color:#d1242f;"
    "font-weight:600}</style></head><body>\n";

static void put(const char *text, struct buf *out)
{
    escape_xml(str_c(text), out);
}

static void cell(const char *text, bool bad, struct buf *out)
{
    (void)buf_addf(out, "<td%s>", bad ? " class=\"bad\"" : "");
    put(text, out);
    (void)buf_add_str(out, STR("</td>"));
}

static void trouble(const char *what, const char *why, struct buf *out)
{
    (void)buf_add_str(out, STR("<p class=\"bad\">"));
    put(what, out);
    put(why, out);
    (void)buf_add_str(out, STR("</p>\n"));
}

/* ---- this process ---------------------------------------------------------------------------- */

static void part_rows(const struct process_core *p, struct buf *out)
{
    const char *role, *why = "";
    bool ready = readiness_check(p, &role, &why);

    (void)buf_addf(out, "<h1>Embertree %s</h1>\n<p>This process is ", EMBERTREE_BUILD);
    (void)buf_add_str(out,
                      ready ? STR("ready.</p>\n") : STR("<b class=\"bad\">not ready</b>.</p>\n"));
    (void)buf_add_str(out, STR("<table><tr><th>role</th><th>is</th></tr>\n"));
    for (size_t i = 0; i < p->parts_len; i++) {
        const struct process_part *part = &p->parts[i];
        bool fine;

        why = "not ready";
        fine = !part->role->ready || part->role->ready(part->self, &why);
        (void)buf_add_str(out, STR("<tr>"));
        cell(part->role->name, false, out);
        cell(fine ? "ready" : why, !fine, out);
        (void)buf_add_str(out, STR("</tr>\n"));
    }
    (void)buf_add_str(out, STR("</table>\n"));
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static void nodes(const struct view *v, struct buf *out)
{
    static const char *const states[] = { "active", "draining", "left" };

    (void)buf_add_str(out, STR("<table><tr><th>node</th><th>zone</th><th>address</th><th>state</th>"
                               "<th>lives</th></tr>\n"));
    for (size_t i = 0; i < view_nodes_len(v); i++) {
        struct view_node n;

        view_node(v, i, &n);
        (void)buf_add_str(out, STR("<tr>"));
        cell(n.name, false, out);
        cell(n.zone, false, out);
        cell(n.addr, false, out);
        cell(n.mapped ? states[n.state] : "joining", false, out);
        cell(n.live ? "yes" : "no", !n.live, out);
        (void)buf_add_str(out, STR("</tr>\n"));
    }
    (void)buf_add_str(out, STR("</table>\n"));
}

/* Names one after the other; those that do not live stand out. Returns how many do. */
static size_t names(const struct view *v, const char *const *at, size_t len, const char *but,
                    struct buf *out)
{
    size_t live = 0;

    (void)buf_add_str(out, STR("<td>"));
    for (size_t i = 0; i < len; i++) {
        struct view_node n;
        bool lives = view_node_find(v, at[i], &n) && n.live;

        live += lives;
        if (strcmp(at[i], but) == 0)
            continue;
        (void)buf_addf(out, "<span%s>", lives ? "" : " class=\"bad\"");
        put(at[i], out);
        (void)buf_add_str(out, STR("</span> "));
    }
    (void)buf_add_str(out, STR("</td>"));
    return live;
}

static void shard(const struct view *v, uint32_t i, struct buf *out)
{
    const struct repl_record *r;
    struct view_shard s;
    size_t live;
    int64_t rev;

    (void)buf_addf(out, "<tr><td>%" PRIu32 "</td>", i);
    if (!view_shard(v, i, &s)) {
        (void)buf_add_str(out, STR("<td class=\"bad\">no leader was named yet</td></tr>\n"));
        return;
    }
    cell(s.leader, !s.leader_live, out);
    live = names(v, s.members, s.members_len, s.leader, out);
    (void)buf_addf(out, "<td>%" PRIu64 "</td>", s.term);
    if (!s.leader_live)
        cell("its leader is gone", true, out);
    else if (s.members_len && 2 * live <= s.members_len)
        cell("half or more of its copies are gone", true, out);
    else if (s.term && !s.established)
        cell("its leader begins", true, out);
    else
        cell(live < s.members_len ? "a copy is gone" : "fine", live < s.members_len, out);
    r = view_record(v, i, &rev);
    (void)buf_add_str(out, STR("<td>"));
    for (uint32_t k = 0; r && k < r->learners.len; k++) {
        put(r->learners.names[k], out);
        (void)buf_add_c(out, ' ');
    }
    (void)buf_add_str(out, STR("</td></tr>\n"));
}

static void shards(const struct view *v, struct buf *out)
{
    (void)buf_add_str(out, STR("<table><tr><th>shard</th><th>leader</th><th>followers</th>"
                               "<th>term</th><th>is</th><th>learners</th></tr>\n"));
    for (uint32_t i = 0; i < view_shards(v); i++)
        shard(v, i, out);
    (void)buf_add_str(out, STR("</table>\n"));
}

void ring_page(const struct process_core *p, struct buf *out)
{
    const struct view *v = p->ctx.view;
    int64_t rev;
    const struct map *m = view_map(v, &rev);

    (void)buf_add_str(out, str_c(head));
    part_rows(p, out);
    (void)buf_add_str(out, STR("<h2>The cluster, as this process sees it</h2>\n<p>Coordination: "));
    put(p->ctx.cluster->coordination, out);
    if (m)
        (void)buf_addf(out, "; map %" PRIu64 ", %" PRIu32 " copies of each shard", m->version,
                       m->replicas);
    if (p->ctx.coord)
        (void)buf_addf(out, "; etcd answered %" PRIu64 " s ago", view_age_ms(v) / 1000);
    (void)buf_add_str(out, STR(".</p>\n"));
    if (view_stranger(v)[0])
        trouble("What etcd holds is not believed: ", view_stranger(v), out);
    else if (view_why(v)[0])
        trouble("etcd: ", view_why(v), out);
    nodes(v, out);
    shards(v, out);
    (void)buf_add_str(out, STR("<p>What is to be done about it: <code>embertreectl cluster "
                               "status</code>. For programs: <code>curl</code> gets JSON here."
                               "</p></body></html>\n"));
}

/* ---- the reply ------------------------------------------------------------------------------- */

bool ring_page_wanted(const struct http_req *r)
{
    return str_contains(http_header(r, "Accept"), STR("text/html"));
}

void ring_page_reply(const struct process_core *p, struct http_req *r)
{
    struct buf b;

    buf_init(&b, PAGE_MAX);
    ring_page(p, &b);
    http_reply_header(r, "Content-Security-Policy", STR(POLICY));
    http_reply_header(r, "X-Content-Type-Options", STR("nosniff"));
    http_reply_header(r, "Cache-Control", STR("no-store"));
    http_reply(r, 200, "text/html; charset=utf-8", &b);
}
