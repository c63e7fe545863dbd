"""Run a broker in this process until it is told to stop: event loop, signals, the process's own limits."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from polydomo.server.data_dir import DataDir, folder_for
from polydomo.server.extensions import ExtensionFactory
from polydomo.server.server import BrokerServer
from polydomo.server.settings import AUTO, Settings

# Jobs live briefly and are freed by counting references; the collector finds nothing among them, so it need
# not look after every 700 objects.
GC_THRESHOLDS = (50_000, 50, 100)


T = TypeVar("T")

# Where the process that this one was listened, for a restart on the same ports.
PORTS = "_POLYDOMO_PORTS"


def run(main: Coroutine[Any, Any, T]) -> T:
    """On uvloop where there is one, on asyncio's own loop otherwise."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


async def serve(
    settings: Settings,
    *,
    started: Callable[[BrokerServer], None] | None = None,
    reread: Callable[[], Settings | None] | None = None,
    own_process: bool = False,
    joiners: Sequence[ExtensionFactory] = (),
) -> bool:
    """A broker with these settings. SIGTERM and SIGINT drain and stop (twice: at once), SIGHUP calls
    `reread`: settings from it take effect, None keeps the old ones. `own_process`: it may be told to stop and to
    restart. True: it was told to restart, and whoever called this does that (`begin_anew`)."""
    _raise_file_limit()
    gc.set_threshold(*GC_THRESHOLDS)
    if settings.broker.data == AUTO:
        settings.broker.data = folder_for(settings.broker.zmq)
    folder = DataDir(settings.broker.data) if settings.broker.data else None
    if folder is not None:
        folder.open()
    announcing: asyncio.Task[None] | None = None
    try:
        server = BrokerServer(_on_the_same_ports(settings), joiners)
        server.hosting.own_process = own_process
        await server.start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        loop.add_signal_handler(signal.SIGHUP, _reload, server, reread)
        loop.set_exception_handler(server.descriptors.handle_exception)
        gc.freeze()
        if folder is not None:
            announcing = loop.create_task(folder.announce(server.places()))
            await asyncio.sleep(0)  # the first try, and mostly the last
        if started is not None:
            started(server)
        await server.wait()
    finally:
        if announcing is not None:
            announcing.cancel()
        if folder is not None:
            folder.close()
    if server.hosting.again:
        os.environ[PORTS] = msgspec.json.encode(server.places()).decode()
    return server.hosting.again


def begin_anew() -> NoReturn:
    """This process becomes a new one with the same command line. It keeps its number, for whoever watches it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _on_the_same_ports(settings: Settings) -> Settings:
    """After a restart: where the system chose a port, it is the same one as before."""
    before = os.environ.pop(PORTS, "")
    if not before:
        return settings
    settings = copy.deepcopy(settings)
    for name, bound in msgspec.json.decode(before).items():
        wanted = getattr(settings.broker, name)
        if len(wanted) == len(bound):
            wanted[:] = [
                old if text.endswith((":*", ":0")) else text for text, old in zip(wanted, bound, strict=True)
            ]
    return settings


def _reload(server: BrokerServer, reread: Callable[[], Settings | None] | None) -> None:
    settings = reread() if reread is not None else None
    if settings is not None:
        server.reload(settings)
    server.hosting.refresh()


def _raise_file_limit() -> None:
    """One descriptor per peer: take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
