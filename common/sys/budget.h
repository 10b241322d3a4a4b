/* SPDX-License-Identifier: Apache-2.0
 *
 * budget.h: a number of bytes that may be held at once. Over it: ERR_BUSY, before the kernel
 * kills us. Thread: any.
 */
#ifndef COMMON_SYS_BUDGET_H
#define COMMON_SYS_BUDGET_H

#include <stdatomic.h>

#include "common/base/base.h"

struct budget {
    _Atomic size_t used;
    _Atomic size_t peak;
    _Atomic size_t max; /* may change: what is held over it is only given back */
};
void budget_init(struct budget *b, size_t max);
bool budget_reserve(struct budget *b, size_t n) NODISCARD; /* false: nothing taken */
void budget_release(struct budget *b, size_t n);

#endif
