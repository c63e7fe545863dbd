/* mdpraw: a load generator for Majordomo and NORFAB brokers, clients and echo workers in one process.
 *
 * It speaks ZMTP 3.0 (NULL) by itself over TCP with one thread and epoll, which costs about a quarter of
 * libzmq's CPU per request. So the broker is the bottleneck, not the generator.
 *
 * Every client keeps a fixed number of requests in flight (its window); every worker echoes the body it
 * received. A request carries its send time in the first 8 bytes of its body, so latency needs no
 * bookkeeping. One line of JSON goes to stdout at the end.
 *
 * WMP has no clients: they speak MDP, and its workers are woken, fetch the job, reply and are ready again.
 *
 * NFP in norfab's form differs: bodies are JSON, the send time is in the job's UUID (with a number, so that
 * UUIDs are unique), a worker's reply has a status, and a request is done when its 200 arrives.
 *
 *     gcc -O2 -o mdpraw mdpraw.c && ./mdpraw -e tcp://127.0.0.1:5555 -c 8 -n 128 -k 16 -t 3
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 1, EXIT_IO = 2, EXIT_HANDSHAKE = 3, EXIT_CLOSED = 4, EXIT_STALLED = 5 };

#define SECOND 1000000000ull
#define STALL (5 * SECOND)           /* without progress for this long: give up */
#define SILENCE SECOND               /* a window without a reply in its last second is not a result */
#define BUSY_HEARTBEAT (SECOND / 2)  /* for the measured workers */
#define SETTLE_US 300000             /* READY has no reply: time for the registration */
#define MAX_FRAMES 64
#define MAX_EVENTS 256
#define MAX_SAMPLES (1u << 22)       /* latencies kept; later ones still count as requests */
#define DIAL_BATCH 64                /* below the usual backlog of a listener */

/* ---- dialects: which frames a broker of that kind expects ------------------------------------ */

enum part_kind { END, TEXT, SERVICE, UUID, ROLES };
struct part { enum part_kind kind; const char *text; size_t size; };
#define T(literal) {TEXT, literal, sizeof(literal) - 1}
#define SVC {SERVICE, NULL, 0}
#define ID {UUID, NULL, 0}
#define ROLE {ROLES, NULL, 0}
#define NO_COMMAND (-1)
#define UUID_SIZE 32                 /* hexadecimal: send time, then the request's number */
#define NUMBERS (1u << 20)           /* of distinguishable requests in flight */

struct dialect {
    const char *name;
    /* as a client */
    struct part request[8];            /* frames before the body */
    int reply_command_at, reply_final; /* index of the command frame, FINAL's value */
    /* as a worker */
    struct part ready[6], heartbeat[5];
    struct part final[4];              /* frames before the address */
    int command_at, command_request, command_disconnect; /* index of the command frame, its values */
    int address_at;                    /* index of the client's address; echoed from here on */
    /* with UUIDs and statuses; 0 without */
    int command_char;                  /* commands are text: index of the distinguishing character */
    int uuid_at, status_at;            /* of a reply; a worker's request ends with UUID and body */
    bool wakes;                        /* workers are woken: WMP */
};

