"""A WMP manager in your own process, for those who want no broker at all.

    async with Manager("tcp://127.0.0.1:5600") as manager:      # workers: Worker("wmp://127.0.0.1:5600")
        print(await manager.call("resize", {"path": "a.png"}))

It is a client that has its broker with it: everything a `Client` can do, over workers that connect here. Jobs are in
memory, tried again when a worker is lost, and gone when this process ends. Which workers a job wakes, and how many, is
said when it is made; a rule of your own is a class that is a `Pool` (`polydomo.dialects.wmp.selection`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from polydomo.core.policy import WakePolicy
from polydomo.dialects.wmp.selection import RULES, Pool
from polydomo.errors import ConfigError
from polydomo.sdk import inprocess
from polydomo.sdk.background_loop import portal
from polydomo.sdk.client import Client
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.codecs import Codec
from polydomo.sdk.inprocess import Listener
from polydomo.sdk.sync import SyncClient
from polydomo.server.nng_peer import NngPeer
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.server.zmq_peer import ZmqPeer

_numbers = count(1)


class _Desk(Listener):
    """Where the manager's own client comes in."""

    def __init__(self, settings: Settings, waking: WakePolicy) -> None:
        self.clock = REAL_TIME
        self.name = f"manager-{next(_numbers)}"
        self.server: BrokerServer | None = None
        self._settings = settings
        self._waking = waking

    async def open(self) -> BrokerServer:
        """Listen."""
        if self.server is None:
            server = BrokerServer(self._settings)
            for policy in (server.broker.default_policy, *server.broker.policies.values()):
                policy.waking = self._waking
            await server.start()
            self.server = server
        return self.server

    async def accept(self, sp: bool) -> tuple[asyncio.AbstractEventLoop, asyncio.Protocol]:
        server = await self.open()
        return server.loop, NngPeer(server.nng, self.name) if sp else ZmqPeer(server.zmq, self.name)


class Manager(Client):
    """See the module's text.

    - `bind`: where workers and devices connect: `tcp://HOST:PORT` (`*` for a free one), `ipc://PATH`; or several.
    - `rule`: which workers a job wakes first: "idle" (the longest idle), "least-loaded", "weighted" (by their label
      `weight`), or a class of your own.
    - `first`, `widest`, `patience`: one job wakes `first` workers, and twice as many each time that none of them has
      answered for `patience` seconds, up to `widest` at a time.
    - `labels`: only workers that have all of these are woken.
    - `timeout`, `codec`: as for a `Client`; `settings`: as in a broker's configuration file.
    """

    def __init__(
        self,
        bind: str | Sequence[str] = "tcp://127.0.0.1:5555",
        *,
        rule: str | Callable[[Callable[[], float]], Pool] = "idle",
        first: int = 1,
        widest: int = 32,
        patience: float = 0.1,
        labels: Mapping[str, object] | None = None,
        codec: str | Codec = "json",
        timeout: float | None = 30.0,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        settings.broker.zmq = [bind] if isinstance(bind, str) else list(bind)
        settings.broker.data = ""
        waking = WakePolicy(_name_of(rule), first, widest, patience, labels)
        self._desk = _Desk(settings, waking)
        inprocess.listen(self._desk.name, self._desk)
        super().__init__(f"nfp+local://{self._desk.name}", codec=codec, timeout=timeout)

    @property
    def bound(self) -> list[str]:
        """Where it listens, once it does."""
        return [] if self._desk.server is None else list(self._desk.server.zmq.bound)

    @property
    def worker_url(self) -> str:
        """For workers of this machine: `Worker(manager.worker_url)`."""
        if not self.bound:
            raise RuntimeError("the manager listens nowhere yet; use it with 'async with'")
        scheme, _, place = self.bound[0].partition("://")
        return f"wmp{'' if scheme == 'tcp' else '+' + scheme}://{place}"

    async def start(self) -> None:
        """Listen; done by itself with `async with`, or when it is first used."""
        await self._desk.open()

    async def close(self) -> None:
        """Jobs that run are given up."""
        await super().close()
        inprocess.unlisten(self._desk.name)
        server, self._desk.server = self._desk.server, None
        if server is not None:
            server.stop(drain=False)
            await server.wait()

    async def __aenter__(self) -> Manager:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class SyncManager(SyncClient):
    """`Manager`, blocking; it listens as soon as it is made."""

    def __init__(self, bind: str | Sequence[str] = "tcp://127.0.0.1:5555", **options: Any) -> None:
        """The options are `Manager`'s."""
        self._portal = portal()
        self._client = self._manager = Manager(bind, **options)
        self._portal.run(self._manager.start())

    @property
    def bound(self) -> list[str]:
        """Where it listens."""
        return self._manager.bound

    @property
    def worker_url(self) -> str:
        """For workers of this machine."""
        return self._manager.worker_url


def _name_of(rule: Any) -> str:
    """Rules are found by their names; a class of one's own gets one."""
    if isinstance(rule, str):
        if rule not in RULES:
            raise ConfigError(f"no rule {rule!r}", hint=f"there are {', '.join(RULES)}, or give a class")
        return rule
    name = f"{rule.__module__}.{rule.__qualname__}"
    RULES[name] = rule
    return name
