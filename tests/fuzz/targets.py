"""Fuzz targets: one function per parser, from bytes to None. Each states what must hold for any bytes, and raises
AssertionError (or an unexpected exception) when it does not.

`TARGETS` names them all, each with valid inputs to start from, without which a mutator passes no first check.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import cbor2

from polydomo.core.policy import BrokerLimits, Heartbeat, Policy
from polydomo.dialects.mdp.messages import HEADERS
from polydomo.errors import ConfigError, ProtocolError
from polydomo.server import endpoints
from polydomo.wire import frames
from polydomo.wire.stream import CLOSED
from polydomo.wire.zmtp import commands as zmtp_commands
from polydomo.wire.zmtp import greeting as zmtp_greeting
from polydomo.wire.zmtp.connection import ConnectionLimits
from tests.fuzz import memo
from tests.support import invariants, zmtp
from tests.support.dialects import Desk, Seat
from tests.support.recorder import Call, Recorder, connect, handshake, in_traffic
from tests.support.simulation import BytesDice, World

LIMITS = ConnectionLimits(message_bytes=600, frames=6, handshake_bytes=300)


# The wire


def greeting(data: bytes) -> None:
    """Check that any bytes are a greeting, the beginning of one, or refused with ProtocolError."""
    try:
        zmtp_greeting.check_start(data[:64])
        if len(data) >= zmtp_greeting.SIZE:
            theirs = zmtp_greeting.decode(data[: zmtp_greeting.SIZE])
            assert theirs.major >= 3
            assert 0 < len(theirs.mechanism) <= 20
    except ProtocolError:
        return
    assert data[:1] in (b"", b"\xff")


def commands(data: bytes) -> None:
    """Check that any command and any metadata is parsed, in parts that add up to the input, or refused."""
    try:
        name, rest = zmtp_commands.decode(data)
        assert bytes((len(name),)) + name + rest == data
    except ProtocolError:
        pass
    try:
        found = zmtp_commands.decode_properties(data)
        assert sum(5 + len(name) + len(value) for name, value in found.items()) <= len(data)
        assert all(name == name.lower() for name in found)
    except ProtocolError:
        pass
    assert isinstance(zmtp_commands.decode_error(data), str)


def message_frames(data: bytes) -> None:
    """Check that a whole message is cut into frames that fill it and never reach past its end."""
    end, need, count = frames.measure(bytearray(data), 0)
    if need:
        assert end <= len(data) < need
        return
    assert 0 < end <= len(data)
    message = frames.Message(data, 0, end)
    taken = 0
    while True:
        rest = message.rest()
        assert data[:end].endswith(rest)
        if message.take() is None:
            break
        taken += 1
        assert message.pos <= end
    assert taken == count
    assert frames.split(frames.join(frames.split(data[:end]))) == frames.split(data[:end])


def zmtp_server(data: bytes) -> None:
    """Check that for any bytes in any pieces the connection delivers whole messages or fails once; it raises nothing,
    holds no more than its limits, sends nothing after it failed; the pieces make no difference."""
    _zmtp(b"ROUTER", True, data)


def zmtp_client(data: bytes) -> None:
    """Check the same as for the server, at the connecting end."""
    _zmtp(b"DEALER", False, data)


def zmtp_publisher(data: bytes) -> None:
    """Check the same as for the server, in the role of PUB."""
    _zmtp(b"PUB", True, data)


def zmtp_subscriber(data: bytes) -> None:
    """Check the same as for the client, in the role of SUB."""
    _zmtp(b"SUB", False, data)


def _zmtp(role: bytes, server: bool, data: bytes) -> None:
    """Run a connection. The first three bytes say how to cut the rest; half of the streams begin after a handshake."""
    how, stream = data[:3].ljust(3, b"\0"), data[3:]
    if how[0] & 1:
        stream = handshake(role, b"\3\1" if how[0] & 2 else b"\3\0") + stream
    whole = _feed(role, server, stream, len(stream) or 1)
    assert _feed(role, server, stream, 1) == whole
    assert _feed(role, server, stream, how[1] + 2) == whole
    assert _feed(role, server, stream, how[2] % 16 + 2, pausing=True) == whole


def _feed(
    role: bytes, server: bool, stream: bytes, piece: int, pausing: bool = False
) -> tuple[list[Call], bytes, int]:
    connection, noted = connect(role, server=server, limits=LIMITS)
    if pausing:
        noted.on_message = lambda _: connection.pause()
    for start in range(0, len(stream), piece):
        connection.receive(stream[start : start + piece])
        while connection.paused:
            connection.resume()
        assert connection.kept() <= LIMITS.message_bytes + zmtp_greeting.SIZE + piece + 9
        assert (connection.phase == CLOSED) == bool(noted.failures)
    assert len(noted.failures) <= 1
    assert not noted.failures or noted.calls[-1][0] == "failed"
    for message in noted.messages:
        assert 0 < len(message) <= LIMITS.frames
    return noted.calls, noted.sent, connection.phase


def zmtp_expecting(data: bytes) -> None:
    """Check that the owner's expected prefix changes nothing but the speed: the same messages, the same failure."""
    expected = frames.head(*[bytes(1) * (byte % 3) for byte in data[:2]])
    stream = data[2:]
    if stream[:1] == b"\1":
        stream = expected + stream[1:]
    limits = ConnectionLimits(message_bytes=600, frames=10_000)
    plain, plain_noted = in_traffic(limits=limits)
    plain.receive(stream)
    for piece in (1, 7, len(stream) or 1):
        recorder = Recorder()
        connection, noted = in_traffic(limits=limits, recorder=recorder)
        recorder.expected = expected
        for start in range(0, len(stream), piece):
            connection.receive(stream[start : start + piece])
        assert noted.calls == plain_noted.calls
        assert connection.phase == plain.phase


