"""A WMP manager in the user's own process, for applications without a broker.

    async with Manager("tcp://127.0.0.1:5600") as manager:      # workers: Worker("wmp://127.0.0.1:5600")
        print(await manager.call("resize", {"path": "a.png"}))

A manager is a client with a broker of its own: it can do everything that a `Client` can, with the workers that connect
to it. Jobs are in memory, run again when a worker is lost, and lost when this process ends. The constructor's arguments
set which workers a job wakes, and how many; a custom rule is a subclass of `Pool` (`polydomo.dialects.wmp.selection`).
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
from polydomo.sdk.background_loop import shared_loop
from polydomo.sdk.client import Client
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.codecs import Codec
from polydomo.sdk.inprocess import InProcessBroker
from polydomo.sdk.sync import SyncClient
from polydomo.sdk.twin import SyncTwin
from polydomo.server.nng_peer import NngPeer
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.server.zmq_peer import ZmqPeer

_numbers = count(1)


class _ManagerBroker(InProcessBroker):
    """The manager's broker, to which its client connects in-process."""

    def __init__(self, settings: Settings, waking: WakePolicy) -> None:
        self.clock = REAL_TIME
        self.name = f"manager-{next(_numbers)}"
        self.server: BrokerServer | None = None
        self._settings = settings
        self._waking = waking

    async def open(self) -> BrokerServer:
        """Start listening, if not done yet."""
        if self.server is None:
            server = BrokerServer(self._settings)
            for policy in (server.broker.services.default_policy, *server.broker.services.policies.values()):
                policy.waking = self._waking
            await server.start()
            self.server = server
        return self.server

    async def accept(self, sp: bool) -> tuple[asyncio.AbstractEventLoop, asyncio.Protocol]:
        server = await self.open()
        return server.loop, NngPeer(server.nng, self.name) if sp else ZmqPeer(server.zmq, self.name)


class Manager(Client):
    """A client with a broker of its own.

    - `bind`: one or several endpoints for workers and devices: `tcp://HOST:PORT` (port `*`: any free one),
      `ipc://PATH`. Where other machines can connect, `settings` must say how workers authenticate, or that they do not
      (`broker.insecure`).
    - `rule`: which workers a job wakes first: "idle" (the longest idle), "least-loaded", "weighted" (by their label
      `weight`), or a subclass of `Pool`.
    - `first`, `widest`, `patience`: a job wakes `first` workers, and twice as many each time that none of them has
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
        self._broker = _ManagerBroker(settings, waking)
        inprocess.listen(self._broker.name, self._broker)
        super().__init__(f"nfp+local://{self._broker.name}", codec=codec, timeout=timeout)

    @property
    def bound(self) -> list[str]:
        """The endpoints at which the manager listens; empty before it is started."""
        return [] if self._broker.server is None else list(self._broker.server.zmq.bound)

    @property
    def worker_url(self) -> str:
        """The URL for workers on this machine: `Worker(manager.worker_url)`."""
        if not self.bound:
            raise RuntimeError("the manager is not listening yet; use it with 'async with'")
        scheme, _, address = self.bound[0].partition("://")
        return f"wmp{'' if scheme == 'tcp' else '+' + scheme}://{address}"

    async def start(self) -> None:
        """Start listening; happens automatically with `async with`, or on first use."""
        await self._broker.open()

    async def close(self) -> None:
        """Stop listening and drop the running jobs."""
        await super().close()
        inprocess.unlisten(self._broker.name)
        server, self._broker.server = self._broker.server, None
        if server is not None:
            server.stop(drain=False)
            await server.wait()

    async def __aenter__(self) -> Manager:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class SyncManager(SyncClient):
    """`Manager`, blocking; it listens as soon as it is made. The options are `Manager`'s."""

    def __init__(self, bind: str | Sequence[str] = "tcp://127.0.0.1:5555", **options: Any) -> None:
        self._manager = Manager(bind, **options)
        SyncTwin.__init__(self, self._manager)
        shared_loop().run(self._manager.start())

    @property
    def bound(self) -> list[str]:
        """The endpoints at which the manager listens."""
        return self._manager.bound

    @property
    def worker_url(self) -> str:
        """The URL for workers on this machine."""
        return self._manager.worker_url


def _name_of(rule: Any) -> str:
    """Return a rule's name in `RULES`; register a class under its qualified name."""
    if isinstance(rule, str):
        if rule not in RULES:
            raise ConfigError(f"no rule {rule!r}", hint=f"use {', '.join(RULES)}, or a class")
        return rule
    name = f"{rule.__module__}.{rule.__qualname__}"
    RULES[name] = rule
    return name
