/* Load for a broker of MDP/0.2 from libzmq's peers with CURVE: DEALER sockets of the libzmq in pyzmq, without Python in
 * the data path. A shared object; curveload.py loads it with that library and calls `curveload`. Options, marks and
 * result are those of mdpraw.c (see README.md):
 *
 *   -e ENDPOINT  -p the broker's public key  -c clients  -n requests in flight on each  -k workers  -s bytes
 *   -t seconds  -W warm-up  -m
 *
 * One thread writes and reads all messages, libzmq's own encrypts them. The peers share one key pair, made for the run;
 * every connection has a handshake of its own. Idle peers (-i, -x) are not supported.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* From libzmq's zmq.h, whose values are part of its ABI. */
enum { DEALER = 5 };
enum { RCVMORE = 13, LINGER = 17, SNDHWM = 23, RCVHWM = 24, PUBLICKEY = 48, SECRETKEY = 49, SERVERKEY = 50 };
enum { DONTWAIT = 1, SNDMORE = 2 };
enum { POLLIN_ = 1 };
typedef struct { void *socket; int fd; short events, revents; } poll_item;

static void *(*ctx_new)(void);
static void *(*socket_open)(void *, int);
static int (*set_option)(void *, int, const void *, size_t);
static int (*get_option)(void *, int, void *, size_t *);
static int (*dial)(void *, const char *);
static int (*send_frame)(void *, const void *, size_t, int);
static int (*recv_frame)(void *, void *, size_t, int);
static int (*wait_for)(poll_item *, int, long);
static int (*curve_keypair)(char *, char *);

static void *library;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void *need(const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail(dlerror());
    return found;
}

static void load(const char *path)
{
    library = dlopen(path, RTLD_NOW);
    if (!library)
        fail(dlerror());
    ctx_new = need("zmq_ctx_new");
    socket_open = need("zmq_socket");
    set_option = need("zmq_setsockopt");
    get_option = need("zmq_getsockopt");
    dial = need("zmq_connect");
    send_frame = need("zmq_send");
    recv_frame = need("zmq_recv");
    wait_for = need("zmq_poll");
    curve_keypair = need("zmq_curve_keypair");
}

/* Counters */

#define BUCKETS 1000000 /* one per microsecond; longer times are in the last */
#define SECOND 1000000000LL
#define SERVICE "echo"
#define LARGEST 65536 /* bytes of a frame */
#define FRAMES 8
#define TURN 256 /* messages of one peer before the next peer's are read */

static long sent, done, wrong, disconnects;
static unsigned latency[BUCKETS];
static bool measuring;
static size_t size = 64;
static char body[LARGEST];

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static long percentile(long total, double part)
{
    long seen = 0;
    for (long at = 0; at < BUCKETS; at++)
        if ((seen += latency[at]) >= total * part)
            return at;
    return BUCKETS;
}

/* Messages: a reader's frames are valid until the next message */

static char frames[FRAMES][LARGEST];
static int sizes[FRAMES];

/* Return the number of frames of the peer's next message; 0: there is none. */
static int receive(void *peer)
{
    int count = 0, more = 1;
    size_t more_size = sizeof more;
    while (more) {
        if (count == FRAMES)
            fail("a message of too many frames");
        sizes[count] = recv_frame(peer, frames[count], LARGEST, count ? 0 : DONTWAIT);
        if (sizes[count] < 0)
            return 0;
        if (sizes[count] > LARGEST)
            fail("a frame is too large");
        get_option(peer, RCVMORE, &more, &more_size);
        count++;
    }
    return count;
}

static void put(void *peer, const void *data, size_t length, bool more)
{
    if (send_frame(peer, data, length, DONTWAIT | (more ? SNDMORE : 0)) < 0)
        fail("a message cannot be sent: the broker has refused the connection");
}

static void ask(void *client)
{
    int64_t stamp = now();
    memcpy(body, &stamp, sizeof stamp);
    put(client, "MDPC02", 6, true);
    put(client, "\1", 1, true);
    put(client, SERVICE, strlen(SERVICE), true);
    put(client, body, size, false);
    sent++;
}

static void answered(void *client, int count)
{
    int64_t stamp;
    if (count != 4 || sizes[1] != 1 || *frames[1] != 3 || (size_t)sizes[3] != size ||
        memcmp(frames[3] + sizeof stamp, body + sizeof stamp, size - sizeof stamp)) {
        wrong++;
    } else if (measuring) {
        memcpy(&stamp, frames[3], sizeof stamp);
        int64_t took = (now() - stamp) / 1000;
        latency[took < BUCKETS ? took : BUCKETS - 1]++;
    }
    done++;
    ask(client);
}

static void command(void *worker, const char *name, bool more)
{
    put(worker, "MDPW02", 6, true);
    put(worker, name, 1, more);
}

static void ready(void *worker)
{
    command(worker, "\1", true);
    put(worker, SERVICE, strlen(SERVICE), false);
}