# The dialects

MDP_WORDS = [
    b"",
    b"MDPC02",
    b"MDPW02",
    b"MDPC01",
    b"MDPW01",
    *[bytes((number,)) for number in range(1, 8)],
    b"a",
    b"b",
    b"mmi.service",
    b"mmi.x",
    b"body",
    b"show_jobs",
    *[b"%08x" % number for number in range(1, 9)],
    b"\0polydomo:failed",
    b'{"reason":"x"}',
    b"x" * 256,
]
DCP_WORDS = [
    b"",
    b"DGBX\x01",
    b"DGBX\x02",
    *[bytes((number,)) for number in range(1, 8)],
    *[number.to_bytes(4, "little") for number in range(1, 7)],
    b"a",
    b"b",
    b"meta",
    b"data",
    b"anna",
    b"mmi.service",
    *[b"%08x" % number for number in range(1, 9)],
    b"\0polydomo:failed",
    b"x" * 256,
]
# Beginnings that pass the check of the header; a fuzzer would need long to find them.
MDP_HEADS = [
    [b"MDPC02", b"\1", b"a"],
    [b"MDPW02", b"\1", b"a"],
    [b"MDPW02", b"\1", b"b"],
    [b"MDPW02", b"\4"],
    [b"MDPW02", b"\3"],
    [b"MDPW02", b"\5"],
    [b"", b"MDPC02", b"\2", b"b"],
    [b"", b"MDPC01", b"a"],
    [b"", b"MDPW01", b"\1", b"a"],
    [b"", b"MDPW01", b"\3"],
    [b"", b"MDPW02", b"\1", b"b"],
    [b"", b"MDPW02", b"\4"],
]
DCP_HEADS = [
    [b"", b"DGBX\x01", b"\1", b"a"],
    [b"", b"DGBX\x01", b"\1", b"b"],
    [b"", b"DGBX\x01", b"\2"],
    [b"", b"DGBX\x01", b"\4", b"a", b""],
    [b"", b"DGBX\x01", b"\4", b"b", b""],
    [b"", b"DGBX\x01", b"\4", b"a"],
    [b"", b"DGBX\x01", b"\5"],
    [b"", b"DGBX\x01", b"\1\0\0\0", b"a"],
    [b"", b"DGBX\x01", b"\4\0\0\0", b"b", b""],
    [b"", b"DGBX\x01", b"\5\0\0\0"],
]
NFP_TASK = b'{"task":"x","options":{"wait":2,"key":"k"},"timeout":3}'
NFP_WORDS = [
    b"",
    *[bytes((number,)) for number in (*range(10), 0x10, 0x11)],
    b"a",
    b"all",
    b"any",
    b"anna",
    b"anna,00000002",
    b'["anna"]',
    b"resource:r",
    b"u1",
    b"u2",
    NFP_TASK,
    b'{"push":true,"credit":2,"resources":["r"]}',
    b'{"name":"anna"}',
    b'{"event_type":"result_ready"}',
    b'{"task":"set_resources","kwargs":{"resources":["r","s"]}}',
    b"200",
    b"202",
    b"300",
    b"404 no",
    b"500",
    *[b"%08x" % number for number in range(1, 9)],
    *[b"g%07x" % number for number in range(1, 4)],
    b"mmi.service.worker",
    b"show_jobs",
    b"x" * 256,
]
NFP_HEADS = [
    [b"", b"NFPC01", b"\0", b'{"push":true}'],
    [b"", b"NFPC01", b"\4", b"a", b"any", b"u1", NFP_TASK],
    [b"", b"NFPC01", b"\4", b"a", b"any", b"u2", b"body"],
    [b"", b"NFPC01", b"\4", b"a", b"all", b"u3"],
    [b"", b"NFPC01", b"\4", b"a"],
    [b"", b"NFPC01", b"\6", b"a", b"any", b"u1", b""],
    [b"", b"NFPC01", b"\7", b"a", b"any", b"u2", b""],
    [b"", b"NFPC01", b"\x10", b"a", b"any", b"u1"],
    [b"", b"NFPC01", b"\x11", b"mmi.service.worker", b"all", b"q"],
    [b"", b"NFPC01", b"0x04", b"a", b"all", b"u4", NFP_TASK],
    [b"", b"NFPC01", b"0x04", b"b", b"any", b"u5", NFP_TASK],
    [b"", b"NFPC01", b"0x06", b"b", b"any", b"u5", b"{}"],
    [b"", b"NFPW01", b"\0", b'{"credit":2,"resources":["r"]}'],
    [b"", b"NFPW01", b"\1", b"a"],
    [b"", b"NFPW01", b"\2", b"a"],
    [b"", b"NFPW01", b"\5"],
    [b"", b"NFPW01", b"\5", b"00000001", b"", b"u1", b"200"],
    [b"", b"NFPW01", b"\x08"],
    [b"", b"NFPW01", b"\x09"],
    [b"", b"NFPW01", b"0x01", b"a"],
    [b"", b"NFPW01", b"0x01", b"b"],
    [b"", b"NFPW01", b"0x05"],
    [b"", b"NFPW01", b"0x08", b"00000002", b"", b"u", b"200", b'{"event_type":"result_ready"}'],
]
WMP_HEADERS = [
    cbor2.dumps(said, canonical=True)
    for said in (
        {"roles": ["a"]},
        {"roles": ["a", "b"], "slots": 3},
        {"roles": ["b"], "labels": {"weight": 2}, "beat": 500},
        {"roles": ["a"], "slots": 2, "relay": True},
        {"roles": []},
        {"roles": [], "gone": True},
        {"slots": 2},
        {"slots": 0},
        {},
        *({"wake": number} for number in range(4)),
        *({"job": f"{number:08x}", "status": 200} for number in range(1, 6)),
        *({"job": f"{number:08x}"} for number in range(1, 4)),
        {"job": "00000001", "status": 500, "error": {"message": "no"}},
        {"job": "00000002", "status": 503},
        {"job": "00000001", "event": "e"},
    )
]
WMP_WORDS = [b"", b"p", b"q", *WMP_HEADERS, *[bytes((number,)) for number in range(10)], b"x" * 256]
WMP_HEADS = [
    *[[b"", b"WMP1", bytes((number,))] for number in range(1, 10)],
    *[[b"", b"WMP1", b"\1", b"", headers] for headers in WMP_HEADERS[:9]],
    *[[b"", b"WMP1", b"\1", b"p", b"", headers] for headers in WMP_HEADERS[:9]],
    *[[b"", b"WMP1", b"\3", b"", headers] for headers in WMP_HEADERS[9:13]],
    [b"", b"WMP1", b"\3", b"p", b"", WMP_HEADERS[10]],
    *[[b"", b"WMP1", b"\6", b"", headers] for headers in WMP_HEADERS[13:]],
    *[[b"", b"WMP1", b"\6", b"p", b"", headers] for headers in WMP_HEADERS[13:]],
    *[[b"", b"WMP1", b"\7", b"", headers] for headers in WMP_HEADERS[18:]],
    *[[b"MDPC02", b"\1", service] for service in (b"a", b"b") for _ in range(6)],
    [b"MDPW02", b"\1", b"a"],
    [b"MDPW02", b"\4"],
]
NAMES = (b"", b"", b"anna", b"00000002")


