/* Load for a MemoDB broker from real NNG peers: REQ sockets of the NNG library in pynng, driven by its own
 * asynchronous I/O, without Python in the data path. A shared object; nngload.py loads it with that library and calls
 * `nngload`. Options, marks and result are those of mdpraw.c (see README.md), for memo01:
 *
 *   -e ENDPOINT  -c sockets of clients  -n requests in flight on each  -k workers, 16 to a socket
 *   -i parked workers, all on one socket  -j on one service instead of one each  -s bytes  -t seconds  -W warm-up  -m
 *
 * Each context is a small state machine: what it sent, its aio, the next step. Its callbacks run on NNG's threads, one
 * at a time for each context; shared counters are atomic.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct { uint32_t id; } nng_socket, nng_ctx, nng_dialer;
typedef struct nng_aio nng_aio;
typedef struct nng_msg nng_msg;

static int (*req0_open)(nng_socket *);
static int (*dial)(nng_socket, const char *, nng_dialer *, int);
static int (*ctx_open)(nng_ctx *, nng_socket);
static void (*ctx_send)(nng_ctx, nng_aio *);
static void (*ctx_recv)(nng_ctx, nng_aio *);
static int (*aio_alloc)(nng_aio **, void (*)(void *), void *);
static int (*aio_result)(nng_aio *);
static void (*aio_set_msg)(nng_aio *, nng_msg *);
static nng_msg *(*aio_get_msg)(nng_aio *);
static int (*msg_alloc)(nng_msg **, size_t);
static void (*msg_free)(nng_msg *);
static void *(*msg_body)(nng_msg *);
static size_t (*msg_len)(nng_msg *);

static void *library;

static void *need(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "this NNG has no %s\n", name);
        exit(1);
    }
    return found;
}

static void load(const char *path)
{
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    req0_open = need("nng_req0_open");
    dial = need("nng_dial");
    ctx_open = need("nng_ctx_open");
    ctx_send = need("nng_ctx_send");
    ctx_recv = need("nng_ctx_recv");
    aio_alloc = need("nng_aio_alloc");
    aio_result = need("nng_aio_result");
    aio_set_msg = need("nng_aio_set_msg");
    aio_get_msg = need("nng_aio_get_msg");
    msg_alloc = need("nng_msg_alloc");
    msg_free = need("nng_msg_free");
    msg_body = need("nng_msg_body");
    msg_len = need("nng_msg_len");
}

/* Counters */

#define BUCKETS 1000000 /* one per microsecond; longer times are in the last */

static atomic_long sent, done, wrong, disconnects;
static atomic_uint latency[BUCKETS];
static atomic_bool measuring;
static size_t size = 64;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Messages: the generator always encodes "memo01" and the kind in this way; a broker's are decoded as CBOR */

enum { READY = 1, JOB, RESULT, HEARTBEAT, DISCONNECT };

static size_t begin(uint8_t *at, int items, int kind)
{
    at[0] = 0x80 | items;
    memcpy(at + 1, "\x66memo01", 7);
    at[8] = kind;
    return 9;
}

/* Return the value of a data item's head and advance `at`. */
static uint64_t head(const uint8_t **at, const uint8_t *end)
{
    int low = *at < end ? *(*at)++ & 0x1f : 0;
    uint64_t value = 0;
    if (low < 24)
        return low;
    for (int left = 1 << (low - 24); left > 0 && *at < end; left--)
        value = value << 8 | *(*at)++;
    return value;
}

/* Contexts */

struct context {
    nng_ctx ctx;
    nng_aio *aio;
    bool worker, receiving;
    char service[24];
    uint32_t number, turn;
    double began;
    uint8_t header[64];
    size_t header_size;
    uint8_t *payload; /* what a client sent */
};

