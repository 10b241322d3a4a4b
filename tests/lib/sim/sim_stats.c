/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "common/base/buf.h"
#include "tests/lib/sim/sim.h"

static const struct {
    const char *name;
    size_t offset;
    bool must;
} counts[] = {
#define ROW(name, must) { #name, offsetof(struct sim_stats, name), must },
    SIM_COUNTS(ROW)
#undef ROW
};

static uint64_t *at(struct sim_stats *s, size_t i)
{
    return (uint64_t *)(void *)((char *)s + counts[i].offset);
}

void sim_stats_add(struct sim_stats *to, const struct sim_stats *s)
{
    struct sim_stats one = *s;

    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        *at(to, i) += *at(&one, i);
}

void sim_stats_text(const struct sim_stats *s, char *ret, size_t size)
{
    struct sim_stats one = *s;
    struct buf text;

    buf_init(&text, size - 1);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        (void)buf_addf(&text, "%s%s=%" PRIu64, i ? " " : "", counts[i].name, *at(&one, i));
    memcpy(ret, text.ptr, text.len);
    ret[text.len] = 0;
    buf_deinit(&text);
}

const char *sim_stats_missing(const struct sim_stats *s)
{
    struct sim_stats one = *s;

    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        if (counts[i].must && !*at(&one, i))
            return counts[i].name;
    return NULL;
}

static const char *const names[] = {
    [SIM_NONE] = "none",
    [SIM_NEW_KEYS] = "new-keys",
    [SIM_NO_WRITE_IDS] = "no-write-ids",
    [SIM_SYNC_LIES] = "sync-lies",
    [SIM_NO_FENCE] = "no-fence",
    [SIM_SWAPPED] = "swapped",
    [SIM_SKIPPED] = "skipped",
    [SIM_HALF_SNAPSHOT] = "half-snapshot",
    [SIM_BUCKET_FORGETS] = "bucket-forgets",
    [SIM_HALF_COPY] = "half-copy",
    [SIM_OLD_BACKUP] = "old-backup",
    [SIM_ONE_ANSWER] = "one-answer",
    [SIM_LATE_AGAIN] = "late-again",
    [SIM_ZONES_LIE] = "zones-lie",
    [SIM_UNCONFIRMED] = "unconfirmed",
    [SIM_ROT_TORN] = "rot-is-torn",
    [SIM_REOPEN_UNSYNCED] = "reopen-unsynced",
    [SIM_HOLE_SERVED] = "hole-served",
};
static const char *const replica_names[] = {
    "ack-before-sync",
    "commit-old-terms",
    "promise-not-stored",
    "truncate-always",
    "ignore-prev-members",
    "read-unconfirmed",
    "snapshot-no-term",
    "commit-unestablished",
    "no-prev-check",
    "same-term-again",
    "minority",
    "lose-tail",
    "forgets",
    "keep-epoch",
    "commit-by-members",
    "commit-late",
    "read-blind",
    "begun-swap",
    "pipe-goes-on",
    "undrained",
    [28] = "takes-all",
    [29] = "answers-all",
};

const char *sim_mutant_name(int mutant)
{
    if (mutant >= SIM_REPLICA && mutant - SIM_REPLICA < (int)ARRAY_LEN(replica_names))
        return replica_names[mutant - SIM_REPLICA];
    return mutant >= 0 && mutant < (int)ARRAY_LEN(names) ? names[mutant] : NULL;
}

int sim_mutant_by_name(const char *name)
{
    for (int i = 0; i < SIM_MUTANTS; i++)
        if (sim_mutant_name(i) && strcmp(sim_mutant_name(i), name) == 0)
            return i;
    return 0;
}

bool sim_mutant_of_places(int mutant)
{
    return mutant == SIM_UNCONFIRMED || mutant == sim_mutant_by_name("takes-all") ||
           mutant == sim_mutant_by_name("answers-all");
}

bool sim_mutant_unseen(int mutant)
{
    static const char *const unseen[] = { "commit-old-terms", "ignore-prev-members",
                                          "commit-unestablished", "commit-by-members",
                                          "undrained" };

    for (size_t i = 0; i < ARRAY_LEN(unseen); i++)
        if (strcmp(sim_mutant_name(mutant), unseen[i]) == 0)
            return true;
    return false;
}