def mdp_sessions(data: bytes) -> None:
    """Check that whatever MDP peers send in any order, nothing is raised, each receives only whole messages of its own
    protocol, and the core's accounting stays right; after all have left nothing remains."""
    _sessions(data, MDP_HEADS, MDP_WORDS)


def dcp_sessions(data: bytes) -> None:
    """Check the same as for MDP with DCP peers."""
    _sessions(data, DCP_HEADS, DCP_WORDS)


def nfp_sessions(data: bytes) -> None:
    """Check the same as for MDP with NFP peers of both forms."""
    _sessions(data, NFP_HEADS, NFP_WORDS)


def wmp_sessions(data: bytes) -> None:
    """Check the same as for MDP with WMP workers, and MDP clients."""
    _sessions(data, WMP_HEADS, WMP_WORDS)


def mixed_sessions(data: bytes) -> None:
    """Check the same as for MDP with peers of all dialects, also on one connection."""
    heads = MDP_HEADS + DCP_HEADS + NFP_HEADS + WMP_HEADS
    _sessions(data, heads, MDP_WORDS + DCP_WORDS + NFP_WORDS + WMP_WORDS)


def _sessions(data: bytes, heads: list[list[bytes]], words: list[bytes]) -> None:
    """Interpret the bytes as a script: which peer sends, how its message begins and goes on; time, drops, raw bytes."""
    desk = Desk(
        bounds=BrokerLimits(
            client_jobs=4, client_bytes=400, client_grace=3.0, memory=10_000, hops=3, services=6
        ),
        policy=Policy(wait=5, timeout=4, retries=1, queue=5),
        beat=Heartbeat(1.0, 3),
        limits=ConnectionLimits(message_bytes=800, frames=12, handshake_bytes=300),
    )
    seats = [desk.seat(NAMES[index], native=index == 1) for index in range(4)]
    dice = BytesDice(data)
    while not dice.spent():
        who, what = dice.below(4), dice.below(16)
        if seats[who].closed:
            seats[who] = desk.seat(NAMES[who], native=who == 1)
        seat = seats[who]
        if what < 12:
            message = list(heads[dice.below(len(heads))]) if what < 10 else []
            for _ in range(dice.below(4)):
                code = dice.below(256)
                message.append(words[code] if code < len(words) else bytes((code,)) * (code % 5))
            if message:
                seat.send(*message)
        elif what == 12:
            desk.wait((0.1, 0.9, 1.0, 4.5)[dice.below(4)])
        elif what == 13:
            seat.drop()
        elif what == 14:
            seat.feed(bytes(dice.below(256) for _ in range(dice.below(4))))
        else:
            desk.broker.advance(desk.broker.now + 0.5)
        invariants.check(desk.broker)
        for seat in seats:
            _look_at(seat)
    for seat in seats:
        seat.drop()
    for _ in range(12):
        desk.wait(1.0)
    invariants.check(desk.broker)
    assert desk.broker.accounting.active == 0
    assert not desk.parked
    assert not desk.broker.clients
    assert all(worker.internal for worker in desk.broker.workers)
    assert all(name.startswith(b"mmi.") for name in desk.broker.services)