static const struct dialect DIALECTS[] = {
    {.name = "mdp02",
     .request = {T("MDPC02"), T("\x01"), SVC}, .reply_command_at = 1, .reply_final = 3,
     .ready = {T("MDPW02"), T("\x01"), SVC}, .final = {T("MDPW02"), T("\x04")},
     .heartbeat = {T("MDPW02"), T("\x05")},
     .command_at = 1, .command_request = 2, .command_disconnect = 6, .address_at = 2},
    {.name = "mdp01",
     .request = {T(""), T("MDPC01"), SVC}, .reply_command_at = NO_COMMAND,
     .ready = {T(""), T("MDPW01"), T("\x01"), SVC}, .final = {T(""), T("MDPW01"), T("\x03")},
     .heartbeat = {T(""), T("MDPW01"), T("\x04")},
     .command_at = 2, .command_request = 2, .command_disconnect = 5, .address_at = 3},
    {.name = "tomo", /* majortomo: 0.2's headers after an empty frame, other numbers towards the client */
     .request = {T(""), T("MDPC02"), T("\x02"), SVC}, .reply_command_at = 2, .reply_final = 4,
     .ready = {T(""), T("MDPW02"), T("\x01"), SVC}, .final = {T(""), T("MDPW02"), T("\x04")},
     .heartbeat = {T(""), T("MDPW02"), T("\x05")},
     .command_at = 2, .command_request = 2, .command_disconnect = 6, .address_at = 3},
    {.name = "nfp", /* norfab's form: commands are "0x04", jobs go to any worker */
     .request = {T(""), T("NFPC01"), T("0x04"), SVC, T("any"), ID}, .reply_command_at = 2, .reply_final = '5',
     .ready = {T(""), T("NFPW01"), T("0x01"), SVC}, .final = {T(""), T("NFPW01"), T("0x05")},
     .heartbeat = {T(""), T("NFPW01"), T("0x02"), SVC},
     .command_at = 2, .command_request = '4', .command_disconnect = '3', .address_at = 3,
     .command_char = 3, .uuid_at = 4, .status_at = 5},
    {.name = "wmp",
     .request = {T("MDPC02"), T("\x01"), SVC}, .reply_command_at = 1, .reply_final = 3,
     .ready = {T(""), T("WMP1"), T("\x01"), T(""), ROLE}, .command_at = 2, .wakes = true},
    /* No protocol, for a bare ROUTER-DEALER proxy: workers send [address][body] back. The upper bound. */
    {.name = "raw", .reply_command_at = NO_COMMAND, .command_at = NO_COMMAND, .address_at = 0},
    /* A ROUTER that answers by itself: no workers. */
    {.name = "echo", .reply_command_at = NO_COMMAND, .command_at = NO_COMMAND, .address_at = 0},
};

/* ---- options --------------------------------------------------------------------------------- */

static struct {
    const struct dialect *dialect;
    const char *client_endpoint, *worker_endpoint, *service, *identity_prefix;
    int clients, workers, window, size, idle_workers, idle_clients, slots;
    bool idle_share_service, announce;
    double seconds, warmup, idle_heartbeat;
} opt = {
    .client_endpoint = "tcp://127.0.0.1:5555", .service = "echo", .clients = 1, .workers = 1, .window = 1,
    .size = 64, .seconds = 3, .warmup = 0.5, .idle_heartbeat = 2.5, .slots = 1,
};

static const char USAGE[] =
    "usage: mdpraw [options]\n"
    "  -e ENDPOINT  broker, tcp://IPV4:PORT              -w ENDPOINT  for workers, if different\n"
    "  -d DIALECT   mdp02, mdp01, tomo, nfp, wmp, raw, echo\n"
    "                                                    -S NAME      service\n"
    "  -c N         clients                              -n N         requests in flight per client\n"
    "  -k N         workers                              -s BYTES     body size (at least 8)\n"
    "  -t SECONDS   measured time                        -W SECONDS   warm-up\n"
    "  -i N         idle workers, on services idle-1..N  -j           ... all on one service, idle\n"
    "  -x N         idle clients, connected only         -H SECONDS   idle workers' heartbeat interval\n"
    "  -I PREFIX    identities PREFIX1, PREFIX2, ...     -m           mark the window on stderr\n"
    "  -z N         wmp: jobs a worker takes at once\n";

static void parse_options(int argc, char **argv)
{
    const char *name = "mdp02";
    int o;

    while ((o = getopt(argc, argv, "e:w:c:k:n:s:t:d:S:W:I:i:x:H:z:jmh")) != -1) {
        switch (o) {
        case 'e': opt.client_endpoint = optarg; break;
        case 'w': opt.worker_endpoint = optarg; break;
        case 'c': opt.clients = atoi(optarg); break;
        case 'k': opt.workers = atoi(optarg); break;
        case 'n': opt.window = atoi(optarg); break;
        case 's': opt.size = atoi(optarg); break;
        case 't': opt.seconds = atof(optarg); break;
        case 'd': name = optarg; break;
        case 'S': opt.service = optarg; break;
        case 'W': opt.warmup = atof(optarg); break;
        case 'I': opt.identity_prefix = optarg; break;
        case 'i': opt.idle_workers = atoi(optarg); break;
        case 'x': opt.idle_clients = atoi(optarg); break;
        case 'H': opt.idle_heartbeat = atof(optarg); break;
        case 'z': opt.slots = atoi(optarg) < 24 ? atoi(optarg) : 23; break; /* one byte of CBOR */
        case 'j': opt.idle_share_service = true; break;
        case 'm': opt.announce = true; break;
        case 'h': fputs(USAGE, stdout); exit(0);
        default: fputs(USAGE, stderr); exit(EXIT_USAGE);
        }
    }
    for (size_t i = 0; i < sizeof DIALECTS / sizeof *DIALECTS; i++)
        if (!strcmp(DIALECTS[i].name, name))
            opt.dialect = &DIALECTS[i];
    if (!opt.dialect) {
        fprintf(stderr, "mdpraw: unknown dialect %s\n%s", name, USAGE);
        exit(EXIT_USAGE);
    }
    if (!strcmp(name, "echo"))
        opt.workers = 0;
    if (!strcmp(name, "nfp") && !opt.identity_prefix)
        opt.identity_prefix = "peer"; /* results are keyed by their worker's name */
    if (opt.size < 8)
        opt.size = 8; /* the send time must fit */
    if (opt.idle_heartbeat <= 0)
        opt.idle_heartbeat = 2.5;
    if (!opt.worker_endpoint)
        opt.worker_endpoint = opt.client_endpoint;
}

