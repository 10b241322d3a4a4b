/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_impl.h: the world, as the sim_*.c know it. sim_world.c opens, runs, settles and closes it;
 * sim_node.c starts and ends nodes; sim_fault.c and sim_ring.c decide what befalls them; sim_work.c
 * is the clients; sim_oracle.c knows what may be read.
 */
#ifndef TESTS_LIB_SIM_SIM_IMPL_H
#define TESTS_LIB_SIM_SIM_IMPL_H

#include "common/base/vec.h"
#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/view/view.h"
#include "tests/lib/net/rpc_bed.h"
#include "tests/lib/sim/sim.h"
#include "tests/lib/sim/sim_disk.h"
#include "tests/lib/sim/sim_http.h"
#include "tests/lib/sim/sim_object.h"

#define SIM_SHARDS    2
#define SIM_INGESTERS 8 /* most there may ever be */
#define SIM_FIRST     3 /* of them there are at the start */
#define SIM_DISTS     2
#define SIM_QUERIERS  2
#define SIM_COMPACTS  2
#define SERVICES      6
#define SIM_ZONES     3 /* of an ingester: its number modulo that */
#define SIM_PODS      3 /* of each service: a push's is its number modulo that */
#define SIM_NODES     (SIM_INGESTERS + SIM_DISTS + SIM_QUERIERS + SIM_COMPACTS)
#define SIM_PREFIX    "/sim"
#define SIM_HORIZON   "1m" /* longer than clients send a push again and again */

struct world;
struct sim_recovery;

#define DRAIN_NOT_KNOWN 4 /* asked for, without an answer that says what became of it */

struct sim_clock { /* the world's, with a wall that may be wrong */
    struct clock clock;
    const struct clock *base;
    int64_t skew_ms;
};

enum { CUT_OUT = 1, CUT_IN = 2, CUT_COORD = 4 };
enum node_state { NODE_OFF, NODE_UP, NODE_ENDING, NODE_GONE /* for good */ };
struct node {
    struct world *w;
    size_t at;        /* its place in nodes[] */
    uint32_t life;    /* of a name: a quick restart makes a new struct node */
    struct list link; /* dying[] */
    const struct role *role;
    enum node_state state;
    char name[32], addr[128];
    struct sim_clock clock;
    struct prng random;
    struct env env;
    struct conf *conf;
    struct metrics *metrics;
    struct coord *coord;
    struct view *view;
    struct role_ctx ctx;
    void *self;
    struct budget budget;
    struct sim_site site; /* server NULL: speaks no HTTP */
    struct sim_disk disk; /* ingesters */
    struct sim_objects objects;
    bool has_disk;
    unsigned cut;      /* CUT_ */
    uint32_t away;     /* bits of nodes[]: what it sends to them is lost */
    bool power;        /* while ENDING: it is a power cut */
    bool crashed;      /* while ENDING: it reaches no node any more */
    int draining;      /* 1 asked for, 2 in the map, 3 it has left, or DRAIN_NOT_KNOWN */
    bool left;         /* and ends */
    bool wipe;         /* its disk is another one, empty, when it comes back */
    uint64_t wake_ms;  /* OFF: starts again by itself then; 0: not */
    size_t parts_left; /* ENDING: HTTP server and role */
};

