/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.h: what the commands of embertreectl share with the table and with one another.
 */
#ifndef DEPLOY_CTL_COMMANDS_H
#define DEPLOY_CTL_COMMANDS_H

#include "common/net/json_in.h"

struct ask;
struct cli;
struct costs;
struct json;
struct term;
struct what;

int ctl_top(struct cli *c);
int ctl_tree(struct cli *c);
int ctl_query(struct cli *c);
int ctl_sandwich(struct cli *c);
int ctl_timeline(struct cli *c);
int ctl_series(struct cli *c);
int ctl_labels(struct cli *c);
int ctl_types(struct cli *c);
int ctl_services(struct cli *c);
int ctl_diff(struct cli *c);
int ctl_grew(struct cli *c);
int ctl_tail(struct cli *c);
int ctl_space(struct cli *c);
int ctl_ledger(struct cli *c);
int ctl_delete(struct cli *c);
int ctl_deletes(struct cli *c);
int ctl_admin(struct cli *c);
int ctl_cluster(struct cli *c);
int ctl_key(struct cli *c);
int ctl_upload(struct cli *c);
int ctl_import(struct cli *c);
int ctl_completion(struct cli *c);
int ctl_man(struct cli *c);

/* CLI_NO for an error that says that there is nothing, else CLI_FAILED; says it either way. */
int commands_fail(const struct cli *c, const struct err *e);
int commands_nothing(const struct cli *c); /* says so; CLI_NO */
/* A result that is bytes: to --output, or to standard output unless those are `binary` and it is a
 * terminal. Text is made harmless for a terminal. */
NODISCARD int commands_write(struct cli *c, struct str bytes, bool binary, struct err *e);

/* Asks and shows the answer: as it came with --json, else by `text`. ERR_ as ask_do. */
typedef void (*commands_text_fn)(struct cli *c, const struct json_val *root);
NODISCARD int commands_show(struct cli *c, struct ask *a, commands_text_fn text, struct err *e);

/* Keys of callers (common/identity): what `key make` asks for, as the members of an open object. */
NODISCARD int ctl_key_want_put(const struct cli *c, struct json *j, struct err *e);
/* A key goes to --output, which others cannot read, else to standard output. */
NODISCARD int ctl_key_write(struct cli *c, struct str key, struct err *e);
int ctl_key_offline(struct cli *c); /* `key make --offline`; an exit code */

/* Parts of what is printed, for commands that print alike, and tests. */
void top_table(const struct term *t, const struct costs *f, struct str unit, struct buf *out);
void top_whole(const struct costs *f, const struct what *w, struct buf *out);
/* "query", "profileType", "unit", "fromMs", "untilMs" of an object that is open. */
void put_json_what(const struct what *w, struct json *j);
void space_text(const struct term *t, const struct json_val *root, struct buf *out);

#endif
