/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_list.h: deletes as the shard thread knows them, and what the rest of the engine asks it:
 *
 *   tombs_pending_on        builds, retention: leave this service alone
 *   tombs_hold         seal: this raw row stays raw
 *   tombs_forgot       stage: this known write id is of deleted data
 *   tombs_late_*       stage: and may be a copy that was under way (tomb_late_push.c)
 *   tombs_newer_than   builds that were read before: refuse
 */
#ifndef COMMON_STORE_MASK_TOMB_LIST_H
#define COMMON_STORE_MASK_TOMB_LIST_H

#include "common/store/catalog/names.h"
#include "common/store/codec/keys.h"
#include "common/store/mask/mask.h"
#include "common/store/mask/tomb.h"
#include "common/store/state/wid.h"

struct tomb {
    uint64_t entry;
    uint32_t tenant;
    enum tomb_kind kind;
    enum tomb_state state;
    int64_t created_ms, ended_ms; /* engine time */
    uint64_t guard_until_ms;      /* monotonic: copies of what it deleted may come until then */
    uint32_t from, to;            /* slots; 0, UINT32_MAX: any */
    uint64_t services, series, raw_rows;
    struct str id, name, what; /* in the arena; `name` is the tenant's */
    struct selector selector;  /* in the arena; its regexes are made when first needed */
    bool compiled;
    bool wids_gone;      /* of a tenant, behind its guard */
    struct arena *arena; /* owned */

    /* Purging. */
    uint8_t phase;
    uint64_t rows, bytes;
    uint32_t done, of;
    struct buf cursor;  /* of the phase */
    struct masks masks; /* while it is pending */
};
struct purge; /* working memory: purge.c */
struct tombs {
    VEC(struct tomb *) at;  /* owned; by entry */
    size_t pending, ranges; /* of these: not purged; and of kind RANGE */
    struct purge *purge;    /* owned by purge.c; of the one being purged; NULL: not begun */
    bool want_quiet;
    bool idle;                 /* the last step found nothing to do */
    uint64_t look_after_ms;    /* monotonic: the next one */
    uint64_t last;             /* entry of the newest delete */
    uint64_t tenants_until_ms; /* monotonic: a tomb of a tenant has its guard; 0: none */
    uint64_t deletes, rows, bytes, rollups_restarted; /* since start */
    _Atomic uint64_t purged_view;                     /* the newest when a purge ended last */
};

/* ---- in memory: shard thread ---- */

struct tombs *tombs_new(void);
NODISCARD int tombs_open(struct store *s, struct err *e); /* reads all */
void tombs_close(struct tombs *t);                        /* after purge_close; NULL is fine */
struct tomb *tomb_new(void);
void tomb_free(struct tomb *t);
NODISCARD int tomb_load_masks(struct store *s, struct tomb *t, struct err *e);

/* What purging does, each phase from row to row (purge.c); tomb.phase counts those of its kind. */
enum tomb_phase {
    TOMB_RANGES,
    TOMB_LABELS,
    TOMB_POSTINGS,
    TOMB_PAIRS,
    TOMB_TABLES,
    TOMB_MARKS,
    TOMB_GROUPS,
    TOMB_ROWS,
    TOMB_DAYS,
};
uint32_t tomb_phase_count(const struct tomb *t);     /* of its kind */
enum tomb_phase tomb_phase_at(const struct tomb *t); /* its phase is below the count */
/* The phase in words; "": all phases are finished. */
const char *tomb_phase(const struct tomb *t);

/* Of a purged tomb: true if no more of its rows will be deleted, so all its ranges are known. */
bool tomb_ripe(const struct store *s, const struct tomb *t);
/* Writes that the delete is done: no row of table 63 is left for it. */
NODISCARD int tomb_done(struct store *s, struct tomb *t, struct err *e);

bool tombs_pending_on(const struct store *s, uint32_t tenant, uint32_t scope);
bool tombs_hold(const struct store *s, const struct member *m, uint32_t t);
bool tombs_newer_than(const struct store *s, uint64_t applied);
/* A write id of this row is known; `labels` canonical bytes of the series, slots of its push. The
 * newest delete that took all of it; NULL: none did, it is a duplicate. */
struct tomb_push {
    uint32_t tenant;
    struct str labels, profile_type;
    uint32_t first, last;
};
NODISCARD int tombs_forgot(struct store *s, const struct tomb_push *push, const struct wid_row *row,
                           const struct tomb **ret, struct err *e);

