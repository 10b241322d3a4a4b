/* SPDX-License-Identifier: Apache-2.0
 *
 * fiber: ucontext, and the calls by which the sanitizers follow each change of stacks.
 *
 * Stacks are mapped, with a guard page below them, and up to STACKS_KEPT of ended fibers are kept
 * by their thread, since mapping costs more than most fibers do.
 * Thread: a fiber stays on the thread that ran it.
 */
#include "common/sys/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include "common/base/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#define BEFORE_SWITCH(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define AFTER_SWITCH(save, bottom, size)  __sanitizer_finish_switch_fiber(save, bottom, size)
#else
#define BEFORE_SWITCH(save, bottom, size) ((void)0)
#define AFTER_SWITCH(save, bottom, size)  ((void)0)
#endif
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifdef WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_BYTES ((size_t)2 * 1024 * 1024) /* only what is touched is there */
#define GUARD_BYTES ((size_t)4096)
#define STACKS_KEPT 16

struct fiber {
    ucontext_t own, caller;
    void (*fn)(void *cookie);
    void *cookie;
    void *slot;
    char *stack; /* mapped, a guard page below it */
    bool ended;
    const void *caller_bottom; /* sanitizers */
    size_t caller_size;
    void *caller_fake, *own_fake;
    void *own_tsan, *caller_tsan;
};

static _Thread_local struct fiber *current;
/* Stacks of fibers that ended: mapping one, and its pages, costs more than most fibers do. */
static _Thread_local char *kept[STACKS_KEPT];
static _Thread_local size_t kept_len;

struct fiber *fiber_self(void)
{
    return current;
}

void **fiber_slot(void)
{
    return current ? &current->slot : NULL;
}

static void leave(struct fiber *f)
{
    current = NULL;
    BEFORE_SWITCH(f->ended ? NULL : &f->own_fake, f->caller_bottom, f->caller_size);
#ifdef WITH_TSAN
    __tsan_switch_to_fiber(f->caller_tsan, 0);
#endif
    CHECK(swapcontext(&f->own, &f->caller) == 0);
    AFTER_SWITCH(f->own_fake, &f->caller_bottom, &f->caller_size);
}

static void entry(void)
{
    struct fiber *f = current;

    AFTER_SWITCH(NULL, &f->caller_bottom, &f->caller_size);
    f->fn(f->cookie);
    f->ended = true;
    leave(f);
}

static char *stack_new(void)
{
    char *stack;

    if (kept_len)
        return kept[--kept_len];
    stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(stack != MAP_FAILED);
    CHECK(mprotect(stack, GUARD_BYTES, PROT_NONE) == 0);
    return stack;
}

static void stack_free(char *stack)
{
    if (kept_len < STACKS_KEPT)
        kept[kept_len++] = stack;
    else
        CHECK(munmap(stack, GUARD_BYTES + STACK_BYTES) == 0);
}

static void fiber_free(struct fiber *f)
{
#ifdef WITH_TSAN
    __tsan_destroy_fiber(f->own_tsan);
#endif
    stack_free(f->stack);
    xfree(f);
}

void fiber_resume(struct fiber *f)
{
    CHECK(!current && !f->ended);
    current = f;
    BEFORE_SWITCH(&f->caller_fake, f->stack + GUARD_BYTES, STACK_BYTES);
#ifdef WITH_TSAN
    f->caller_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->own_tsan, 0);
#endif
    CHECK(swapcontext(&f->caller, &f->own) == 0);
    AFTER_SWITCH(f->caller_fake, NULL, NULL);
    if (f->ended)
        fiber_free(f);
}

void fiber_yield(void)
{
    CHECK(current);
    leave(current);
}

void fiber_run(void (*fn)(void *cookie), void *cookie)
{
    struct fiber *f = XNEW(struct fiber);

    f->fn = fn;
    f->cookie = cookie;
    f->stack = stack_new();
#ifdef WITH_TSAN
    f->own_tsan = __tsan_create_fiber(0);
#endif
    CHECK(getcontext(&f->own) == 0);
    f->own.uc_stack.ss_sp = f->stack + GUARD_BYTES;
    f->own.uc_stack.ss_size = STACK_BYTES;
    f->own.uc_link = NULL;
    makecontext(&f->own, entry, 0);
    fiber_resume(f);
}