/* What is got ready: see sim_aim.c. */
#define SIM_AIMS      8
#define SIM_AIM_PLACE 7
enum place_moment { PLACE_FIRST, PLACE_ANNOUNCED, PLACE_VALID, PLACE_DEAF };
struct sim_place { /* sim_place.c */
    enum place_moment moment;
    uint32_t service;
    size_t leader, friend, dist, querier; /* of nodes[]: cut off */
    bool struck;
    int64_t from_ms; /* the step's; 0: not known */
    uint64_t armed_until_ms, until_ms, late_until_ms;
};
struct sim_aims {
    uint32_t mood; /* which one this world likes; SIM_AIMS and above: none */
    uint64_t ack_until_ms, vote_until_ms, change_until_ms; /* armed; 0: not */
    uint32_t shard;                                        /* whose leader is to be another one */
    size_t friend, leader;      /* of nodes[]: the voter; the old leader */
    uint64_t unsynced;          /* value of a moment ago, where that matters */
    uint64_t once_until_ms;     /* clients that begin before stop at the first failure */
    uint64_t hold_until_ms;     /* a partition that is to last so long */
    uint64_t terms[SIM_SHARDS]; /* of the newest record seen */
    struct {                    /* a late frame; until_ms 0: none */
        uint32_t shard;
        size_t from, to; /* of nodes[] */
        uint64_t until_ms;
        bool taken; /* one is on its way */
    } late;
    struct sim_place place;
};
enum between_cause { BETWEEN_HANDED, BETWEEN_DIED, BETWEEN_MEMBERS };
enum between_hears { HEARS_ALL, HEARS_NEW, HEARS_OLD, HEARS_SOME, HEARS_NOBODY };
struct sim_between { /* sim_between.c */
    struct prng p;
    enum between_cause cause;
    enum between_hears hears;
    uint32_t shard, service;
    char old[32];               /* the old leader */
    uint64_t terms[SIM_SHARDS]; /* the old ones */
    uint64_t until_ms, away_ms; /* no other fault until then; since when it is away */
    bool on, away, acked, read;
};
/* A fault that happens at its time. */
struct deed {
    struct list link;
    struct world *w;
    struct timer *timer;
    void (*fn)(struct world *w, const struct deed *d);
    size_t at; /* of nodes[] */
    uint64_t a, b;
};
enum push_state {
    PUSH_OPEN,  /* on its way: may be there */
    PUSH_ACKED, /* must be there */
    PUSH_ENDED, /* without an ack: may be there or not */
    PUSH_MAYBE, /* was acked; a delete may have taken it */
    PUSH_DEAD,  /* acked and deleted: must not be there */
};
struct push {
    uint32_t number, service;
    uint64_t value;
    int64_t time_ms;
    enum push_state state;
    uint64_t began_ms, acked_ms; /* monotonic */
    uint32_t attempts;
    bool pprof;
    bool once;     /* its client stops at the first failure */
    bool doubtful; /* a delete may take it also if it is acked later */
    bool named;    /* deleted with a range of time: its labels may still be listed */
};

struct world {
    struct sim_opts o;
    struct sim_result *ret;
    struct rpc_bed rpc;
    struct prng p;
    uint64_t hang_until_ms; /* sim_hang.c */
    struct coord_site *site;
    struct node *nodes[SIM_NODES]; /* owned */
    struct list dying;             /* former lives of those that are up again already */
    size_t ingesters;              /* of nodes[], in use so far */
    struct list deeds;             /* sim_aim.c: faults that happen at their time */
    struct sim_aims aims;
    struct sim_between between;
    struct sim_bucket *bucket; /* of the cold tier; NULL: this world has none */
    struct coord *coord;       /* of people who drain nodes */
    struct view *view;         /* what they see */
    VEC(struct push *) pushes;
    size_t flying;                 /* requests */
    bool away;                     /* the coordination service */
    struct coord_backup *whole;    /* what it holds, while an empty one stands in its place */
    struct coord_backup *old;      /* of some seconds ago */
    struct sim_recovery *recovery; /* ... and will never be back; NULL: not so */
    struct prng forgets;
    uint64_t old_terms;
    bool forgot;    /* a node lost its databases: once */
    bool skewed;    /* a node's clock is or was wrong */
    bool files;     /* databases have some, and come as such */
    bool forgetful; /* write ids are known for SIM_HORIZON only, and all clocks are right */
    bool zones;     /* ingesters say in which one they are */
    struct {        /* frames from and to it wait */
        size_t at;  /* of nodes[] */
        uint64_t until_ms;
    } held;
    bool begun; /* there is a map */
    bool settling, traced;
    uint32_t deletes;
    uint32_t deleting[SERVICES]; /* deletes on their way, by service */
    uint32_t lost; /* bits of nodes[]: their disks are lost for good, and records name them */
};

