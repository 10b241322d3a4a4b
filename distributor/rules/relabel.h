/* SPDX-License-Identifier: Apache-2.0
 *
 * relabel.h: Prometheus' relabel_configs over a set of labels: a list of rules, each of which may
 * set, remove or copy labels, or drop the set as a whole. Meaning, defaults and checks are those of
 * Prometheus; regexes are whole-value matches in RE2's syntax (regex.h).
 *
 * Thread: one at a time per struct relabel (its regexes own match buffers).
 */
#ifndef DISTRIBUTOR_RULES_RELABEL_H
#define DISTRIBUTOR_RULES_RELABEL_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/conf/conf_tree.h"
#include "common/model/label.h"

#define RELABEL_RULES_MAX  1000
#define RELABEL_LABELS_MAX 1000       /* of one set, while rules run */
#define RELABEL_VALUE_MAX  (64 * KIB) /* of a joined or expanded value */

enum relabel_action {
    RELABEL_REPLACE,
    RELABEL_KEEP,
    RELABEL_DROP,
    RELABEL_KEEPEQUAL,
    RELABEL_DROPEQUAL,
    RELABEL_HASHMOD,
    RELABEL_LABELMAP,
    RELABEL_LABELDROP,
    RELABEL_LABELKEEP,
    RELABEL_LOWERCASE, /* ASCII; other letters stay */
    RELABEL_UPPERCASE,
    RELABEL_ACTIONS,
};
const char *relabel_action_name(enum relabel_action a);

/* As written; ptr NULL: not given, Prometheus' default holds. */
struct relabel_rule {
    enum relabel_action action;
    const struct str *sources;
    size_t sources_len;
    struct str separator;   /* ";" */
    struct str regex;       /* "(.*)" */
    struct str target;      /* may refer to groups where the action is replace */
    struct str replacement; /* "$1" */
    uint64_t modulus;       /* of hashmod; 0: not given */
};

struct relabel; /* a list of rules, compiled */
/* Copies everything. ERR_CONFIG names the rule (from 1) and what is wrong with it. */
NODISCARD int relabel_new(const struct relabel_rule *rules, size_t n, struct relabel **ret,
                          struct err *e);
/* From a YAML list with Prometheus' keys: source_labels, separator, regex, modulus, target_label,
 * replacement, action. `list` NULL or empty: a list without rules. ERR_CONFIG with the line. */
NODISCARD int relabel_conf(const struct conf_node *list, const char *file, struct relabel **ret,
                           struct err *e);
void relabel_free(struct relabel *r); /* NULL is fine */
size_t relabel_len(const struct relabel *r);
/* Runs the rules over *l: 1 keep, 0 dropped by a rule, -1 with the error set (a regex gave up, the
 * arena is full, a value or set too large). The array is copied to the arena first, new text is put
 * there, and what did not change is still borrowed. *l is changed only if 1 is returned. */
int relabel_apply(const struct relabel *r, struct labels *l, struct arena *a, struct err *e);
/* As a YAML list, each line behind `indent` blanks, only what was given. */
void relabel_format(const struct relabel *r, size_t indent, struct buf *out);

#endif
