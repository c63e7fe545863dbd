"""Fuzz targets for NNG's wire and MemoDB's protocol on it."""

from __future__ import annotations

import io

import cbor2

from polydomo.core.policy import BrokerLimits, Policy
from polydomo.dialects.memo import messages
from polydomo.errors import ProtocolError
from polydomo.wire import frames
from polydomo.wire.sp.hello import REP, REQ
from polydomo.wire.stream import CLOSED
from tests.support import invariants, memo, sp
from tests.support.simulation import BytesDice

LIMIT = 600


def sp_rep(data: bytes) -> None:
    """Check that for any bytes in any pieces the connection delivers whole messages or fails once; it raises nothing,
    holds no more than its limit, sends nothing after it failed; the pieces make no difference."""
    _sp(REP, data)


def sp_req(data: bytes) -> None:
    """Check the same as for REP, at the connecting end."""
    _sp(REQ, data)


def _sp(role: int, data: bytes) -> None:
    """Run a connection. The first three bytes say how to cut the rest; half of the streams begin after a hello."""
    how, stream = data[:3].ljust(3, b"\0"), data[3:]
    ipc = bool(how[0] & 2)
    if how[0] & 1:
        stream = (sp.REQ_HELLO if role == REP else sp.REP_HELLO) + stream
    whole = _feed(role, ipc, stream, len(stream) or 1)
    assert _feed(role, ipc, stream, 1) == whole
    assert _feed(role, ipc, stream, how[1] + 2) == whole
    assert _feed(role, ipc, stream, how[2] % 16 + 2, pausing=True) == whole


def _feed(
    role: int, ipc: bool, stream: bytes, piece: int, pausing: bool = False
) -> tuple[list[sp.Call], bytes, int]:
    connection, noted = sp.connect(role, LIMIT, ipc)
    if pausing:
        noted.on_message = connection.pause
    for start in range(0, len(stream), piece):
        connection.receive(stream[start : start + piece])
        while connection.paused:
            connection.resume()
        assert connection.kept() <= LIMIT + 9
        assert (connection.phase == CLOSED) == bool(noted.failures())
    assert len(noted.failures()) <= 1
    assert not noted.failures() or noted.calls[-1][0] == "failed"
    for stack, content in noted.messages():
        assert isinstance(stack, bytes)
        assert isinstance(content, bytes)
        assert 4 <= len(stack) <= 32
        assert len(stack) + len(content) <= LIMIT
    return noted.calls, noted.sent, connection.phase


def memo_header(data: bytes) -> None:
    """Check that any bytes are a message whose header cbor2 reads identically, or refused; and that any payload, and
    any body of frames, is preserved."""
    try:
        header = messages.read(data, 0, len(data))
    except ProtocolError:
        pass
    else:
        stream = io.BytesIO(data)
        items = cbor2.load(stream)
        assert stream.tell() == header.end
        assert items[:3] == ["memo01", header.kind, header.id]
        if header.kind == messages.JOB:
            assert items[3:] == [header.service.decode(), header.timeout]
        elif header.kind == messages.READY:
            assert items[3] == [name.decode() for name in header.services]
        elif header.kind == messages.RESULT:
            assert header.leaving == (items[3:] == [True])
    body = messages.body_of(data)
    assert messages.payload_of(body) == data
    _, need, _ = frames.measure(bytearray(body), 0)
    assert not need or not body
    end, need, _ = frames.measure(bytearray(data), 0)
    if not need and end == len(data) and frames.join(frames.split(data)) == data:
        assert messages.body_of(messages.payload_of(data)) == data


SERVICES = ("a", "b", "mmi.service")


