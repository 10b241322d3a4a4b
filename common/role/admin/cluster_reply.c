/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_reply: one object, or an error.
 */
#include "common/role/admin/cluster_reply.h"

#include "common/base/size.h"

#define REPLY_MAX MIB /* lists of shards may be in it: 4,096 numbers */

void cluster_reply(struct http_req *r, const struct err *e,
                   void (*fill)(void *cookie, struct json *j), void *cookie)
{
    struct json j;
    struct buf b;

    if (e) {
        http_reply_err(r, e);
        return;
    }
    buf_init(&b, REPLY_MAX);
    json_init(&j, &b);
    json_obj(&j);
    fill(cookie, &j);
    json_obj_end(&j);
    (void)buf_add_c(&b, '\n');
    http_reply(r, 200, "application/json", &b);
}

bool cluster_followed(const struct view *v, struct http_req *r)
{
    struct err e;

    if (!v || !view_stranger(v)[0])
        return true;
    (void)err_set(&e, ERR_UNAVAILABLE, "%s", view_stranger(v));
    http_reply_err(r, &e);
    return false;
}
