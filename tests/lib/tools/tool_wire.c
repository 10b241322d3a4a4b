/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_wire PID:ADDRESS ...: the network between namespaces, with every fault on demand.
 *
 * Each argument is a network namespace, by a process in it, and the IPv4 address it gets there. The
 * tool makes a TUN device in each and carries packets from one to the other, as a switch does. For
 * every ordered pair of them there is a rule, changed by lines on standard input:
 *
 *   set FROM TO KEY=NUMBER ...   FROM, TO: index or *. Keys: drop (0 or 1), loss (packets of a
 *                                million), delay and jitter (microseconds), rate (bytes a second,
 *                                0: unlimited), reset (packets of a million become a TCP reset)
 *   clear                        every pair is perfect again
 *   stats                        packets carried, cut, lost, reset, that overflowed
 *
 * and each line is answered by one. Kernels without netem have real loss, delay and one-way cuts
 * this way, and need neither firewall nor routes; whatever was made goes when the tool ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define ENDS_MAX    32
#define PACKET_MAX  2048
#define MTU         1500
#define HELD_MAX    65536 /* packets under way; one more is dropped, as a router's queue would */
#define QUEUE_US    2000000
#define PREFIX_BITS 16
#define MILLION     1000000U
#define TCP         6
#define TCP_RST_ACK 0x14

struct rule {
    uint64_t drop, loss, delay, jitter, rate, reset;
    uint64_t free_us; /* when the line has sent what it took */
};

struct held {
    uint64_t due_us, order;
    size_t to, len;
    unsigned char *bytes; /* owned */
};

static struct {
    size_t ends;
    int fd[ENDS_MAX];
    uint32_t addr[ENDS_MAX];
    struct rule rules[ENDS_MAX][ENDS_MAX];
    struct held *heap; /* by due_us, then order */
    size_t held;
    uint64_t order, random;
    uint64_t carried, cut, lost, resets, overflowed;
} w;

static void die(const char *what)
{
    (void)fprintf(stderr, "tool_wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * MILLION + (uint64_t)t.tv_nsec / 1000;
}

static bool chance(uint64_t of_a_million)
{
    w.random ^= w.random << 13;
    w.random ^= w.random >> 7;
    w.random ^= w.random << 17;
    return of_a_million && w.random % MILLION < of_a_million;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void up(int s, const char *name)
{
    struct ifreq r = { 0 };

    (void)snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
    if (ioctl(s, SIOCGIFFLAGS, &r))
        die("SIOCGIFFLAGS");
    r.ifr_flags = (short)(r.ifr_flags | IFF_UP);
    if (ioctl(s, SIOCSIFFLAGS, &r))
        die("SIOCSIFFLAGS");
}

static void set_addr(int s, unsigned long what, uint32_t addr)
{
    struct ifreq r = { .ifr_name = "wire" };
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr = { addr } };

    memcpy(&r.ifr_addr, &in, sizeof(in));
    if (ioctl(s, what, &r))
        die("the address of a device");
}

static int device(uint32_t addr)
{
    struct ifreq r = { .ifr_name = "wire" };
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || s < 0)
        die("/dev/net/tun");
    r.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (ioctl(fd, TUNSETIFF, &r))
        die("TUNSETIFF");
    set_addr(s, SIOCSIFADDR, addr);
    set_addr(s, SIOCSIFNETMASK, htonl(~0U << (32 - PREFIX_BITS)));
    r = (struct ifreq){ .ifr_name = "wire" };
    r.ifr_mtu = MTU;
    if (ioctl(s, SIOCSIFMTU, &r))
        die("SIOCSIFMTU");
    up(s, "lo");
    up(s, "wire");
    (void)close(s);
    return fd;
}

