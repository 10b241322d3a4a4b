/* SPDX-License-Identifier: Apache-2.0
 *
 * multipart: a cursor over the body, from delimiter to delimiter.
 *
 *   preamble  --B CRLF  headers CRLF CRLF  content  CRLF --B CRLF ...  CRLF --B--  epilogue
 *
 * A delimiter only counts at the start of a line and if nothing but blanks follows on its line, so
 * binary content that happens to hold "--B" in the middle survives. The line end before a delimiter
 * belongs to the delimiter.
 */
#include "distributor/formats/multipart.h"

#define NAME_SHOWN   40
#define BOUNDARY_MAX 200 /* RFC 2046 allows 70; some libraries write more */

struct cursor {
    struct str body;
    struct str line; /* line end, "--", boundary: a boundary has no line end in it */
    size_t at;
};

/* ---- parameters of a header: ; name=value; name="quoted" --------------------------------------
 */

static bool token_char(char c)
{
    return c > ' ' && c < 0x7f && c != ';' && c != '"' && c != ',';
}

/* Undoes \" and \\ of a quoted string. A backslash before anything else stays: browsers send paths
 * like C:\dir. */
static struct str unquote(struct str s, struct arena *a)
{
    char *out = arena_alloc(a, s.len + 1);
    size_t n = 0;

    if (!out)
        return STR_NULL;
    for (size_t i = 0; i < s.len; i++) {
        bool escape =
            s.ptr[i] == '\\' && i + 1 < s.len && (s.ptr[i + 1] == '"' || s.ptr[i + 1] == '\\');
        i += escape;
        out[n++] = s.ptr[i];
    }
    return str_n(out, n);
}

static struct str skip_blanks(struct str s)
{
    while (s.len && (s.ptr[0] == ' ' || s.ptr[0] == '\t'))
        s = str_sub(s, 1, s.len);
    return s;
}

/* Takes `; name=value` off *rest. 1 = got one, 0 = no more, -1 = malformed. */
static int next_parameter(struct str *rest, struct arena *a, struct str *ret_name,
                          struct str *ret_value)
{
    struct str s = skip_blanks(*rest);
    size_t n = 0;

    while (s.len && s.ptr[0] == ';')
        s = skip_blanks(str_sub(s, 1, s.len));
    if (s.len == 0)
        return 0;
    while (n < s.len && token_char(s.ptr[n]) && s.ptr[n] != '=')
        n++;
    *ret_name = str_sub(s, 0, n);
    s = skip_blanks(str_sub(s, n, s.len));
    if (n == 0 || s.len == 0 || s.ptr[0] != '=')
        return -1;
    s = skip_blanks(str_sub(s, 1, s.len));
    if (s.len && s.ptr[0] == '"') {
        for (n = 1; n < s.len && s.ptr[n] != '"'; n++)
            n += s.ptr[n] == '\\' && n + 1 < s.len;
        if (n >= s.len)
            return -1;
        *ret_value = unquote(str_sub(s, 1, n), a);
        *rest = str_sub(s, n + 1, s.len);
        return ret_value->ptr ? 1 : -1;
    }
    for (n = 0; n < s.len && token_char(s.ptr[n]);)
        n++;
    *ret_value = str_sub(s, 0, n);
    *rest = str_sub(s, n, s.len);
    return 1;
}

static int boundary_of(struct str content_type, struct arena *a, struct str *ret, struct err *e)
{
    ptrdiff_t semicolon = str_find(content_type, ';');
    struct str rest =
        semicolon < 0 ? STR_NULL : str_sub(content_type, (size_t)semicolon, content_type.len);
    struct str name, value;
    int got;

    while ((got = next_parameter(&rest, a, &name, &value)) > 0) {
        if (!str_eq_nocase(name, STR("boundary")))
            continue;
        if (value.len == 0 || value.len > BOUNDARY_MAX)
            return err_set(e, ERR_INPUT, "multipart: a boundary of %zu bytes, want 1 to %d",
                           value.len, BOUNDARY_MAX);
        char *d = arena_alloc(a, value.len + 3);
        if (!d)
            return err_set(e, ERR_LIMIT, "multipart: no memory left in this request");
        d[0] = '\n';
        d[1] = d[2] = '-';
        memcpy(d + 3, value.ptr, value.len);
        *ret = str_n(d, value.len + 3);
        return 0;
    }
    return err_set(e, ERR_INPUT, "multipart: Content-Type %s",
                   got < 0 ? "has a malformed parameter" : "names no boundary");
}

