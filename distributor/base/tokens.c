/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens: a list of what an Authorization header may be, made when the file is read. A request is
 * compared with all of it, each time to the end, so that how long it takes tells nothing.
 */
#include "distributor/base/tokens.h"

#include "common/base/base64.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/base/vec.h"
#include "common/conf/conf_tree.h"
#include "common/role/core/role.h"
#include "common/sys/secret_file.h"

#define ARENA_MAX (4 * MIB)
#define FILE_MAX  MIB

struct token {
    bool basic;
    struct str proof; /* the token, or "name:password" in base64 */
    struct str tenant;
};
struct tokens {
    struct arena *arena;
    VEC(struct token) all;
};

/* Adds a copy of *given, which stands at `n` in the file. */
static int add(struct tokens *t, const struct conf_node *n, const char *file,
               const struct token *given, struct err *e)
{
    const struct tenancy_conf many = { .multi = true };
    struct http_header h = { STR("X-Scope-OrgID"), given->tenant };
    struct http_req r = { .headers = &h, .headers_len = 1 };
    struct token k = { .basic = given->basic, .proof = arena_strdup(t->arena, given->proof) };
    struct str clean;
    struct err why;
    size_t len;

    if (!given->proof.len)
        return conf_node_fail(n, file, e, "an empty token");
    if (tenant_of(&r, &many, 1, &clean, &len, &why))
        return conf_node_fail(n, file, e, "%s", why.text);
    k.tenant = arena_strdup(t->arena, clean);
    if (!k.proof.ptr || !k.tenant.ptr || t->all.len == TOKENS_MAX)
        return conf_node_fail(n, file, e, "more than %d tokens and users", TOKENS_MAX);
    vec_push(&t->all, k);
    return 0;
}

static int add_user(struct tokens *t, const struct conf_node *n, const char *file, struct err *e)
{
    static const char *const keys[] = { "password", "tenant", NULL };
    struct str password = STR(""), tenant = STR("");
    struct buf plain, coded;

    if (conf_node_keys(n, file, keys, e) ||
        conf_node_str(conf_node_get(n, "password"), file, &password, e) ||
        conf_node_str(conf_node_get(n, "tenant"), file, &tenant, e))
        return e->code;
    if (!password.len || str_find(n->key, ':') >= 0)
        return conf_node_fail(n, file, e, "a user without a password, or with ':' in the name");
    buf_init(&plain, MIB);
    buf_init(&coded, 2 * MIB);
    buf_add_str(&plain, n->key);
    buf_add_c(&plain, ':');
    buf_add_str(&plain, password);
    (void)base64_encode(buf_str(&plain), &coded);
    const struct token user = { .basic = true, .proof = buf_str(&coded), .tenant = tenant };
    int rc = add(t, n, file, &user, e);
    buf_deinit(&plain);
    buf_deinit(&coded);
    return rc;
}

static int read_all(struct tokens *t, const struct conf_node *root, const char *file, struct err *e)
{
    static const char *const keys[] = { "tokens", "users", NULL };
    const struct conf_node *tokens, *users;

    if (conf_node_keys(root, file, keys, e))
        return e->code;
    tokens = conf_node_get(root, "tokens");
    users = conf_node_get(root, "users");
    if ((tokens && conf_node_is(tokens, file, CONF_NODE_MAP, e)) ||
        (users && conf_node_is(users, file, CONF_NODE_MAP, e)))
        return e->code;
    for (const struct conf_node *n = tokens ? tokens->first : NULL; n; n = n->next) {
        struct str tenant = STR("");
        if (conf_node_str(n, file, &tenant, e) ||
            add(t, n, file, &(struct token){ .proof = n->key, .tenant = tenant }, e))
            return e->code;
    }
    for (const struct conf_node *n = users ? users->first : NULL; n; n = n->next)
        if (add_user(t, n, file, e))
            return e->code;
    return 0;
}

int tokens_load(const struct fs *fs, const char *file, struct tokens **ret, struct err *e)
{
    struct tokens *t = XNEW(struct tokens);
    struct conf_node *root = NULL;
    struct buf text;

    t->arena = arena_new(ARENA_MAX);
    buf_init(&text, FILE_MAX);
    int rc = secret_file_check(file, e);
    if (!rc)
        rc = fs->read_file(fs, file, &text, e);
    if (!rc)
        rc = conf_tree_parse(file, buf_str(&text), t->arena, &root, e);
    if (!rc)
        rc = read_all(t, root, file, e);
    buf_deinit(&text);
    if (rc)
        tokens_free(t);
    else
        *ret = t;
    return rc;
}

void tokens_free(struct tokens *t)
{
    if (!t)
        return;
    vec_free(&t->all);
    arena_free(t->arena);
    xfree(t);
}

struct str tokens_tenant(const struct tokens *t, const struct http_req *r)
{
    struct str given = str_trim(http_header(r, "Authorization")), found = STR_NULL;
    bool basic = str_eq_nocase(str_sub(given, 0, 6), STR("Basic "));
    bool bearer = str_eq_nocase(str_sub(given, 0, 7), STR("Bearer "));

    if (!basic && !bearer)
        return found;
    given = str_trim(str_sub(given, basic ? 6 : 7, given.len));
    vec_for (i, &t->all) {
        const struct token *k = &t->all.ptr[i];
        bool hit = secret_eq(k->proof, given);
        if (hit && k->basic == basic)
            found = k->tenant;
    }
    return found;
}
