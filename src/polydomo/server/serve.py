"""Running a broker in this process: event loop, signals and the limits of the process."""

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

from polydomo.core.principals import ADMINISTER
from polydomo.errors import ConfigError
from polydomo.server import endpoints
from polydomo.server.data_dir import DataDir, folder_for
from polydomo.server.log import Log
from polydomo.server.server import BrokerServer, ExtensionFactory
from polydomo.server.settings import AUTO, Settings

log = Log()

# Jobs are short-lived and freed by reference counting, so the garbage collector need not run after every 700 objects.
GC_THRESHOLDS = (50_000, 50, 100)

# Environment variable with the bound endpoints, for a restart on the same ports.
PORTS = "_POLYDOMO_PORTS"

log = Log()

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop if it is installed, else on asyncio's own loop."""
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
    extensions: Sequence[ExtensionFactory] = (),
) -> bool:
    """Run a broker until it is stopped, and return whether a restart was requested (`restart_process`).

    SIGTERM and SIGINT drain and stop; a second one stops at once. SIGHUP applies the settings that `reread` returns;
    None keeps the old ones. With `own_process` the tasks `shutdown` and `restart` are allowed.
    """
    _raise_file_limit()
    gc.set_threshold(*GC_THRESHOLDS)
    if settings.broker.data == AUTO:
        settings.broker.data = folder_for(settings.broker.zmq)
    folder = DataDir(settings.broker.data) if settings.broker.data else None
    if folder is not None:
        folder.open()
    announcing: asyncio.Task[None] | None = None
    try:
        server = BrokerServer(_with_former_ports(settings), extensions)
        server.builtin_services.own_process = own_process
        await server.start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        loop.add_signal_handler(signal.SIGHUP, reload, server, reread)
        loop.set_exception_handler(server.descriptors.handle_exception)
        gc.freeze()
        if folder is not None:
            announcing = loop.create_task(folder.announce(server.endpoints()))
            await asyncio.sleep(0)  # the first attempt mostly succeeds
        if started is not None:
            started(server)
        await server.wait()
    finally:
        if announcing is not None:
            announcing.cancel()
        if folder is not None:
            folder.close()
    restarting = server.builtin_services.restarting
    if restarting:
        os.environ[PORTS] = msgspec.json.encode(server.endpoints()).decode()
    return restarting


def restart_process() -> NoReturn:
    """Replace this process by a new one with the same command line and the same process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _with_former_ports(settings: Settings) -> Settings:
    """Return settings in which ports that the system chose before a restart are fixed."""
    before = os.environ.pop(PORTS, "")
    if not before:
        return settings
    settings = copy.deepcopy(settings)
    for name, bound in msgspec.json.decode(before).items():
        wanted = getattr(settings.broker, name)
        if len(wanted) == len(bound):
            wanted[:] = map(endpoints.with_port_of, wanted, bound)
    return settings


def reload(server: BrokerServer, reread: Callable[[], Settings | None] | None) -> None:
    """Apply changed settings, after that was recorded in the audit log."""

    def apply(_: None) -> None:
        settings = reread() if reread is not None else None
        if settings is not None:
            try:
                server.reload(settings)
            except ConfigError as error:
                log.error("not reloaded: the old settings stay", reason=error.message, hint=error.advice)
        server.builtin_services.sid.refresh()

    server.audit.act("signal:SIGHUP", ADMINISTER, "reload").then(
        apply, lambda error: log.error("not reloaded: the old settings stay", reason=str(error))
    )


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as the system allows: each peer takes a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
