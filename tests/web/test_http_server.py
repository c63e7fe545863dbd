"""The HTTP server's bounds: whoever crosses one is answered and closed, and nobody else notices."""

from __future__ import annotations

import json
import re
import select
import socket
import time
from pathlib import Path

import pytest

from polydomo.web.connection import HEAD_MAX
from tests.support.broker import BrokerProcess, wait_for
from tests.web.api.site import Answer, is_problem
from tests.web.desk import Desk, fresh, read_all, read_answer, until

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
SUBMIT = b"POST /v1/services/s/jobs?durable=false HTTP/1.1\r\nhost: 127.0.0.1\r\n"


def refused(data: bytes, status: int, reason: str) -> None:
    """It is one whole problem document, and the connection's end."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    assert headers["connection"] == "close"
    assert int(headers["content-length"]) == len(body)
    is_problem(Answer(int(lines[0].split()[1]), headers, body), status, reason)


def still_well(desk: Desk) -> None:
    assert desk.site.get("/healthz").status == 200


@pytest.mark.parametrize("begun", [b"G", b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: "])
def test_a_head_that_does_not_end_is_answered_with_408(strict: Desk, begun: bytes) -> None:
    with strict.raw(begun) as sock:
        still_well(strict)
        refused(read_all(sock), 408, "too-slow")


def test_a_head_that_trickles_is_no_better(strict: Desk) -> None:
    with strict.raw(b"GET /healthz HTTP/1.1\r\n") as sock:
        sock.settimeout(0.05)
        found = b""
        end = time.monotonic() + 10
        while not found and time.monotonic() < end:
            try:
                sock.sendall(b"x-drop: 1\r\n")
                found = sock.recv(65536)
            except TimeoutError:
                continue
        sock.settimeout(10)
        refused(found + read_all(sock), 408, "too-slow")


@pytest.mark.parametrize(
    "announced", [b"content-length: 100\r\n\r\nhalf", b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"]
)
def test_a_body_that_stops_is_answered_with_408(strict: Desk, announced: bytes) -> None:
    with strict.raw(SUBMIT + announced) as sock:
        still_well(strict)
        refused(read_all(sock), 408, "too-slow")


@pytest.mark.parametrize(
    "path", ["/v1/services/s/jobs?durable=false", "/nothing/here", "/v1/services/s/bulk"]
)
def test_a_body_that_drips_is_no_better(brisk: Desk, path: str) -> None:
    """A byte now and then renews nothing: for a handler that waits for the whole body, for one that reads line by
    line, and where nobody reads it."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n"
    with brisk.raw(head.encode()) as sock:
        ended = False
        end = time.monotonic() + 20
        while not ended and time.monotonic() < end:
            try:
                sock.sendall(b"x")
                ready = select.select([sock], [], [], 0.05)[0]
                ended = bool(ready) and (b" 408 " in (found := sock.recv(65536)) or not found)
            except OSError:
                ended = True
        assert ended


def test_a_connection_without_a_request_is_closed_after_a_while(strict: Desk) -> None:
    with strict.raw() as sock, strict.raw(HEALTH) as used:
        assert read_all(sock) == b""
        assert read_all(used).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"CONNECT example.com:80 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + bytes(48),
    ],
    ids=["tls", "no target", "version", "no colon", "length", "target", "connect", "zmtp"],
)
def test_what_is_no_http_is_answered_with_400(strict: Desk, garbage: bytes) -> None:
    with strict.raw(garbage) as sock:
        refused(read_all(sock), 400, "malformed")
    still_well(strict)


@pytest.mark.parametrize("chunks", [b"zz\r\n", b"4\r\nhalfNOT\r\n", b"-1\r\n", b"fffffffffffffffffff\r\n"])
def test_chunks_that_are_none_are_answered_with_400(strict: Desk, chunks: bytes) -> None:
    with strict.raw(SUBMIT + b"transfer-encoding: chunked\r\n\r\n" + chunks) as sock:
        refused(read_all(sock), 400, "malformed")
    still_well(strict)


def test_length_and_chunks_at_once_are_refused(strict: Desk) -> None:
    data = SUBMIT + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    with strict.raw(data) as sock:
        refused(read_all(sock), 400, "malformed")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * HEAD_MAX + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nx-long: " + b"x" * HEAD_MAX + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"x-many: 12345\r\n" * (HEAD_MAX // 14) + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nx-endless: " + b"x" * (HEAD_MAX + 1),
    ],
    ids=["target", "one", "many", "endless"],
)
def test_a_head_that_is_too_large_is_answered_with_431(strict: Desk, head: bytes) -> None:
    with strict.raw(head) as sock:
        refused(read_all(sock), 431, "head-too-large")
    still_well(strict)


