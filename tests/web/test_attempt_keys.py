"""web/attempt_keys and server/attempt_secret: credentials that nobody can guess, and that survive a restart."""

from __future__ import annotations

import stat
from base64 import urlsafe_b64decode
from pathlib import Path
from urllib.parse import quote

import pytest

from polydomo.core.principals import ANONYMOUS
from polydomo.server import attempt_secret
from polydomo.web.attempt_keys import CODE_SIZE, AttemptKeys, is_equal, token_in
from polydomo.web.callers import LOCAL, caller_site
from polydomo.web.polling import NameRefused, PollingWorkers
from polydomo.wire.frames import frame
from tests.web.test_polling import Room

KEYS = AttemptKeys(bytes(32))
PARTS = (b"0123abcd", b"worker", "principal", b"job")


def test_a_credential_has_the_token_and_at_least_128_bits_more() -> None:
    credential = KEYS.credential(*PARTS)
    token, _, code = credential.partition(b".")
    assert token == token_in(credential) == b"0123abcd"
    assert len(urlsafe_b64decode(code + b"==")) == CODE_SIZE >= 16
    assert quote(credential.decode(), safe="") == credential.decode()
    assert len(credential) <= 64


def test_it_is_the_same_again_from_the_same_secret_and_parts() -> None:
    assert KEYS.credential(*PARTS) == AttemptKeys(bytes(32)).credential(*PARTS)
    assert is_equal(KEYS.credential(*PARTS), KEYS.credential(*PARTS))


@pytest.mark.parametrize(
    "other",
    [
        AttemptKeys(b"\1" * 32).credential(*PARTS),
        KEYS.credential(b"0123abce", b"worker", "principal", b"job"),
        KEYS.credential(b"0123abcd", b"another", "principal", b"job"),
        KEYS.credential(b"0123abcd", b"worker", "another", b"job"),
        KEYS.credential(b"0123abcd", b"worker", "principal", b"another"),
        KEYS.credential(b"0123abcd", b"workerprin", "cipal", b"job"),
    ],
)
def test_it_is_another_for_any_other_secret_or_part(other: bytes) -> None:
    assert other.partition(b".")[2] != KEYS.credential(*PARTS).partition(b".")[2]
    assert not is_equal(other, KEYS.credential(*PARTS))


# The secret


def test_the_secret_is_kept_in_a_file_of_the_owner(tmp_path: Path) -> None:
    secret = attempt_secret.load(str(tmp_path))
    assert len(secret) == 32
    assert attempt_secret.load(str(tmp_path)) == secret
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_damaged_secret_is_replaced(tmp_path: Path) -> None:
    secret = attempt_secret.load(str(tmp_path))
    (tmp_path / attempt_secret.FILE).write_bytes(secret[:10])
    other = attempt_secret.load(str(tmp_path))
    assert (len(other), other != secret) == (32, True)
    assert attempt_secret.load(str(tmp_path)) == other


def test_without_a_folder_each_start_has_a_secret_of_its_own(tmp_path: Path) -> None:
    assert attempt_secret.load("") != attempt_secret.load("")
    missing = str(tmp_path / "missing")
    assert attempt_secret.load(missing) != attempt_secret.load(missing)


# Who holds an attempt


async def test_an_attempt_is_found_by_its_credential_for_its_principal_alone() -> None:
    room = Room()
    worker = room.worker()
    poll = worker.open()
    room.submit()
    assert room.workers.holder(poll.credential, ANONYMOUS) is worker
    assert room.workers.holder(poll.credential, "somebody else") is None
    assert poll.job is not None
    for wrong in (b"", poll.job.token, poll.credential[:-1], poll.credential + b"A", b"." + poll.credential):
        assert room.workers.holder(wrong, ANONYMOUS) is None


async def test_two_attempts_at_a_job_have_different_credentials() -> None:
    room = Room()
    first, second = room.worker(b"one"), room.worker(b"two")
    poll = first.open()
    room.submit()
    old = poll.credential
    first.withdraw(poll)
    again = second.open()
    assert again.credential.partition(b".")[2] != old.partition(b".")[2]
    assert room.workers.holder(old, ANONYMOUS) is None


# Where requests come from


async def test_a_name_belongs_to_one_site_while_its_worker_is_alive() -> None:
    room = Room()
    worker = room.workers.get(b"w", [b"s"], ANONYMOUS, site="10.0.0.1")
    assert room.workers.get(b"w", [b"s"], ANONYMOUS, site="10.0.0.1") is worker
    with pytest.raises(NameRefused):
        room.workers.get(b"w", [b"s"], ANONYMOUS, site="10.0.0.2")
    poll = worker.open()
    room.server.pass_time(1000)
    with pytest.raises(NameRefused):
        room.workers.get(b"w", [b"s"], ANONYMOUS, site="10.0.0.2")
    room.submit()
    assert poll.job is not None
    assert worker.result(poll.job.token, frame(b"done"))
    room.server.pass_time(100)
    assert room.workers.get(b"w", [b"s"], ANONYMOUS, site="10.0.0.2") is not worker


async def test_a_worker_that_holds_a_job_and_was_not_heard_for_long_loses_its_name() -> None:
    """It sends no heartbeats, so its job alone does not show that it is alive."""
    room = Room()
    worker = room.workers.get(b"w", [b"s"], ANONYMOUS, site="10.0.0.1")
    worker.open()
    pending = room.submit()
    room.server.pass_time(31)
    newer = room.workers.get(b"w", [b"s"], ANONYMOUS, site="10.0.0.2")
    assert newer is not worker
    assert newer.open().job is pending.job


async def test_a_made_up_name_is_nobody_else_s() -> None:
    room = Room()
    room.worker(b"http-1")
    made_up = PollingWorkers.get(room.workers, None, [b"s"], ANONYMOUS)
    assert made_up.name != b"http-1"


@pytest.mark.parametrize(
    ("client", "site"),
    [
        (("127.0.0.1", 1), LOCAL),
        (("127.9.9.9", 1), LOCAL),
        (("::1", 1), LOCAL),
        (("::ffff:127.0.0.1", 1), LOCAL),
        (None, LOCAL),
        (("10.0.0.1", 1), "10.0.0.1"),
        (("::ffff:10.0.0.1", 1), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
    ],
)
def test_the_site_of_a_request(client: object, site: str) -> None:
    assert caller_site({"client": client}) == site
