"""HTTP clients that send half of what they announce, drip, or do not read: the broker's memory stays within bounds."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable

import psutil
import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.web.desk import Desk

MIB = 1024 * 1024


class Watched:
    """A broker and its memory."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.desk = Desk(broker)
        self.process = psutil.Process(broker.pid)
        assert (
            self.desk.wait("mmi.service", b"x" * 100_000).status == 200
        )  # whatever is loaded at the first request
        self.base = self.rss()
        self.peak = self.base

    def rss(self) -> int:
        """Return the resident memory of the process."""
        found: int = self.process.memory_info().rss
        return found

    def look(self) -> int:
        found = self.rss()
        self.peak = max(self.peak, found)
        return found

    def watch(self, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            meanwhile()
            self.look()
            time.sleep(0.02)


def upload(path: str, size: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {size}\r\n\r\n".encode()


@pytest.mark.parametrize(
    "path", ["/v1/services/s/jobs?durable=false", "/memodb/v1/cid", "/v1/services/s/bulk"]
)
def test_memory_of_posts_that_were_cut_is_free_again(full: bool, path: str) -> None:
    posts, size = (1000, 60 * MIB) if full else (12, 16 * MIB)
    with BrokerProcess(http=True) as broker:
        watched = Watched(broker)
        half = bytes(size // 2)
        for _ in range(posts):
            with watched.desk.raw(upload(path, size)) as sock, contextlib.suppress(OSError):
                sock.sendall(half)
        wait_for(
            lambda: watched.rss() <= watched.base + 100 * MIB,
            30,
            f"{(watched.rss() - watched.base) / MIB} MiB",
        )
        assert watched.desk.site.get("/healthz").status == 200


def test_those_that_never_read_and_those_that_drip_stay_within_the_limit(full: bool) -> None:
    """Each of the former asks for large results, one after the other, and each of the latter sends most of a large
    body at once and then a byte now and then."""
    peers, limit, size = (200, 2048 * MIB, 60 * MIB) if full else (20, 128 * MIB, 12 * MIB)
    result = 8 * MIB
    slow = 30 if full else 1  # long enough that the limit is reached first
    toml = f'[limits]\nmemory = {limit}\nstalled = "5m"\n[http]\nslow = {slow}\n'
    with BrokerProcess(toml=toml, http=True) as broker:
        watched = Watched(broker)
        desk = watched.desk
        job = desk.job("large", b"x", "durable=true")
        desk.poll("large").answer(bytes(result))
        assert len(desk.result(job).body) == result
        base = watched.rss()
        ask = f"GET {job}/result HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode() * 4
        body = upload("/v1/services/s/jobs?durable=false", size)
        socks: list[socket.socket] = []
        dripping: list[socket.socket] = []
        try:
            for _ in range(peers):
                socks.append(desk.raw(ask))
                dripping.append(desk.raw(body))
                with contextlib.suppress(OSError):
                    dripping[-1].sendall(bytes(size * 3 // 4))
                watched.look()

            def drip() -> None:
                for sock in dripping:
                    with contextlib.suppress(OSError):
                        sock.send(b"x")

            watched.watch(20 if full else 1, drip)
            # A base of its own is beside the limit; at full size it fits into the tenth, too.
            allowed = limit * 1.1 if full else base + limit * 1.1
            print(
                f"peak {watched.peak / MIB:.0f} MiB, base {base / MIB:.0f} MiB, limit {limit / MIB:.0f} MiB"
            )
            assert watched.peak <= allowed
            assert desk.site.get("/healthz").status == 200

            def all_cut() -> bool:
                drip()
                return len(select.select(dripping, [], [], 0)[0]) == len(dripping)

            wait_for(all_cut, 30 + slow, "whoever drips is cut")
        finally:
            for sock in [*socks, *dripping]:
                sock.close()
        assert "limits.memory" in broker.log()
        assert "Traceback" not in broker.log(), broker.log()[-5000:]