/* ---- copies that were under way: tomb_late_push.c ---- */

/* Begins the guard of a delete that is new, or was found when the database was opened. */
void tomb_guard(struct store *s, struct tomb *t, bool found);
bool tomb_guarded(const struct store *s, const struct tomb *t);
/* ERR_BUSY: t took the push, and copies of it may still come. */
NODISCARD int tombs_late(const struct store *s, const struct tomb *t, struct err *e);
/* ERR_BUSY: a tenant of this name that was deleted lately had the write id. */
NODISCARD int tombs_late_tenant(struct store *s, struct str tenant, const uint8_t wid[16],
                                int64_t engine_ms, struct err *e);
/* Does the selector mean a series of these labels and type? 1, 0, -1. */
int tomb_selects(const struct selector *sel, const struct labels *l, struct str profile_type,
                 struct err *e);
/* May the matcher be answered by the service's name or the profile type alone? */
bool tomb_by_service(const struct matcher *m);
bool tomb_by_type(const struct matcher *m);

/* ---- rows ---- */

#define KEY_TOMB_LEN      13
#define KEY_TOMB_MASK_LEN 21
#define KEY_TOMB_SPAN_LEN 19
void key_tomb(struct key *k, enum key_table table, uint32_t tenant, uint64_t entry);
void key_tomb_mask(struct key *k, uint32_t tenant, uint64_t entry, uint32_t scope, uint32_t chunk);
void key_tomb_span(struct key *k, uint32_t tenant, uint64_t entry, enum kv_cf cf, uint32_t lead,
                   uint32_t bucket);
bool key_tomb_span_read(struct str key, enum kv_cf *ret_cf, uint32_t *ret_lead,
                        uint32_t *ret_bucket);
void tomb_row_put(const struct tomb *t, struct buf *out);
NODISCARD int tomb_row_read(struct str key, struct str row, struct tomb *ret, struct err *e);
void tomb_at_put(const struct tomb *t, struct buf *out);
NODISCARD int tomb_at_read(struct str row, struct tomb *ret, struct err *e);
void mask_row_put(const struct mask *m, struct buf *out); /* replaces *out */
NODISCARD int mask_row_read(struct str key, struct str row, struct arena *a, struct mask *ret,
                            struct err *e);
bool mask_has_series(const struct mask *m, uint32_t scope, uint64_t series); /* at some time */
bool mask_has_type(const struct mask *m, uint16_t ptype);
bool mask_covers(const struct mask *m, uint32_t scope, uint16_t ptype, uint64_t series, uint32_t t);

/* ---- what a request means: tomb_plan.c ---- */

struct tomb_scope {
    uint32_t scope;
    bool all;
    VEC(uint64_t) series;   /* ascending, unless all */
    VEC(uint32_t) ordinals; /* of those */
};
struct tomb_days { /* a series and type whose days change */
    uint32_t scope, ordinal;
    uint64_t series;
    uint16_t ptype;
    bool gone;     /* it has none left */
    uint32_t left; /* types the series had before */
    struct days days;
};
struct tomb_type { /* a series had data of this type */
    uint32_t ordinal;
    uint16_t ptype;
};
struct tomb_plan {
    bool found; /* else nothing matches */
    enum tomb_kind kind;
    uint32_t tenant;
    uint32_t from, to;
    uint64_t series;
    bool by_type;        /* only some profile types: */
    VEC(uint16_t) types; /* ascending */
    VEC(struct tomb_scope) scopes;
    VEC(struct tomb_days) days; /* RANGE */
    VEC(struct tomb_type) gone; /* SERIES: types of each ordinal */
    struct arena *arena;
};
NODISCARD int tomb_plan_make(struct tomb_plan *p, struct store_view *v,
                             const struct tomb_request *r, struct err *e);
/* The same, and fills the result for the user. Call tomb_plan_free in any case. */
NODISCARD int tomb_plan_of(struct store_view *v, const struct tomb_request *r, struct tomb_plan *p,
                           struct tomb_result *ret, struct err *e);
/* Bytes in files that its services take, whatever part of them it means. */
NODISCARD int tomb_plan_size(struct store *s, const struct tomb_plan *p, uint64_t *ret,
                             struct err *e);
void tomb_plan_free(struct tomb_plan *p);

#endif