def _look_at(seat: Seat) -> None:
    for message in seat.take():
        header = message[1] if message[0] == b"" else message[0]
        if b"WMP1" in message and header != b"WMP1":  # after a path
            header = message[message.index(b"") + 1]
        assert header in (*HEADERS, b"DGBX\x01", b"NFPB01", b"WMP1"), message


# Other parsers


def management(data: bytes) -> None:
    """Check that any body sent to any of the broker's own services is answered or failed at once, exactly once, with
    JSON where JSON is specified, and leaves nothing behind."""
    desk = Desk()
    desk.seat().send(b"MDPW02", b"\1", b"echo")
    seat = desk.seat(native=True)
    for service in (b"mmi.service", b"mmi.service.broker", b"mmi.x"):
        (answer,) = seat.call(b"MDPC02", b"\1", service, data)
        assert answer[:3] == [b"MDPC02", b"\3", service]
        if service == b"mmi.service.broker":
            json.loads(answer[-1])
            assert len(answer) == 4 or answer[3] == b"\0polydomo:failed"
        else:
            assert answer[3:] in ([b"200"], [b"404"], [b"501"])
    assert desk.broker.accounting.active == 0
    invariants.check(desk.broker)


def endpoint(data: bytes) -> None:
    """Check that any text is an endpoint that can be formatted and parsed again, or refused with ConfigError."""
    text = data.decode("utf-8", "replace")
    try:
        found = endpoints.parse(text)
    except ConfigError:
        return
    assert endpoints.parse(str(found)) == found
    assert found.is_ipc or 0 < found.port < 65536


