"""Peers of the soak test, each in its own process: bare pyzmq, nothing of polydomo.

    python -m tests.support.soak client|worker mdp|dcp ENDPOINT NAME [QUOTA]

A client has QUOTA requests, WINDOW of them in flight at a time, each try with its own number in the body. It repeats
requests that were not answered in time, and detects what must never happen: a reply that was not requested, or the same
reply twice. A worker replies forever; now and then both leave and return on a new socket.
"""

from __future__ import annotations

import json
import random
import sys
import time
from itertools import count

import zmq

SERVICE = b"soak"
WINDOW = 32
GIVE_UP = 2.0  # seconds without a reply after which a request is repeated
REPORT = 250  # replies between two progress lines
BEAT = 0.25


class Mdp:
    """MDP/0.2, both sides."""

    @staticmethod
    def request(number: bytes) -> list[bytes]:
        return [b"MDPC02", b"\x01", SERVICE, number, b"payload"]

    @staticmethod
    def answer(frames: list[bytes]) -> bytes:
        assert frames[:3] == [b"MDPC02", b"\x03", SERVICE], frames
        assert frames[4] == b"payload", frames
        return frames[3]

    hello = [b"MDPW02", b"\x01", SERVICE]  # noqa: RUF012
    beat = [b"MDPW02", b"\x05"]  # noqa: RUF012
    goodbye: list[bytes] | None = [b"MDPW02", b"\x06"]  # noqa: RUF012

    @staticmethod
    def reply(frames: list[bytes]) -> list[bytes] | None:
        """Return the reply to a request, None for a heartbeat. Raise EOFError if told to register again."""
        if frames[1] == b"\x02":
            frames[1] = b"\x04"
            return frames
        if frames[1] == b"\x06":
            raise EOFError
        return None


class Dcp:
    """DCP, both sides: the number is in the metadata."""

    @staticmethod
    def request(number: bytes) -> list[bytes]:
        return [b"", b"DGBX\x01", b"\x04", SERVICE, b"", number, b"", b"payload"]

    @staticmethod
    def answer(frames: list[bytes]) -> bytes:
        assert frames[:3] == [b"", b"DGBX\x01", b"\x05"], frames
        assert frames[6:] == [b"", b"payload"], frames
        return frames[5]

    hello = [b"", b"DGBX\x01", b"\x01", SERVICE]  # noqa: RUF012
    beat = [b"", b"DGBX\x01", b"\x02"]  # noqa: RUF012
    goodbye = None

    @staticmethod
    def reply(frames: list[bytes]) -> list[bytes] | None:
        """Return the reply to a request, None for a pong. Raise EOFError if told to register again."""
        if frames[2] == b"\x04":
            return [b"", b"DGBX\x01", b"\x05", *frames[4:]]
        if frames[2] == b"\x06":
            raise EOFError
        return None


DIALECTS = {"mdp": Mdp, "dcp": Dcp}


def connect(endpoint: str, name: str = "") -> zmq.Socket:
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    if name:
        socket.setsockopt(zmq.ROUTING_ID, name.encode())
    socket.connect(endpoint)
    return socket


def client(dialect: type, endpoint: str, name: str, quota: int) -> None:
    chance = random.Random(name)
    numbers = count()
    waiting: dict[bytes, tuple[float, int]] = {}  # try → when it was sent, number of the request
    tries: dict[bytes, bool] = {}  # every try ever made → answered?
    answered: set[int] = set()
    retried = late = sent = reported = reconnects = 0
    reconnect_at = chance.randint(quota // 4, quota)
    socket = connect(endpoint, name)

    def ask(request: int) -> None:
        number = b"%s/%d/%d" % (name.encode(), request, next(numbers))
        tries[number] = False
        waiting[number] = (time.monotonic(), request)
        socket.send_multipart(dialect.request(number))

    while len(answered) < quota:
        while len(waiting) < WINDOW and sent < quota:
            ask(sent)
            sent += 1
        if socket.poll(200):
            try:
                while True:
                    number = dialect.answer(socket.recv_multipart(zmq.NOBLOCK))
                    if tries[number]:
                        raise SystemExit(f"{number!r} was answered twice")
                    tries[number] = True
                    waiting.pop(number, None)
                    request = int(number.split(b"/")[1])
                    late += request in answered
                    answered.add(request)
            except zmq.Again:
                pass
        now = time.monotonic()
        for number, (when, request) in list(waiting.items()):
            if now - when < GIVE_UP:
                break
            del waiting[number]
            if request not in answered:
                retried += 1
                ask(request)
        if len(answered) - reported >= REPORT:
            print(len(answered) - reported, flush=True)
            reported = len(answered)
        if len(answered) > reconnect_at:
            reconnects += 1
            reconnect_at = quota
            socket.close()
            socket = connect(endpoint, name)
    print(len(answered) - reported, flush=True)
    print(json.dumps({"answered": len(answered), "retried": retried, "late": late, "reconnects": reconnects}))
    socket.close()


def worker(dialect: type, endpoint: str, name: str) -> None:
    chance = random.Random(name)
    while True:
        socket = connect(endpoint)
        socket.send_multipart(dialect.hello)
        heard = beaten = time.monotonic()
        left = chance.randint(2000, 20000)
        try:
            while left:
                if socket.poll(BEAT * 1000):
                    heard = time.monotonic()
                    reply = dialect.reply(socket.recv_multipart())
                    if reply is not None:
                        socket.send_multipart(reply)
                        left -= 1
                if time.monotonic() - beaten > BEAT:
                    beaten = time.monotonic()
                    socket.send_multipart(dialect.beat)
                if time.monotonic() - heard > 5:
                    break
            if dialect.goodbye is not None:
                socket.send_multipart(dialect.goodbye)
        except EOFError:
            pass
        socket.close()


if __name__ == "__main__":
    role, dialect_name, endpoint, name, *more = sys.argv[1:]
    if role == "client":
        client(DIALECTS[dialect_name], endpoint, name, int(more[0]))
    else:
        worker(DIALECTS[dialect_name], endpoint, name)
