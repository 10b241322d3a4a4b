/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_impl.h: what shard.c and shard_sim.c share; no other file includes it.
 */
#ifndef INGESTER_SHARD_SHARD_IMPL_H
#define INGESTER_SHARD_SHARD_IMPL_H

#include "common/sys/chan.h"
#include "common/sys/thread.h"
#include "ingester/shard/cold_wait.h"
#include "ingester/shard/shard.h"
#include "ingester/shard/shard_jobs.h"

#define SHARD_MAGIC MAGIC('s', 'h', 'r', 'd')
#define TAKE_MAX    256

struct group {
    struct store_batch *batch; /* moved to store_commit */
    struct list writes;
    size_t writes_len, bytes;
    uint64_t tenant;    /* of its first write */
    bool mixed;         /* it has writes of other tenants, too */
    uint64_t opened_ms; /* monotonic */
};

struct shard {
    uint32_t magic;
    struct shard_opts o;
    struct shard_metrics m;
    struct chan *inbox;   /* of struct shard_write, or the address of a member below */
    struct chan *commits; /* of struct group; NULL when simulated */
    struct thread thread, committer;
    char committed_message, stop_message, reopen_message, tasks_message;
    _Atomic uint64_t commit_ns;  /* how long a commit takes, lately */
    _Atomic uint64_t commit_at;  /* monotonic ns: one began then and has not ended; 0: none has */
    size_t batch_max;            /* of a group, whatever group_bytes_max says */
    struct shard_reopen *reopen; /* set before reopen_message is sent, NULL when it is done */
    bool reopen_wanted;
    struct mutex tasks_lock;
    struct list tasks; /* of struct shard_task: sent, not received; guarded by the lock */

    /* The shard thread's. */
    struct fair *waiting; /* of struct shard_write */
    struct list quiet;    /* of struct shard_task: until nothing is staged and not committed */
    struct group *open;   /* NULL: none */
    size_t company;       /* writes of the group before */
    bool committing, stopping;
    uint64_t seal_after_ms; /* monotonic: not before, after a failed step */
    uint64_t seal_far_ms;   /* monotonic: until then only minutes that need no older rows */
    uint64_t due_since_ms;  /* monotonic; 0: sealing has caught up */
    uint64_t held_since_ms; /* monotonic; 0: no chore waits for what was begun */
    uint64_t state_next_ms;
    struct cold_wait far;
    struct shard_jobs chores;

    /* The loop's. */
    struct shard_state state;
    struct timer *timer; /* simulated: the next step */
    bool step_posted;    /* simulated */
    bool in_step;        /* simulated */
    bool stop_sent;
};

/* Takes the messages, does one turn of work, and says after how many milliseconds the next turn is
 * due if no message comes. */
uint64_t shard_step(struct shard *s, void *const *msgs, size_t n);
/* On a simulated loop: the timer of the next step; a message came. */
void shard_simulated_step(void *cookie);
void shard_simulated_wake(void *cookie);

#endif
