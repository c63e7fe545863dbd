"""mdpraw's load in Python, for machines without a C compiler: same flags, same line of JSON.

Clients and echo workers in one thread over plain sockets (loadwire.py has the wire format). libzmq would use
more CPU than a broker under test, and the load would measure itself; even so a fast broker can outrun it:
then `gen_cpu_us` × `rps` is near one million.

    python bench/pyload.py -e tcp://127.0.0.1:5555 -c 8 -n 128 -k 16 -t 3
"""

import argparse
import array
import json
import resource
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

from loadwire import DIALECTS, GREETING, Message, encode, frame, handshake, next_message

EXIT_USAGE, EXIT_IO, EXIT_HANDSHAKE, EXIT_CLOSED, EXIT_STALLED = 1, 2, 3, 4, 5
SECOND = 1_000_000_000
STALL = 5 * SECOND  # without progress for this long the run fails
SILENCE = SECOND  # a window without a reply in its last second is not a result
BUSY_HEARTBEAT = SECOND // 2
SETTLE_SECONDS = 0.3  # READY has no reply: time for the registration
MAX_SAMPLES = 1 << 22
DIAL_BATCH = 64  # below the usual backlog of a listener
STAMP = struct.Struct("=Q")


class LoadError(Exception):
    """The load cannot continue; carries the process's exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Counters:
    sent: int = 0
    done: int = 0
    disconnects: int = 0
    nonfinal: int = 0
    wrong: int = 0
    measuring: bool = False
    latency_us: "array.array[int]" = field(default_factory=lambda: array.array("I"))


@dataclass(eq=False)
class Connection:
    role: str
    endpoint: str
    ready: bytes = b""  # a worker's READY message
    identity: bytes = b""
    sock: socket.socket = field(default_factory=socket.socket)
    phase: str = "greeting"  # then "handshake", then "open"
    under_way: int = 0  # a client's requests without a reply
    inbox: bytes = b""
    outbox: bytearray = field(default_factory=bytearray)
    awaits_room: bool = False


class Load:
    """All connections of one run and the loop that serves them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.dialect = DIALECTS[options.d]
        self.counters = Counters()
        self.selector = selectors.DefaultSelector()
        self.open_count = 0
        self.last_busy_beat = self.idle_beats = 0
        self._prepare_messages(options.S.encode())
        self.workers = self._peers("worker", options.k)
        self.idle_workers = self._peers("idle worker", options.i)
        self.clients = self._peers("client", options.c)
        self.connections = [
            *self.workers,
            *self.idle_workers,
            *self.clients,
            *self._peers("idle client", options.x),
        ]
        if options.I:
            for number, connection in enumerate(self.connections, 1):
                connection.identity = f"{options.I}{number}".encode()

    def _prepare_messages(self, service: bytes) -> None:
        # Requests differ only in their 8-byte stamp, so they are encoded once, around that.
        request = encode(self.dialect.request, service, head=True) + frame(b"x" * self.options.s, False)
        body_at = len(request) - self.options.s
        self.before_stamp, self.after_stamp = request[:body_at], request[body_at + STAMP.size :]
        self.final_head = encode(self.dialect.final, service, head=True)
        self.heartbeat = encode(self.dialect.heartbeat, service)

    def _peers(self, role: str, count: int) -> list[Connection]:
        works = role.endswith("worker")
        endpoint = self.options.w if works else self.options.e
        peers = [Connection(role, endpoint) for _ in range(count)]
        for number, peer in enumerate(peers, 1):
            service = self.options.S if role == "worker" else "idle" if self.options.j else f"idle-{number}"
            peer.ready = encode(self.dialect.ready, service.encode()) if works else b""
        return peers

    # -- sending

    def flush(self, connection: Connection) -> None:
        outbox = connection.outbox
        try:
            del outbox[: connection.sock.send(outbox)]
        except BlockingIOError:
            pass  # the rest is sent when the selector reports room
        except OSError as error:
            raise LoadError(EXIT_IO, f"send failed for a(n) {connection.role}: {error}") from None
        if bool(outbox) != connection.awaits_room:
            connection.awaits_room = bool(outbox)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if outbox else 0)
            self.selector.modify(connection.sock, events, connection)

    def send(self, connection: Connection, data: bytes) -> None:
        if data:
            connection.outbox += data
            self.flush(connection)

    def refill(self, client: Connection) -> None:
        missing = self.options.n - client.under_way
        # One stamp for all: they are sent in one write anyway.
        stamp = STAMP.pack(time.monotonic_ns())
        client.outbox += (self.before_stamp + stamp + self.after_stamp) * missing
        client.under_way += missing
        self.counters.sent += missing

    # -- receiving

    def on_readable(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            raise LoadError(EXIT_IO, f"recv failed for a(n) {connection.role}: {error}") from None
        if not data:
            raise LoadError(EXIT_CLOSED, f"the broker closed a connection of a(n) {connection.role}")
        data = connection.inbox + data
        at = 0
        if connection.phase == "greeting":
            if len(data) < len(GREETING):
                connection.inbox = data
                return
            at = len(GREETING)
            connection.phase = "handshake"
            self.send(connection, handshake(connection.identity))
        while (message := next_message(data, at)) is not None:
            at = message.end
            if message.is_command:
                self.on_command(connection, message)
            elif connection.role == "client":
                self.on_reply(connection, message)
            elif connection.role != "idle client":
                self.on_work(connection, message)
        connection.inbox = data[at:]

    def on_command(self, connection: Connection, message: Message) -> None:
        if connection.phase != "handshake":
            return
        if not message.data.startswith(b"\x05READY", message.starts[0]):
            raise LoadError(EXIT_HANDSHAKE, f"the broker refused the handshake of a(n) {connection.role}")
        connection.phase = "open"
        self.open_count += 1

    def on_reply(self, client: Connection, message: Message) -> None:
        dialect, counters = self.dialect, self.counters
        if dialect.reply_command_at >= 0 and message.command(dialect.reply_command_at) != dialect.reply_final:
            counters.nonfinal += 1
            return
        client.under_way -= 1
        counters.done += 1
        body = message.starts[-1]
        if message.end - body != self.options.s:  # a wrong reply is not a result
            counters.wrong += 1
        elif counters.measuring:
            waited = time.monotonic_ns() - STAMP.unpack_from(message.data, body)[0]
            if waited < 0:
                counters.wrong += 1
            elif len(counters.latency_us) < MAX_SAMPLES:
                counters.latency_us.append(min(waited // 1000, 0xFFFFFFFF))

    def on_work(self, worker: Connection, message: Message) -> None:
        dialect = self.dialect
        command = dialect.command_request if dialect.command_at < 0 else message.command(dialect.command_at)
        if command == dialect.command_request and dialect.address_at < len(message.heads):
            # Address, empty frame and body are returned unchanged, including their headers.
            worker.outbox += self.final_head
            worker.outbox += message.data[message.heads[dialect.address_at] : message.end]
        elif dialect.command_at >= 0 and command == dialect.command_disconnect:
            self.counters.disconnects += 1
            worker.outbox += worker.ready

    # -- a run

    def turn(self, loaded: bool) -> None:
        for key, events in self.selector.select(0.1):
            connection: Connection = key.data
            if events & selectors.EVENT_WRITE:
                self.flush(connection)
            if events & selectors.EVENT_READ:
                self.on_readable(connection)
            if loaded and connection.role == "client" and connection.under_way < self.options.n:
                self.refill(connection)
            if connection.outbox:  # one write for everything caused by this read
                self.flush(connection)

    def dial(self, connection: Connection) -> None:
        host, _, port = connection.endpoint.removeprefix("tcp://").rpartition(":")
        try:
            connection.sock.connect((host, int(port)))
        except (OSError, ValueError) as error:
            raise LoadError(EXIT_IO, f"cannot connect to {connection.endpoint}: {error}") from None
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock.setblocking(False)
        self.selector.register(connection.sock, selectors.EVENT_READ, connection)
        self.send(connection, GREETING)

    def connect_all(self) -> None:
        for first in range(0, len(self.connections), DIAL_BATCH):
            batch = self.connections[first : first + DIAL_BATCH]
            deadline = time.monotonic_ns() + STALL
            for connection in batch:
                self.dial(connection)
            while self.open_count < first + len(batch):
                if time.monotonic_ns() > deadline:
                    raise LoadError(EXIT_HANDSHAKE, f"handshake timeout, {self.open_count} connections open")
                self.turn(loaded=False)

    def register_workers(self) -> None:
        for worker in (*self.workers, *self.idle_workers):
            self.send(worker, worker.ready)
        time.sleep(SETTLE_SECONDS)

    def heartbeats(self, start: int, now: int) -> None:
        if now - (self.last_busy_beat or start) > BUSY_HEARTBEAT:
            self.last_busy_beat = now
            for worker in self.workers:
                self.send(worker, self.heartbeat)
        # Idle workers send heartbeats one after the other, like independent peers, not in one burst.
        due = int((now - start) / (self.options.H * SECOND) * len(self.idle_workers))
        while self.idle_beats < due:
            self.send(self.idle_workers[self.idle_beats % len(self.idle_workers)], self.heartbeat)
            self.idle_beats += 1

    def run(self) -> dict[str, object]:
        self.connect_all()
        self.register_workers()
        counters = self.counters
        start = last_progress = now = time.monotonic_ns()
        measure_at = began = start + int(self.options.W * SECOND)
        end_at = measure_at + int(self.options.t * SECOND)
        last_done = done_before = 0
        stalled = False
        for client in self.clients:
            self.refill(client)
            self.flush(client)
        while not stalled and now < end_at:
            self.turn(loaded=True)
            now = time.monotonic_ns()
            self.heartbeats(start, now)
            if counters.done != last_done:
                last_done, last_progress = counters.done, now
            stalled = now - last_progress > STALL
            if not counters.measuring and now >= measure_at:
                counters.measuring = True
                began, done_before = now, counters.done
                self.announce("measuring")
        stalled = now - last_progress > SILENCE
        self.announce("measured")
        return self.result(counters.done - done_before, (now - began) / SECOND, stalled)

    def announce(self, what: str) -> None:
        if self.options.m:
            print(what, file=sys.stderr, flush=True)

    def result(self, n: int, seconds: float, stalled: bool) -> dict[str, object]:
        options, counters = self.options, self.counters
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_us = (used.ru_utime + used.ru_stime) * 1e6
        latencies = sorted(counters.latency_us) or [0]
        top = len(latencies) - 1
        return {
            "dialect": options.d,
            "clients": options.c,
            "workers": options.k,
            "window": options.n,
            "size": options.s,
            "n": n,
            "done": counters.done,
            "secs": round(seconds, 3),
            "rps": round(n / seconds) if seconds > 0 else 0,
            "p50_us": latencies[top * 50 // 100],
            "p99_us": latencies[top * 99 // 100],
            "max_us": latencies[top],
            "stalled": int(stalled),
            "sent": counters.sent,
            "disconnects": counters.disconnects,
            "nonfinal": counters.nonfinal,
            "gen_cpu_us": round(cpu_us / counters.done, 2) if counters.done else 0.0,
            "wrong": counters.wrong,
            "idle_workers": options.i,
            "idle_clients": options.x,
        }


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="MDP load: clients and echo workers in one process.")
    add = parser.add_argument
    add("-e", default="tcp://127.0.0.1:5555", metavar="ENDPOINT", help="broker, tcp://HOST:PORT")
    add("-w", metavar="ENDPOINT", help="endpoint for workers, if different")
    add("-d", default="mdp02", choices=sorted(DIALECTS), help="dialect")
    add("-S", default="echo", metavar="NAME", help="service")
    add("-c", type=int, default=1, metavar="N", help="clients")
    add("-n", type=int, default=1, metavar="N", help="requests in flight per client")
    add("-k", type=int, default=1, metavar="N", help="workers")
    add("-s", type=int, default=64, metavar="BYTES", help="body size (at least 8)")
    add("-t", type=float, default=3, metavar="SECONDS", help="measured time")
    add("-W", type=float, default=0.5, metavar="SECONDS", help="warm-up")
    add("-i", type=int, default=0, metavar="N", help="idle workers, on services idle-1..N")
    add("-j", action="store_true", help="all idle workers on one service, idle")
    add("-x", type=int, default=0, metavar="N", help="idle clients, connected only")
    add("-H", type=float, default=2.5, metavar="SECONDS", help="idle workers' heartbeat interval")
    add("-I", metavar="PREFIX", help="identities PREFIX1, PREFIX2, ...")
    add("-m", action="store_true", help="mark the measured window on stderr")
    options = parser.parse_args(argv)
    options.w = options.w or options.e
    options.s = max(options.s, STAMP.size)
    if options.d == "echo":
        options.k = 0
    return options


def allow_connections(options: argparse.Namespace) -> None:
    needed = options.k + options.i + options.c + options.x + 32
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise LoadError(EXIT_USAGE, f"needs {needed} open files, this system allows {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def main() -> int:
    options = parse_options()
    try:
        allow_connections(options)
        result = Load(options).run()
    except LoadError as error:
        print(f"pyload: {error}", file=sys.stderr)
        return error.code
    print(json.dumps(result, separators=(",", ":")))
    return EXIT_STALLED if result["stalled"] else 0


if __name__ == "__main__":
    sys.exit(main())
