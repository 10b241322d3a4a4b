/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas of one shard in a simulated world: a network that loses, repeats, reorders, cuts; disks
 * that lose power between fsyncs; nodes that die and come back; a coordination whose records come
 * late; members that change; snapshots; disks that are lost for good. At every moment:
 *
 *   - the committed entry of an index is the same on all replicas, permanently;
 *   - a term has one leader; an acked write is committed; a read sees all that was acked before the
 *     question;
 * and when the world is whole again, all databases become the same, with each acked write once.
 *
 * The same is run with one thing in the protocol switched off each time (enum replica_mutant): each
 * must be noticed (two take too much chance: tests/unit/common/repl/protocol/test_replica.c).
 * SEED=n repeats a run, SEEDS=n makes more, MUTANT=n FROM=n looks for one.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/wr.h"
#include "common/repl/log/rlog.h"
#include "common/repl/protocol/replica.h"
#include "tests/lib/repl/repl_world.h"

static uint64_t ran, writes, reads, leaders, snapshots, copies, wiped, unmarked;

static const char *one(uint64_t seed, uint32_t mutants)
{
    struct repl_world_stats s;
    const char *broken = repl_world_run(seed, mutants, &s);

    ran++;
    writes += s.acked;
    reads += s.reads;
    leaders += s.leaders;
    snapshots += s.snapshots;
    copies += s.copies;
    wiped += s.wiped;
    unmarked += s.unmarked;
    return broken;
}

static void test_right(void **state)
{
    const char *env = getenv("SEED"), *many = getenv("SEEDS");
    uint64_t n = many ? strtoull(many, NULL, 10) : 100, from = (uint64_t)time(NULL);

    (void)state;
    if (env) {
        const char *broken = one(strtoull(env, NULL, 10), 0);
        if (broken)
            fail_msg("SEED=%s: %s", env, broken);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t seed = i % 2 ? from + i : i;
        const char *broken = one(seed, 0);
        if (broken)
            fail_msg("SEED=%" PRIu64 ": %s", seed, broken);
    }
    printf("%" PRIu64 " runs: %" PRIu64 " writes acked, %" PRIu64 " reads, %" PRIu64
           " leaders, %" PRIu64 " snapshots, %" PRIu64 " copies, %" PRIu64 " lost disks; %" PRIu64
           " writes while the term was not marked\n",
           ran, writes, reads, leaders, snapshots, copies, wiped, unmarked);
    /* A world in which nothing happens would prove nothing. */
    assert_true(writes > n * 10 && reads > n / 2 && leaders > n * 2 && snapshots > 0 &&
                copies > 0 && unmarked > 0);
}

/* In a child: a CHECK that stops the process is a way to notice, too. */
static bool caught(uint32_t mutant, uint64_t from, uint64_t seeds)
{
    int status;
    pid_t pid;

    (void)fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (int i = 1; i < 16; i++) /* cmocka's handlers, which would run in the child */
            (void)signal(i, SIG_DFL);
        for (uint64_t i = 0; i < seeds; i++) {
            const char *broken = one(from + i, mutant);
            if (broken) {
                printf("mutant %#x, SEED=%" PRIu64 ": %s\n", mutant, from + i, broken);
                (void)fflush(stdout);
                _exit(1);
            }
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        printf("mutant %#x: stopped by signal %d\n", mutant, WTERMSIG(status));
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void test_mutants(void **state)
{
    static const struct {
        uint32_t mutant;
        const char *name;
        uint64_t from; /* just below a seed that shows it; the world of a seed never changes */
    } list[] = {
        { MUTANT_ACK_BEFORE_SYNC, "acks before the fsync", 1050 },
        { MUTANT_TRUNCATE_ALWAYS, "cuts the log behind the entries of a message", 1000 },
        { MUTANT_IGNORE_PREV_MEMBERS, "does not ask the previous members", 1000 },
        { MUTANT_READ_UNCONFIRMED, "reads without asking whether it leads", 2700 },
        { MUTANT_SNAPSHOT_NO_TERM, "forgets the term of a snapshot", 1000 },
        { MUTANT_COMMIT_UNESTABLISHED, "commits before its record is established", 1535 },
        { MUTANT_COMMIT_BY_MEMBERS, "commits before that without the previous members", 1780 },
        { MUTANT_NO_PREV_CHECK, "takes entries behind a gap in history", 1000 },
        { MUTANT_SAME_TERM_AGAIN, "leads again in the same term after a restart", 1045 },
        { MUTANT_MINORITY, "one is a majority", 1000 },
        { MUTANT_LOSE_TAIL, "leads with its own log, however short", 1000 },
        { MUTANT_FORGETS, "answers though its log is gone", 1000 },
        { MUTANT_KEEP_EPOCH, "continues to lead after another node led", 1850 },
    };
    const char *only = getenv("MUTANT"), *from = getenv("FROM");
    size_t missed = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if ((!only || strtoull(only, NULL, 0) == list[i].mutant) &&
            !caught(list[i].mutant, from ? strtoull(from, NULL, 10) : list[i].from, 3000)) {
            printf("NOT CAUGHT: a replica that %s\n", list[i].name);
            missed++;
        }
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_mutants),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
