"""server/events: Broker-PUB, heard with libzmq's SUB sockets and with ZMTP by hand."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
import zmq

from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, LimitsSection, RoleSection, Settings, ZmqSection
from tests.support.broker import BrokerProcess, wait_for
from tests.support.zmtp import Raw, command, greeting, message, ready

T = TypeVar("T")

ANYWHERE = "tcp://127.0.0.1:*"
KIB = 1024


class Station:
    """A server in a thread of its own; what its core would publish is said from the test."""

    def __init__(
        self,
        events: Sequence[str] = (ANYWHERE,),
        roles: dict[str, RoleSection] | None = None,
        principals: dict[str, list[str]] | None = None,
        **limits: Any,
    ) -> None:
        self.settings = Settings(
            broker=BrokerSection(zmq=[ANYWHERE], events=list(events)),
            limits=LimitsSection(**limits),
            zmq=ZmqSection(ping=0.2),
            roles=roles or {},
            principals=principals or {},
        )
        self.started = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.thread.start()
        assert self.started.wait(10)
        self.endpoint = self.server.events.bound[0]

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.server = BrokerServer(self.settings)
        await self.server.start()
        self.started.set()
        await self.server.wait()

    def do(self, what: Callable[[], T]) -> T:
        """In the server's thread."""

        async def run() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def say(self, service: bytes, worker: bytes, kind: str, body: bytes, times: int = 1) -> None:
        def publish() -> None:
            for _ in range(times):
                self.server.events.published(service, worker, kind, body)

        self.do(publish)

    def listening(self) -> int:
        return self.do(lambda: len(self.server.events.listening))

    def wait_listening(self, number: int) -> None:
        wait_for(lambda: self.listening() == number)

    def prefixes(self) -> int:
        return self.do(lambda: sum(len(one.subscriptions) for one in self.server.events.listening))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.server.stop)
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def station() -> Iterator[Station]:
    station = Station(subscriber_bytes=256 * KIB)
    yield station
    station.close()


class Sockets:
    """libzmq's, closed at the end."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.opened: list[zmq.Socket[bytes]] = []

    def socket(self, kind: int, endpoint: str, *topics: bytes) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.linger = 0
        self.opened.append(socket)
        for topic in topics:
            socket.subscribe(topic)
        socket.connect(endpoint)
        return socket

    def sub(self, endpoint: str, *topics: bytes) -> zmq.Socket[bytes]:
        return self.socket(zmq.SUB, endpoint, *topics)

    def close(self) -> None:
        for socket in self.opened:
            socket.close()
        self.context.term()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


def hear(socket: zmq.Socket[bytes], timeout: int = 5000) -> list[bytes] | None:
    return socket.recv_multipart() if socket.poll(timeout) else None


def test_a_message_is_the_topic_and_the_body(station: Station, sockets: Sockets) -> None:
    socket = sockets.sub(station.endpoint, b"")
    station.wait_listening(1)
    station.say(b"net", b"worker-1", "progress", b'{"percent": 50}')
    assert hear(socket) == [b"net.worker-1.progress", b'{"percent": 50}']


def test_topics_are_chosen_by_prefix(station: Station, sockets: Sockets) -> None:
    service = sockets.sub(station.endpoint, b"net.")
    worker = sockets.sub(station.endpoint, b"net.w1.", b"store.w9.done")
    station.wait_listening(2)
    for name, who, kind in ((b"net", b"w1", "a"), (b"net", b"w2", "b"), (b"store", b"w9", "done")):
        station.say(name, who, kind, b"body")
    assert [hear(service), hear(service)] == [[b"net.w1.a", b"body"], [b"net.w2.b", b"body"]]
    assert [hear(worker), hear(worker)] == [[b"net.w1.a", b"body"], [b"store.w9.done", b"body"]]
    station.say(b"net", b"w1", "last", b"")
    assert hear(service) == hear(worker) == [b"net.w1.last", b""]


def test_what_is_cancelled_is_not_heard_any_more(station: Station, sockets: Sockets) -> None:
    socket = sockets.sub(station.endpoint, b"a", b"b")
    wait_for(lambda: station.prefixes() == 2)
    socket.unsubscribe(b"a")
    wait_for(lambda: station.prefixes() == 1)
    station.say(b"a", b"w", "x", b"1")
    station.say(b"b", b"w", "x", b"2")
    assert hear(socket) == [b"b.w.x", b"2"]
    socket.unsubscribe(b"b")
    station.wait_listening(0)
    before = station.do(lambda: station.server.events.sent)
    station.say(b"b", b"w", "x", b"3")
    assert station.do(lambda: station.server.events.sent) == before


def test_ten_subscribers_hear_everything_in_order(station: Station, sockets: Sockets) -> None:
    sockets = [sockets.sub(station.endpoint, b"") for _ in range(10)]
    station.wait_listening(10)
    for number in range(100):
        station.say(b"s", b"w", "n", b"%d" % number)
    for socket in sockets:
        assert [hear(socket) for _ in range(100)] == [[b"s.w.n", b"%d" % number] for number in range(100)]


def test_a_subscriber_that_goes_is_forgotten(station: Station, sockets: Sockets) -> None:
    socket = sockets.sub(station.endpoint, b"")
    station.wait_listening(1)
    socket.close(linger=0)
    station.wait_listening(0)
    assert station.do(lambda: len(station.server.events.peers)) == 0
    station.say(b"s", b"w", "n", b"nobody hears it")


def test_a_slow_reader_loses_messages_and_nobody_else_does(station: Station, sockets: Sockets) -> None:
    """Its backlog is limited by limits.subscriber_bytes and the kernel's buffers; later it receives new events."""
    brisk = sockets.sub(station.endpoint, b"")
    brisk.rcvhwm = 0
    with Raw(station.endpoint, receive_buffer=4096) as slow:
        slow.shake(socket_type=b"SUB")
        slow.send(command(b"SUBSCRIBE", b""))
        station.wait_listening(2)
        heard = 0
        for _ in range(400):
            station.say(b"s", b"w", "n", bytes(32 * KIB))
            heard += hear(brisk) is not None
        shown = station.do(station.server.events.show)
        assert heard == 400
        assert 0 < shown["lost"] < 400
        assert (
            station.do(
                lambda: max(one.transport.get_write_buffer_size() for one in station.server.events.peers)
            )
            <= 256 * KIB
        )
        for _ in range(400 - shown["lost"]):
            assert slow.message() == [b"s.w.n", bytes(32 * KIB)]
        station.say(b"s", b"w", "new", b"")
        assert slow.message() == [b"s.w.new", b""]


