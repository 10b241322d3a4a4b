/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sys/signal.h"

#include <signal.h>
#include <uv.h>

#include "common/base/mem.h"

static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };

struct signals {
    uv_signal_t handles[ARRAY_LEN(numbers)];
    size_t open; /* handles not yet closed */
    void (*on_signal)(void *cookie, int number);
    void *cookie;
};

static void on_uv_signal(uv_signal_t *h, int number)
{
    struct signals *s = h->data;

    s->on_signal(s->cookie, number);
}

struct signals *signals_new(struct loop *l, void (*on_signal)(void *cookie, int number),
                            void *cookie)
{
    struct signals *s = XNEW(struct signals);

    CHECK(loop_uv(l));
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    s->on_signal = on_signal;
    s->cookie = cookie;
    s->open = ARRAY_LEN(numbers);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        CHECK(uv_signal_init(loop_uv(l), &s->handles[i]) == 0);
        s->handles[i].data = s;
        CHECK(uv_signal_start(&s->handles[i], on_uv_signal, numbers[i]) == 0);
    }
    return s;
}

static void on_closed(uv_handle_t *h)
{
    struct signals *s = h->data;

    if (--s->open == 0)
        xfree(s);
}

void signals_free(struct signals *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        uv_close((uv_handle_t *)(void *)&s->handles[i], on_closed);
}
