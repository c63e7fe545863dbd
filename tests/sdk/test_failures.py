"""From a worker's exception to its caller's error, through the broker's failure bodies."""

from __future__ import annotations

import json

import pytest

from polydomo.core.failure import Failure
from polydomo.dialects import native_failure as wire
from polydomo.errors import JobFailed, Refused, WorkerError
from polydomo.sdk import failures
from polydomo.wire.frames import join, split


def raised() -> ValueError:
    try:
        raise ValueError("bad number")
    except ValueError as error:
        return error


def test_an_exception_travels_with_kind_message_and_traceback():
    body = failures.body_of(failures.describe_error(raised(), True), native=True)
    failure = wire.from_worker(body)
    assert failure is not None
    arrived = wire.to_client(failure)
    assert failures.is_failure(arrived)
    error = failures.error_of(failures.read(arrived), "sum")
    assert isinstance(error, WorkerError)
    assert (error.kind, error.reason) == ("ValueError", "worker-error")
    assert error.message == "sum: ValueError: bad number"
    assert 'raise ValueError("bad number")' in error.traceback


def test_foreign_clients_get_the_plain_body():
    """They are told by the broker, which takes the mark off; a broker that is not ours never sees it."""
    account = failures.describe_error(raised(), True)
    failure = wire.from_worker(failures.body_of(account, native=True))
    assert failure is not None
    plain = failures.body_of(account, native=False)
    assert failure.body == plain
    assert [json.loads(part) for part in split(plain)] == [{"error": "bad number"}]


def test_a_name_of_a_file_that_is_no_text_can_be_told():
    """Such names come from the operating system with lone surrogates in them, which are no UTF-8."""
    account = failures.describe_error(FileNotFoundError("no caf\udce9"), True)
    (plain,) = split(failures.body_of(account, native=False))
    assert json.loads(plain) == {"error": "no caf\\udce9"}


def test_tracebacks_can_be_kept_back():
    assert failures.describe_error(raised(), False).traceback == ""


def test_an_error_from_another_worker_keeps_its_first_account():
    first = WorkerError("inner: KeyError: 'x'", kind="KeyError", traceback="there")
    account = failures.describe_error(first, True)
    assert (account.kind, account.traceback) == ("KeyError", "there")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("expired", JobFailed),
        ("retries-exhausted", JobFailed),
        ("too-many-hops", JobFailed),
        ("queue-full", Refused),
        ("broker-full", Refused),
        ("draining", Refused),
        ("bad-service", Refused),
        ("too-many-services", Refused),
        ("something new", JobFailed),
    ],
)
def test_the_brokers_reasons_have_their_errors(reason: str, kind: type[Exception]):
    error = failures.error_of(failures.read(wire.to_client(Failure(reason, 'said "so"'))), "sum")
    assert type(error) is kind
    assert f'sum: said "so" [{reason}]' in str(error)
    if isinstance(error, JobFailed):
        assert error.reason == reason


@pytest.mark.parametrize("rest", [[], [b"not json"], [b"[1]"]])
def test_an_account_that_cannot_be_read_is_still_a_failure(rest: list[bytes]):
    body = join([wire.MARK, *rest, b"plain"])
    assert isinstance(failures.error_of(failures.read(body), "sum"), JobFailed)
