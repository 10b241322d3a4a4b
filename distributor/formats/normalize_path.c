/* SPDX-License-Identifier: Apache-2.0
 *
 * normalize_path: one pass over the elements of an absolute path.
 *
 *   /proc/1234/root/app/x.py           /proc/_/root/app/x.py
 *   /tmp/tmpk3v_9x2a/main.py           /tmp/tmp_/main.py           what mkdtemp makes
 *   /tmp/_MEIx7Yq2b/lib.so             /tmp/_MEI_/lib.so           PyInstaller
 *   /tmp/jna-812/jna6712340.tmp        /tmp/jna-_/jna_.tmp         numbers below a temporary folder
 *   /run/user/1000/app-9f86d081/a      /run/user/_/app-_/a
 *   .../overlay2/<64 hex>/merged/a     .../overlay2/_/merged/a     ids of containers and layers
 *
 * Else every process would bring its own frames: a frame is its function, file, module and line.
 * Paths with other numbers in them (versions, commits) are left alone: 32 hex digits and more are
 * an id made by a machine, fewer are only below a temporary folder.
 */
#include "distributor/formats/normalize.h"

#include "common/base/hex.h"

#define ID_LEAST    32 /* hex digits, anywhere */
#define TMP_HEX     8  /* below a temporary folder */
#define TMP_DIGITS  3
#define MKDTEMP_LEN 11 /* tmp + 8 */
#define MEI_LEN     10 /* _MEI + 6 */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return hex_digit(c) >= 0;
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool all(struct str s, bool (*is)(char c))
{
    for (size_t i = 0; i < s.len; i++)
        if (!is(s.ptr[i]))
            return false;
    return s.len > 0;
}

static bool temporary(struct str path)
{
    static const char *const folders[] = {
        "/tmp/",     "/var/tmp/", "/private/tmp/", "/var/folders/", "/private/var/folders/",
        "/dev/shm/", "/run/user/"
    };

    if (path.len < 5 || !memchr("tvpdr", path.ptr[1], 5))
        return false;
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
        if (str_starts(path, str_c(folders[i])))
            return true;
    return false;
}

/* ID_LEAST hex digits in a row: such a run covers one of every ID_LEAST characters. */
static bool has_id(struct str s)
{
    for (size_t at = ID_LEAST - 1; at < s.len; at += ID_LEAST) {
        size_t from = at, to = at;

        if (!is_hex(s.ptr[at]))
            continue;
        while (from > at - (ID_LEAST - 1) && is_hex(s.ptr[from - 1]))
            from--;
        while (to - from < ID_LEAST && to < s.len && is_hex(s.ptr[to]))
            to++;
        if (to - from == ID_LEAST)
            return true;
    }
    return false;
}

/* Runs of digits that some machine made up become '_'. */
static void put_element(struct str e, bool tmp, struct buf *out)
{
    for (size_t i = 0; i < e.len;) {
        size_t hex = 0, digits = 0;
        bool any = false, begins = i == 0 || !is_word(e.ptr[i - 1]) || e.ptr[i - 1] == '_';

        while (begins && i + hex < e.len && is_hex(e.ptr[i + hex]))
            any |= is_digit(e.ptr[i + hex++]);
        while (i + digits < e.len && is_digit(e.ptr[i + digits]))
            digits++;
        size_t id = hex >= ID_LEAST || (tmp && any && hex >= TMP_HEX) ? hex
                    : tmp && digits >= TMP_DIGITS                     ? digits
                                                                      : 0;
        size_t n = id ? id : MAX(digits, 1);
        if (id)
            buf_add_c(out, '_');
        else
            buf_add(out, e.ptr + i, n);
        i += n;
    }
}

static void put_path(struct str path, struct buf *out)
{
    bool tmp = temporary(path), proc = str_starts(path, STR("/proc/")), more = true;
    struct str rest = path, e;

    for (size_t n = 0; str_next(&rest, '/', &more, &e); n++) {
        if (n)
            buf_add_c(out, '/');
        if (proc && n == 2 && all(e, is_digit))
            buf_add_c(out, '_');
        else if (tmp && e.len == MKDTEMP_LEN && str_starts(e, STR("tmp")) && all(e, is_word))
            buf_add_str(out, STR("tmp_"));
        else if (tmp && e.len == MEI_LEN && str_starts(e, STR("_MEI")) && all(e, is_word))
            buf_add_str(out, STR("_MEI_"));
        else
            put_element(e, tmp, out);
    }
}

/* Nearly all paths have neither. */
static bool wanted(struct str path)
{
    if (path.len == 0 || path.ptr[0] != '/')
        return false;
    return temporary(path) || str_starts(path, STR("/proc/")) || has_id(path);
}

bool normalize_leaves_path(const struct normalize_look *l, struct str path)
{
    return normalize_leaves(l, path) && !wanted(path);
}

struct str normalize_path(struct str path, struct buf *tmp)
{
    struct buf own;

    if (!wanted(path))
        return normalize_name(path, tmp);
    buf_init(&own, path.len + 1);
    put_path(path, &own);
    struct str done = normalize_name(buf_str(&own), tmp);
    if (done.ptr == own.ptr) {
        buf_reset(tmp);
        if (!buf_add(tmp, own.ptr, own.len)) { /* tmp too small: as normalize_name */
            buf_deinit(&own);
            return path;
        }
        done = buf_str(tmp);
    }
    buf_deinit(&own);
    return done;
}
