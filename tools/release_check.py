"""Check that what would be released can be installed and works.

Builds the source distribution and the wheel, installs each into an empty virtual environment with its dependencies
from the package index, and there starts a broker and a worker and makes a call, with the installed command. Writes the
SBOM of each installation next to the distribution. Takes a few minutes and needs the network.

The dependencies are the newest that the index has, which is what users get, not those of requirements.lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import sbom
from build_wheel import ROOT, build, build_sdist, compiler
from clean_env import install, version_of
from wheel_env import kind

DEADLINE = 30.0
REQUIRED = ("polydomo/py.typed", "polydomo/__init__.py", "LICENSE")
WORKER = """\
from polydomo import Worker

worker = Worker()


@worker.service
def greet(name):
    return f"hello {name}"
"""


def main() -> int:
    """Build and check both distributions."""
    out = ROOT / "dist"
    for package, form in ((build_sdist(out), "plain"), (build(out), "compiled" if compiler() else "plain")):
        print(f"checking {package.name}", flush=True)
        check_contents(package)
        with tempfile.TemporaryDirectory(prefix="polydomo-release-") as folder:
            programs = install(package, Path(folder, "env"))
            found = kind(programs / "python")
            if found != form:
                sys.exit(f"{package.name} is {found}, expected {form}")
            smoke_test(programs, Path(folder), version_of(package))
            bill = sbom.write(programs / "python", package)
        print(f"{package.name} works ({form}); its parts are in {bill.name}", flush=True)
    return 0


def check_contents(package: Path) -> None:
    """Fail if a required file is missing, or a test or a cache was packed."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(package) as archive:
            names = archive.getnames()
    missing = [name for name in REQUIRED if not any(packed.endswith(name) for packed in names)]
    surplus = [name for name in names if "__pycache__" in name or "/tests/" in f"/{name}"]
    if missing or surplus:
        sys.exit(f"{package.name}: missing {missing}, not expected {surplus}")


def smoke_test(programs: Path, folder: Path, version: str) -> None:
    """Start a broker and a worker with the installed command, call the worker, and stop both."""
    polydomo = str(programs / "polydomo")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("POLYDOMO_", "PYTHON"))
    }
    environment["XDG_STATE_HOME"] = str(folder)

    def run(*words: str) -> str:
        command = [polydomo, *words]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=2 * DEADLINE
        )
        if done.returncode:
            sys.exit(f"polydomo {' '.join(words)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    @contextlib.contextmanager
    def running(*words: str) -> Iterator[None]:
        log = folder / f"{words[0]}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [polydomo, *words], cwd=folder, env=environment, stdout=stream, stderr=stream
            )
        try:
            yield
            process.send_signal(signal.SIGTERM)
            code = process.wait(DEADLINE)
        except BaseException:
            process.kill()
            process.wait()
            print(log.read_text(errors="replace"), file=sys.stderr)
            raise
        if code:
            sys.exit(f"polydomo {words[0]} ended with {code}:\n{log.read_text(errors='replace')}")

    expect("--version", run("--version"), f"polydomo {version}")
    (folder / "greeter.py").write_text(WORKER)
    with running("broker", "--zmq", "tcp://127.0.0.1:*", "--data", "data"):
        place = wait_for_endpoint(folder / "data" / "broker.json").removeprefix("tcp://")
        with running("worker", "greeter", "--url", f"mdp://{place}"):
            expect("call", run("call", "greet", "Ada", "--wait", "--url", f"mdp://{place}"), "hello Ada")


def wait_for_endpoint(announcement: Path) -> str:
    """Return the address that the broker wrote down once it listens."""
    deadline = time.monotonic() + DEADLINE
    while not announcement.exists():
        if time.monotonic() > deadline:
            sys.exit(f"the broker did not listen within {DEADLINE:.0f} s")
        time.sleep(0.05)
    endpoint: str = json.loads(announcement.read_text())["zmq"][0]
    return endpoint


def expect(what: str, found: str, expected: str) -> None:
    """Exit with both texts if they differ."""
    if found != expected:
        sys.exit(f"polydomo {what}: {found!r}, expected {expected!r}")


if __name__ == "__main__":
    sys.exit(main())
