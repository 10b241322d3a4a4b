/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/base.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *cond, const char *file, int line, const char *func)
{
    (void)fprintf(stderr, "CHECK failed: %s at %s:%d in %s\n", cond, file, line, func);
    (void)fflush(stderr);
    abort();
}