static void send_message(struct context *c, const void *payload, size_t payload_size)
{
    nng_msg *message;
    if (msg_alloc(&message, c->header_size + payload_size)) {
        fprintf(stderr, "no memory\n");
        _exit(1);
    }
    memcpy(msg_body(message), c->header, c->header_size);
    memcpy((uint8_t *)msg_body(message) + c->header_size, payload, payload_size);
    aio_set_msg(c->aio, message);
    c->receiving = false;
    ctx_send(c->ctx, c->aio);
}

static void ask(struct context *c)
{
    c->turn++;
    memcpy(c->payload, &c->number, size < 4 ? size : 4);
    if (size >= 8)
        memcpy(c->payload + 4, &c->turn, 4);
    c->began = now();
    atomic_fetch_add(&sent, 1);
    send_message(c, c->payload, size);
}

static void ready(struct context *c)
{
    size_t length = strlen(c->service), at = begin(c->header, 4, READY);
    c->header[at++] = 0x40;
    c->header[at++] = 0x81;
    c->header[at++] = 0x60 | length;
    memcpy(c->header + at, c->service, length);
    c->header_size = at + length;
    send_message(c, "", 0);
}

static void answered(struct context *c, const uint8_t *data, const uint8_t *end)
{
    const uint8_t *at = data + 9;
    at += head(&at, end); /* an empty ID */
    if (end - data < 10 || data[8] != RESULT || (size_t)(end - at) != size || memcmp(at, c->payload, size))
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&done, 1);
    if (atomic_load_explicit(&measuring, memory_order_relaxed)) {
        double took = (now() - c->began) * 1e6;
        atomic_fetch_add(&latency[took < BUCKETS ? (size_t)took : BUCKETS - 1], 1);
    }
    ask(c);
}

static void told(struct context *c, const uint8_t *data, const uint8_t *end)
{
    const uint8_t *at = data + 9, *id;
    size_t id_size;
    int kind = end - data > 9 ? data[8] : 0;
    if (kind != JOB && kind != HEARTBEAT) {
        atomic_fetch_add(&disconnects, 1);
        ready(c);
        return;
    }
    id_size = head(&at, end);
    id = at;
    at += id_size;
    if (kind == JOB) {
        at += head(&at, end); /* the service's name */
        head(&at, end);       /* the time-out */
    }
    c->header_size = begin(c->header, 3, kind == JOB ? RESULT : HEARTBEAT);
    if (id_size > 23 || at > end) {
        fprintf(stderr, "a worker's ID of %zu bytes\n", id_size);
        _exit(1);
    }
    c->header[c->header_size++] = 0x40 | id_size;
    memcpy(c->header + c->header_size, id, id_size);
    c->header_size += id_size;
    send_message(c, at, end - at);
}

static void happened(void *arg)
{
    struct context *c = arg;
    nng_msg *message;
    uint8_t *data;
    if (aio_result(c->aio)) {
        fprintf(stderr, "NNG's error %d\n", aio_result(c->aio));
        _exit(1);
    }
    if (!c->receiving) {
        c->receiving = true;
        ctx_recv(c->ctx, c->aio);
        return;
    }
    message = aio_get_msg(c->aio);
    data = msg_body(message);
    (c->worker ? told : answered)(c, data, data + msg_len(message));
    msg_free(message);
}

static struct context *open_context(nng_socket socket, uint32_t number, const char *service, bool worker)
{
    struct context *c = calloc(1, sizeof *c);
    if (!c || ctx_open(&c->ctx, socket) || aio_alloc(&c->aio, happened, c)) {
        fprintf(stderr, "no context\n");
        exit(1);
    }
    c->number = number;
    c->worker = worker;
    snprintf(c->service, sizeof c->service, "%s", service);
    if (!worker) {
        size_t length = strlen(service), at = begin(c->header, 5, JOB);
        c->header[at++] = 0x40;
        c->header[at++] = 0x60 | length;
        memcpy(c->header + at, service, length);
        at += length;
        memcpy(c->header + at, "\x19\x75\x30", 3); /* 30 s */
        c->header_size = at + 3;
        c->payload = malloc(size + 8);
        memset(c->payload, 'x', size + 8);
    }
    return c;
}

