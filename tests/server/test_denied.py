"""What peers of each dialect hear when a role is missing: our own SDK, and foreign peers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import zmq

from polydomo import Client, Worker
from polydomo.core.principals import ANONYMOUS
from polydomo.dialects.mdp.messages import WORKER_02
from polydomo.dialects.wmp.messages import READY
from polydomo.errors import Denied, UnknownService
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, RoleSection, Settings
from tests.support.wmp import wmp
from tests.support.zmq_ends import patient, zmq_socket

ROLES = {"resizer": RoleSection(serve=["resize", "mail@host-*"], call=["resize"])}


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    broker = BrokerSection(zmq=["tcp://127.0.0.1:*"], nng=["tcp://127.0.0.1:*"], data="")
    server = BrokerServer(Settings(broker=broker, roles=ROLES, principals={ANONYMOUS: ["resizer"]}))
    await server.start()
    yield server
    server.stop(drain=False)
    await server.wait()


def url(server: BrokerServer, dialect: str) -> str:
    bound = server.nng.bound if dialect == "memo" else server.zmq.bound
    return bound[0].replace("tcp", dialect)


def worker_of(server: BrokerServer, dialect: str, *services: str) -> Worker:
    worker = Worker(url(server, dialect))
    for service in services:
        worker.add(service, lambda text: text.upper())
    return worker


def offered(server: BrokerServer) -> set[bytes]:
    return {
        service.name for worker in server.broker.workers if not worker.internal for service in worker.services
    }


@asynccontextmanager
async def refused(server: BrokerServer) -> AsyncIterator[list[str]]:
    """What the operator reads about peers."""
    reasons: list[str] = []
    server.peer_log.add = lambda event, peer, reason: reasons.append(reason)  # type: ignore[method-assign]
    yield reasons


@patient
@pytest.mark.parametrize("dialect", ["mdp", "dcp", "nfp"])
async def test_a_client_hears_what_it_may_not_call(server: BrokerServer, dialect: str) -> None:
    async with worker_of(server, "mdp", "resize"), Client(url(server, dialect)) as client:
        assert await client.call("resize", "a") == "A"
        with pytest.raises(Denied) as raised:
            await client.call("mail", "a")
    assert raised.value.code == "denied"
    assert raised.value.message == "anonymous may not call mail"
    assert "polydomo roles check" in raised.value.advice


@patient
@pytest.mark.parametrize("dialect", ["mdp", "dcp", "nfp"])
async def test_a_client_that_does_not_wait_hears_it_too(server: BrokerServer, dialect: str) -> None:
    async with Client(url(server, dialect)) as client:
        with pytest.raises(UnknownService):
            await client.call("resize", "a", wait=False)
        with pytest.raises(Denied) as raised:
            await client.call("mail", "a", wait=False)
        assert raised.value.message == "anonymous may not call mail"
        with pytest.raises(Denied):
            await client.offered("mail")


@patient
async def test_a_foreign_client_hears_of_no_service_that_it_may_not_call(server: BrokerServer) -> None:
    """RFC 8 §mmi.service has no other answer."""
    async with zmq_socket(zmq.DEALER) as peer, worker_of(server, "mdp", "resize"):
        peer.connect(server.zmq.bound[0])
        for service, answer in [(b"resize", b"200"), (b"mail", b"404"), (b"nobody", b"404")]:
            await peer.send_multipart([b"MDPC02", b"\1", b"mmi.service", service])
            assert await peer.recv_multipart() == [b"MDPC02", b"\3", b"mmi.service", answer]


@patient
async def test_a_service_that_may_be_called_at_some_workers_is_offered(server: BrokerServer) -> None:
    roles = {"lab": RoleSection(call=["mail@host-*"], serve=["mail"])}
    server.authorization.configure(Settings(roles=roles, principals={ANONYMOUS: ["lab"]}))
    async with Client(url(server, "nfp")) as client:
        for name, offered_here in [("laptop", False), ("host-1", True)]:
            worker = Worker(url(server, "nfp"), name=name)
            worker.add("mail", lambda text: text.upper())
            async with worker:
                if offered_here:
                    assert await client.offered("mail")
                    assert await client.call("mail", "a", target="host-1", wait=False) == "A"
                else:
                    with pytest.raises(Denied):
                        await client.offered("mail")


@patient
@pytest.mark.parametrize("dialect", ["mdp", "dcp", "nfp", "wmp"])
async def test_a_worker_ends_if_it_may_not_serve(server: BrokerServer, dialect: str) -> None:
    async with refused(server) as reasons:
        with pytest.raises(Denied) as raised:
            await worker_of(server, dialect, "secret").run()
    assert raised.value.message == "anonymous may not serve secret"
    assert [reason for reason in reasons if "for b'secret', denied: anonymous may not serve" in reason]
    assert offered(server) == set()


@patient
@pytest.mark.parametrize("dialect", ["mdp", "dcp", "nfp", "wmp"])
async def test_a_worker_must_be_allowed_all_that_it_offers(server: BrokerServer, dialect: str) -> None:
    with pytest.raises(Denied):
        await worker_of(server, dialect, "resize", "secret").run()


@patient
@pytest.mark.parametrize("dialect", ["nfp", "wmp"])
async def test_a_service_may_be_granted_to_some_names_only(server: BrokerServer, dialect: str) -> None:
    worker = Worker(url(server, dialect), name="laptop")
    worker.add("mail", print)
    with pytest.raises(Denied):
        await worker.run()
    worker = Worker(url(server, dialect), name="host-1")
    worker.add("mail", print)
    async with worker:
        assert offered(server) == {b"mail"}


@patient
async def test_a_worker_of_memodb_stays_unregistered_and_the_operator_reads_why(server: BrokerServer) -> None:
    """memo01 has no message for it."""
    async with refused(server) as reasons, worker_of(server, "memo", "secret"):
        while not reasons:
            await asyncio.sleep(0.005)
    assert "denied: anonymous may not serve secret" in reasons[0]


@patient
@pytest.mark.parametrize("before", [[], [b""]])
async def test_a_foreign_worker_gets_a_disconnect_without_a_reason(
    server: BrokerServer, before: list[bytes]
) -> None:
    async with zmq_socket(zmq.DEALER) as peer:
        peer.connect(server.zmq.bound[0])
        await peer.send_multipart([*before, WORKER_02, b"\1", b"secret"])
        assert await peer.recv_multipart() == [*before, WORKER_02, b"\6"]


@patient
async def test_a_foreign_nfp_worker_gets_a_disconnect_with_the_reason(server: BrokerServer) -> None:
    async with zmq_socket(zmq.DEALER) as peer:
        peer.connect(server.zmq.bound[0])
        await peer.send_multipart([b"", b"NFPW01", b"\1", b"secret"])
        *head, reason = await peer.recv_multipart()
    assert head == [b"", b"NFPB01", b"\3", b"secret"]
    assert b"denied: anonymous may not serve secret" in reason


@patient
@pytest.mark.parametrize(
    "registration",
    [[b"", b"DGBX\x01", b"\1", b"secret"], wmp(READY, {"roles": ["secret"]})],
    ids=["dcp", "wmp"],
)
async def test_foreign_workers_of_dcp_and_wmp_are_sent_nothing(
    server: BrokerServer, registration: list[bytes]
) -> None:
    async with zmq_socket(zmq.DEALER) as peer, refused(server) as reasons:
        peer.connect(server.zmq.bound[0])
        await peer.send_multipart(registration)
        await peer.send_multipart([b"MDPC02", b"\1", b"mmi.service", b"resize"])
        assert (await peer.recv_multipart())[:2] == [b"MDPC02", b"\3"]  # the first message that comes
    assert "denied: anonymous may not serve secret" in reasons[0]


@patient
@pytest.mark.parametrize("dialect", ["mdp", "dcp", "nfp", "wmp"])
async def test_a_worker_that_lost_its_role_returns_when_it_has_it_again(
    server: BrokerServer, dialect: str
) -> None:
    granted = server.settings
    without = copy.copy(granted)
    without.principals = {ANONYMOUS: ["client"]}
    async with (
        worker_of(server, dialect, "resize"),
        Client(url(server, "mdp")) as client,
        refused(server) as reasons,
    ):
        server.authorization.configure(without)
        assert offered(server) == set()
        while not reasons:  # it has tried again
            await asyncio.sleep(0.005)
        server.authorization.configure(granted)
        assert await client.call("resize", "a") == "A"
