/* SPDX-License-Identifier: Apache-2.0 */
#include "common/object/s3_keys.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/base/size.h"
#include "common/sys/secret_file.h"

#define FILE_MAX (4 * KIB)

static bool take_line(struct str *rest, bool *more, char *ret, size_t size)
{
    struct str line = STR_NULL;

    if (!str_next(rest, '\n', more, &line))
        line = STR_NULL;
    line = str_trim(line);
    if (line.len >= size)
        return false;
    if (line.len)
        memcpy(ret, line.ptr, line.len);
    ret[line.len] = '\0';
    return true;
}

static bool parse(struct str text, struct s3_keys *ret)
{
    bool more = true;

    return take_line(&text, &more, ret->access, sizeof(ret->access)) &&
           take_line(&text, &more, ret->secret, sizeof(ret->secret)) &&
           take_line(&text, &more, ret->token, sizeof(ret->token)) && ret->access[0] &&
           ret->secret[0];
}

int s3_keys_read(const struct fs *fs, const char *file, struct s3_keys *ret, struct err *e)
{
    struct s3_keys keys = { "", "", "" };
    struct buf text;
    int rc = secret_file_check(file, e);

    buf_init(&text, FILE_MAX);
    if (!rc)
        rc = fs->read_file(fs, file, &text, e);
    if (!rc && !parse(buf_str(&text), &keys))
        rc = err_set(e, ERR_CONFIG,
                     "%s: want the access key, the secret key and maybe a session token in it, a "
                     "line each",
                     file);
    if (!rc)
        *ret = keys;
    if (text.ptr)
        explicit_bzero(text.ptr, text.len);
    buf_deinit(&text);
    s3_keys_clear(&keys);
    return rc;
}

void s3_keys_clear(struct s3_keys *k)
{
    explicit_bzero(k, sizeof(*k));
}