def memo_sessions(data: bytes) -> None:
    """Check that whatever MemoDB peers send in any order over any number of connections, nothing is raised, every reply
    is a whole message under an ID that was requested there, the core's accounting stays right, and in the end nothing
    is left."""
    desk = memo.Desk(
        bounds=BrokerLimits(client_jobs=4, client_bytes=400, memory=10_000, services=6),
        policy=Policy(wait=5, timeout=4, retries=1, queue=5),
        limit=800,
    )
    seats = [desk.seat(f"host{index % 2}") for index in range(3)]
    sent: list[dict[int, bytes]] = [{} for _ in seats]
    dice = BytesDice(data)
    requests: list[tuple[int, bytes]] = [(1, memo.job("a"))]  # all requests, to be repeated
    while not dice.spent():
        who, what = dice.below(3), dice.below(16)
        if seats[who].closed:
            seats[who] = desk.seat(f"host{who % 2}")
            sent[who] = {}
        seat = seats[who]
        if what < 10:
            ids = [b"", b"nobody", *sorted(desk.memo.workers.by_id)]
            id = ids[dice.below(len(ids))]
            service = SERVICES[dice.below(3)]
            payload = bytes(dice.below(4) * 50)
            made = (
                memo.ready(service, *SERVICES[: dice.below(3)]),
                memo.ready("a"),
                memo.job(service, payload, dice.below(6) * 1000),
                memo.job("a", payload),
                memo.result(id, payload),
                memo.result(id, payload, bool(dice.below(2))),
                memo.heartbeat(id),
                bytes(dice.below(256) for _ in range(dice.below(4))),
                memo.pack(5, id),
                memo.result(id, messages.FRAMES + b"\x01\x01a\x00\x01b"),
            )[what]
            number = desk.number()
            requests.append((number, made))
        else:
            number, made = requests[-1 - dice.below(min(len(requests), 16))]
        if what < 13:
            sent[who][number] = made
            seat.send(made, number)
        elif what == 13:
            desk.wait((0.1, 0.9, 1.0, 3.5)[dice.below(4)])
        elif what == 14:
            seat.drop()
        else:
            seat.session.connection.forget_older()
        invariants.check(desk.broker)
        for one, asked in zip(seats, sent, strict=True):
            for number, _ in one.take():
                assert number in asked, "a reply without a request"
    for seat in seats:
        seat.drop()
    for _ in range(14):
        desk.wait(1.0)
    invariants.check(desk.broker)
    assert desk.broker.accounting.active == 0
    assert not desk.broker.clients
    assert not desk.memo.workers.by_id
    assert not desk.memo.interrupted.requests
    assert not desk.memo.workers.by_ready
    assert desk.memo.interrupted.size == 0
    assert not desk.memo.reconnects.broken


STREAMS = [
    b"\0\5\3" + sp.REQ_HELLO + sp.request(1, b"x") + sp.request(2, b"y", 5, 6),
    b"\1\5\3" + sp.request(1, b"x" * 50) + sp.request(2, b""),
    b"\3\5\3" + sp.request(1, b"x" * 50, ipc=True) + sp.request(2, b"", ipc=True),
    b"\1\5\3" + sp.request(1, b"x", *range(8)) + sp.request(2, b""),
    b"\1\5\3" + (1 << 62).to_bytes(8, "big"),
    b"\0\5\3" + sp.hello(0x62),
]
WIRE_WORDS = [
    sp.REQ_HELLO,
    sp.REP_HELLO,
    sp.request(1, b"x"),
    sp.request(1, b"x", 5),
    bytes(7) + b"\4",
    b"\1",
]
HEADERS = [
    memo.ready("a", "b"),
    memo.job("a", b"payload"),
    memo.result(b"\1\2\3\4", b"payload"),
    memo.result(b"\1\2\3\4", b"", True),
    memo.heartbeat(b"\1\2\3\4"),
    b"\x9f\x66memo01\x01\x40\x9f\x61a\x61b\xff\xff",
    b"\x9f\x7f\x64memo\x6201\xff\x02\x5f\xff\x7f\x61a\xff\x00\xff",
    messages.FRAMES + b"\x01\x01a\x00\x01b",
    frames.join([b"a", b"b", messages.FRAMES]),
    frames.frame(messages.FRAMES + frames.join([b"a", b"b"])),
]
HEADER_WORDS = [
    b"\x66memo01",
    b"\x9f",
    b"\xff",
    b"\x5f",
    b"\x7f",
    b"\x1b",
    messages.FRAMES,
    b"\xf5",
    b"\x44\1\2\3\4",
]
