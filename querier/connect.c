/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/connect.h"

/* Some parameter of some media range is allow-utf8-labelnames=true. */
bool connect_utf8_names(const struct http_req *r)
{
    struct str accept = http_header(r, "Accept"), range, param;
    bool ranges = true;

    while (str_next(&accept, ',', &ranges, &range)) {
        bool params = true;
        while (str_next(&range, ';', &params, &param))
            if (str_eq_nocase(str_trim(param), STR("allow-utf8-labelnames=true")))
                return true;
    }
    return false;
}
