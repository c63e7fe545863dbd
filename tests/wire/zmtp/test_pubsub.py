"""wire/zmtp: publishers and subscribers (RFC 29/PUBSUB, RFC 37 §SUBSCRIBE and CANCEL)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.wire.stream import CLOSED
from polydomo.wire.zmtp.pubsub import SUBSCRIPTION_BYTES, SUBSCRIPTION_COST, Subscriptions
from tests.support import zmtp
from tests.support.effort import examples
from tests.support.recorder import connect, in_traffic, run_to_rest

LONG_TOPIC = b"t" * 300


def test_a_topic_is_matched_by_prefix() -> None:
    wanted = Subscriptions()
    assert not wanted.matches(b"jobs.done")
    wanted.change(b"jobs.", True)
    assert wanted.matches(b"jobs.done")
    assert wanted.matches(b"jobs.")
    assert not wanted.matches(b"jobs")
    wanted.change(b"", True)
    assert wanted.matches(b"anything")


def test_subscribing_twice_needs_cancelling_twice() -> None:
    wanted = Subscriptions()
    wanted.change(b"a", True)
    wanted.change(b"a", True)
    wanted.change(b"a", False)
    assert wanted.matches(b"abc")
    wanted.change(b"a", False)
    assert not wanted.matches(b"abc")
    assert len(wanted) == 0


@pytest.mark.parametrize("more", [0, 1000])
def test_many_prefixes_match_like_few(more: int) -> None:
    wanted = Subscriptions()
    for number in range(more):
        wanted.change(b"other.%d" % number, True)
    wanted.change(b"jobs.", True)
    assert wanted.matches(b"jobs.done")
    assert wanted.matches(b"jobs.")
    assert not wanted.matches(b"jobs")
    assert not wanted.matches(b"other")
    wanted.change(b"", True)
    assert wanted.matches(b"")


def test_cancelling_what_was_never_wanted_is_ignored() -> None:
    wanted = Subscriptions()
    wanted.change(b"a", False)
    wanted.change(b"a", True)
    assert wanted.matches(b"a")


@given(
    st.lists(st.tuples(st.sampled_from([b"", b"a", b"ab", b"b"]), st.booleans()), max_size=20),
    st.binary(max_size=3),
)
@examples(60)
def test_subscriptions_count_like_a_list(changes: list[tuple[bytes, bool]], topic: bytes) -> None:
    wanted = Subscriptions()
    model: list[bytes] = []
    for prefix, more in changes:
        wanted.change(prefix, more)
        if more:
            model.append(prefix)
        elif prefix in model:
            model.remove(prefix)
    assert wanted.matches(topic) == any(topic.startswith(prefix) for prefix in model)
    assert len(wanted) == len(set(model))


@pytest.mark.parametrize("size", [4, 60_000])
def test_a_peer_cannot_make_us_keep_any_number_of_subscriptions(size: int) -> None:
    publisher, noted = in_traffic(b"PUB")
    wanted = Subscriptions()
    noted.on_subscription = wanted.change
    for number in range(20_000):
        publisher.receive(zmtp.command(b"SUBSCRIBE", number.to_bytes(4, "big").ljust(size)))
        if publisher.phase == CLOSED:
            break
    assert len(wanted) * (size + SUBSCRIPTION_COST) <= SUBSCRIPTION_BYTES
    assert "subscriptions" in noted.failures[0]


def test_subscriptions_that_come_and_go_are_not_too_many() -> None:
    wanted = Subscriptions()
    for number in range(20_000):
        wanted.change(b"%d" % number, True)
        wanted.change(b"%d" % number, True)
        wanted.change(b"%d" % number, False)
        wanted.change(b"%d" % number, False)
    assert len(wanted) == 0


@pytest.mark.parametrize("topic", [b"", b"jobs.", LONG_TOPIC])
def test_a_zmtp_3_1_subscriber_says_it_with_commands(topic: bytes) -> None:
    publisher, noted = in_traffic(b"PUB")
    publisher.receive(zmtp.command(b"SUBSCRIBE", topic) + zmtp.command(b"CANCEL", topic))
    assert noted.calls == [("subscription", topic, True), ("subscription", topic, False)]


@pytest.mark.parametrize("topic", [b"", b"jobs.", LONG_TOPIC])
def test_a_zmtp_3_0_subscriber_says_it_with_messages(topic: bytes) -> None:
    publisher, noted = in_traffic(b"PUB", version=b"\3\0")
    publisher.receive(zmtp.message(b"\1" + topic) + zmtp.message(b"\0" + topic))
    assert noted.calls == [("subscription", topic, True), ("subscription", topic, False)]


def test_other_messages_to_a_publisher_are_dropped() -> None:
    publisher, noted = in_traffic(b"PUB")
    publisher.receive(zmtp.message(b"") + zmtp.message(b"hello", b"you") + zmtp.message(b"\2a"))
    assert noted.calls == []
    publisher.receive(zmtp.message(b"\1a"))
    assert noted.calls == [("subscription", b"a", True)]


@pytest.mark.parametrize("role", [b"ROUTER", b"SUB"])
def test_subscriptions_mean_nothing_to_others(role: bytes) -> None:
    connection, noted = in_traffic(role)
    connection.receive(zmtp.command(b"SUBSCRIBE", b"a") + zmtp.command(b"CANCEL", b"a"))
    assert noted.calls == []


@pytest.mark.parametrize("topic", [b"", b"jobs.", LONG_TOPIC])
@pytest.mark.parametrize(
    ("version", "subscribe", "cancel"),
    [
        (b"\3\1", lambda t: zmtp.command(b"SUBSCRIBE", t), lambda t: zmtp.command(b"CANCEL", t)),
        (b"\3\0", lambda t: zmtp.message(b"\1" + t), lambda t: zmtp.message(b"\0" + t)),
    ],
)
def test_we_subscribe_in_the_form_the_publisher_understands(topic, version, subscribe, cancel) -> None:  # type: ignore[no-untyped-def]
    connection, noted = in_traffic(b"SUB", version=version)
    connection.subscribe(topic)
    assert noted.take_sent() == subscribe(topic)
    connection.subscribe(topic, False)
    assert noted.take_sent() == cancel(topic)


def test_publisher_and_subscriber_find_each_other() -> None:
    publisher, subscriber = connect(b"PUB"), connect(b"SUB", server=False)
    run_to_rest(publisher, subscriber)
    subscriber[0].subscribe(b"jobs.")
    run_to_rest(publisher, subscriber)
    publisher[1].transmit(zmtp.message(b"jobs.done", b"7"))
    run_to_rest(publisher, subscriber)
    assert publisher[1].calls == [("ready", b"SUB", b"", 1), ("subscription", b"jobs.", True)]
    assert subscriber[1].calls == [("ready", b"PUB", b"", 1), ("message", b"jobs.done", b"7")]


def test_neither_publishers_nor_subscribers_send_an_identity() -> None:
    for role in (b"PUB", b"SUB"):
        connection, noted = connect(role, server=False, identity=b"me")
        connection.receive(zmtp.greeting())
        assert b"Identity" not in noted.sent
