"""Options that clients give as JSON."""

from __future__ import annotations

import pytest

from polydomo.core.policy import FOREVER
from polydomo.core.tracked_job import Options
from polydomo.dialects.options import read, read_json
from tests.support.dialects import Desk

DCP = [b"", b"DGBX\x01"]


def values(options: Options) -> dict[str, object]:
    names = ("deadline", "delay", "durable", "key", "priority", "target", "timeout", "uid", "wait")
    return {name: getattr(options, name) for name in names}


def test_nothing_said_is_what_the_core_takes_for_granted():
    assert values(read({})) == values(Options())
    assert read({}).deadline == FOREVER


def test_everything_said():
    options = read_json(
        b'{"key":"k","delay":1.5,"deadline":60,"priority":-3,"wait":0,"timeout":30,"durable":true}'
    )
    assert (options.key, options.delay, options.deadline, options.priority) == (b"k", 1.5, 60.0, -3)
    assert (options.wait, options.timeout, options.durable) == (0.0, 30.0, True)


def test_null_is_as_good_as_nothing():
    assert values(read_json(b'{"key":null,"delay":null,"durable":null}')) == values(Options())


def test_durable_has_the_caller_s_default():
    assert read({}, durable=True).durable
    assert not read({"durable": False}, durable=True).durable


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "JSON object"),
        ({"retries": 1}, "unknown option 'retries'"),
        ({"key": 1}, "key"),
        ({"key": ""}, "key"),
        ({"key": "x" * 256}, "256"),
        ({"delay": -1}, "delay"),
        ({"delay": "1"}, "delay"),
        ({"delay": True}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"deadline": float("inf")}, "deadline"),
        ({"deadline": 10**30}, "ten years"),
        ({"wait": -0.1}, "wait"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": [1]}, "timeout"),
        ({"priority": 10}, "priority"),
        ({"priority": 1.0}, "priority"),
        ({"priority": True}, "priority"),
        ({"durable": "yes"}, "durable"),
    ],
)
def test_what_is_wrong_is_named(value: object, said: str):
    with pytest.raises(ValueError, match=said):
        read(value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"nul", b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes):
    with pytest.raises(ValueError, match="not JSON"):
        read_json(data)


# DCP's way: a metadata part


def test_a_dcp_client_may_say_options_in_a_metadata_part():
    desk = Desk()
    client, worker = desk.seat(), desk.seat()
    client.send(*DCP, b"\4", b"svc", b"", b"mine", b'polydomo:{"priority":1,"key":"k"}', b"", b"low")
    client.send(*DCP, b"\4", b"svc", b"", b'polydomo:{"priority":9}', b"", b"high")
    worker.send(*DCP, b"\1", b"svc")
    echo, first = worker.take()
    assert echo[2] == b"\1"
    assert first[6:] == [b'polydomo:{"priority":9}', b"", b"high"]
    worker.send(*DCP, b"\5", *first[4:])
    (second,) = worker.take()
    assert second[6:] == [b"mine", b'polydomo:{"priority":1,"key":"k"}', b"", b"low"]
    worker.send(*DCP, b"\5", *second[4:])
    assert [answer[-1] for answer in client.take()] == [b"high", b"low"]


@pytest.mark.parametrize("part", [b"polydomo:{", b'polydomo:{"priority":99}', b'polydomo:{"x":1}'])
def test_a_dcp_request_with_bad_options_is_dropped(part: bytes):
    desk = Desk()
    client = desk.seat()
    assert client.call(*DCP, b"\4", b"svc", b"", part, b"", b"data") == []
    assert len(client.complaints) == 1
    assert "option" in client.complaints[0]
    assert desk.broker.accounting.active == 0


@pytest.mark.parametrize("part", [b"polydomo", b"polydomo:", b'x polydomo:{"x":1}', b"polydomo:[]"])
def test_other_metadata_is_none_of_our_business(part: bytes):
    desk = Desk()
    client = desk.seat()
    client.send(*DCP, b"\4", b"svc", b"", part, b"", b"data")
    assert client.complaints == []
    assert desk.broker.accounting.active == 1
