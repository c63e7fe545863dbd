"""A million guesses of an attempt by a valid worker, in every dialect: none is accepted, and at last the right one is.

In the dialects of ZeroMQ a token is a fence and not a credential: replies are looked up among the jobs of the worker
that sends them, so not even the right token is of any use to another. Over HTTP and in memo01 it must not be guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cbor2
import pytest

from tests.support import memo
from tests.support.attempts import guessed_paths, refuse_all
from tests.support.broker import BrokerProcess
from tests.support.dialects import Desk, Seat
from tests.web.desk import Desk as HttpDesk

SERVICE = b"svc"


class Mdp:
    """A worker of MDP/0.2."""

    def __init__(self, desk: Desk) -> None:
        self.seat = desk.seat()
        self.register()

    def register(self) -> None:
        self.seat.send(b"MDPW02", b"\x01", SERVICE)

    def job(self) -> bytes:
        """Return the token of the job that it was given."""
        ((*_, token, _, _),) = [frames for frames in self.seat.take() if frames[1] == b"\x02"]
        return token

    def final(self, token: bytes, body: bytes) -> None:
        self.seat.send(b"MDPW02", b"\x04", token, b"", body)


class Dcp(Mdp):
    def register(self) -> None:
        self.seat.send(b"", b"DGBX\x01", b"\x01", SERVICE)

    def job(self) -> bytes:
        (frames,) = [frames for frames in self.seat.take() if frames[2] == b"\x04"]
        return frames[4]

    def final(self, token: bytes, body: bytes) -> None:
        self.seat.send(b"", b"DGBX\x01", b"\x05", token, b"", b"", body)


class Nfp(Mdp):
    def register(self) -> None:
        self.seat.send(b"", b"NFPW01", b"\x01", SERVICE)

    def job(self) -> bytes:
        (frames,) = [frames for frames in self.seat.take() if frames[2] == b"\x04"]
        return frames[3]

    def final(self, token: bytes, body: bytes) -> None:
        self.seat.send(b"", b"NFPW01", b"\x05", token, b"", b"uuid", b"200", body)


class Wmp(Mdp):
    def say(self, command: int, headers: dict[str, object], *payload: bytes) -> None:
        self.seat.send(b"", b"WMP1", bytes((command,)), b"", cbor2.dumps(headers, canonical=True), *payload)

    def register(self) -> None:
        self.say(1, {"roles": [SERVICE.decode()], "slots": 1})

    def job(self) -> bytes:
        (wake,) = [frames for frames in self.seat.take() if frames[2] == b"\x02"]
        self.say(3, {"wake": cbor2.loads(wake[4])["wake"]})
        (take,) = [frames for frames in self.seat.take() if frames[2] == b"\x04"]
        return str(cbor2.loads(take[4])["job"]).encode()

    def final(self, token: bytes, body: bytes) -> None:
        self.say(6, {"job": token.decode("latin-1"), "status": 200}, body)


def near(token: bytes, count: int) -> Iterator[bytes]:
    """The right token first, then those around it."""
    yield token
    number = int(token, 16)
    for step in range(1, count):
        yield b"%08x" % ((number + (step if step % 2 else -step)) & 0xFFFFFFFF)


@pytest.mark.parametrize("stranger_of", [Mdp, Dcp, Nfp, Wmp])
def test_guessed_tokens_are_none_accepted_and_the_holder_s_answer_is(
    stranger_of: Callable[[Desk], Mdp], full: bool
) -> None:
    desk = Desk()
    holder = stranger_of(desk)
    client: Seat = desk.seat()
    client.send(b"MDPC02", b"\x01", SERVICE, b"question")
    token = holder.job()
    stranger = stranger_of(desk)
    for number, guess in enumerate(near(token, 1_000_000 if full else 500)):
        stranger.final(guess, b"forged")
        if len(desk.broker.workers) == 1:  # some dialects disconnect a worker for that
            stranger.register()
        if number % 10_000 == 0:
            stranger.seat.take()
            stranger.seat.complaints.clear()
    assert client.take() == []
    holder.final(token, b"right")
    assert client.take() == [[b"MDPC02", b"\x03", SERVICE, b"right"]]


def test_guessed_paths_over_http_are_none_accepted_and_the_right_one_is(full: bool) -> None:
    with BrokerProcess(http=True, toml='[defaults]\ntimeout = "2h"') as broker:
        desk = HttpDesk(broker)
        path = desk.job("svc")
        attempt = desk.poll("svc", worker="holder")
        refuse_all(desk, guessed_paths(attempt.path, 1_000_000 if full else 1_000))
        assert desk.state(path) == "running"
        attempt.answer(b"right")
        assert desk.result(path).body == b"right"


def test_guessed_ids_of_memo01_workers_are_none_accepted_and_the_right_one_is(full: bool) -> None:
    desk = memo.Desk()
    worker, client, stranger = desk.seat(), desk.seat(), desk.seat()
    worker.send(memo.ready("echo"))
    client.send(memo.job("echo", b"x"))
    ((_, said),) = worker.take()
    near = int.from_bytes(said.id, "big")
    for step in range(1, (1_000_000 if full else 2_000) + 1):
        guess = ((near + step) % (1 << 128)).to_bytes(16, "big")
        stranger.send(memo.result(guess, b"forged"))
        if step % 1_000 == 0:
            assert {answer.kind for _, answer in stranger.take()} == {memo.DISCONNECT}
            stranger.session.connection.forget_older()
    assert client.take() == []
    worker.send(memo.result(said.id, b"right"))
    assert [answer.payload for _, answer in client.take()] == [b"right"]