/* ---- buffers and frames ---------------------------------------------------------------------- */

struct buffer { unsigned char *data; size_t used, size; };

static void reserve(struct buffer *b, size_t room)
{
    if (b->used + room <= b->size)
        return;
    b->size = (b->used + room) * 2;
    b->data = realloc(b->data, b->size);
    if (!b->data) {
        fputs("mdpraw: out of memory\n", stderr);
        exit(EXIT_IO);
    }
}

static void put(struct buffer *b, const void *bytes, size_t n)
{
    reserve(b, n);
    memcpy(b->data + b->used, bytes, n);
    b->used += n;
}

static void put_frame(struct buffer *b, const void *bytes, size_t n, bool more)
{
    unsigned char head[9] = {more, (unsigned char)n};
    size_t head_size = 2;

    if (n > 255) { /* ZMTP's long form: flag 2 and a 64-bit length, highest byte first */
        head[0] |= 2;
        for (int i = 0; i < 8; i++)
            head[1 + i] = (unsigned char)((uint64_t)n >> (56 - 8 * i));
        head_size = 9;
    }
    put(b, head, head_size);
    put(b, bytes, n);
}

/* WMP headers of a worker of one service, with a name of less than 24 bytes: {"roles": [service], "slots": n} in
 * CBOR. */
static void put_roles(struct buffer *b, const char *service, bool more)
{
    unsigned char headers[64] = "\xa2\x65roles\x81";
    size_t size = strlen(service) < 24 ? strlen(service) : 23;

    headers[8] = 0x60 | size;
    memcpy(headers + 9, service, size);
    memcpy(headers + 9 + size, "\x65slots", 6);
    headers[15 + size] = opt.slots;
    put_frame(b, headers, 16 + size, more);
}

/* Append the parts as frames; `open` sets MORE on the last one too: a head, followed by a body. */
static void put_parts(struct buffer *b, const struct part *parts, const char *service, bool open)
{
    for (int i = 0; parts[i].kind != END; i++) {
        bool more = open || parts[i + 1].kind != END;

        if (parts[i].kind == SERVICE)
            put_frame(b, service, strlen(service), more);
        else if (parts[i].kind == UUID)
            put_frame(b, "00000000000000000000000000000000", UUID_SIZE, more);
        else if (parts[i].kind == ROLES)
            put_roles(b, service, more);
        else
            put_frame(b, parts[i].text, parts[i].size, more);
    }
}

/* Messages differ only in a timestamp or an address, so they are encoded once, here. */
static struct {
    struct buffer request, final_head, heartbeat, idle_heartbeat;
    size_t stamp_at;
    char *filler; /* `size` bytes of text */
} wire;

static void prepare_messages(void)
{
    char *body = wire.filler = malloc(opt.size + 1);
    int size = opt.size;

    memset(wire.filler, 'x', opt.size);
    wire.filler[opt.size] = 0;
    if (opt.dialect->uuid_at)
        size = asprintf(&body, "{\"task\":\"echo\",\"kwargs\":{\"word\":\"%s\"},\"args\":[],\"timeout\":60}",
                        wire.filler);
    put_parts(&wire.request, opt.dialect->request, opt.service, true);
    wire.stamp_at = opt.dialect->uuid_at ? wire.request.used - UUID_SIZE : 0;
    put_frame(&wire.request, body, size, false);
    if (!opt.dialect->uuid_at)
        wire.stamp_at = wire.request.used - size;
    put_parts(&wire.final_head, opt.dialect->final, opt.service, true);
    put_parts(&wire.heartbeat, opt.dialect->heartbeat, opt.service, false);
    put_parts(&wire.idle_heartbeat, opt.dialect->heartbeat, opt.idle_share_service ? "idle" : opt.service, false);
}

