/* SPDX-License-Identifier: Apache-2.0
 *
 * check_doc: the rules of documents (tenant_doc.h).
 *
 *   row      key and value can be read, kind and id are such that store_doc_put would take them
 *   chunks   all there, full but for the last; none without its document, none behind its last
 */
#include "common/store/check/check_impl.h"

#include "common/base/wr.h"
#include "common/store/delete/tenant_doc.h"

#define CHUNK_TAIL 5 /* 00, number */

static int wrong(struct err *e, const char *what, struct str name)
{
    return err_set(e, ERR_CORRUPT, "document \"%.*s\": %s", STR_ARG(name), what);
}

/* tenant 00 kind id: false if it is not that. */
static bool read_name(struct str key, struct str *ret_id)
{
    ptrdiff_t end = str_find(key, '\0');

    if (end <= 0 || end > 255 || (size_t)end + 3 > key.len)
        return false;
    const uint8_t kind = (uint8_t)key.ptr[end + 1];
    *ret_id = str_sub(key, (size_t)end + 2, key.len);
    return kind >= DOC_PROFILE && kind <= DOC_KIND_LAST && ret_id->len <= DOC_ID_MAX &&
           str_find(*ret_id, '\0') < 0;
}

static int on_doc(struct check *c, struct str key, struct str value, struct err *e)
{
    struct str name = str_sub(key, 1, key.len), id = STR_NULL;
    struct doc d = { 0 };

    if (!read_name(name, &id))
        return wrong(e, "its key is damaged", name);
    if (!doc_row_read(value, &d) || !d.revision || d.meta.len > DOC_META_MAX)
        return wrong(e, "its row is damaged", id);
    const size_t chunks = doc_chunks(d.bytes);
    for (size_t i = 0; i < chunks; i++) {
        const uint64_t want = MIN((uint64_t)DOC_CHUNK, d.bytes - i * DOC_CHUNK);
        char number[4];
        put_u32be(number, (uint32_t)i);
        buf_reset(&c->text);
        wr_u8(&c->text, KEY_DOC_CHUNK);
        buf_add_str(&c->text, name);
        wr_u8(&c->text, 0);
        buf_add(&c->text, number, sizeof(number));
        if (check_get(c, KV_META, buf_str(&c->text), "part of a document", e))
            return e->code;
        if (c->row.len != want)
            return wrong(e, "a part has another length", id);
    }
    return 0;
}

static int on_chunk(struct check *c, struct str key, struct str value, struct err *e)
{
    struct str name = str_sub(key, 1, key.len - CHUNK_TAIL), id = STR_NULL;
    struct doc d = { 0 };

    (void)value;
    if (key.ptr[key.len - CHUNK_TAIL] != '\0' || !read_name(name, &id))
        return wrong(e, "the key of a part is damaged", name);
    buf_reset(&c->text);
    wr_u8(&c->text, KEY_DOC);
    buf_add_str(&c->text, name);
    if (check_get(c, KV_META, buf_str(&c->text), "document of a part", e))
        return e->code;
    if (!doc_row_read(buf_str(&c->row), &d))
        return 0; /* found by itself */
    return get_u32be(key.ptr + key.len - 4) < doc_chunks(d.bytes) ? 0
                                                                  : wrong(e, "a part too many", id);
}

int check_docs(struct check *c, struct err *e)
{
    check_begin(c, CHECK_DOCS);
    if (check_each(c, KV_META, KEY_DOC, 1 + 4, on_doc, e))
        return e->code;
    return check_each(c, KV_META, KEY_DOC_CHUNK, 1 + 4 + CHUNK_TAIL, on_chunk, e);
}
