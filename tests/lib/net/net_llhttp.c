/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/net/net_llhttp.h"

#include <llhttp/llhttp.h>

static int on_method(llhttp_t *p, const char *at, size_t n)
{
    struct net_reading *r = p->data;

    r->all[r->len] = (struct net_message){ { at, n }, r->bodies.len, 0 };
    return 0;
}

static int on_body(llhttp_t *p, const char *at, size_t n)
{
    struct net_reading *r = p->data;

    r->all[r->len].body_len += n;
    return buf_add(&r->bodies, at, n) ? 0 : -1;
}

static int on_complete(llhttp_t *p)
{
    struct net_reading *r = p->data;

    return ++r->len < NET_MESSAGES_MAX ? 0 : -1;
}

void net_llhttp_read(struct str bytes, struct net_reading *ret)
{
    static const llhttp_settings_t settings = {
        .on_method = on_method,
        .on_body = on_body,
        .on_message_complete = on_complete,
    };
    llhttp_t p;
    llhttp_errno_t code;

    ret->len = 0;
    buf_init(&ret->bodies, 16 * MIB);
    llhttp_init(&p, HTTP_REQUEST, &settings);
    p.data = ret;
    code = llhttp_execute(&p, bytes.ptr, bytes.len);
    while (code == HPE_PAUSED_UPGRADE) { /* we ignore upgrades: what follows is HTTP/1.1 */
        const char *at = llhttp_get_error_pos(&p);
        llhttp_resume_after_upgrade(&p);
        code = llhttp_execute(&p, at, (size_t)(bytes.ptr + bytes.len - at));
    }
}
