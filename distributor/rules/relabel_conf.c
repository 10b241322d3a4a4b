/* SPDX-License-Identifier: Apache-2.0
 *
 * relabel_conf: a YAML list to rules, with the keys that Prometheus gave them.
 */
#include "common/base/mem.h"
#include "distributor/rules/relabel.h"

static const char *const keys[] = { "source_labels", "separator",   "regex",  "modulus",
                                    "target_label",  "replacement", "action", NULL };

static int read_action(const struct conf_node *n, const char *file, enum relabel_action *ret,
                       struct err *e)
{
    struct str text = STR("replace");

    if (conf_node_str(n, file, &text, e))
        return e->code;
    for (enum relabel_action a = 0; a < RELABEL_ACTIONS; a++) {
        if (str_eq_nocase(text, str_c(relabel_action_name(a)))) {
            *ret = a;
            return 0;
        }
    }
    return conf_node_fail(n, file, e, "\"%.*s\" is no action of relabelling",
                          STR_ARG(str_sub(text, 0, 100)));
}

/* `regex:` with nothing behind it is the empty regex, as in Prometheus. */
static int read_str(const struct conf_node *n, const char *file, struct str *ret, struct err *e)
{
    if (n && n->kind == CONF_NODE_NULL) {
        *ret = STR("");
        return 0;
    }
    return conf_node_str(n, file, ret, e);
}

static int read_rule(const struct conf_node *n, const char *file, struct arena *a,
                     struct relabel_rule *ret, struct err *e)
{
    struct str *sources = NULL;

    *ret = (struct relabel_rule){ 0 };
    if (conf_node_is(n, file, CONF_NODE_MAP, e) || conf_node_keys(n, file, keys, e) ||
        read_action(conf_node_get(n, "action"), file, &ret->action, e) ||
        conf_node_strs(conf_node_get(n, "source_labels"), file, a, &sources, &ret->sources_len,
                       e) ||
        read_str(conf_node_get(n, "separator"), file, &ret->separator, e) ||
        read_str(conf_node_get(n, "regex"), file, &ret->regex, e) ||
        read_str(conf_node_get(n, "target_label"), file, &ret->target, e) ||
        read_str(conf_node_get(n, "replacement"), file, &ret->replacement, e) ||
        conf_node_u64(conf_node_get(n, "modulus"), file, 1, UINT64_MAX, &ret->modulus, e))
        return e->code;
    ret->sources = sources;
    return 0;
}

int relabel_conf(const struct conf_node *list, const char *file, struct relabel **ret,
                 struct err *e)
{
    struct relabel_rule *rules;
    struct arena *a;
    size_t n = 0;
    int rc = 0;

    if (!list || list->kind == CONF_NODE_NULL)
        return relabel_new(NULL, 0, ret, e);
    if (conf_node_is(list, file, CONF_NODE_LIST, e))
        return e->code;
    if (list->len > RELABEL_RULES_MAX)
        return conf_node_fail(list, file, e, "%zu rules, at most %d", list->len, RELABEL_RULES_MAX);
    a = arena_new(MIB);
    rules = XNEW_ARRAY(struct relabel_rule, list->len + 1);
    for (const struct conf_node *i = list->first; i && !rc; i = i->next)
        rc = read_rule(i, file, a, &rules[n++], e);
    if (!rc) {
        rc = relabel_new(rules, n, ret, e);
        if (rc)
            rc = err_wrap(e, "%s line %zu", file, list->line);
    }
    xfree(rules);
    arena_free(a);
    return rc;
}