/* ---- delimiters and headers -------------------------------------------------------------------
 */

enum found { FOUND_NONE, FOUND_NEXT, FOUND_CLOSE };

/* Where the first line at or after `at` begins that starts with the delimiter; false: none. It is
 * looked for with the line end before it: else a body of dashes would be one after the other. */
static bool next_line(const struct cursor *c, size_t at, size_t *ret)
{
    struct str b = str_sub(c->body, at ? at - 1 : 0, c->body.len);

    *ret = 0;
    if (at == 0 && str_starts(b, str_sub(c->line, 1, c->line.len)))
        return true;
    const char *hit = b.len ? memmem(b.ptr, b.len, c->line.ptr, c->line.len) : NULL;
    if (hit)
        *ret = (size_t)(hit - c->body.ptr) + 1;
    return hit != NULL;
}

/* Finds the next delimiter line at or after c->at and moves behind it. *ret_end is where the
 * content before it ends. */
static enum found next_delimiter(struct cursor *c, size_t *ret_end)
{
    struct str b = c->body;

    for (size_t at = c->at, from; at < b.len;) {
        if (!next_line(c, at, &from))
            return FOUND_NONE;
        size_t to = from + c->line.len - 1;
        bool close = str_starts(str_sub(b, to, b.len), STR("--"));
        at = from + 1;
        to += close ? 2 : 0;
        while (to < b.len && (b.ptr[to] == ' ' || b.ptr[to] == '\t'))
            to++;
        to += to + 1 < b.len && b.ptr[to] == '\r' && b.ptr[to + 1] == '\n';
        if (to < b.len && b.ptr[to] == '\n')
            to++;
        else if (!close || to < b.len)
            continue; /* something else follows on the line, or the body ends here */
        size_t end = from;
        end -= end > c->at && b.ptr[end - 1] == '\n';
        end -= end > c->at && b.ptr[end - 1] == '\r';
        *ret_end = end;
        c->at = to;
        return close ? FOUND_CLOSE : FOUND_NEXT;
    }
    return FOUND_NONE;
}

static int disposition(struct str value, struct arena *a, struct multipart_part *part,
                       struct err *e)
{
    ptrdiff_t semicolon = str_find(value, ';');
    struct str rest = semicolon < 0 ? STR_NULL : str_sub(value, (size_t)semicolon, value.len);
    struct str name, text;
    int got;

    if (!str_eq_nocase(str_trim(str_sub(value, 0, value.len - rest.len)), STR("form-data")))
        return err_set(e, ERR_INPUT, "multipart: a part is not form-data");
    while ((got = next_parameter(&rest, a, &name, &text)) > 0) {
        if (str_eq_nocase(name, STR("name")))
            part->name = text;
        else if (str_eq_nocase(name, STR("filename")))
            part->filename = text;
    }
    if (got < 0)
        return err_set(e, ERR_INPUT, "multipart: malformed Content-Disposition");
    return 0;
}

static int part_header(struct str line, struct arena *a, struct multipart_part *part, struct err *e)
{
    ptrdiff_t colon = str_find(line, ':');

    if (colon <= 0)
        return err_set(e, ERR_INPUT, "multipart: a header of a part has no name");
    struct str name = str_trim(str_sub(line, 0, (size_t)colon));
    struct str value = str_trim(str_sub(line, (size_t)colon + 1, line.len));
    if (str_eq_nocase(name, STR("content-disposition")))
        return disposition(value, a, part, e);
    if (str_eq_nocase(name, STR("content-transfer-encoding")))
        part->encoding = value;
    return 0;
}

