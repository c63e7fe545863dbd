"""Roles of a running broker: they apply at once, also after a reload, and the operator reads what was refused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from polydomo import Client, Worker
from polydomo.core.principals import ANONYMOUS, SERVE
from polydomo.security.roles import Denial
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, QuotaSection, RoleSection, SecuritySection, Settings
from tests.support.zmq_ends import patient

ROLES = {"resizer": RoleSection(serve=["resize"]), "shop": RoleSection(call=["resize"])}
BOTH = {ANONYMOUS: ["resizer", "shop"]}


def settings_with(principals: dict[str, list[str]], **sections: object) -> Settings:
    broker = BrokerSection(zmq=["tcp://127.0.0.1:*"], data="")
    return Settings(broker=broker, roles=ROLES, principals=principals, **sections)  # type: ignore[arg-type]


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    server = BrokerServer(settings_with(BOTH))
    await server.start()
    yield server
    server.stop(drain=False)
    await server.wait()


def reload(server: BrokerServer, principals: dict[str, list[str]]) -> None:
    server.reload(settings_with(principals))


def resizer(server: BrokerServer, scheme: str) -> Worker:
    worker = Worker(server.zmq.bound[0].replace("tcp", scheme))
    worker.add("resize", lambda text: text.upper())
    return worker


@patient
async def test_a_reload_applies_to_those_who_are_connected(server: BrokerServer) -> None:
    async with resizer(server, "mdp"), Client(server.zmq.bound[0].replace("tcp", "mdp")) as client:
        assert await client.call("resize", "a") == "A"
        reload(server, {ANONYMOUS: ["shop"]})
        assert not [worker for worker in server.broker.workers if not worker.internal]
        reload(server, BOTH)
        assert await client.call("resize", "b", timeout=20) == "B"


def test_what_a_principal_may_do_follows_the_settings() -> None:
    server = BrokerServer(settings_with(BOTH))
    principals = server.broker.principals
    peer = principals.get(ANONYMOUS)
    assert server.authorization.show() == "on"
    assert principals.allows(peer, SERVE, b"resize")
    assert not principals.allows(peer, SERVE, b"mail")
    server.authorization.configure(settings_with({}))
    assert server.authorization.show() == "off"
    assert principals.authority is None


async def test_a_setting_that_needs_a_restart_does_not_switch_roles_off_before() -> None:
    curve = SecuritySection(curve="on", keys="keys")
    server = BrokerServer(settings_with({}, security=curve))
    server.reload(settings_with({}))
    assert server.settings.security.curve == "on"
    assert server.authorization.show() == "on"


def test_quotas_need_no_roles() -> None:
    server = BrokerServer(
        settings_with({}, quotas={"*": QuotaSection(jobs=3), "anonymous": QuotaSection(jobs=1)})
    )
    authority = server.broker.principals.authority
    assert authority is not None
    assert authority.allows(ANONYMOUS, SERVE, b"mail", b"")
    quotas = [authority.quota(name) for name in ("ann", ANONYMOUS)]
    assert [quota.jobs for quota in quotas if quota is not None] == [3, 1]


async def test_the_operator_reads_what_was_refused_and_what_would_grant_it(
    server: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    peer = server.broker.principals.get("ann")
    assert not server.broker.principals.may(peer, SERVE, b"resize", b"host-1")
    (record,) = [record for record in caplog.records if record.getMessage().startswith("denied")]
    assert "ann may not serve resize" in record.getMessage()
    assert '[principals] ann = ["resizer"]' in record.getMessage()


async def test_a_flood_of_denials_fills_neither_log_nor_time(
    server: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0

    def advice() -> str:
        nonlocal asked
        asked += 1
        return "x"

    for number in range(1000):
        server.peer_log.add_denial(Denial("ann", SERVE, f"made-up-{number}"), advice)
    lines = [record for record in caplog.records if record.getMessage().startswith("denied")]
    assert len(lines) == asked == 100
    server.peer_log.end_period()
    assert "suppressed 900 repeated messages" in caplog.records[-1].getMessage()


async def test_a_broker_whose_principals_have_no_roles_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "polydomo")
    security = SecuritySection(roles="on")
    server = BrokerServer(settings_with({}, security=security))
    await server.start()
    server.stop(drain=False)
    await server.wait()
    assert "roles are on" in caplog.text
    assert "no principal has a role, so every call and worker is refused" in caplog.text
    assert 'security.roles = "off"' in caplog.text
