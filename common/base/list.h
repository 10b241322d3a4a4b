/* SPDX-License-Identifier: Apache-2.0
 *
 * list.h: intrusive doubly linked ring. The head is a struct list too; empty means it points to
 * itself. An unlinked node points to itself as well, so list_del twice is harmless.
 */
#ifndef COMMON_BASE_LIST_H
#define COMMON_BASE_LIST_H

#include "common/base/base.h"

struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}
static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}
static inline void list_add_tail(struct list *head, struct list *n)
{
    n->prev = head->prev;
    n->next = head;
    head->prev->next = n;
    head->prev = n;
}
static inline void list_add(struct list *head, struct list *n)
{
    list_add_tail(head->next, n);
}
static inline void list_del(struct list *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    list_init(n);
}
/* Safe against removal of the current node. */
#define list_for(it, head)                                                    \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
         it = it##_next, it##_next = it->next)

#endif
