/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/fake_identity.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/net/http_server.h"
#include "common/role/core/doors.h"

struct key_record *fake_identity(const char *id, const char *grants)
{
    struct key_record *r;
    struct buf json;
    struct err e;

    buf_init(&json, KEY_RECORD_BYTES_MAX);
    buf_addf(&json,
             "{\"id\":\"%s\",\"hash\":\"%064d\",\"name\":\"test\",\"owner\":\"test\",\"grants\":%s,"
             "\"from\":0,\"until\":0,\"replaces\":\"\",\"made_by\":\"\",\"made_at\":0,\"nets\":[]}",
             id, 0, grants);
    if (record_key_read(buf_str(&json), &r, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
    buf_deinit(&json);
    return r;
}

static bool on_admit(void *cookie, struct http_req *r, const struct http_door *door)
{
    struct fake_doorman *d = cookie;

    (void)door;
    if (!d->who)
        return true;
    r->identity = record_key_ref(d->who);
    r->tenants = d->as;
    r->tenants_len = 0;
    for (size_t i = 0; i < ARRAY_LEN(d->tenants) && d->tenants[i]; i++)
        d->as[r->tenants_len++] = str_c(d->tenants[i]);
    if (!r->tenants_len)
        d->as[r->tenants_len++] = STR("anonymous");
    return true;
}

static void on_forget(void *cookie, struct http_req *r)
{
    (void)cookie;
    record_key_unref(r->identity);
    r->identity = NULL;
}

void fake_doorman(struct http_server *s, struct fake_doorman *d)
{
    s->o.doors = doors(&s->o.doors_len);
    s->o.admit = on_admit;
    s->o.forget = on_forget;
    s->o.admit_cookie = d;
}