static inline struct sim_stats *count(struct world *w)
{
    return &w->ret->stats;
}
static inline uint64_t world_ms(const struct world *w)
{
    return clock_mono_ms(&w->rpc.clock.clock);
}
static inline int64_t world_wall_ms(const struct world *w)
{
    return clock_wall_ms(&w->rpc.clock.clock);
}
PRINTF(3, 4) void broke(struct world *w, const char *what, const char *more, ...);
/* To standard error, where SIM_TRACE is set. */
PRINTF(2, 3) void trace(struct world *w, const char *what, ...);
void run_ms(struct world *w, uint64_t ms);
struct coord_faults coordination_calm(const struct world *w);
/* The service, and what people see of it. */
void coordination_open(struct world *w, uint64_t seed);
void coordination_close(struct world *w);

/* ---- sim_node.c ---- */
#define FIRST_DIST    SIM_INGESTERS
#define FIRST_QUERIER (FIRST_DIST + SIM_DISTS)
#define FIRST_COMPACT (FIRST_QUERIER + SIM_QUERIERS)
void nodes_init(struct world *w);
void nodes_deinit(struct world *w);
void node_start(struct node *n); /* OFF -> UP */
/* UP -> ENDING; nodes_reap() takes it on to OFF. */
void node_end(struct node *n); /* as it should be */
/* It may start again at once, or when the process has ended (slow). Returns the node to use from
 * now on. */
enum crash_how { CRASH_SLOW, CRASH_QUICK, CRASH_MOVES /* and comes back at another address */ };
struct node *node_crash(struct node *n, bool power, enum crash_how how);
enum crash_how any_crash(struct world *w);
void nodes_reap(struct world *w);
void node_cut(struct node *n, unsigned how);
void node_cut_to(struct node *n, const struct node *to); /* one way */
void nodes_heal(struct world *w);
bool nodes_quiet(const struct world *w);  /* no node is ending */
size_t nodes_down(const struct world *w); /* ingesters that do not run, or are cut off */

/* ---- sim_fault.c, sim_ring.c ---- */
void fault(struct world *w);
void faults_end(struct world *w);
void fault_calm(struct world *w);   /* the network and the bucket are well */
void bucket_fault(struct world *w); /* there is one */
void ring_change(struct world *w);
void ring_lose(struct world *w);  /* a node permanently, where that may be */
void ring_join(struct world *w);  /* one more, if there may be */
bool ring_drain(struct world *w); /* one is to leave, if one may */
void ring_step(struct world *w);  /* continues begun changes */
bool ring_quiet(struct world *w);
bool ring_followed(const struct world *w); /* people can have the map changed */
bool ring_whole(struct world *w);          /* each shard has three members, nothing is on its way */
bool ring_solid(struct world *w);          /* and all of them have its rows: one may be lost */

/* ---- sim_hang.c ---- */
void hang(struct world *w);             /* the disk of a leader */
bool hang_holds(const struct world *w); /* no other fault meanwhile */

/* ---- sim_aim.c ---- */
void aims_open(struct world *w);
void aims_close(struct world *w);
/* All that runs hears each other from here on, and what is down starts; false: not now. */
bool all_run(struct world *w);
void aim(struct world *w); /* gets something ready that strikes when its moment comes */
void aim_acked(struct world *w, uint32_t service); /* a push was acked just now */

void deed_in(struct world *w, uint64_t ms, void (*fn)(struct world *w, const struct deed *d),
             size_t at, uint64_t a, uint64_t b);
void deed_start(struct world *w, const struct deed *d);
/* a: without power; b: it is back so much later. */
void deed_crash(struct world *w, const struct deed *d);
struct node *ingester_named(struct world *w, const char *name); /* that runs; or NULL */
const struct repl_record *record_of(struct world *w, uint32_t shard);
void busy(struct world *w, uint64_t for_ms); /* pushes and reads */
void cut_pair(struct node *a, struct node *b);
void deafen(struct world *w, size_t first, size_t n); /* one of them gets no changes */
/* The members of a shard that has three: one must have everything, and another must lack it. */
bool three(struct world *w, uint32_t shard, struct node **leader, struct node **had,
           struct node **lacks);