def test_a_message_larger_than_the_bound_is_sent_to_one_that_has_read_everything(
    station: Station, sockets: Sockets
) -> None:
    socket = sockets.sub(station.endpoint, b"")
    station.wait_listening(1)
    station.say(b"s", b"w", "big", bytes(1024 * KIB))
    assert hear(socket) == [b"s.w.big", bytes(1024 * KIB)]


def test_subscriptions_in_the_form_of_zmtp_3_0(station: Station) -> None:
    """RFC 23: a message that begins with 1 subscribes, with 0 cancels."""
    with Raw(station.endpoint) as old:
        old.send(greeting(b"\x03\x00") + ready(b"SUB"))
        old.read(64)
        assert old.command()[0] == b"READY"
        old.send(message(b"\x01net.") + message(b"\x01other.") + message(b"\x00other."))
        wait_for(lambda: station.prefixes() == 1)
        station.say(b"other", b"w", "x", b"1")
        station.say(b"net", b"w", "x", b"2")
        assert old.message() == [b"net.w.x", b"2"]


def test_an_xsub_subscribes_by_messages(station: Station, sockets: Sockets) -> None:
    socket = sockets.socket(zmq.XSUB, station.endpoint)
    socket.send(b"\x01net.")
    station.wait_listening(1)
    station.say(b"net", b"w", "x", b"1")
    assert hear(socket) == [b"net.w.x", b"1"]
    socket.send(b"\x00net.")
    station.wait_listening(0)


def test_other_sockets_are_refused_with_the_reason(station: Station) -> None:
    with Raw(station.endpoint) as dealer:
        dealer.send(greeting() + ready(b"DEALER"))
        assert "DEALER" in dealer.refusal()


def test_too_many_subscriptions_are_refused(station: Station) -> None:
    with Raw(station.endpoint) as greedy:
        greedy.shake(socket_type=b"SUB")
        try:
            for number in range(200):
                greedy.send(command(b"SUBSCRIBE", b"%d" % number + bytes(10_000)))
        except ConnectionError:
            pass
        greedy.wait_closed()
    station.wait_listening(0)


def test_silent_subscribers_are_pinged_and_given_up_if_they_do_not_answer(
    station: Station, sockets: Sockets
) -> None:
    living = sockets.sub(station.endpoint, b"")
    with Raw(station.endpoint) as dead:
        dead.shake(socket_type=b"SUB")
        dead.send(command(b"SUBSCRIBE", b""))
        station.wait_listening(2)
        assert b"PING" in dead.wait_closed()
    station.wait_listening(1)
    station.say(b"s", b"w", "x", b"still here")
    assert hear(living) == [b"s.w.x", b"still here"]


def test_a_reader_that_takes_nothing_is_cut_in_the_end(sockets: Sockets) -> None:
    station = Station(subscriber_bytes=64 * KIB, stalled=0.5)
    try:
        with Raw(station.endpoint, receive_buffer=4096) as stuck:
            stuck.shake(socket_type=b"SUB")
            stuck.send(command(b"SUBSCRIBE", b""))
            station.wait_listening(1)
            while not station.server.events.lost:
                station.say(b"s", b"w", "x", bytes(16 * KIB))
            station.wait_listening(0)
    finally:
        station.close()


def test_half_a_handshake_is_not_waited_for() -> None:
    station = Station(handshake=0.2)
    try:
        with Raw(station.endpoint) as half:
            half.send(greeting())
            half.wait_closed()
        assert station.do(lambda: len(station.server.handshakes)) == 0
    finally:
        station.close()


