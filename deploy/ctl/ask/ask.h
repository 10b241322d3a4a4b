/* SPDX-License-Identifier: Apache-2.0
 *
 * ask.h: questions to the server that the global options name: address, tenant, token, TLS, time
 * limit. One place turns what went wrong into a sentence that says what to do next.
 */
#ifndef DEPLOY_CTL_ASK_ASK_H
#define DEPLOY_CTL_ASK_ASK_H

#include "common/net/json_in.h"
#include "deploy/ctl/cli/cli.h"

#define ASK_ANSWER_MAX (512 * MIB)
#define ASK_JSON_MAX   (64 * MIB)
#define ASK_TARGET_MAX (32 * KIB) /* of a path with its parameters: what servers take */

struct ask {
    const char *method;   /* NULL: GET */
    struct str target;    /* "/path?name=value", see ask_param */
    const char *type;     /* content type of the body */
    const char *encoding; /* content encoding of the body, or NULL */
    struct str body;
    uint64_t wait_ms;        /* without --timeout; 0: a minute */
    bool any_status;         /* an answer of any status is no error */
    uint64_t retry_after_ms; /* out: of a refusal; 0: the server did not say */
    bool is_json;            /* out: the content type says so */
    int status;              /* out; 0: there was no answer; 202: done here, not elsewhere */
};
/* Appends "name=value" behind '?' or '&', percent-encoded. */
void ask_param(struct buf *target, const char *name, struct str value);
void ask_param_u64(struct buf *target, const char *name, uint64_t value);
/* The next questions go to this one instead; borrowed. ERR_CONFIG: it is no URL of a server. */
NODISCARD int ask_server(struct cli *c, const char *url, struct err *e);
/* Appends the body of the answer. Errors are ready to be shown. */
NODISCARD int ask_do(struct cli *c, struct ask *a, struct buf *ret, struct err *e);
/* GET of a target, as JSON. */
NODISCARD int ask_json(struct cli *c, struct str target, struct json_doc **ret, struct err *e);
/* The same where a server may have nothing to say: *ret is NULL for any other answer. */
NODISCARD int ask_json_if(struct cli *c, struct str target, struct json_doc **ret, struct err *e);
/* A unary call of the service querier.v1, in proto3 JSON. */
NODISCARD int ask_call(struct cli *c, const char *method, struct str message, struct json_doc **ret,
                       struct err *e);
/* A member of an object of an answer; "" or false where it is missing or something else. */
struct str ask_text(const struct json_val *v, const char *key);
bool ask_truth(const struct json_val *v, const char *key);
/* Shows what a server has to say of a sum, such as that it is of several collectors; the first time
 * only. */
void ask_notice(struct cli *c, const struct json_val *root);
/* Something in an answer is not as it should be: "is it another program, or another version?" */
int ask_strange(const struct cli *c, const char *what, struct err *e);

#endif
