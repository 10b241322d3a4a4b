/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_known.h: stacks that a sender has told before, by its own numbers.
 *
 *   sender    session S: string 0 "", 1, 2, ...   frame 0, 1, ...   node 0 the root, 1, 2, ...
 *   request   S, "from here on I have told nothing" + what is new, nodes of S in use
 *   here      S -> (string, frame, node of S -> ids of the open epoch)
 *
 * A steady service brings nothing new: then a request names a session and some numbers, and neither
 * side looks at a name. A session only grows, and the same number always means the same, so a
 * number that is sent twice (two requests on their way at once) is skipped. Numbers never sent
 * here are refused, never guessed: the sender then tells all of it in the ordinary form.
 *
 * Sessions belong to the dictionary that is open for writing and go with it: when the epoch closes,
 * when the dictionary leaves memory, is deleted, or the database is opened again. So an id in a
 * session is always an id of this dictionary.
 *
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_DICT_DICT_KNOWN_H
#define COMMON_STORE_DICT_DICT_KNOWN_H

#include "common/base/err.h"
#include "common/store/dict/dict.h"

#define DICT_SESSION_BYTES 16
#define DICT_SESSIONS_MAX  32 /* of one dictionary; more: the one not used for longest goes */

struct dict_told {
    uint8_t session[DICT_SESSION_BYTES];
    struct dict_counts from; /* entries of the session before `more`, string 0 and the root too */
    /* What is new, in columns without entries 0: references are numbers of the session, to entries
     * before `from` or here; string_len[0] is the first new string. */
    struct stacks_view more;
    const uint32_t *node; /* node i + 1 of the request is node[i] of the session */
    size_t nodes;
};
struct dict_session;

/* The shape alone: lengths add up, nothing refers behind itself. ERR_INPUT. Any thread. */
NODISCARD int dict_told_check(const struct dict_told *t, struct err *e);
/* NULL: there is no such session here. d may be NULL. */
struct dict_session *dict_session_find(struct dict *d, const struct dict_told *t);
/* Is everything before `from` known? s may be NULL. */
bool dict_session_has(const struct dict_session *s, const struct dict_told *t);
/* New nodes and bytes of names it may bring at most. */
uint64_t dict_session_cost(const struct dict_session *s, const struct dict_told *t);
/* Makes the session if s is NULL, interns what is new, fills x->node_map for the request's nodes.
 * Cannot fail; the caller has asked dict_session_has and the cap. */
void dict_session_use(struct dict *d, struct dict_session *s, const struct dict_told *t,
                      struct dict_scratch *x);
void dict_sessions_free(struct dict *d);

#endif