def test_connections_are_counted_with_the_others(sockets: Sockets) -> None:
    station = Station(connections=1)
    try:
        sockets.sub(station.endpoint, b"")
        station.wait_listening(1)
        with Raw(station.endpoint) as second:
            second.send(greeting() + ready(b"SUB"))
            assert "too many connections" in second.refusal()
    finally:
        station.close()


def test_where_events_are_published_is_said_everywhere(sockets: Sockets) -> None:
    """In the log's first lines, in the folder's broker.json, and in the catalogue."""
    with BrokerProcess("--events", ANYWHERE, "--events", ANYWHERE) as broker:
        assert len(broker.events) == 2
        wait_for(lambda: all(endpoint in broker.log() for endpoint in broker.events))
        socket = sockets.sub(broker.events[1], b"")
        client = sockets.socket(zmq.DEALER, broker.endpoint)

        def shown() -> dict[str, Any]:
            client.send_multipart([b"MDPC02", b"\x01", b"mmi.service.broker", b"show_broker"])
            assert client.poll(5000)
            answer: dict[str, Any] = json.loads(client.recv_multipart()[3])
            return answer

        wait_for(lambda: shown()["events"]["subscribers"] == 1)
        assert shown()["events"] == {"endpoints": broker.events, "subscribers": 1, "sent": 0, "lost": 0}
        assert shown()["zmq"] == [broker.endpoint]
        socket.close(linger=0)


def test_a_worker_s_events_reach_every_subscriber(sockets: Sockets) -> None:
    """NFP Worker-PUB and Broker-PUB, end to end: EVENT about a job, in both of its forms, and about none."""
    with BrokerProcess("--events", ANYWHERE) as broker:
        ears = [sockets.sub(broker.events[0], b"net.w1.") for _ in range(2)]
        reading_paused = sockets.sub(broker.events[0], b"other.")
        worker = sockets.socket(zmq.DEALER, broker.endpoint)
        client = sockets.socket(zmq.DEALER, broker.endpoint)

        def shown() -> dict[str, Any]:
            client.send_multipart([b"MDPC02", b"\x01", b"mmi.service.broker", b"show_broker"])
            assert client.poll(5000)
            answer: dict[str, Any] = json.loads(client.recv_multipart()[3])
            return answer

        wait_for(lambda: shown()["events"]["subscribers"] == 3)
        worker.send_multipart([b"", b"NFPW01", b"\x00", b'{"name": "w1"}'])
        worker.send_multipart([b"", b"NFPW01", b"\x01", b"net"])
        client.send_multipart([b"MDPC02", b"\x01", b"net", b"job"])
        frames: list[bytes] = []
        while frames[2:3] != [b"\x04"]:
            assert worker.poll(5000)
            frames = worker.recv_multipart()
        token, _, uuid = frames[3:6]
        about = [b"", b"NFPW01", b"\x08", token, b"", uuid, b"300"]
        worker.send_multipart([*about, b'{"event_type": "progress", "percent": 50}'])
        worker.send_multipart([*about, b"half", b"anything"])
        for socket in ears:
            assert hear(socket) == [b"net.w1.progress", b'{"event_type": "progress", "percent": 50}']
            assert hear(socket) == [b"net.w1.half", b"anything"]
        assert not reading_paused.poll(0)
        assert shown()["events"]["sent"] == 4


def test_subscribers_hear_of_the_services_that_they_may_observe(sockets: Sockets) -> None:
    """With libzmq's SUB sockets on listeners whose peers act for a principal, also after a reload."""
    station = Station(
        events=[f"{ANYWHERE}?principal=night", f"{ANYWHERE}?principal=all", f"{ANYWHERE}?principal=none"],
        roles={"night": RoleSection(observe=["backup@night", "end"]), "end": RoleSection(observe=["end"])},
        principals={"night": ["night"], "all": ["observer"], "none": ["end"]},
    )
    try:
        subscribers = [
            sockets.sub(endpoint, b"") for endpoint in station.do(lambda: station.server.events.bound)
        ]
        station.wait_listening(3)

        def heard() -> list[list[bytes]]:
            """The topics up to the end, which everybody may hear."""
            for service, worker in (
                (b"backup", b"night"),
                (b"backup", b"day"),
                (b"mail", b"m"),
                (b"end", b"e"),
            ):
                station.say(service, worker, "done", b"x")
            found: list[list[bytes]] = []
            for socket in subscribers:
                topics: list[bytes] = []
                while topics[-1:] != [b"end.e.done"]:
                    assert socket.poll(10_000)
                    topics.append(socket.recv_multipart()[0])
                found.append(topics[:-1])
            return found

        everything = [b"backup.night.done", b"backup.day.done", b"mail.m.done"]
        assert heard() == [[b"backup.night.done"], everything, []]
        changed = copy.copy(station.settings)
        changed.principals = {"night": ["end"], "all": ["end"], "none": ["observer"]}
        station.do(lambda: station.server.authorization.configure(changed))
        assert heard() == [[], [], everything]
    finally:
        station.close()