/* ---- sim_order.c ---- */
void order_open(struct world *w);
void order_close(struct world *w);
void late_frame(struct world *w);
void missed_record(struct world *w);
/* As people do it, to a member. */
void hand_over(struct world *w, uint32_t shard, const char *to);

void hold(struct world *w); /* a node sleeps, as all others see it; then they get what it sent */

/* ---- sim_zone.c ---- */
void zone_dark(struct world *w);
bool zones_right(struct world *w); /* no shard has two copies in one while another has none */

/* ---- sim_copy.c ---- */
void copy_begins(void *node, uint32_t shard);

/* ---- sim_restore.c ---- */
/* Every disk goes, and the cluster comes back from its backups. False: it is broken. */
bool lost_and_restored(struct world *w);

/* ---- sim_forget.c ---- */
void forget_open(struct world *w);
void forget_end(struct world *w);  /* what it held is back */
void forget_over(struct world *w); /* it has something again */

/* ---- sim_between.c ---- */
void between_open(struct world *w);
bool between_holds(const struct world *w); /* no other fault may happen */
void between_acked(struct world *w, uint32_t service);
void between_read(struct world *w, uint32_t service);

/* ---- sim_refuse.c ---- */
/* A batch of a shard it leads, if any, is too large. */
void refuse_batch(struct world *w, struct node *n);

/* ---- sim_recover.c ---- */
void recover_begin(struct world *w, uint64_t in_ms);
bool recover_settles(struct world *w); /* false: it is broken */

/* ---- sim_place.c ---- */
void moved_place(struct world *w);
void place_seen(struct world *w); /* the view changed */
/* Asks for two shards for the service, which has them from some time on. */
void place_want(struct world *w, uint32_t service);
bool place_is_two(struct world *w, uint32_t service);

/* ---- sim_work.c ---- */
struct service {
    const char *tenant, *name;
};
extern const struct service services[SERVICES];
#define SIM_CPU         "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define SIM_PATIENCE_MS 9000
/* A running node, or NULL. */
struct node *any_of(struct world *w, size_t first, size_t n);
/* True if it is tried again: no answer, "not now", or a disk failed a read (500 is for that
 * alone). */
bool transient(const struct sim_reply *r);
void push_new(struct world *w);
/* Of now, first through that distributor (of nodes[]), impatiently. */
void push_by(struct world *w, uint32_t service, size_t dist);
void read_new(struct world *w, uint32_t service);
void delete_new(struct world *w);

/* ---- sim_ask.c ---- */
void ask_new(struct world *w, uint32_t service); /* a timeline, or a list */

/* ---- sim_oracle.c ---- */
enum { ORACLE_MAY, ORACLE_MUST, ORACLE_MUST_NOT };
/* What a read that begins now must find: by push. Free with xfree. */
uint8_t *oracle_before(struct world *w, size_t *ret_len);
/* The folded answer to a read of that service and [from, to). */
void oracle_read(struct world *w, uint32_t service, const uint8_t *before, size_t before_len,
                 int64_t from_ms, int64_t to_ms, struct str folded);
/* What a delete takes. */
struct taking {
    const char *tenant, *service; /* service NULL: all */
    uint32_t pod;                 /* SIM_PODS: all */
    int64_t from_ms, to_ms;       /* to_ms 0: at any time */
};
/* It begins, ends. */
void oracle_delete_begin(struct world *w, const struct taking *t);
void oracle_delete_done(struct world *w, const struct taking *t, uint64_t began_ms);
bool oracle_equal(struct world *w); /* all replicas of all shards */
/* As of which entry its database is; 0: it has none. */
uint64_t oracle_applied(struct world *w, const char *name, uint32_t shard);
void oracle_where(struct world *w, struct buf *ret);

#endif
