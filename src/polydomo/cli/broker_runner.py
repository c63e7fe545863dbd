"""The run of a broker in this process: settings, log, start and reload."""

from __future__ import annotations

import os

import structlog

from polydomo import __version__, web
from polydomo.cli import install_info
from polydomo.cli.config import load
from polydomo.federation import broker as joined
from polydomo.redaction import redact
from polydomo.server import config, log, serve
from polydomo.server.config import Flag
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings

logger = structlog.get_logger("polydomo")

JOINERS = (web.join, joined.join)


def run(flags: list[Flag], file: str | None) -> None:
    """Run a broker until it is stopped or restarted."""
    settings = prepare(flags, file)
    reread = ConfigReloader(settings, flags, file)
    if serve.run(
        serve.serve(settings, started=announce, reread=reread, own_process=True, extensions=JOINERS)
    ):
        serve.restart_process()


def prepare(flags: list[Flag], file: str | None) -> Settings:
    """Return the settings and set up the log; if there are mistakes, print them and exit."""
    settings = load(file, flags).settings
    log.setup(settings.log)
    return settings


def announce(server: BrokerServer) -> None:
    """Log the version, the store, the ledger and all endpoints."""
    logger.info(
        f"polydomo {__version__}",
        name=server.settings.broker.name,
        loop=install_info.loop_name(),
        build="compiled" if install_info.compiled() else "plain",
        pid=os.getpid(),
    )
    if server.store is not None:
        logger.info("keeping durable jobs", store=redact(server.settings.store_url()))
    elif server.settings.nfp.durable:
        logger.info("keeping jobs in memory only", hint="set --data to keep NFP jobs and durable services")
    if server.audit.on:
        logger.info(
            "recording acts and denials",
            audit=server.settings.audit_folder(),
            latest=server.audit.latest_at_start,
        )
    if server.ledger.on:
        logger.info("writing the ledger", folder=server.settings.ledger_folder())
    log_endpoints(server)
    for url in server.settings.join.up:
        logger.info("joining", broker=redact(url))


def log_endpoints(server: BrokerServer) -> None:
    """Log all bound endpoints, by kind."""
    for kind, endpoints in server.endpoints().items():
        for endpoint in endpoints:
            logger.info("publishing" if kind == "events" else "listening", **{kind: endpoint})


class ConfigReloader:
    """Reads the configuration again with the same flags. With mistakes, the old settings stay."""

    def __init__(self, settings: Settings, flags: list[Flag], file: str | None) -> None:
        self.settings = settings
        self.flags = flags
        self.file = file

    def __call__(self) -> Settings | None:
        found = config.gather(self.file, self.flags)
        if found.problems:
            for problem in found.problems:
                logger.error("mistake in the configuration", problem=str(problem))
            logger.error("not reloaded: the old settings stay", mistakes=len(found.problems))
            return None
        live, restart = config.changes(self.settings, found.settings)
        if restart:
            logger.warning("these change only with a restart", keys=restart)
        log.setup(found.settings.log)
        logger.info("configuration read again", changed=live)
        self.settings = found.settings
        return found.settings
