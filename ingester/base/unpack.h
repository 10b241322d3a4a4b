/* SPDX-License-Identifier: Apache-2.0
 *
 * unpack.h: protobuf-c messages of our own in an arena.
 */
#ifndef INGESTER_BASE_UNPACK_H
#define INGESTER_BASE_UNPACK_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/model/stacks.h"
#include "proto/common.pb-c.h"

/* What protobuf-c allocates comes from the arena, and goes with it. */
ProtobufCAllocator unpack_allocator(struct arena *a);
/* ERR_LIMIT if the arena is all but used up, else ERR_INPUT: unpack does not say which. */
int unpack_failed(const char *what, struct str payload, const struct arena *a, struct err *e);
struct str unpack_str(ProtobufCBinaryData b);
/* The columns in place, checked by stacks_view_check; a missing message has no nodes. */
NODISCARD int unpack_stacks(const Embertree__Stacks *in, struct stacks_view *ret, struct err *e);

/* The columns in place, of equal lengths, and nothing else checked. */
NODISCARD int unpack_columns(const Embertree__Stacks *in, struct stacks_view *ret, struct err *e);

/* protobuf-c's structs hold pointers to what it only reads when it packs. */
void *pack_ptr(const void *p);
ProtobufCBinaryData pack_str(struct str s);
/* Borrows the view's columns. */
void pack_stacks(const struct stacks_view *v, Embertree__Stacks *ret);

#endif
