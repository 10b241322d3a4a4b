/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.h: one event loop: timers, work posted from other threads, and (real ones) libuv handles.
 *
 * Two kinds behind one interface: loop_new() drives libuv; loop_sim_new() has no thread and no
 * sockets: loop_sim_step runs the earliest posted call or timer and moves the fake clock to it, so
 * that a whole cluster runs in one thread, reproducibly.
 *
 * Thread: everything on the loop's own thread, except loop_post and loop_stop (any thread).
 */
#ifndef COMMON_SYS_LOOP_H
#define COMMON_SYS_LOOP_H

#include "common/base/base.h"
#include "common/sys/clock.h"

struct loop;
struct timer; /* heap-allocated, owned by the loop until loop_timer_free */
typedef void (*loop_fn)(void *cookie);

struct loop *loop_new(const struct clock *clock);
struct loop *loop_sim_new(struct clock_fake *clock);
/* Frees; all timers and handles must be closed before (CHECKed). Runs posted calls still waiting.
 * NULL is fine. */
void loop_free(struct loop *l);
/* Until loop_stop. Real loops only. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
/* Simulated loops only: false when nothing is left to run. */
bool loop_sim_step(struct loop *l);
/* Simulated loops only: when the next call is due (monotonic); false when nothing is left. */
bool loop_sim_next(struct loop *l, uint64_t *ret_mono_ns);
const struct clock *loop_clock(const struct loop *l);
/* Runs fn(cookie) on the loop soon, in order of posting. Any thread. */
void loop_post(struct loop *l, loop_fn fn, void *cookie);
/* The uv_loop_t, for net and rpc; NULL in simulation. */
void *loop_uv(struct loop *l);
/* True on the loop's own thread. */
bool loop_is_mine(const struct loop *l);

/* Created stopped. Restarting a running timer moves it. */
struct timer *loop_timer_new(struct loop *l, loop_fn fn, void *cookie);
void loop_timer_start(struct timer *t, uint64_t delay_ms, uint64_t repeat_ms /* 0: once */);
void loop_timer_stop(struct timer *t);
void loop_timer_free(struct timer *t); /* NULL is fine; safe inside its own callback */

#endif