/* ---- connections ----------------------------------------------------------------------------- */

enum role { WORKER, CLIENT, IDLE_WORKER, IDLE_CLIENT };
static const char *const ROLE_NAMES[] = {"worker", "client", "idle worker", "idle client"};
enum phase { GREETING, HANDSHAKE, OPEN };

struct conn {
    int fd;
    enum role role;
    enum phase phase;
    int under_way;      /* client: requests without a reply */
    char identity[32];
    struct buffer in, out;
    size_t out_sent;    /* bytes of `out` accepted by the kernel */
    bool awaits_room;   /* EPOLLOUT is on */
    bool ready_due;     /* a WMP worker that has taken a job: READY after all other messages of this read */
};

static struct conn *conns;
static int conn_count, open_count, epoll_fd;

enum progress { SENT, ACKNOWLEDGED, DONE };
static unsigned char progress[NUMBERS]; /* state of each request, by number */

static struct {
    uint64_t sent, done, disconnects, nonfinal, wrong, unannounced, samples;
    uint32_t *latency_us;
    bool measuring;
} stats;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static void io_failed(const char *what, const struct conn *c)
{
    fprintf(stderr, "mdpraw: %s failed on a connection of a(n) %s: %s\n", what, ROLE_NAMES[c->role],
            strerror(errno));
    exit(EXIT_IO);
}

static void watch(struct conn *c, int operation, bool room)
{
    struct epoll_event event = {EPOLLIN | (room ? EPOLLOUT : 0), {.ptr = c}};

    if (epoll_ctl(epoll_fd, operation, c->fd, &event))
        io_failed("epoll_ctl", c);
    c->awaits_room = room;
}

static void flush(struct conn *c)
{
    while (c->out_sent < c->out.used) {
        ssize_t n = send(c->fd, c->out.data + c->out_sent, c->out.used - c->out_sent, MSG_NOSIGNAL);

        if (n < 0) {
            if (errno != EAGAIN)
                io_failed("send", c);
            if (!c->awaits_room)
                watch(c, EPOLL_CTL_MOD, true);
            return;
        }
        c->out_sent += n;
    }
    c->out_sent = c->out.used = 0;
    if (c->awaits_room)
        watch(c, EPOLL_CTL_MOD, false);
}

static void send_greeting(struct conn *c)
{
    unsigned char greeting[64] = {[0] = 0xff, [9] = 0x7f, [10] = 3, [12] = 'N', 'U', 'L', 'L'};

    put(&c->out, greeting, sizeof greeting);
    flush(c);
}

static void put_property(struct buffer *b, const char *name, const char *value)
{
    unsigned char name_size = strlen(name), value_size[4] = {0, 0, 0, strlen(value)};

    put(b, &name_size, 1);
    put(b, name, name_size);
    put(b, value_size, 4);
    put(b, value, value_size[3]);
}

static void send_handshake(struct conn *c)
{
    static int sequence;
    struct buffer ready = {0};
    unsigned char head[2] = {4, 0}; /* flag 4: a command, not a message */

    if (opt.identity_prefix)
        snprintf(c->identity, sizeof c->identity, "%s%d", opt.identity_prefix, ++sequence);
    put(&ready, "\5READY", 6);
    put_property(&ready, "Socket-Type", "DEALER");
    put_property(&ready, "Identity", c->identity);
    head[1] = ready.used;
    put(&c->out, head, 2);
    put(&c->out, ready.data, ready.used);
    free(ready.data);
    flush(c);
}

static struct sockaddr_in parse_endpoint(const char *endpoint)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[16];
    int port;

    if (sscanf(endpoint, "tcp://%15[0-9.]:%d", host, &port) != 2
        || !inet_pton(AF_INET, host, &address.sin_addr)) {
        fprintf(stderr, "mdpraw: %s is not of the form tcp://IPV4:PORT\n", endpoint);
        exit(EXIT_USAGE);
    }
    address.sin_port = htons(port);
    return address;
}

static void dial(struct conn *c)
{
    bool works = c->role == WORKER || c->role == IDLE_WORKER;
    struct sockaddr_in address = parse_endpoint(works ? opt.worker_endpoint : opt.client_endpoint);
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
        io_failed("connect", c);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, false);
    send_greeting(c);
}

/* ---- what a client and a worker do with a message -------------------------------------------- */