@pytest.mark.parametrize(
    "framing",
    [
        b"1\r\nx\r\n0\r\nx-long: " + b"x" * HEAD_MAX + b"\r\n\r\n",
        b"1\r\nx\r\n0\r\n" + b"x-many: 12345\r\n" * (HEAD_MAX // 14) + b"\r\n",
        b"0\r\nx-endless: " + b"x" * (3 * HEAD_MAX),
        b"1;x=" + b"x" * (3 * HEAD_MAX),
        (b"1;x=" + b"x" * 1000 + b"\r\nx\r\n") * (3 * HEAD_MAX // 1000),
    ],
    ids=["one trailer", "many trailers", "endless trailer", "endless extension", "many extensions"],
)
def test_trailers_and_extensions_that_are_too_large_are_answered_with_431(
    strict: Desk, framing: bytes
) -> None:
    with strict.raw(SUBMIT + b"transfer-encoding: chunked\r\n\r\n") as sock:
        try:
            for pos in range(0, len(framing), 8192):
                sock.sendall(framing[pos : pos + 8192])
        except OSError:
            pass  # it was answered and closed already
        refused(read_all(sock), 431, "head-too-large")
    still_well(strict)


def test_small_chunks_with_short_extensions_and_trailers_are_a_body_like_any_other(strict: Desk) -> None:
    chunks = b"1;a=b\r\nx\r\n" * 20_000 + b"0\r\nx-check: 12345\r\n\r\n"
    head = b"POST /v1/services/mmi.service/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nprefer: wait=5\r\n"
    with strict.raw(head + b"transfer-encoding: chunked\r\n\r\n" + chunks) as sock:
        assert read_answer(sock)[0] == 200


def test_trailer_is_not_taken_for_a_header(strict: Desk) -> None:
    body = b"1\r\nx\r\n0\r\nhost: evil.example\r\nprefer: wait=5\r\n\r\n"
    head = b"POST /v1/services/mmi.service/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nprefer: wait=5\r\n"
    with strict.raw(head + b"transfer-encoding: chunked\r\n\r\n" + body) as sock:
        assert read_answer(sock)[0] == 200


def test_a_body_of_the_largest_size_beside_a_small_head_is_no_large_head(strict: Desk) -> None:
    answer = strict.wait("mmi.service", b"x" * 150_000)
    assert answer.status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"content-length: 200001\r\n\r\n",
        b"content-length: 99999999999999999999\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n",
    ],
    ids=["announced", "absurd", "chunked"],
)
def test_a_body_that_is_too_large_is_answered_before_it_is_there(strict: Desk, sent: bytes) -> None:
    with strict.raw(SUBMIT + sent) as sock:
        if b"chunked" in sent:
            chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
            try:
                for _ in range(10):
                    sock.sendall(chunk)
            except OSError:
                pass  # it was answered and closed already
        head = read_all(sock).split(b"\r\n")[0]
        assert head.split()[1] in (b"413", b"400"), head
        assert (head.split()[1] == b"413") == (b"99999999999999999999" not in sent)
    still_well(strict)


def test_all_bodies_that_are_on_their_way_have_room_or_are_refused(strict: Desk) -> None:
    body = SUBMIT + b"content-length: 200000\r\n\r\n" + bytes(190_000)

    def one_too_many() -> bytes:
        """What the first of six hears. On a slow machine it is that it is slow."""
        kept = [strict.raw(body) for _ in range(6)]
        try:
            first = select.select(kept, [], [], 10)[0][0]
            return read_all(first)
        finally:
            for sock in kept:
                sock.close()

    found = until(lambda: (heard := one_too_many()) and b" 429 " in heard and heard)
    refused(found, 429, "broker-full")
    still_well(strict)


def test_a_large_body_is_refused_so_that_its_sender_sees_it(strict: Desk, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(5_000_000))
    url = strict.url("/v1/services/s/jobs")
    sent = strict.curl("-w", "%{http_code}", "-o", "/dev/null", "--data-binary", f"@{tmp_path}/large", url)
    assert sent.stdout == b"413"


def test_one_connection_too_many_is_answered_with_503(strict: Desk) -> None:
    """All others are being served, and of the same address: none of them makes room."""
    poll = strict.request("POST", "/v1/workers/poll", b'{"services": ["nothing"], "worker": "w", "wait": 4}')

    def one_too_many() -> bytes:
        kept: list[socket.socket] = []
        try:
            for _ in range(60):
                kept.append(strict.raw(poll))
                if select.select(kept[-1:], [], [], 0.02 if len(kept) > 40 else 0)[0]:
                    return read_all(kept[-1])
            return b""
        finally:
            for sock in kept:
                sock.close()

    refused(until(one_too_many), 503, "too-many-connections")
    until(lambda: _is_well(strict))