static void add_end(char *arg)
{
    char path[64], *colon = strchr(arg, ':');
    int ns;
    struct in_addr a;

    if (!colon || w.ends == ENDS_MAX || inet_pton(AF_INET, colon + 1, &a) != 1) {
        errno = EINVAL;
        die(arg);
    }
    *colon = '\0';
    (void)snprintf(path, sizeof(path), "/proc/%s/ns/net", arg);
    ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET))
        die(path);
    (void)close(ns);
    w.addr[w.ends] = a.s_addr;
    w.fd[w.ends++] = device(a.s_addr);
}

/* ---- packets --------------------------------------------------------------------------------- */

static uint32_t sum16(const unsigned char *p, size_t n, uint32_t sum)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    if (n % 2)
        sum += (uint32_t)p[n - 1] << 8;
    return sum;
}

static void put_sum(unsigned char *at, uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    sum = ~sum;
    at[0] = (unsigned char)(sum >> 8);
    at[1] = (unsigned char)sum;
}

/* A segment with data becomes the reset that a router in a bad mood would send in its place. */
static size_t make_reset(unsigned char *p, size_t len)
{
    size_t head = (size_t)(p[0] & 15) * 4, whole = head + 20;

    if (p[9] != TCP || len <= whole)
        return len;
    p[2] = 0;
    p[3] = (unsigned char)whole;
    p[10] = p[11] = 0;
    put_sum(p + 10, sum16(p, head, 0));
    p[head + 12] = 5 << 4;
    p[head + 13] = TCP_RST_ACK;
    p[head + 16] = p[head + 17] = 0;
    put_sum(p + head + 16, sum16(p + 12, 8, sum16(p + head, 20, TCP + 20)));
    w.resets++;
    return whole;
}

static void send_on(size_t to, const unsigned char *p, size_t len)
{
    if (write(w.fd[to], p, len) < 0)
        w.overflowed++;
    else
        w.carried++;
}

static bool before(const struct held *a, const struct held *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->order < b->order;
}

static void hold(uint64_t due_us, size_t to, const unsigned char *p, size_t len)
{
    size_t i = w.held;
    struct held h = { due_us, w.order++, to, len, NULL };

    if (w.held == HELD_MAX || !(h.bytes = malloc(len))) {
        w.overflowed++;
        return;
    }
    memcpy(h.bytes, p, len);
    for (w.held++; i && before(&h, &w.heap[(i - 1) / 2]); i = (i - 1) / 2)
        w.heap[i] = w.heap[(i - 1) / 2];
    w.heap[i] = h;
}

static void release_first(void)
{
    struct held first = w.heap[0], last = w.heap[--w.held];
    size_t i = 0;

    for (size_t next; (next = 2 * i + 1) < w.held; i = next) {
        if (next + 1 < w.held && before(&w.heap[next + 1], &w.heap[next]))
            next++;
        if (before(&last, &w.heap[next]))
            break;
        w.heap[i] = w.heap[next];
    }
    w.heap[i] = last;
    send_on(first.to, first.bytes, first.len);
    free(first.bytes);
}

static void carry(size_t from, unsigned char *p, size_t len)
{
    uint32_t addr;
    size_t to = 0;
    struct rule *r;
    uint64_t now = now_us(), due = now;

    if (len < 40 || p[0] >> 4 != 4)
        return;
    memcpy(&addr, p + 16, sizeof(addr));
    while (to < w.ends && w.addr[to] != addr)
        to++;
    if (to == w.ends)
        return;
    r = &w.rules[from][to];
    if (r->drop) {
        w.cut++;
        return;
    }
    if (chance(r->loss)) {
        w.lost++;
        return;
    }
    if (chance(r->reset))
        len = make_reset(p, len);
    if (r->rate) {
        r->free_us = (r->free_us > now ? r->free_us : now) + len * MILLION / r->rate;
        if (r->free_us > now + QUEUE_US) {
            r->free_us -= len * MILLION / r->rate;
            w.overflowed++;
            return;
        }
        due = r->free_us;
    }
    due += r->delay + (r->jitter ? w.random % r->jitter : 0);
    if (due > now)
        hold(due, to, p, len);
    else
        send_on(to, p, len);
}

