/* SPDX-License-Identifier: Apache-2.0
 *
 * fiber.h: code that waits, on a simulated loop: it runs on a stack of its own, returns to the loop
 * where it would wait, and continues when it is resumed. For simulation and tests only.
 *
 * Thread: a fiber is run, resumed and ended on one thread.
 */
#ifndef COMMON_SYS_FIBER_H
#define COMMON_SYS_FIBER_H

#include "common/base/base.h"

struct fiber;
/* Runs fn until it ends or yields; then returns. Its memory goes when fn ends. */
void fiber_run(void (*fn)(void *cookie), void *cookie);
struct fiber *fiber_self(void); /* NULL: not in a fiber */
/* A pointer of the fiber's own, at first NULL, for what threads keep in thread-local memory. NULL:
 * not in a fiber. */
void **fiber_slot(void);
/* Returns to the code that ran or resumed this fiber. Call it in a fiber. */
void fiber_yield(void);
/* Continues it after its fiber_yield, until it ends or yields again. Do not call it in a fiber. */
void fiber_resume(struct fiber *f);

#endif