static void told(void *worker, int count)
{
    int kind = count > 1 && sizes[1] == 1 ? *frames[1] : 0;
    if (kind == 2 && count == 5) { /* REQUEST: address, empty frame, body */
        command(worker, "\4", true);
        for (int at = 2; at < count; at++)
            put(worker, frames[at], sizes[at], at < count - 1);
    } else if (kind == 6) {
        disconnects++;
        ready(worker);
    } else if (kind != 5) {
        wrong++;
    }
}

/* A run */

static poll_item *peers;
static int workers = 1, clients = 1;

/* Serve all peers until `end`; return true if there was no reply for five seconds. */
static bool run_until(int64_t end)
{
    static int64_t beat;
    int64_t time = now(), moved = time;
    long before = done;
    while (time < end) {
        if (wait_for(peers, workers + clients, 100) < 0)
            fail("zmq_poll failed");
        for (int at = 0; at < workers + clients; at++) {
            int count;
            if (!(peers[at].revents & POLLIN_))
                continue;
            for (int turn = 0; turn < TURN && (count = receive(peers[at].socket)); turn++)
                (at < workers ? told : answered)(peers[at].socket, count);
        }
        time = now();
        if (time - beat > SECOND / 2) {
            beat = time;
            for (int at = 0; at < workers; at++)
                command(peers[at].socket, "\5", false);
        }
        if (done != before) {
            before = done;
            moved = time;
        } else if (clients && time - moved > 5 * SECOND) {
            return true;
        }
    }
    return false;
}

int curveload(const char *library_path, int argc, char **argv)
{
    const char *endpoint = "", *server = "";
    char public[41], secret[41];
    int window = 1, option, zero = 0;
    double seconds = 1, warmup = 0.5, cpu, took;
    bool stalled;
    long n;
    while ((option = getopt(argc, argv, "e:p:c:k:n:i:x:s:t:W:mj")) != -1) {
        switch (option) {
        case 'e': endpoint = optarg; break;
        case 'p': server = optarg; break;
        case 'c': clients = atoi(optarg); break;
        case 'k': workers = atoi(optarg); break;
        case 'n': window = atoi(optarg); break;
        case 's': size = atoi(optarg); break;
        case 't': seconds = atof(optarg); break;
        case 'W': warmup = atof(optarg); break;
        case 'i':
        case 'x':
            if (atoi(optarg))
                fail("curveload has no idle peers");
            break;
        case 'm':
        case 'j': break;
        default: return 2;
        }
    }
    if (size < sizeof(int64_t))
        size = sizeof(int64_t);
    if (size > LARGEST || strlen(server) != 40 || clients < 1 || workers < 0)
        return 2;
    load(library_path);
    memset(body, 'x', sizeof body);
    void *context = ctx_new();
    if (!context || curve_keypair(public, secret))
        fail("this libzmq has no CURVE");
    peers = calloc(workers + clients, sizeof *peers);
    for (int at = 0; at < workers + clients; at++) {
        void *peer = socket_open(context, DEALER);
        if (!peer || set_option(peer, PUBLICKEY, public, 41) || set_option(peer, SECRETKEY, secret, 41) ||
            set_option(peer, SERVERKEY, server, 41) || set_option(peer, LINGER, &zero, sizeof zero) ||
            /* Above its high-water marks, 1,000 by default, a socket blocks. */
            set_option(peer, SNDHWM, &zero, sizeof zero) || set_option(peer, RCVHWM, &zero, sizeof zero) ||
            dial(peer, endpoint))
            fail("a socket cannot be opened");
        peers[at] = (poll_item){.socket = peer, .events = POLLIN_};
        if (at < workers)
            ready(peer);
    }
    usleep(300000); /* READY has no reply: time for the registration */
    for (int at = workers; at < workers + clients; at++)
        for (int under_way = 0; under_way < window; under_way++)
            ask(peers[at].socket);
    stalled = run_until(now() + warmup * SECOND);
    fprintf(stderr, "measuring\n");
    fflush(stderr);
    cpu = cpu_seconds();
    int64_t start = now();
    n = done;
    measuring = true;
    stalled = run_until(start + seconds * SECOND) || stalled;
    n = done - n;
    took = (now() - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    fprintf(stderr, "measured\n");
    fflush(stderr);
    long counted = 0;
    for (long at = 0; at < BUCKETS; at++)
        counted += latency[at];
    printf("{\"n\": %ld, \"rps\": %.1f, \"p50_us\": %ld, \"p99_us\": %ld, \"gen_cpu_us\": %.3f, \"sent\": %ld, "
           "\"done\": %ld, \"wrong\": %ld, \"disconnects\": %ld, \"stalled\": %s}\n",
           n, n / took, percentile(counted, 0.5), percentile(counted, 0.99), n ? cpu * 1e6 / n : 0.0, sent, done, wrong,
           disconnects, stalled ? "true" : "false");
    fflush(stdout);
    _exit(0); /* requests are in flight: skip an orderly shutdown */
}