/* ---- commands -------------------------------------------------------------------------------- */

static bool assign(struct rule *r, const char *key, uint64_t v)
{
    const struct {
        const char *name;
        uint64_t *to;
    } keys[] = { { "drop", &r->drop },     { "loss", &r->loss }, { "delay", &r->delay },
                 { "jitter", &r->jitter }, { "rate", &r->rate }, { "reset", &r->reset } };

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (!strcmp(keys[i].name, key)) {
            *keys[i].to = v;
            return true;
        }
    return false;
}

static bool pick(const char *word, size_t *from, size_t *to)
{
    char *end;

    *from = 0;
    *to = w.ends;
    if (!word || !strcmp(word, "*"))
        return word != NULL;
    *from = strtoul(word, &end, 10);
    *to = *from + 1;
    return !*end && *from < w.ends;
}

static bool set(char **save)
{
    size_t from, from_end, to, to_end;

    if (!pick(strtok_r(NULL, " ", save), &from, &from_end) ||
        !pick(strtok_r(NULL, " ", save), &to, &to_end))
        return false;
    for (char *word; (word = strtok_r(NULL, " ", save));) {
        char *eq = strchr(word, '='), *end;
        uint64_t v;

        if (!eq)
            return false;
        *eq = '\0';
        v = strtoull(eq + 1, &end, 10);
        for (size_t i = from; i < from_end; i++)
            for (size_t j = to; j < to_end; j++)
                if (*end || !assign(&w.rules[i][j], word, v))
                    return false;
    }
    return true;
}

static void command(char *line)
{
    char *save, *word = strtok_r(line, " \n", &save);

    if (word && !strcmp(word, "clear"))
        memset(w.rules, 0, sizeof(w.rules));
    else if (word && !strcmp(word, "stats"))
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", w.carried, w.cut,
               w.lost, w.resets, w.overflowed);
    if (word && !strcmp(word, "set") && !set(&save))
        puts("what?");
    else if (!word || strcmp(word, "stats") != 0)
        puts("ok");
}

/* Whole lines; false at the end of the input. */
static bool commands(void)
{
    static char text[4096];
    static size_t len;
    ssize_t n = read(0, text + len, sizeof(text) - 1 - len);
    char *end;

    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    len += (size_t)n;
    text[len] = '\0';
    while ((end = strchr(text, '\n'))) {
        *end = '\0';
        command(text);
        len -= (size_t)(end + 1 - text);
        memmove(text, end + 1, len + 1);
    }
    return len < sizeof(text) - 1;
}

int main(int argc, char **argv)
{
    struct pollfd fds[ENDS_MAX + 1] = { { .fd = 0, .events = POLLIN } };
    unsigned char packet[PACKET_MAX];

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    w.random = 0x9e3779b97f4a7c15U ^ now_us();
    w.heap = calloc(HELD_MAX, sizeof(*w.heap));
    for (int i = 1; i < argc; i++)
        add_end(argv[i]);
    for (size_t i = 0; i < w.ends; i++)
        fds[i + 1] = (struct pollfd){ .fd = w.fd[i], .events = POLLIN };
    puts("ready");
    while (w.heap) {
        uint64_t now = now_us(),
                 wait = w.held && w.heap[0].due_us > now ? w.heap[0].due_us - now : 0;
        struct timespec t = { (time_t)(wait / MILLION), (long)(wait % MILLION) * 1000 };

        if (ppoll(fds, w.ends + 1, w.held ? &t : NULL, NULL) < 0 && errno != EINTR)
            die("poll");
        now = now_us();
        while (w.held && w.heap[0].due_us <= now)
            release_first();
        if (fds[0].revents && !commands())
            return 0;
        for (size_t i = 0; i < w.ends; i++)
            for (int many = 0; many < 64; many++) {
                ssize_t n = read(w.fd[i], packet, sizeof(packet));

                if (n <= 0)
                    break;
                carry(i, packet, (size_t)n);
            }
    }
    return 1;
}
