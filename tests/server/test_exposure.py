"""server/exposure: which listeners are closed, open to this machine only, or open to everybody."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from polydomo.errors import ConfigError
from polydomo.server import exposure, serve
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.services.builtin import Task

ANYWHERE = "tcp://*:*"


def settings(broker: dict[str, Any], **sections: Any) -> Settings:
    return msgspec.convert(
        {"broker": {"zmq": ["tcp://127.0.0.1:*"], "data": ""} | broker} | sections, Settings
    )


@pytest.mark.parametrize(
    ("broker", "exposed"),
    [
        ({}, []),
        ({"zmq": ["tcp://127.0.0.2:1", "tcp://[::1]:1", "ipc:///x", "tcp://localhost:1"]}, []),
        ({"http": ["127.0.0.1:1", "https://[::1]:1"], "nng": ["tls+tcp://127.0.0.1:1"]}, []),
        ({"zmq": ["tcp://127.0.0.1:1", "tcp://*:1"]}, ["zmq tcp://*:1"]),
        ({"zmq": ["tcp://10.0.0.1:1"]}, ["zmq tcp://10.0.0.1:1"]),
        ({"zmq": ["tcp://broker.example:1"]}, ["zmq tcp://broker.example:1"]),
        ({"events": ["tcp://[::]:1"]}, ["events tcp://[::]:1"]),
        ({"nng": ["tcp://0.0.0.0:1", "tls+tcp://*:2"]}, ["nng tcp://0.0.0.0:1", "nng tls+tcp://*:2"]),
        ({"http": ["*:1", "https://*:2"]}, ["http *:1", "http https://*:2"]),
        (
            {
                "zmq": ["tcp://*:1?principal=legacy"],
                "events": ["tcp://*:2?principal=legacy"],
                "nng": ["tls+tcp://*:3?principal=legacy"],
                "http": ["*:4?principal=anonymous"],
            },
            [],
        ),
    ],
)
def test_a_listener_that_others_reach_is_open_unless_its_principal_was_chosen(
    broker: dict[str, Any], exposed: list[str]
) -> None:
    assert exposure.open_to_others(settings(broker)) == exposed


EVERYWHERE = {
    "zmq": [ANYWHERE],
    "events": [ANYWHERE],
    "nng": ["tcp://*:1", "tls+tcp://*:2"],
    "http": ["*:3", "https://*:4"],
}
ALL = ["zmq", "events", "nng tcp", "nng tls", "http", "https"]


@pytest.mark.parametrize(
    ("sections", "exposed"),
    [
        ({}, ALL),
        ({"security": {"curve": "on", "roles": "off"}}, ["nng tcp", "nng tls", "http", "https"]),
        ({"security": {"curve": "on"}}, []),
        ({"security": {"roles": "on"}}, ["zmq", "events"]),
        ({"principals": {"anonymous": ["client"]}}, ["zmq", "events"]),
        (
            {"tls": {"clients": "required"}, "security": {"roles": "off"}},
            ["zmq", "events", "nng tcp", "http"],
        ),
        ({"tls": {"clients": "optional"}, "security": {"roles": "off"}}, ALL),
    ],
)
def test_keys_roles_and_certificates_close_listeners(sections: dict[str, Any], exposed: list[str]) -> None:
    names = {
        f"zmq {ANYWHERE}": "zmq",
        f"events {ANYWHERE}": "events",
        "nng tcp://*:1": "nng tcp",
        "nng tls+tcp://*:2": "nng tls",
        "http *:3": "http",
        "http https://*:4": "https",
    }
    found = exposure.open_to_others(settings(EVERYWHERE, **sections))
    assert [names[one] for one in found] == exposed


async def test_an_open_broker_does_not_start_and_says_what_to_do() -> None:
    server = BrokerServer(settings({"zmq": [ANYWHERE]}))
    with pytest.raises(ConfigError, match=r"anybody .* could use zmq tcp://\*:\*") as caught:
        await server.start()
    assert "--insecure" in caught.value.advice
    assert "security.curve" in caught.value.advice
    assert not server.zmq.bound


async def test_an_insecure_broker_starts_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    for broker, exposed in (
        ({"zmq": [ANYWHERE], "insecure": True}, [f"zmq {ANYWHERE}"]),
        ({"insecure": True}, None),
    ):
        caplog.clear()
        server = BrokerServer(settings(broker))
        await server.start()
        shown: Any = server.management.tasks.perform(
            Task("show_broker"), server.broker.principals.get("operator")
        )
        assert shown.get("insecure") == exposed
        assert ("anybody who reaches this machine can use the broker" in caplog.text) is bool(exposed)
        server.stop(drain=False)
        await server.wait()


async def test_a_reload_that_would_open_a_listener_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    server = BrokerServer(settings({"http": ["*:0"]}, security={"roles": "on"}))
    await server.start()
    before = server.settings
    changed = settings({"http": ["127.0.0.1:1"]}, security={"roles": "off"}, limits={"hops": 5})
    serve.reload(server, lambda: changed)
    async with asyncio.timeout(10):
        while "not reloaded: the old settings stay" not in caplog.text:
            await asyncio.sleep(0.005)
    assert "anybody who reaches this machine could use http *:0" in caplog.text
    assert server.settings is before
    changed.security.roles = "on"
    serve.reload(server, lambda: changed)
    async with asyncio.timeout(10):
        while server.settings.limits.hops != 5:
            await asyncio.sleep(0.005)
    server.stop(drain=False)
    await server.wait()