struct message {
    int frames;
    unsigned char *head[MAX_FRAMES], *frame[MAX_FRAMES], *end; /* where flags and content of each start */
    size_t size[MAX_FRAMES];
};

static int command_of(const struct message *m, int at)
{
    size_t character = opt.dialect->command_char;

    return at < m->frames && m->size[at] > character ? m->frame[at][character] : -1;
}

static void put_hex(unsigned char *at, uint64_t value)
{
    for (int i = 15; i >= 0; i--, value >>= 4)
        at[i] = "0123456789abcdef"[value & 15];
}

static uint64_t read_hex(const unsigned char *at)
{
    uint64_t value = 0;

    for (int i = 0; i < 16; i++)
        value = value << 4 | (at[i] <= '9' ? at[i] - '0' : at[i] - 'a' + 10);
    return value;
}

static void send_request(struct conn *c)
{
    unsigned char *stamp = wire.request.data + wire.stamp_at;
    uint64_t time = now_ns();

    if (opt.dialect->uuid_at) {
        put_hex(stamp, time);
        put_hex(stamp + 16, stats.sent);
        progress[stats.sent % NUMBERS] = SENT;
    } else {
        memcpy(stamp, &time, sizeof time);
    }
    put(&c->out, wire.request.data, wire.request.used);
    c->under_way++;
    stats.sent++;
}

static void send_ready(struct conn *c)
{
    char idle_service[32] = "idle";
    const char *service = opt.service;

    if (c->role == IDLE_WORKER) {
        if (!opt.idle_share_service) /* idle workers follow the workers in `conns` */
            snprintf(idle_service, sizeof idle_service, "idle-%d", (int)(c - conns) - opt.workers + 1);
        service = idle_service;
    }
    put_parts(&c->out, opt.dialect->ready, service, false);
    flush(c);
}

/* Return the state of a request; NULL if the UUID is not one of ours. */
static unsigned char *progress_of(const struct message *m)
{
    int at = opt.dialect->uuid_at;
    uint64_t number;

    if (m->frames <= at || m->size[at] != UUID_SIZE)
        return NULL;
    number = read_hex(m->frame[at] + 16);
    return number < stats.sent ? &progress[number % NUMBERS] : NULL;
}

/* 202 and 201: accepted, not done. */
static bool is_acknowledgement(const struct message *m)
{
    int at = opt.dialect->status_at;
    unsigned char *noted;

    if (!at || at >= m->frames || m->size[at] < 3 || memcmp(m->frame[at], "20", 2) || m->frame[at][2] == '0')
        return false;
    noted = progress_of(m);
    if (noted && *noted == SENT)
        *noted = ACKNOWLEDGED;
    return true;
}

/* A first 200 with a body at least as long as the worker's. Its 202 should have arrived before; a missing one is only
 * counted, because a libzmq ROUTER drops messages that do not fit its queue. */
static bool is_result(const struct message *m)
{
    int at = opt.dialect->status_at;
    unsigned char *noted = progress_of(m);

    if (!noted || *noted == DONE || m->frames != at + 2 || m->size[at] < 3 || memcmp(m->frame[at], "200", 3))
        return false;
    stats.unannounced += *noted == SENT;
    *noted = DONE;
    return m->size[at + 1] > (size_t)opt.size;
}

static void on_reply(struct conn *c, const struct message *m)
{
    const struct dialect *d = opt.dialect;
    uint64_t sent_at, now;
    int body = m->frames - 1;

    if ((d->reply_command_at != NO_COMMAND && command_of(m, d->reply_command_at) != d->reply_final)
        || is_acknowledgement(m)) {
        stats.nonfinal++;
        return;
    }
    c->under_way--;
    stats.done++;
    if (d->uuid_at ? !is_result(m) : m->size[body] != (size_t)opt.size) { /* a wrong reply is not a result */
        if (!stats.wrong++ && d->status_at && d->status_at < m->frames) /* report the first one */
            fprintf(stderr, "a wrong answer: status %.*s, %.*s\n", (int)m->size[d->status_at],
                    m->frame[d->status_at], (int)m->size[body], m->frame[body]);
        return;
    }
    if (!stats.measuring)
        return;
    if (d->uuid_at)
        sent_at = read_hex(m->frame[d->uuid_at]);
    else
        memcpy(&sent_at, m->frame[body], sizeof sent_at);
    now = now_ns();
    if (sent_at > now)
        stats.wrong++;
    else if (stats.samples < MAX_SAMPLES)
        stats.latency_us[stats.samples++] = (now - sent_at) / 1000;
}

