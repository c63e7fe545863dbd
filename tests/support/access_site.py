"""A server in this process for tests of who may do what: things that belong to somebody, and clients of every dialect
that ask for them on behalf of any principal.

Tasks and routes that change something, or show the broker as a whole, are replaced by probes after their door: the
tests ask whether they are reached. Lists are real.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send

from polydomo import web
from polydomo.core.model import ClientPort, Job, WorkerPort
from polydomo.core.policy import Heartbeat
from polydomo.core.principals import ANONYMOUS
from polydomo.core.tracked_job import Options
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, FilesSection, ServiceSection, Settings
from polydomo.services.access import NOT_ASKED, ROWS
from polydomo.services.builtin import Tasks
from polydomo.store.records import DEAD, JobRecord
from polydomo.web.access import GuardedRoute
from polydomo.wire.frames import frame
from polydomo.wire.zmtp.connection import ConnectionLimits
from tests.support import memo
from tests.support.access import Grants
from tests.support.dialects import Desk, Seat

PATIENCE = 10.0

# Header by which the tests say on whose behalf a request is made.
CALLER = "x-caller"

# Names of things that the grants are about begin with this.
SERVICE, IDLE, MEMO, WORKER, CLIENT, WAITING, BURIED = (
    "hidden",
    "hidden-idle",
    "hidden-memo",
    "hidden-worker",
    "hidden-client",
    "hidden-waiting",
    "hidden-buried",
)
OWNER, WORKER_OWNER = "owner", "worker-owner"

_numbers = itertools.count(1)

REACHED = "reached"
PROBED = 299


class CallerHeader:
    """Authentication that believes a header."""

    def principal_of(self, scope: Scope) -> str:
        headers = dict(scope["headers"])
        return headers.get(CALLER.encode(), ANONYMOUS.encode()).decode()


class Silent(WorkerPort):
    """A worker that never answers."""

    def dispatch(self, job: Job) -> None:
        pass


class Site:
    """The server. `begin` must be called on its loop."""

    def __init__(self, folder: Path, authority: Grants) -> None:
        (folder / "files").mkdir()
        (folder / "files" / "x").write_text("x")
        self.settings = Settings(
            broker=BrokerSection(zmq=[], http=["127.0.0.1:0"], data=""),
            files=FilesSection(folder=str(folder / "files")),
            services={MEMO: ServiceSection(memo=True), SERVICE: ServiceSection(durable=True)},
        )
        self.settings.store.url = "memory:"
        self.settings.http.patience = 0.2
        self.authority = authority
        self.server: BrokerServer
        self.desk: Desk
        self.memo: memo.Desk

    async def __aenter__(self) -> Site:
        self.server = server = BrokerServer(self.settings, (web.join,))
        await server.start()
        self.desk = ServerDesk(server)
        self.memo = ServerMemoDesk(server)
        (extension,) = server.extensions
        self.app: Any = extension._app  # type: ignore[attr-defined]
        self.app.authentication = CallerHeader()
        self._own_things()
        await self._bury()
        server.broker.principals.use(self.authority)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.server.broker.principals.use(None)
        self.server.stop(drain=False)
        await self.server.wait()

    def _own_things(self) -> None:
        broker = self.server.broker
        self.server.advance()
        client = broker.join_client(CLIENT.encode(), "fake", FakePort(), OWNER)
        body = frame(b"hidden-request")
        broker.submit(client, SERVICE.encode(), body, b"", Options(uid=WAITING, durable=True))
        worker = broker.make_worker(WORKER.encode(), "fake", Silent(), Heartbeat(1000.0, 3), WORKER_OWNER)
        assert broker.register(worker, IDLE.encode())

    async def _bury(self) -> None:
        store = self.server.store
        assert store is not None
        record = JobRecord(id=BURIED, service=SERVICE.encode(), client=CLIENT.encode(), principal=OWNER)
        record.body = frame(b"hidden-request")
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        store.add(record)
        store.finish(BURIED, 0, DEAD, None, 1, done.set_result)
        assert await done is None
        while await store.get(WAITING) is None:
            await asyncio.sleep(0.001)

    # Probes

    def probe_tasks(self) -> None:
        """Let every task that is no list answer `REACHED`."""
        builtin = self.server.builtin_services
        for tasks in (self.server.management.tasks, builtin.sid.tasks, builtin.fss.tasks):
            _probe(tasks)
        assert builtin.sharing is not None
        _probe(builtin.sharing.tasks)
        sharing = builtin.sharing
        sharing._fetch = lambda job, _: sharing.broker.final(  # type: ignore[method-assign]
            sharing.worker, job.token, frame(json.dumps(REACHED).encode())
        )

    def probe_routes(self) -> None:
        """Let every route whose door decides answer with the status `PROBED`."""
        for route in self.app.router.routes:
            assert isinstance(route.app, GuardedRoute)
            rules = route.app._rules.values()
            if all(rule.about not in NOT_ASKED for rule in rules):
                route.app._app = _reached

    # Clients

    async def http(
        self, caller: str, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, bytes]:
        """Return the status and the beginning of the body of a response."""
        host, _, port = self.server.extensions[0].bound[0].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
            lines += [f"{CALLER}: {caller}", "connection: close"]
            lines += [f"{name}: {text}" for name, text in headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                streamed = b"text/event-stream" in head
                return int(head.split()[1]), b"" if streamed else await reader.read()
        finally:
            writer.close()

    async def attempt(self) -> str:
        """Return the path of an attempt that a polling worker of `WORKER_OWNER` holds."""
        self.authority.grants[WORKER_OWNER] = {"serve": ["polled"]}
        self.authority.grants["helper"] = {"call": ["polled"]}
        await self.http("helper", "POST", "/v1/services/polled/jobs", b"x")
        poll = b'{"services":["polled"],"worker":"polling","wait":5}'
        host, _, port = self.server.extensions[0].bound[0].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/workers/poll HTTP/1.1\r\nhost: 127.0.0.1\r\n{CALLER}: {WORKER_OWNER}\r\n"
        writer.write(f"{head}content-length: {len(poll)}\r\n\r\n".encode() + poll)
        async with asyncio.timeout(PATIENCE):
            answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert b" 200 " in answer.splitlines()[0], answer
        (location,) = [line for line in answer.splitlines() if line.lower().startswith(b"location: ")]
        return location.partition(b" ")[2].decode()

    async def record_call(self) -> None:
        """Store a result of a call of `SERVICE`, so that it is among MemoDB's functions."""
        self.authority.grants["recorder"] = {"serve": [SERVICE]}
        path = f"/memodb/v1/call/{SERVICE}/uAXEAAQI"
        body = b'{"cid":"uAXEAAQQ"}'
        headers = {"content-type": "application/json"}
        status, answer = await self.http("recorder", "PUT", path, body, **headers)
        assert status == 201, answer

    def client(self, form: str, caller: str) -> Conversation:
        """Return a client of this form that acts for a principal."""
        return FORMS[form](self, caller)