/* From behind a delimiter to behind the empty line. */
static int part_headers(struct cursor *c, struct arena *a, struct multipart_part *part,
                        struct err *e)
{
    for (size_t n = 0;; n++) {
        struct str rest = str_sub(c->body, c->at, c->body.len);
        ptrdiff_t end = str_find(rest, '\n');
        if (end < 0)
            return err_set(e, ERR_INPUT, "multipart: the headers of a part do not end");
        struct str line = str_sub(rest, 0, (size_t)end);
        c->at += (size_t)end + 1;
        if (line.len && line.ptr[line.len - 1] == '\r')
            line.len--;
        if (line.len == 0)
            return 0;
        if (n == MULTIPART_HEADERS_MAX || line.len > MULTIPART_HEADER_BYTES_MAX)
            return err_set(e, ERR_LIMIT,
                           "multipart: a part has more than %d headers or one over %d bytes",
                           MULTIPART_HEADERS_MAX, MULTIPART_HEADER_BYTES_MAX);
        if (part_header(line, a, part, e))
            return e->code;
    }
}

int multipart_parse(struct str content_type, struct str body, struct arena *a,
                    struct multipart *ret, struct err *e)
{
    struct cursor c = { .body = body };
    enum found found;
    size_t end;

    ret->len = 0;
    if (boundary_of(content_type, a, &c.line, e))
        return e->code;
    found = next_delimiter(&c, &end);
    while (found == FOUND_NEXT) {
        struct multipart_part part = { 0 };
        if (ret->len == MULTIPART_PARTS_MAX)
            return err_set(e, ERR_LIMIT, "multipart: more than %d parts", MULTIPART_PARTS_MAX);
        if (part_headers(&c, a, &part, e))
            return e->code;
        size_t from = c.at;
        found = next_delimiter(&c, &end);
        if (found == FOUND_NONE)
            break;
        part.content = str_sub(body, from, end);
        ret->parts[ret->len++] = part;
    }
    if (found != FOUND_CLOSE)
        return err_set(e, ERR_INPUT,
                       "multipart: no closing delimiter after %zu parts: the body is "
                       "cut, or the boundary is not the one in Content-Type",
                       ret->len);
    return 0;
}

int multipart_file(const struct multipart *m, const char *name, const struct multipart_part **ret,
                   struct err *e)
{
    size_t n = 0;

    *ret = NULL;
    for (size_t i = 0; i < m->len; i++) {
        if (!m->parts[i].filename.ptr || !str_eqc(m->parts[i].name, name))
            continue;
        n++;
        *ret = &m->parts[i];
    }
    if (n > 1)
        return err_set(e, ERR_INPUT, "multipart: %zu parts named \"%s\": send a request for each",
                       n, name);
    return 0;
}

/* With what there is in its place. */
static int no_part(const struct multipart *m, const char *name, struct err *e)
{
    struct str there = m->len ? m->parts[0].name : STR_NULL;

    if (!there.len || there.len > NAME_SHOWN || !str_utf8_valid(there))
        return err_set(e, ERR_INPUT, "multipart: no file part named \"%s\" among %zu parts", name,
                       m->len);
    return err_set(e, ERR_INPUT,
                   "multipart: no file part named \"%s\" among %zu parts; there is \"%.*s\"%s",
                   name, m->len, STR_ARG(there),
                   str_eqc(there, "jfr") ? ": a form with a recording needs format=jfr" : "");
}

int multipart_need(const struct multipart *m, const char *name, const struct multipart_part **ret,
                   struct err *e)
{
    if (multipart_file(m, name, ret, e))
        return e->code;
    if (*ret)
        return 0;
    for (size_t i = 0; i < m->len; i++)
        if (str_eqc(m->parts[i].name, name))
            return err_set(e, ERR_INPUT,
                           "multipart: the part \"%s\" has no filename, so it is no file "
                           "(curl: -F %s=@FILE)",
                           name, name);
    return no_part(m, name, e);
}