/* Append a result in the form of norfab's workers, keyed by the worker's name. */
static void put_result(struct conn *c, const struct message *m)
{
    static char *result;
    static size_t room;
    int size;

    if (!result)
        result = malloc(room = opt.size + 1024);
    size = snprintf(result, room,
                    "{\"%s\":{\"result\":\"%s\",\"failed\":false,\"errors\":[],\"task\":\"%s:echo\","
                    "\"messages\":[],\"juuid\":\"%.*s\",\"resources\":[],\"status\":\"completed\","
                    "\"service\":\"%s\"}}",
                    c->identity, wire.filler, c->identity, (int)m->size[m->frames - 2],
                    m->frame[m->frames - 2], opt.service);
    put_frame(&c->out, "200", 3, true);
    put_frame(&c->out, result, size, false);
}

/* A WMP worker: WAKE is answered with GIVE, TAKE with DONE and READY. The frames before the second empty one are the
 * return route. Headers are CBOR maps in deterministic order, so the needed keys come first. */
static void on_wmp(struct conn *c, const struct message *m)
{
    int command = command_of(m, 2), empty = 3;
    unsigned char *headers;

    while (empty < m->frames && m->size[empty])
        empty++;
    if (empty + 1 >= m->frames || (command != 2 && command != 4))
        return;
    headers = m->frame[empty + 1];
    put(&c->out, m->head[3], m->head[empty] - m->head[3]);
    put_frame(&c->out, "", 0, true);
    put_frame(&c->out, "WMP1", 4, true);
    put_frame(&c->out, command == 2 ? "\3" : "\6", 1, true);
    put_frame(&c->out, "", 0, true);
    if (command == 2) { /* {"wake": number, "roles": ...} to {"wake": number} */
        unsigned char give[15] = "\xa1\x64wake";
        int size = headers[6] < 24 ? 1 : 1 + (1 << (headers[6] - 24));

        memcpy(give + 6, headers + 6, size);
        put_frame(&c->out, give, 6 + size, false);
    } else { /* {"job": eight letters, ...} to {"job": eight letters, "status": 200} */
        unsigned char done[] = "\xa2\x63job\x68........\x66status\x18\xc8";

        memcpy(done + 6, headers + 6, 8);
        put_frame(&c->out, done, sizeof done - 1, true);
        put(&c->out, m->head[empty + 2], m->end - m->head[empty + 2]);
        c->ready_due = true;
    }
}

static void on_work(struct conn *c, const struct message *m)
{
    const struct dialect *d = opt.dialect;

    int command = d->command_at == NO_COMMAND ? d->command_request : command_of(m, d->command_at);

    if (d->wakes) {
        on_wmp(c, m);
        return;
    }
    if (command == d->command_request && d->address_at < m->frames) {
        /* Address, empty frame and body are returned unchanged, including headers; or a result instead of the body. */
        unsigned char *from = m->head[d->address_at];
        unsigned char *until = d->uuid_at ? m->head[m->frames - 1] : m->end;

        put(&c->out, wire.final_head.data, wire.final_head.used);
        put(&c->out, from, until - from);
        if (d->uuid_at)
            put_result(c, m);
    } else if (d->command_at != NO_COMMAND && command == d->command_disconnect) {
        stats.disconnects++;
        send_ready(c);
    }
}

static void on_message(struct conn *c, const struct message *m)
{
    if (c->role == CLIENT)
        on_reply(c, m);
    else if (c->role != IDLE_CLIENT)
        on_work(c, m);
}

static void on_command(struct conn *c, const struct message *m)
{
    if (c->phase != HANDSHAKE)
        return;
    if (m->size[0] < 6 || memcmp(m->frame[0], "\5READY", 6)) {
        fprintf(stderr, "mdpraw: the broker refused the handshake of a(n) %s\n", ROLE_NAMES[c->role]);
        exit(EXIT_HANDSHAKE);
    }
    c->phase = OPEN;
    open_count++;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Read one complete message or command from `at`; return the start of the next, or NULL if bytes are missing. */
static unsigned char *parse_message(unsigned char *at, unsigned char *limit, struct message *m,
                                    bool *is_command)
{
    m->frames = 0;
    for (;;) {
        unsigned char flags, *head = at;
        size_t size = 0;

        if (limit - at < 2)
            return NULL;
        flags = at[0];
        if (flags & 2) {
            if (limit - at < 9)
                return NULL;
            for (int i = 1; i < 9; i++)
                size = size << 8 | at[i];
            at += 9;
        } else {
            size = at[1];
            at += 2;
        }
        if ((size_t)(limit - at) < size)
            return NULL;
        if (m->frames < MAX_FRAMES) {
            m->head[m->frames] = head;
            m->frame[m->frames] = at;
            m->size[m->frames++] = size;
        }
        at += size;
        *is_command = flags & 4;
        if (*is_command || !(flags & 1))
            return m->end = at;
    }
}

static bool receive(struct conn *c)
{
    size_t room = c->role == WORKER || c->role == CLIENT ? 65536 : 512; /* idle ones are many: small */
    ssize_t n;

    reserve(&c->in, room);
    n = recv(c->fd, c->in.data + c->in.used, room, 0);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n < 0)
        io_failed("recv", c);
    if (n == 0) {
        fprintf(stderr, "mdpraw: the broker closed a connection of a(n) %s\n", ROLE_NAMES[c->role]);
        exit(EXIT_CLOSED);
    }
    c->in.used += n;
    return true;
}