class FakePort(ClientPort):
    """A client that hears nothing."""

    def final(self, job: Job, body: bytes) -> None:
        pass

    failed = final  # type: ignore[assignment]


class ServerDesk(Desk):
    """In-memory connections to a running server."""

    def __init__(self, server: BrokerServer) -> None:
        self.broker = server.broker
        self.limits = ConnectionLimits()
        self.context = server.context
        self.management = server.management
        self.seats = []
        self.parked = {}
        self._anonymous = 0


class ServerMemoDesk(memo.Desk):
    """The same for MemoDB's protocol."""

    def __init__(self, server: BrokerServer) -> None:
        own = memo.Desk()
        self.__dict__.update(own.__dict__)
        self.broker = server.broker
        self.memo = server.nng.memo
        self.outbox = server.nng.memo.outbox


class Conversation:
    """A client of one dialect on a connection in memory."""

    def __init__(self, site: Site, caller: str) -> None:
        self.site = site
        self.seat: Any = self.connect(site, caller)

    def connect(self, site: Site, caller: str) -> Any:
        seat: Seat = site.desk.seat()
        seat.link.principal = caller
        return seat

    def request(self, service: str, body: bytes) -> None:
        raise NotImplementedError

    def received(self) -> bytes:
        """Return all that was received since the last call."""
        return b" ".join(part for message in self.seat.take() for part in message)

    def is_final(self, data: bytes) -> bool:
        """Return whether the answer is complete."""
        return bool(data)

    async def call(self, service: str, body: bytes) -> bytes:
        """Return what the client receives in answer to a request."""
        self.site.server.advance()
        self.received()
        totals = self.site.server.broker.accounting.totals
        refused = totals.refused
        self.request(service, body)
        told = self.received()
        if totals.refused > refused and not told:
            return b"may not (the dialect has no word for it)"
        return told or await self.answer()

    async def answer(self) -> bytes:
        """Return what the client receives until its answer is complete."""
        data = self.received()
        async with asyncio.timeout(PATIENCE):
            while not self.is_final(data):
                await asyncio.sleep(0.001)
                self.site.desk.settle()
                self.site.memo.settle()
                data += self.received()
        return data

    def close(self) -> None:
        self.site.server.advance()
        self.seat.drop()