def simulation(data: bytes) -> None:
    """Check that everything in tests/support/simulation.py holds for any actions of clients and workers."""
    World(BytesDice(data)).run(2000)


class Target(NamedTuple):
    run: Callable[[bytes], None]
    seeds: list[bytes]
    words: list[bytes]


_TRAFFIC = [
    zmtp.message(b"a"),
    zmtp.message(b"", b"b" * 300),
    zmtp.message(b"a", b"b", b"c"),
    zmtp.command(b"PING", b"\0\7ctx"),
    zmtp.command(b"PONG"),
    zmtp.command(b"SUBSCRIBE", b"topic"),
    zmtp.command(b"CANCEL", b"topic"),
    zmtp.command(b"ERROR", b"\3bye"),
    zmtp.message(b"\1topic"),
    b"\x02" + (20).to_bytes(8, "big") + bytes(20),
    b"\x02" + (1 << 62).to_bytes(8, "big"),
    b"\x06" + (70_000).to_bytes(8, "big"),
]
_SHAKES = [
    handshake(role, version) for role in (b"ROUTER", b"DEALER", b"PUB") for version in (b"\3\0", b"\3\1")
]
_STREAMS = [
    *[b"\0\5\3" + shake + b"".join(_TRAFFIC[:4]) for shake in _SHAKES],
    *[b"\1\5\3" + piece for piece in _TRAFFIC],
    b"\1\5\3" + b"".join(_TRAFFIC[:9]),
]
_WIRE_WORDS = [*_TRAFFIC, *_SHAKES, b"READY", b"Socket-Type", b"\0\0\0\6DEALER", b"Identity"]
_TASKS = [
    b"show_broker",
    b'{"task":"show_jobs","kwargs":{"limit":3,"state":"done"}}',
    b'{"task":"show_workers","args":["echo"]}',
    b"echo",
]
_PLAYS = [bytes(range(start, start + 60)) for start in range(0, 190, 10)]

TARGETS: dict[str, Target] = {
    "greeting": Target(greeting, [zmtp.greeting(), zmtp.greeting(b"\3\0", b"CURVE")], [b"\xff", b"NULL"]),
    "commands": Target(
        commands, [zmtp.command(b"PING", b"\0\1")[2:], zmtp.ready()[2:], zmtp.ready()[8:]], [b"\0\0\0\0"]
    ),
    "message_frames": Target(message_frames, _TRAFFIC, _TRAFFIC),
    "zmtp_server": Target(zmtp_server, _STREAMS, _WIRE_WORDS),
    "zmtp_client": Target(zmtp_client, _STREAMS, _WIRE_WORDS),
    "zmtp_publisher": Target(zmtp_publisher, _STREAMS, _WIRE_WORDS),
    "zmtp_subscriber": Target(zmtp_subscriber, _STREAMS, _WIRE_WORDS),
    "zmtp_expecting": Target(zmtp_expecting, [b"\1\2\1" + piece for piece in _TRAFFIC], _TRAFFIC),
    "mdp_sessions": Target(mdp_sessions, _PLAYS, []),
    "dcp_sessions": Target(dcp_sessions, _PLAYS, []),
    "nfp_sessions": Target(nfp_sessions, _PLAYS, []),
    "wmp_sessions": Target(wmp_sessions, _PLAYS, []),
    "mixed_sessions": Target(mixed_sessions, _PLAYS, []),
    "sp_rep": Target(memo.sp_rep, memo.STREAMS, memo.WIRE_WORDS),
    "sp_req": Target(memo.sp_req, memo.STREAMS, memo.WIRE_WORDS),
    "memo_header": Target(memo.memo_header, memo.HEADERS, memo.HEADER_WORDS),
    "memo_sessions": Target(memo.memo_sessions, _PLAYS, []),
    "management": Target(management, _TASKS, [b'{"', b'"task"', b"[", b"]", b"}", b"null", b"1e9", b"show_"]),
    "endpoint": Target(
        endpoint, [b"tcp://127.0.0.1:5555", b"ipc:///x", b"tcp://[::1]:5"], [b"tcp://", b":*"]
    ),
    "simulation": Target(simulation, _PLAYS, []),
}
