/* SPDX-License-Identifier: Apache-2.0
 *
 * object: what holds for every kind of store: names, sizes, and that a name keeps its bytes.
 *
 * A put that was cut off may have arrived: the next try then finds the name taken. So "taken" is
 * looked at before it is an error: the same bytes are what was asked for.
 */
#include "common/object/object.h"

#include "common/object/object_impl.h"

#define COMPARE_CHUNK (8 * MIB)

void object_close(struct object_store *o)
{
    if (o)
        o->ops->close(o);
}

const char *object_where(const struct object_store *o)
{
    return o->where;
}

void object_deadline(struct object_store *o, uint64_t mono_ms)
{
    o->deadline_ms = mono_ms;
}

static bool part_ok(struct str part)
{
    if (part.len == 0 || str_eqc(part, ".") || str_eqc(part, ".."))
        return false;
    for (size_t i = 0; i < part.len; i++) {
        char c = part.ptr[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return false;
    }
    return true;
}

bool object_name_ok(struct str name)
{
    struct str part;
    bool more = true;

    if (name.len == 0 || name.len > OBJECT_NAME_MAX)
        return false;
    while (str_next(&name, '/', &more, &part))
        if (!part_ok(part))
            return false;
    return true;
}

/* "a/b/c", where c may be the beginning of a part, or nothing. */
static bool prefix_ok(struct str s)
{
    ptrdiff_t slash = str_rfind(s, '/');
    struct str last = str_sub(s, (size_t)(slash + 1), s.len);

    if (s.len > OBJECT_NAME_MAX || slash == 0)
        return false;
    if (slash > 0 && !object_name_ok(str_sub(s, 0, (size_t)slash)))
        return false;
    return last.len == 0 || part_ok(last) || str_eqc(last, ".") || str_eqc(last, "..");
}

static int check_name(struct str name, struct err *e)
{
    if (object_name_ok(name))
        return 0;
    return err_set(e, ERR_INPUT,
                   "\"%.*s\" is no name of an object: want parts of [A-Za-z0-9._-] between '/', "
                   "%d bytes at most",
                   STR_ARG(str_sub(name, 0, 100)), OBJECT_NAME_MAX);
}

/* ERR_CONFLICT unless the object holds exactly `data`. */
static int compare(struct object_store *o, struct str name, struct str data, struct err *e)
{
    uint64_t size;
    struct buf have;
    int rc = o->ops->size(o, name, &size, e);

    if (!rc && size != data.len)
        return err_set(e, ERR_CONFLICT, "%.*s is there with %" PRIu64 " bytes instead of %zu",
                       STR_ARG(name), size, data.len);
    buf_init(&have, COMPARE_CHUNK);
    for (size_t at = 0; !rc && at < data.len; at += COMPARE_CHUNK) {
        size_t n = MIN(COMPARE_CHUNK, data.len - at);

        buf_reset(&have);
        rc = o->ops->read(o, name, at, n, &have, e);
        if (!rc && memcmp(have.ptr, data.ptr + at, n) != 0)
            rc = err_set(e, ERR_CONFLICT, "%.*s is there with other bytes", STR_ARG(name));
    }
    buf_deinit(&have);
    return rc;
}

int object_put(struct object_store *o, struct str name, struct str data, struct err *e)
{
    struct err why = { 0 };
    int rc = check_name(name, e);

    if (rc)
        return rc;
    if (data.len > OBJECT_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "%.*s of %zu bytes, at most %zu", STR_ARG(name), data.len,
                       OBJECT_BYTES_MAX);
    rc = o->ops->put(o, name, data, &why);
    if (rc == ERR_CONFLICT)
        return compare(o, name, data, e);
    if (rc)
        *e = why;
    return rc;
}

int object_read(struct object_store *o, struct str name, uint64_t from, size_t len, struct buf *out,
                struct err *e)
{
    size_t had = out->len;
    int rc = check_name(name, e);

    if (rc || len == 0)
        return rc;
    if (len > out->max - out->len || from > UINT64_MAX - len)
        return err_set(e, ERR_LIMIT, "%zu bytes of %.*s do not fit in %zu", len, STR_ARG(name),
                       out->max - out->len);
    rc = o->ops->read(o, name, from, len, out, e);
    if (!rc && out->len - had != len)
        rc = err_set(e, ERR_CORRUPT, "%.*s gave %zu bytes at %" PRIu64 " instead of %zu",
                     STR_ARG(name), out->len - had, from, len);
    if (rc)
        out->len = had;
    return rc;
}

int object_size(struct object_store *o, struct str name, uint64_t *ret, struct err *e)
{
    int rc = check_name(name, e);

    return rc ? rc : o->ops->size(o, name, ret, e);
}

int object_list(struct object_store *o, struct str prefix, struct str after, object_list_fn fn,
                void *cookie, struct err *e)
{
    if (!prefix_ok(prefix) || !prefix_ok(after))
        return err_set(e, ERR_INPUT, "\"%.*s\" is not the beginning of an object's name",
                       STR_ARG(str_sub(prefix, 0, 100)));
    return o->ops->list(o, prefix, after, fn, cookie, e);
}

int object_delete(struct object_store *o, struct str name, struct err *e)
{
    int rc = check_name(name, e);

    return rc ? rc : o->ops->del(o, name, e);
}