class Mdp02(Conversation):
    def request(self, service: str, body: bytes) -> None:
        self.seat.send(b"MDPC02", b"\x01", service.encode(), body)


class Mdp01(Conversation):
    def request(self, service: str, body: bytes) -> None:
        self.seat.send(b"", b"MDPC01", service.encode(), body)


class Native(Mdp02):
    def connect(self, site: Site, caller: str) -> Any:
        seat = site.desk.seat(native=True)
        seat.link.principal = caller
        return seat


class Dcp(Conversation):
    width = 1

    def request(self, service: str, body: bytes) -> None:
        kind = (4).to_bytes(self.width, "little")
        self.seat.send(b"", b"DGBX\x01", kind, service.encode(), b"", b"", body)


class Dcp4(Dcp):
    width = 4


class Nfp(Conversation):
    POST = b"\x04"

    def request(self, service: str, body: bytes) -> None:
        self.command(self.POST, service, f"u-{next(_numbers)}", body)

    def command(self, word: bytes, service: str, uuid: str, body: bytes = b"{}") -> None:
        self.seat.send(b"", b"NFPC01", word, service.encode(), b"any", uuid.encode(), body)


class NfpPush(Nfp):
    def connect(self, site: Site, caller: str) -> Any:
        seat = super().connect(site, caller)
        seat.call(b"", b"NFPC01", b"\0", b'{"push":true}')
        return seat


class Norfab(Nfp):
    POST = b"0x04"


class Memo(Conversation):
    def connect(self, site: Site, caller: str) -> Any:
        seat = site.memo.seat()
        seat.session.connection.principal = caller
        return seat

    def request(self, service: str, body: bytes) -> None:
        self.seat.send(memo.job(service, body))

    def received(self) -> bytes:
        return b" ".join(b"%r" % (said,) if False else repr(said).encode() for _, said in self.seat.take())


FORMS: dict[str, Callable[[Site, str], Conversation]] = {
    "mdp/0.2": Mdp02,
    "mdp/0.1": Mdp01,
    "mdp native": Native,
    "dcp/1": Dcp,
    "dcp/4": Dcp4,
    "nfp": Nfp,
    "nfp push": NfpPush,
    "nfp/norfab": Norfab,
    "memo01": Memo,
}


def _probe(tasks: Tasks) -> None:
    for name, task in list(tasks._tasks.items()):
        if tasks.rules[name].about != ROWS:
            tasks.add({name: _reaching(task)})


def _reaching(task: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(task)
    def probe(*_: object, **__: object) -> str:
        return REACHED

    return probe


async def _reached(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": PROBED, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