def test_connection_without_a_request_makes_room_for_a_newer_one(strict: Desk) -> None:
    kept: list[socket.socket] = []

    def told_why() -> bytes:
        """What the first one hears that is told to make room; others are told that they are slow."""
        kept.append(strict.raw(b"G"))
        for sock in select.select(kept, [], [], 0)[0]:
            kept.remove(sock)
            with sock:
                found = read_all(sock)
            if b" 503 " in found:
                return found
        return b""

    try:
        refused(until(told_why), 503, "too-many-connections")
    finally:
        for sock in kept:
            sock.close()
    until(lambda: _is_well(strict))


def test_pipelined_requests_are_answered_in_their_order(desk: Desk) -> None:
    service = fresh()
    slow = desk.request("POST", f"/v1/services/{service}/jobs?durable=false", b"x", prefer="wait=15")
    with desk.raw(
        slow + HEALTH + b"GET /v1/nothing HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    ) as sock:
        desk.poll(service).answer(b"first")
        found = read_all(sock)
    assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"200", b"200", b"404"]
    assert found.index(b"first") < found.index(b'"ok"')


def test_a_flood_of_pipelined_requests_is_read_as_fast_as_it_is_answered(strict: Desk) -> None:
    """Ten thousand in one piece: all are answered, and nobody else waits for them all."""
    count = 10_000
    with strict.raw() as sock:
        sock.setblocking(False)
        left, found = memoryview(HEALTH * count), 0
        end = time.monotonic() + 30
        asked = False
        rest = b""
        while found < count:
            assert time.monotonic() < end
            if left:
                try:
                    left = left[sock.send(left) :]
                except BlockingIOError:
                    pass
            try:
                data = rest + sock.recv(1 << 20)
                found += data.count(b"HTTP/1.1 200 OK")
                rest = data[-14:] if not data.endswith(b"}") else b""
            except BlockingIOError:
                time.sleep(0.001)
            if not asked and found > 100:
                still_well(strict)
                asked = True


def test_garbage_behind_a_request_does_not_cost_it_its_answer(desk: Desk) -> None:
    service = fresh()
    slow = desk.request("POST", f"/v1/services/{service}/jobs?durable=false", b"x", prefer="wait=15")
    with desk.raw(slow) as sock:
        attempt = desk.poll(service)
        sock.sendall(b"\x00garbage\r\n\r\n")
        still_well(desk)
        attempt.answer(b"first")
        found = read_all(sock)
    assert found.startswith(b"HTTP/1.1 200")
    assert found.endswith(b"first")


def test_expect_100_continue_is_answered_before_the_body(desk: Desk) -> None:
    with desk.raw(
        b"POST /v1/services/mmi.service/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nprefer: wait=5\r\n"
    ) as sock:
        sock.sendall(b"expect: 100-continue\r\ncontent-length: 1\r\n\r\n")
        assert sock.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"x")
        assert read_answer(sock)[0] == 200


def test_http_1_0_is_answered_and_closed(desk: Desk) -> None:
    with desk.raw(b"GET /healthz HTTP/1.0\r\n\r\n") as sock:
        assert read_all(sock).split()[1] == b"200"


def test_who_asks_for_another_protocol_is_answered_in_this_one(desk: Desk) -> None:
    upgrade = HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    with desk.raw(upgrade) as sock:
        assert read_answer(sock)[0] == 200


def test_every_place_is_listened_on() -> None:
    with BrokerProcess("--insecure", "--http", "[::1]:*", "--http", "*:0", http="127.0.0.1:*") as broker:
        told = json.loads((broker.data / "broker.json").read_text())["http"]
        assert [place.rpartition(":")[0] for place in told] == ["127.0.0.1", "[::1]", "*"]
        for place in told:
            host, _, port = place.rpartition(":")
            where = ("127.0.0.1" if host == "*" else host.strip("[]"), int(port))
            with socket.create_connection(where, timeout=10) as sock:
                sock.sendall(HEALTH)
                assert read_answer(sock)[0] == 200


def test_a_place_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="cannot listen on " + place):
            BrokerProcess(http=place)


def test_while_it_finishes_its_jobs_workers_still_bring_their_results() -> None:
    with BrokerProcess(http=True) as broker:
        desk = Desk(broker)
        waiting = desk.raw(desk.request("POST", "/v1/services/a/jobs?durable=false", b"x", prefer="wait=15"))
        attempt = desk.poll("a")
        broker.process.terminate()
        wait_for(lambda: desk.site.get("/readyz").status == 503)
        is_problem(desk.submit("a"), 503, "draining")
        attempt.answer(b"the last one")
        assert read_answer(waiting) == (200, b"the last one")
        waiting.close()
        assert broker.stop() == 0


def _is_well(desk: Desk) -> bool:
    try:
        return desk.site.get("/healthz").status == 200
    except OSError:
        return False
