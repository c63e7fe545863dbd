"""Loading and running the worker that `MODULE:OBJECT` names."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog
from rich.text import Text

from polydomo.cli import common
from polydomo.errors import ConfigError
from polydomo.sdk import SyncWorker, Worker
from polydomo.sdk.background_loop import new_loop
from polydomo.server import log
from polydomo.server.settings import LogSection

logger = structlog.get_logger("polydomo")


def run(
    target: str,
    url: str | None,
    service: str | None,
    codec: str | None,
    attributes: Mapping[str, Any],
) -> None:
    """Run the worker until SIGTERM or Ctrl-C. Options of the command line override the worker's own `attributes`."""
    log.setup(LogSection())
    if url:
        os.environ["POLYDOMO_URL"] = url  # for Workers made without a URL
    worker = as_worker(load(target), target, service, codec)
    if url:
        worker.use(url)
    for name, value in attributes.items():
        setattr(worker, name, value)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(worker))
    logger.info("stopped")


async def serve(worker: Worker) -> None:
    """Run a worker until SIGTERM or SIGINT; the second signal does not wait for running jobs."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    brokers = [str(place) for place in worker.url.addresses]
    logger.info("looking for a broker", brokers=brokers, dialect=worker.url.dialect)

    def log_offering(at: str) -> None:
        logger.info("offering", services=worker.services, concurrency=worker.concurrency, broker=at)

    worker.on_offering = worker.on_offering or log_offering
    await worker.run()


def load(target: str) -> object:
    """Return the object that `module:object` names, or the module."""
    name, _, path = target.partition(":")
    found: object = _import(name)
    for attribute in path.split(".") if path else []:
        try:
            found = getattr(found, attribute)
        except AttributeError:
            public = (
                [word for word in vars(found) if not word.startswith("_")]
                if isinstance(found, ModuleType)
                else []
            )
            hint = f"it has {', '.join(public[:15])}" if public else ""
            raise ConfigError(f"{name} has no {attribute!r}", hint=hint) from None
    return found


def as_worker(found: object, target: str, service: str | None = None, codec: str | None = None) -> Worker:
    """Return a Worker, or make one for a function or a dict of functions."""
    if isinstance(found, ModuleType):
        found = _only_worker(found)
    if isinstance(found, SyncWorker):
        return found.worker
    if isinstance(found, Worker):
        return found
    made = Worker()
    functions: dict[str, Callable[..., Any]]
    if isinstance(found, Mapping):
        functions = dict(found)
    elif callable(found):
        functions = {service or str(getattr(found, "__name__", target)): found}
    else:
        raise ConfigError(
            f"{target} is a {type(found).__name__}",
            hint="name a Worker, a function, or a dict of names and functions",
        )
    for name, function in functions.items():
        if not isinstance(name, str) or not callable(function):
            raise ConfigError(
                f"{target}: {name!r} is not the name of a function", hint="write {'name': function, …}"
            )
        made.add(name, function, codec=codec)
    return made


def _import(name: str) -> ModuleType:
    if name.endswith(".py"):
        module = ".".join(Path(name).with_suffix("").parts)
        raise ConfigError(f"{name} is a file, and a module is needed", hint=f"write {module}, without .py")
    if not all(word.isidentifier() for word in name.split(".")):
        raise ConfigError(f"{name!r} is not a module's name", hint="write package.module:worker")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {error.name!r}", hint=f"looked in {here} and Python's path"
            ) from None
        _print_traceback(error)
        raise ConfigError(f"{name} cannot be imported: {error}", hint="") from None
    except Exception as error:
        _print_traceback(error)
        raise ConfigError(f"{name} cannot be imported: {type(error).__name__}: {error}", hint="") from None


def _print_traceback(error: Exception) -> None:
    """Print the traceback of an error in the user's module, without the frames of this file and importlib."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    common.err.print(Text("".join(lines).rstrip(), "dim"), soft_wrap=True)


def _only_worker(module: ModuleType) -> Worker | SyncWorker:
    workers = {name: value for name, value in vars(module).items() if isinstance(value, Worker | SyncWorker)}
    if len(workers) != 1:
        names = ", ".join(f"{module.__name__}:{name}" for name in workers)
        raise ConfigError(
            f"{module.__name__} has {len(workers) or 'no'} Workers",
            hint=f"name one of {names}" if names else "",
        )
    return next(iter(workers.values()))
