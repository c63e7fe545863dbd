"""The audit log of a running broker: acts before they are done, denials, refused peers, start, reload and stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from polydomo import Client, Worker
from polydomo.core.principals import ADMINISTER, CALL, OPERATE
from polydomo.errors import ConfigError, JobFailed
from polydomo.security.audit_check import check, read
from polydomo.security.audit_log import AuditUnavailable
from polydomo.security.audit_record import ACT, DENIED, EVENT, AuditRecord
from polydomo.security.denial_budget import BURST
from polydomo.security.keys import KeyFolder
from polydomo.server import auditing, serve
from polydomo.server.server import BrokerServer
from polydomo.server.settings import AuditSection, BrokerSection, LimitsSection, SecuritySection, Settings
from polydomo.wire.curve.keys import encode_key, new_key_pair
from polydomo.wire.zmtp import greeting
from tests.support.zmq_ends import patient, zmq_socket

ANYWHERE = "tcp://127.0.0.1:*"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "audit"


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[BrokerServer]:
    server = BrokerServer(settings_with(folder))
    await server.start()
    yield server
    await stop(server)


def settings_with(folder: Path | str, **sections: Any) -> Settings:
    broker = BrokerSection(zmq=[ANYWHERE], events=[ANYWHERE], data="")
    return Settings(broker=broker, audit=AuditSection(folder=str(folder)), **sections)


async def stop(server: BrokerServer) -> None:
    server.stop(drain=False)
    await server.wait()


def records(folder: Path, kind: str = "") -> list[AuditRecord]:
    found = list(read(folder)) if folder.is_dir() else []
    return [record for record in found if record is not None and kind in (record.kind, "")]


def actions(folder: Path) -> list[str]:
    return [record.action for record in records(folder)]


async def until(condition: Callable[[], Any]) -> Any:
    while not (found := condition()):
        await asyncio.sleep(0.005)
    return found


def block(folder: Path) -> Path:
    """Make the log unwritable, for root as well."""
    aside = folder.rename(folder.with_name("aside"))
    folder.write_text("not a folder")
    return aside


def unblock(folder: Path, aside: Path) -> None:
    folder.unlink()
    aside.rename(folder)


@patient
async def test_start_and_stop_are_recorded(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for _ in range(2):
        server = BrokerServer(settings_with(folder))
        await server.start()
        await stop(server)
    assert actions(folder) == ["started", "stopped"] * 2
    assert {record.kind for record in records(folder)} == {EVENT}
    assert f"audit log closed latest=4:{records(folder)[-1].hash}" in caplog.text
    assert not check(folder).problems


@patient
async def test_an_act_is_on_disk_when_it_may_be_done(server: BrokerServer, folder: Path) -> None:
    await server.audit.act("ann", OPERATE, "pause_service", "resize", "10.0.0.1:5")
    (record,) = records(folder, ACT)
    assert (record.principal, record.verb, record.action) == ("ann", OPERATE, "pause_service")
    assert (record.target, record.address) == ("resize", "10.0.0.1:5")


@patient
async def test_acts_that_come_together_are_recorded_together_in_order(
    server: BrokerServer, folder: Path
) -> None:
    recorded = [server.audit.act("ann", OPERATE, "pause_service", f"{number}") for number in range(200)]
    for one in recorded:
        await one
    assert [record.target for record in records(folder, ACT)] == [f"{number}" for number in range(200)]


@patient
async def test_an_act_fails_if_it_cannot_be_recorded_and_can_be_done_again_later(
    server: BrokerServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await server.audit.act("ann", OPERATE, "first")
    aside = block(folder)
    for _ in range(2):
        with pytest.raises(AuditUnavailable, match="cannot be written: Not a directory") as raised:
            await server.audit.act("ann", OPERATE, "refused")
    assert raised.value.advice
    server.audit.denied("ann", CALL, "mail", "")
    shown = await until(lambda: server.audit.show()["lost"] and server.audit.show())
    assert (shown["lost"], "Not a directory" in shown["trouble"]) == (1, True)
    assert caplog.text.count("administration is refused") == 1
    unblock(folder, aside)
    await server.audit.act("ann", OPERATE, "second")
    assert actions(folder) == ["started", "first", "lost", "second"]
    lost = records(folder)[2]
    assert (lost.count, "Not a directory" in lost.reason) == (1, True)
    assert "audit log written again" in caplog.text
    assert (server.audit.show()["trouble"], server.audit.show()["written"]) == ("", 4)
    assert not check(folder).problems


@patient
async def test_nothing_is_recorded_and_nothing_refused_without_an_audit_log(tmp_path: Path) -> None:
    server = BrokerServer(settings_with("auto"))
    await server.start()
    assert not server.audit.on
    await server.audit.act("ann", OPERATE, "pause_service")
    server.audit.denied("ann", CALL, "mail", "")
    assert server.audit.show() == {}
    await stop(server)


async def test_a_folder_that_can_never_be_written_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server = BrokerServer(settings_with(tmp_path / "file" / "audit"))
    with pytest.raises(ConfigError, match=r"the audit log in .* cannot be written"):
        await server.start()


@patient
async def test_damage_that_a_start_finds_is_logged_and_recorded(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = BrokerServer(settings_with(folder))
    await server.start()
    await stop(server)
    (segment,) = folder.glob("*.jsonl")
    with segment.open("ab") as file:
        file.write(b'{"number":3')
    server = BrokerServer(settings_with(folder))
    await server.start()
    assert "an unfinished write left 11 bytes" in caplog.text
    assert actions(folder)[:3] == ["started", "stopped", "repaired"]
    await stop(server)


@patient
async def test_what_the_authority_denies_is_recorded(folder: Path) -> None:
    server = BrokerServer(settings_with(folder, security=SecuritySection(roles="on")))
    await server.start()
    async with zmq_socket(zmq.DEALER) as client:
        client.connect(server.zmq.bound[0])
        await client.send_multipart([b"MDPC02", b"\1", b"mail", b"body"])
        (record,) = await until(lambda: records(folder, DENIED))
    assert (record.principal, record.verb, record.target) == ("anonymous", CALL, "mail")
    await stop(server)


@patient
async def test_denials_beyond_the_budget_are_counted_and_those_of_strangers_apart(
    server: BrokerServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(BURST + 50):
        server.audit.refused("10.0.0.1:5", "no key")
    server.audit.denied("ann", CALL, "mail", "host-1")
    await server.audit.act("ann", OPERATE, "pause_service")
    found = records(folder, DENIED)
    assert len(found) == BURST + 1
    assert (found[-1].principal, found[-1].target) == ("ann", "mail@host-1")
    await stop(server)
    counted = records(folder, DENIED)[-1]
    assert (counted.principal, counted.reason, counted.count) == ("anonymous", "no key", 50)
    assert actions(folder)[-1] == "stopped"


@patient
async def test_counted_denials_are_recorded_after_their_period(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "COLLECT", 0.01)
    monkeypatch.setattr("polydomo.security.denial_budget.PERIOD", 0.05)
    server = BrokerServer(settings_with(folder))
    await server.start()
    for _ in range(BURST + 7):
        server.audit.denied("ann", CALL, "mail", "")
    assert await until(lambda: [one.count for one in records(folder, DENIED) if one.count]) == [7]
    await stop(server)


@patient
async def test_a_task_of_the_catalogue_is_recorded_or_refused(server: BrokerServer, folder: Path) -> None:
    url = server.zmq.bound[0].replace("tcp", "mdp")
    worker = Worker(url)
    worker.add("resize", str)
    async with worker, Client(url) as client:
        await client.call("mmi.service.broker", {"task": "pause_service", "kwargs": {"name": "resize"}})
        (record,) = records(folder, ACT)
        assert (record.principal, record.verb, record.action) == ("anonymous", OPERATE, "pause_service")
        assert record.target == "resize"
        aside = block(folder)
        for _ in range(2):
            with pytest.raises(JobFailed, match="cannot be recorded: the audit log in") as raised:
                await client.call(
                    "mmi.service.broker", {"task": "resume_service", "kwargs": {"name": "resize"}}
                )
            assert "administration is possible again" in raised.value.message
        assert server.broker.services[b"resize"].paused
        unblock(folder, aside)
        await client.call("mmi.service.broker", {"task": "resume_service", "kwargs": {"name": "resize"}})
        assert not server.broker.services[b"resize"].paused


@patient
async def test_no_act_is_recorded_after_the_stop(server: BrokerServer) -> None:
    await stop(server)
    with pytest.raises(AuditUnavailable, match="is closed"):
        await server.audit.act("ann", OPERATE, "pause_service")


# Peers that do not get in


@pytest.fixture
async def guarded(folder: Path, tmp_path: Path) -> AsyncIterator[BrokerServer]:
    security = SecuritySection(curve="on", keys=str(tmp_path / "keys"))
    server = BrokerServer(settings_with(folder, security=security, limits=LimitsSection(handshake=0.3)))
    await server.start()
    yield server
    await stop(server)


def keys_of(server: BrokerServer) -> dict[str, bytes]:
    pair = new_key_pair(os.urandom)
    broker = KeyFolder(Path(server.settings.security.keys)).open()
    return {
        "curve_publickey": encode_key(pair.public).encode(),
        "curve_secretkey": encode_key(pair.secret).encode(),
        "curve_serverkey": encode_key(broker.public).encode(),
    }


async def opened(server: BrokerServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.zmq.bound[0].removeprefix("tcp://").split(":")
    return await asyncio.open_connection(host, int(port))


@patient
@pytest.mark.parametrize("kind", [zmq.DEALER, zmq.SUB])
async def test_a_peer_whose_key_waits_for_approval_is_recorded(
    guarded: BrokerServer, folder: Path, kind: int
) -> None:
    async with zmq_socket(kind, **keys_of(guarded)) as peer:
        peer.connect((guarded.events if kind == zmq.SUB else guarded.zmq).bound[0])
        record = (await until(lambda: records(folder, DENIED)))[0]
    assert (record.action, record.principal) == ("authentication", "anonymous")
    assert "waits for approval" in record.reason
    assert record.address.startswith("127.0.0.1:")


@patient
async def test_a_key_that_is_accepted_at_once_is_recorded(guarded: BrokerServer, folder: Path) -> None:
    settings = settings_with(
        folder, security=SecuritySection(curve="on", auto_accept=True, keys=guarded.settings.security.keys)
    )
    guarded.reload(settings)
    async with zmq_socket(zmq.DEALER, routing_id=b"anna", **keys_of(guarded)) as peer:
        peer.connect(guarded.zmq.bound[0])
        record = await until(lambda: [one for one in records(folder) if one.action == "unknown key accepted"])
    assert record[0].target.startswith("anna ")


@patient
async def test_a_libzmq_peer_without_keys_is_recorded(
    guarded: BrokerServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with zmq_socket(zmq.DEALER) as peer:
        peer.connect(guarded.zmq.bound[0])
        record = (await until(lambda: records(folder, DENIED)))[0]
    assert "does it use CURVE" in record.reason
    await until(lambda: "handshake not finished" in caplog.text)


@patient
async def test_a_downgrade_to_null_is_recorded(guarded: BrokerServer, folder: Path) -> None:
    reader, writer = await opened(guarded)
    writer.write(greeting.encode(b"NULL", False))
    await reader.read()
    (record,) = await until(lambda: records(folder, DENIED))
    assert "NULL" in record.reason
    writer.close()


@patient
async def test_a_probe_of_the_port_is_not_a_denial(guarded: BrokerServer, folder: Path) -> None:
    for _ in range(3):
        _, writer = await opened(guarded)
        writer.close()
        await writer.wait_closed()
    await until(lambda: not len(guarded.handshakes))
    await guarded.audit.act("ann", OPERATE, "pause_service")
    assert not records(folder, DENIED)


@patient
async def test_a_handshake_that_does_not_end_is_recorded(guarded: BrokerServer, folder: Path) -> None:
    _, writer = await opened(guarded)
    (record,) = await until(lambda: records(folder, DENIED))
    assert record.reason == "no handshake within 0.3 s"
    writer.close()


@patient
async def test_a_peer_that_breaks_a_protocol_without_keys_is_not_a_denial(
    server: BrokerServer, folder: Path
) -> None:
    reader, writer = await opened(server)
    writer.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(64))
    await reader.read()
    await server.audit.act("ann", OPERATE, "pause_service")
    assert not records(folder, DENIED)
    writer.close()


# Changed settings


def reread(server: BrokerServer) -> Settings:
    return settings_with(server.settings.audit.folder, limits=LimitsSection(handshake=9.0))


@patient
async def test_a_reload_is_recorded_before_it_is_done(server: BrokerServer, folder: Path) -> None:
    serve.reload(server, lambda: reread(server))
    await until(lambda: server.settings.limits.handshake == 9.0)
    (record,) = records(folder, ACT)
    assert (record.principal, record.verb, record.action) == ("signal:SIGHUP", ADMINISTER, "reload")


@patient
async def test_settings_stay_as_they_are_if_a_reload_cannot_be_recorded(
    server: BrokerServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await server.audit.act("ann", OPERATE, "first")
    aside = block(folder)
    serve.reload(server, lambda: pytest.fail("the configuration was read"))
    await until(lambda: "not reloaded: the old settings stay" in caplog.text)
    unblock(folder, aside)
