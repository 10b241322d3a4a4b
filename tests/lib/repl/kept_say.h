/* SPDX-License-Identifier: Apache-2.0
 *
 * kept_say.h: what three nodes keep of a cluster, for tests of joining and recovering it.
 */
#ifndef TESTS_LIB_REPL_KEPT_SAY_H
#define TESTS_LIB_REPL_KEPT_SAY_H

#include "common/cluster/rebuild/cluster_dump_merge.h"

#define ID    "0123456789abcdef0123456789abcdef"
#define OTHER "f123456789abcdef0123456789abcdef"

enum { SHARDS = 40 };

/* Of a, b, c, and a node that left. */
const struct map *kept_say_map(uint64_t version, uint32_t shards);
/* Of a, b and c. */
struct repl_record kept_say_rec(uint64_t term, const char *leader, bool established);
/* The node knows this map, all records of this term, led by a, and has promised it. */
struct cluster_dump kept_say(const char *node, uint64_t version, uint64_t term);
NODISCARD int kept_say_add(struct cluster_dump_join *j, struct cluster_dump k); /* consumes k */
struct cluster_dump_join *kept_say_three(void); /* a, b and c, map 7, term 5 */
const struct cluster_dump *kept_say_end(struct cluster_dump_join *j);

#endif
