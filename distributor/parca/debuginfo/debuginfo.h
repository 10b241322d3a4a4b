/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo.h: which debug info is kept, and which uploads are allowed. Nothing here touches the
 * disk but debuginfo_new; the files are debuginfo_file.h's, on the pool. Thread: the loop's.
 *
 *   (nothing) ─begin─> OPEN ─claim─> WRITING ─received─> RECEIVED ─finish─> (WRITING) ─> KEPT
 *                        ^              └──── failed ────────┴─> gone       any, stale ─> gone
 */
#ifndef DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_H
#define DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_H

#include "common/base/vec.h"
#include "common/sys/env.h"
#include "distributor/parca/debuginfo/debuginfo_file.h"

/* Agents compare this sentence, letter by letter, to know that they may ask again. */
#define DEBUGINFO_IN_PROGRESS                                               \
    "A previous upload is still in-progress and not stale yet (only stale " \
    "uploads can be retried)."
#define DEBUGINFO_UPLOADS_MAX 8     /* of one tenant at once */
#define DEBUGINFO_ENTRIES_MAX 65536 /* kept and being uploaded, of all tenants */

struct debuginfo_opts {
    const char *dir; /* copied */
    struct env *env;
    uint64_t file_bytes, tenant_bytes, bytes; /* of one, of one tenant, of all; bytes 0: off */
    uint64_t reserve;                         /* of the disk, not to be touched */
    uint64_t stale_ms;
};
enum debuginfo_state { DEBUGINFO_OPEN, DEBUGINFO_WRITING, DEBUGINFO_RECEIVED, DEBUGINFO_KEPT };
struct debuginfo_entry {
    enum debuginfo_state state;
    char *key; /* owned */
    struct debuginfo_meta m;
    char upload_id[17];
    struct debuginfo_temp temp;
    uint64_t used; /* counts up with each use: the least is the oldest */
    size_t at;     /* place in the index */
    /* A forced upload hides the file of the same key, until it is complete or dropped. */
    struct debuginfo_entry *hides, *hidden_by;
};
struct debuginfo;

/* Scans the folder; blocks. ERR_IO. */
NODISCARD int debuginfo_new(const struct debuginfo_opts *o, struct debuginfo **ret, struct err *e);
void debuginfo_free(struct debuginfo *d); /* no upload may be WRITING; removes what is unfinished */
const struct debuginfo_opts *debuginfo_opts(const struct debuginfo *d);

/* Finds a file that is kept or being uploaded, but no stale upload. NULL: not found. */
struct debuginfo_entry *debuginfo_find(struct debuginfo *d, struct str tenant, struct str build_id,
                                       enum debuginfo_type type);
/* Is an upload wanted? The reason is for the agent. */
bool debuginfo_wanted(struct debuginfo *d, struct str tenant, struct str build_id,
                      enum debuginfo_type type, bool force, const char **ret_why);
/* An upload as an agent announces it; texts are copied. */
struct debuginfo_offer {
    struct str tenant, build_id;
    enum debuginfo_type type;
    struct str hash, name; /* may be empty; are cut to the size of their fields */
    bool force;            /* replaces a file that is kept */
};
/* Makes an entry, OPEN. ERR_CONFLICT: the upload is not wanted. ERR_RATE: too many uploads or
 * files. */
NODISCARD int debuginfo_begin(struct debuginfo *d, const struct debuginfo_offer *offer,
                              struct debuginfo_entry **ret, struct err *e);
/* OPEN to WRITING. `upload_id` empty: not asked for. */
NODISCARD int debuginfo_claim(struct debuginfo_entry *x, struct str upload_id, struct err *e);
/* Marks what has to go so that x fits, oldest unused of its tenant first; the caller removes their
 * files, and frees the list. ERR_RATE: it does not fit. */
struct debuginfo_goners {
    struct debuginfo_meta *ptr;
    size_t len, cap;
};
NODISCARD int debuginfo_make_room(struct debuginfo *d, const struct debuginfo_entry *x,
                                  struct debuginfo_goners *ret, struct err *e);
void debuginfo_keep(struct debuginfo *d, struct debuginfo_entry *x);
/* Forgets it; its files are the caller's. */
void debuginfo_forget(struct debuginfo *d, struct debuginfo_entry *x);
/* Calls fn for each of a tenant's. */
void debuginfo_each(struct debuginfo *d, struct str tenant,
                    void (*fn)(void *cookie, const struct debuginfo_entry *x), void *cookie);
uint64_t debuginfo_bytes(const struct debuginfo *d); /* kept, of all tenants */

#endif