static void on_readable(struct conn *c)
{
    unsigned char *at, *next, *limit;
    struct message m;
    bool is_command;

    if (!receive(c))
        return;
    at = c->in.data;
    limit = at + c->in.used;
    if (c->phase == GREETING) {
        if (c->in.used < 64)
            return;
        at += 64;
        c->phase = HANDSHAKE;
        send_handshake(c);
    }
    for (; (next = parse_message(at, limit, &m, &is_command)); at = next) {
        if (is_command)
            on_command(c, &m);
        else
            on_message(c, &m);
    }
    c->in.used = limit - at;
    if (c->in.used)
        memmove(c->in.data, at, c->in.used);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void turn(bool loaded)
{
    struct epoll_event events[MAX_EVENTS];
    int n = epoll_wait(epoll_fd, events, MAX_EVENTS, 100);

    for (int i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;

        if (events[i].events & EPOLLOUT)
            flush(c);
        if (events[i].events & ~EPOLLOUT)
            on_readable(c);
        if (loaded && c->role == CLIENT)
            while (c->under_way < opt.window)
                send_request(c);
        if (c->ready_due) {
            c->ready_due = false;
            send_ready(c);
        }
        if (c->out.used) /* one write for everything caused by this read */
            flush(c);
    }
}

static enum role role_of(int index)
{
    if (index < opt.workers)
        return WORKER;
    if (index < opt.workers + opt.idle_workers)
        return IDLE_WORKER;
    return index < opt.workers + opt.idle_workers + opt.clients ? CLIENT : IDLE_CLIENT;
}

static void connect_all(void)
{
    conn_count = opt.workers + opt.idle_workers + opt.clients + opt.idle_clients;
    conns = calloc(conn_count, sizeof *conns);
    for (int first = 0; first < conn_count; first += DIAL_BATCH) {
        int last = first + DIAL_BATCH < conn_count ? first + DIAL_BATCH : conn_count;
        uint64_t deadline = now_ns() + STALL;

        for (int i = first; i < last; i++) {
            conns[i].role = role_of(i);
            dial(&conns[i]);
        }
        while (open_count < last) {
            if (now_ns() > deadline) {
                fprintf(stderr, "mdpraw: handshake timeout, %d of %d connections open\n", open_count,
                        conn_count);
                exit(EXIT_HANDSHAKE);
            }
            turn(false);
        }
    }
}

static void register_workers(void)
{
    for (int i = 0; i < opt.workers + opt.idle_workers; i++)
        send_ready(&conns[i]);
    usleep(SETTLE_US);
}

/* NFP brokers may refuse a job that has no worker yet: retry until one is done. */
static void await_service(void)
{
    struct conn *client = &conns[opt.workers + opt.idle_workers];
    uint64_t deadline = now_ns() + STALL, wrong;

    if (!opt.dialect->status_at || !opt.clients)
        return;
    do {
        wrong = stats.wrong;
        send_request(client);
        flush(client);
        while (client->under_way && now_ns() < deadline)
            turn(false);
    } while (stats.wrong > wrong && now_ns() < deadline && !usleep(SETTLE_US / 10));
    stats.wrong = 0;
}

static void send_heartbeat(struct conn *c)
{
    struct buffer *beat = c->role == IDLE_WORKER ? &wire.idle_heartbeat : &wire.heartbeat;

    put(&c->out, beat->data, beat->used);
    flush(c);
}

static void heartbeats(uint64_t start, uint64_t now)
{
    static uint64_t last_busy, idle_sent;
    uint64_t idle_due;

    if (!wire.heartbeat.used)
        return;
    if (now - (last_busy ? last_busy : start) > BUSY_HEARTBEAT) {
        last_busy = now;
        for (int i = 0; i < opt.workers; i++)
            send_heartbeat(&conns[i]);
    }
    /* Idle workers send heartbeats one after the other, like independent peers, not in one burst. */
    idle_due = (uint64_t)((now - start) / (opt.idle_heartbeat * SECOND) * opt.idle_workers);
    for (; idle_sent < idle_due; idle_sent++)
        send_heartbeat(&conns[opt.workers + idle_sent % opt.idle_workers]);
}

struct window { uint64_t start, end, done_before; bool stalled; };

static void announce(const char *what)
{
    if (opt.announce)
        fprintf(stderr, "%s\n", what);
}

static struct window run_load(void)
{
    uint64_t start = now_ns(), measure_at = start + (uint64_t)(opt.warmup * SECOND);
    uint64_t end_at = measure_at + (uint64_t)(opt.seconds * SECOND), last_progress = start, last_done = 0;
    struct window w = {.start = measure_at};

    for (int i = 0; i < conn_count; i++) {
        if (conns[i].role != CLIENT)
            continue;
        while (conns[i].under_way < opt.window)
            send_request(&conns[i]);
        flush(&conns[i]);
    }
    for (;;) {
        uint64_t now;

        turn(true);
        now = now_ns();
        heartbeats(start, now);
        if (stats.done != last_done) {
            last_done = stats.done;
            last_progress = now;
        } else if (now - last_progress > STALL) {
            w.stalled = true;
        }
        if (!stats.measuring && now >= measure_at) {
            stats.measuring = true;
            w.start = now;
            w.done_before = stats.done;
            announce("measuring");
        }
        if (w.stalled || now >= end_at) {
            w.stalled = now - last_progress > SILENCE;
            w.end = now;
            announce("measured");
            return w;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t percentile(unsigned percent)
{
    return stats.samples ? stats.latency_us[(stats.samples - 1) * percent / 100] : 0;
}

static double own_cpu_us(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

static void print_result(struct window w)
{
    double seconds = (double)(w.end - w.start) / SECOND;
    double cpu_us = stats.done ? own_cpu_us() / stats.done : 0; /* before the sort, which is not part of the load */
    uint64_t n = stats.done - w.done_before;

    qsort(stats.latency_us, stats.samples, sizeof *stats.latency_us, by_value);
    printf("{\"dialect\":\"%s\",\"clients\":%d,\"workers\":%d,\"window\":%d,\"size\":%d,\"n\":%" PRIu64
           ",\"done\":%" PRIu64 ",\"secs\":%.3f,\"rps\":%.0f,\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u"
           ",\"stalled\":%d,\"sent\":%" PRIu64 ",\"disconnects\":%" PRIu64 ",\"nonfinal\":%" PRIu64
           ",\"gen_cpu_us\":%.2f,\"wrong\":%" PRIu64 ",\"unannounced\":%" PRIu64 ",\"idle_workers\":%d,\"idle_clients\":%d}\n",
           opt.dialect->name, opt.clients, opt.workers, opt.window, opt.size, n, stats.done, seconds,
           seconds > 0 ? n / seconds : 0.0, percentile(50), percentile(99), percentile(100), w.stalled,
           stats.sent, stats.disconnects, stats.nonfinal, cpu_us, stats.wrong, stats.unannounced, opt.idle_workers,
           opt.idle_clients);
}

static void allow_connections(void)
{
    struct rlimit limit;
    rlim_t needed = opt.workers + opt.idle_workers + opt.clients + opt.idle_clients + 32;

    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= needed)
        return;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    if (limit.rlim_cur < needed || setrlimit(RLIMIT_NOFILE, &limit)) {
        fprintf(stderr, "mdpraw: needs %ju open files, this system allows %ju\n", (uintmax_t)needed,
                (uintmax_t)limit.rlim_max);
        exit(EXIT_USAGE);
    }
}

int main(int argc, char **argv)
{
    struct window w;

    parse_options(argc, argv);
    allow_connections();
    prepare_messages();
    stats.latency_us = malloc(MAX_SAMPLES * sizeof *stats.latency_us);
    epoll_fd = epoll_create1(0);
    connect_all();
    register_workers();
    await_service();
    w = run_load();
    print_result(w);
    return w.stalled ? EXIT_STALLED : 0;
}
