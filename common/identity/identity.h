/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.h: API keys in a process: its options, its registry, and the question that the HTTP
 * server asks before each handler.
 *
 *   identity.mode   off       no caller is asked; http.admin_token_file and
 *                             distributor.tokens_file hold as they always did
 *                   observe   each request is decided, and the refusals that `require` would make
 *                             are counted and logged; nothing is refused
 *                   require   each request is decided and refused
 *
 * Thread: the loop's.
 */
#ifndef COMMON_IDENTITY_IDENTITY_H
#define COMMON_IDENTITY_IDENTITY_H

#include "common/conf/conf.h"
#include "common/identity/decide.h"
#include "common/identity/keystore.h"
#include "common/obs/metrics.h"

enum identity_mode { IDENTITY_OFF, IDENTITY_OBSERVE, IDENTITY_REQUIRE };
struct identity_conf {
    const char *mode; /* "off", "observe", "require" */
    const char *file; /* YAML with keys; "": none. Read again when it changes. */
    uint64_t keys_per_tenant;
};
extern const struct conf_table identity_conf_table; /* section "identity" */

struct identity_opts {
    const struct identity_conf *conf; /* borrowed, as all below */
    struct env *env;
    struct loop *loop;
    struct coord *coord; /* NULL: none */
    struct str prefix;   /* cluster.etcd_prefix; empty without coord */
    struct metrics *metrics;
    const char *dir;
    struct pool *pool;
    struct str cluster_key;       /* the first line of cluster.key_file; empty: none */
    const struct str *other_keys; /* the lines behind it: keystore.h */
    size_t other_keys_len;
    bool multi, strict;
    const char *own_tenant; /* where the process pushes its own profiles: identity_own_token */
    /* Does the request show a token of http.admin_token_file? Then it is of a server-admin. The
     * second one adds headers to a refusal. Both may be NULL. */
    bool (*shows_token)(void *cookie, const struct http_req *r);
    void (*refusing)(void *cookie, struct http_req *r, const struct http_door *d);
    void *token_cookie; /* of both */
};
struct identity;

/* ERR_CONFIG with a sentence. With mode "off" it only makes the object. */
NODISCARD int identity_start(const struct identity_opts *o, struct identity **ret, struct err *e);
void identity_free(struct identity *i); /* NULL is fine */
enum identity_mode identity_mode_of(const struct identity *i);
struct registry *identity_registry(struct identity *i);
struct keystore *identity_keystore(struct identity *i);
/* cluster.key_file changed: all its keys, the first one first. Borrowed for the call. */
void identity_keys(struct identity *i, const struct str *keys, size_t n);
/* Looks at the file and at the time; twice a second. */
void identity_tick(struct identity *i);
/* Another credential beside keys, for distributor.tokens_file: fn returns the tenant to which a
 * request may push by what it shows, or STR_NULL. NULL ends that. */
typedef struct str (*identity_tokens_fn)(void *cookie, const struct http_req *r);
void identity_tokens(struct identity *i, identity_tokens_fn fn, void *cookie);
/* By which the process may push to own_tenant through its own door. NULL in mode off. */
const char *identity_own_token(const struct identity *i);

/* Decides a request. Mode require sets r->identity and r->tenants, or answers and returns false;
 * observe only counts, off does nothing. */
bool identity_admits(struct identity *i, struct http_req *r, const struct http_door *d);
/* The request ends: gives back what identity_admits took. */
void identity_forget(struct identity *i, struct http_req *r);

/* ---- for handlers, of a request that was admitted */

/* The record, or NULL: in the modes off and observe, and of the operator's socket. */
const struct key_record *identity_of(const struct http_req *r);
/* "key:k3fT9aQz07Lm", "option:http.admin_token_file", "socket", "anonymous": for logs and
 * records. */
void identity_subject(const struct http_req *r, char *to, size_t n);

#endif
