/* SPDX-License-Identifier: Apache-2.0
 *
 * access: compares the bearer token of a request with the lines of http.admin_token_file.
 *
 * The file is read again for each request, so a changed token is valid at once. All lines are
 * compared, each in constant time (common/base/secret.h), so the time of an answer does not tell
 * how much of a token was right. A file that cannot be read admits no request. Thread: the loop's.
 */
#include "common/role/core/access.h"

#include "common/base/secret.h"
#include "common/base/size.h"
#include "common/sys/secret_file.h"

#define FILE_MAX (16 * KIB)

bool access_knows(struct str tokens, struct str header)
{
    const struct str bearer = STR("Bearer ");
    struct str given = str_trim(header), line;
    bool more = true, found = false;

    if (!str_eq_nocase(str_sub(given, 0, MIN(bearer.len, given.len)), bearer))
        return false;
    given = str_trim(str_sub(given, bearer.len, given.len));
    while (str_next(&tokens, '\n', &more, &line)) {
        line = str_trim(line);
        if (line.len && line.ptr[0] != '#')
            found |= secret_eq(line, given);
    }
    return found;
}

static int check(struct str tokens, const char *file, struct err *e)
{
    struct str line;
    bool more = true;
    size_t n = 0;

    while (str_next(&tokens, '\n', &more, &line)) {
        line = str_trim(line);
        if (!line.len || line.ptr[0] == '#')
            continue;
        if (line.len < ACCESS_TOKEN_BYTES_MIN)
            return err_set(e, ERR_CONFIG, "%s: a token of %zu bytes, want %d or more", file,
                           line.len, ACCESS_TOKEN_BYTES_MIN);
        n++;
    }
    if (n == 0 || n > ACCESS_TOKENS_MAX)
        return err_set(e, ERR_CONFIG, "%s has %zu tokens, want 1 to %d, a line each", file, n,
                       ACCESS_TOKENS_MAX);
    return 0;
}

/* The tokens, or nothing. */
static int read_tokens(const struct access *a, struct buf *ret, struct err *e)
{
    buf_init(ret, FILE_MAX);
    if (a->fs->read_file(a->fs, a->file, ret, e) || check(buf_str(ret), a->file, e)) {
        e->code = ERR_CONFIG;
        return err_wrap(e, "http.admin_token_file");
    }
    return 0;
}

NODISCARD int access_init(struct access *a, const struct fs *fs, const char *file, struct err *e)
{
    struct buf tokens;

    *a = (struct access){ .fs = fs, .file = file };
    if (!file || !file[0])
        return 0;
    if (secret_file_check(file, e))
        return err_wrap(e, "http.admin_token_file");
    int rc = read_tokens(a, &tokens, e);
    buf_deinit(&tokens);
    return rc;
}

static bool has_file(const struct access *a)
{
    return a->file && a->file[0];
}

bool access_shows_token(void *cookie, const struct http_req *r)
{
    const struct access *a = cookie;
    struct buf tokens;

    if (!has_file(a))
        return false;
    bool known = read_tokens(a, &tokens, &(struct err){ 0 }) == 0 &&
                 access_knows(buf_str(&tokens), http_header(r, "Authorization"));

    buf_deinit(&tokens);
    return known;
}

void access_hint(void *cookie, struct http_req *r, const struct http_door *door)
{
    const struct access *a = cookie;

    if (a->socket && r->own && door->needs >= HTTP_NEEDS_TOKEN)
        http_reply_header(r, ACCESS_SOCKET_HEADER, str_c(a->socket));
}

/* 401 where a token opens, else 403: what to do next. Callers on this machine learn where the
 * socket is, which opens only for the server's user. */
static void refuse(const struct access *a, struct http_req *r)
{
    bool near = a->socket && r->own;
    struct err e;

    if (near)
        http_reply_header(r, ACCESS_SOCKET_HEADER, str_c(a->socket));
    if (has_file(a)) {
        http_reply_header(r, "WWW-Authenticate", STR("Bearer"));
        (void)err_set(&e, ERR_UNAUTHENTICATED,
                      "this wants a token of http.admin_token_file (Authorization: Bearer, "
                      "embertreectl --token-file)%s%s",
                      near ? ", or the socket " : "", near ? a->socket : "");
    } else {
        (void)err_set(&e, ERR_FORBIDDEN,
                      "this is for the operator: ask through the server's Unix socket%s%s "
                      "(embertreectl on the server's own machine, as its user, does), or set "
                      "http.admin_token_file and show a token of it (Authorization: Bearer, "
                      "embertreectl --token-file); you are %s",
                      near ? ", " : "", near ? a->socket : "", r->peer);
    }
    http_reply_err(r, &e);
}

bool access_admits(void *cookie, struct http_req *r, const struct http_door *door)
{
    const struct access *a = cookie;
    enum http_needs needs = door->needs;

    if (r->local || needs == HTTP_NEEDS_NOTHING || (needs == HTTP_NEEDS_METRICS && !a->metrics) ||
        (needs != HTTP_NEEDS_OPERATOR && !has_file(a)))
        return true;
    if (access_shows_token(cookie, r))
        return true;
    refuse(a, r);
    return false;
}