static nng_socket connected(const char *endpoint)
{
    nng_socket socket;
    int error = req0_open(&socket);
    if (!error)
        error = dial(socket, endpoint, NULL, 0);
    if (error) {
        fprintf(stderr, "cannot connect to %s: NNG's error %d\n", endpoint, error);
        exit(1);
    }
    return socket;
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

/* Sleep; return true if there was no reply for five seconds. */
static bool pass(double seconds)
{
    double end = now() + seconds, moved = now();
    long before = atomic_load(&done);
    while (now() < end) {
        usleep(2000);
        if (atomic_load(&done) != before) {
            before = atomic_load(&done);
            moved = now();
        } else if (now() > moved + 5) {
            return true;
        }
    }
    return false;
}

int nngload(const char *library_path, int argc, char **argv)
{
    const char *endpoint = "";
    int clients = 1, window = 1, workers = 1, parked = 0, option;
    bool shared = false, stalled;
    double seconds = 1, warmup = 0.5, start, took, cpu;
    long n;
    uint32_t number = 0;
    nng_socket socket = {0};
    while ((option = getopt(argc, argv, "e:c:k:n:i:x:s:t:W:mj")) != -1) {
        switch (option) {
        case 'e': endpoint = optarg; break;
        case 'c': clients = atoi(optarg); break;
        case 'k': workers = atoi(optarg); break;
        case 'n': window = atoi(optarg); break;
        case 'i': parked = atoi(optarg); break;
        case 's': size = atoi(optarg); break;
        case 't': seconds = atof(optarg); break;
        case 'W': warmup = atof(optarg); break;
        case 'j': shared = true; break;
        case 'm':
        case 'x': break;
        default: return 2;
        }
    }
    load(library_path);
    for (int at = 0; at < parked; at++) {
        char service[24];
        snprintf(service, sizeof service, shared ? "parked" : "parked-%d", at);
        if (!at)
            socket = connected(endpoint);
        ready(open_context(socket, 0, service, true));
    }
    for (int at = 0; at < workers; at++) {
        if (at % 16 == 0)
            socket = connected(endpoint);
        ready(open_context(socket, 0, "echo", true));
    }
    usleep(200000);
    for (int at = 0; at < clients; at++) {
        socket = connected(endpoint);
        for (int under_way = 0; under_way < window; under_way++)
            ask(open_context(socket, number++, "echo", false));
    }
    stalled = pass(warmup);
    fprintf(stderr, "measuring\n");
    fflush(stderr);
    cpu = cpu_seconds();
    start = now();
    n = atomic_load(&done);
    atomic_store(&measuring, true);
    stalled = pass(seconds) || stalled;
    atomic_store(&measuring, false);
    n = atomic_load(&done) - n;
    took = now() - start;
    cpu = cpu_seconds() - cpu;
    fprintf(stderr, "measured\n");
    fflush(stderr);
    long counted = 0;
    for (long at = 0; at < BUCKETS; at++)
        counted += latency[at];
    printf("{\"n\": %ld, \"rps\": %.1f, \"p50_us\": %ld, \"p99_us\": %ld, \"gen_cpu_us\": %.3f, \"sent\": %ld, "
           "\"done\": %ld, \"wrong\": %ld, \"disconnects\": %ld, \"stalled\": %s}\n",
           n, n / took, percentile(counted, 0.5), percentile(counted, 0.99), n ? cpu * 1e6 / n : 0.0, atomic_load(&sent),
           atomic_load(&done), atomic_load(&wrong), atomic_load(&disconnects), stalled ? "true" : "false");
    fflush(stdout);
    _exit(0); /* requests are in flight: skip an orderly shutdown */
}
