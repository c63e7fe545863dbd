"""The plugin's fixtures, in a pytest process of their own as users run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = '''
import asyncio
import pytest
from polydomo.errors import JobFailed, WorkerError


def test_plain(polydomo_worker, polydomo_client):
    polydomo_worker.add("double", lambda x: 2 * x)
    with polydomo_worker:
        assert polydomo_client.call("double", 21) == 42


async def test_async(polydomo_worker, polydomo_client):
    polydomo_worker.add("double", lambda x: 2 * x)
    async with polydomo_worker:
        assert await polydomo_client.call("double", 21) == 42


@pytest.mark.polydomo(virtual=True, dialect="dcp")
async def test_async_with_virtual_time(polydomo_broker, polydomo_client):
    handle = polydomo_client.submit("nobody", timeout=None)
    await polydomo_broker.advance(61)
    with pytest.raises(JobFailed):
        await handle


@pytest.mark.polydomo(virtual=True)
def test_plain_with_virtual_time(polydomo_broker, polydomo_client):
    handle = polydomo_client.submit("nobody", timeout=None)
    polydomo_broker.advance(61)
    with pytest.raises(JobFailed):
        handle.result()


async def test_left_running(polydomo_worker, polydomo_client):
    """Nothing is said at the end about what a test leaves behind."""
    async def forever(body):
        await asyncio.Event().wait()

    polydomo_worker.add("forever", forever)
    task = asyncio.ensure_future(polydomo_worker.run())
    await polydomo_worker.ready()
    polydomo_client.submit("forever")
    await asyncio.sleep(0.01)


def test_join(polydomo_broker, polydomo_worker, polydomo_client):
    def divide(by):
        return 1 / by

    polydomo_worker.add("divide", divide)
    with polydomo_worker:
        polydomo_client.submit("divide", 0)
        with pytest.raises(ZeroDivisionError):
            polydomo_broker.join()
'''


ASYNCIO = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")


def run_pytest(folder: Path, *arguments: str) -> str:
    """Its output; warnings are errors there too."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *ASYNCIO, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def test_the_fixtures_in_plain_and_async_tests(tmp_path: Path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    out = run_pytest(tmp_path, "-q", "--strict-markers")
    assert "6 passed" in out, out
    assert "warning" not in out, out


def test_the_fixtures_need_no_asyncio_plugin(tmp_path: Path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    out = run_pytest(tmp_path, "-q", "-p", "no:asyncio", "-W", "ignore", "-k", "plain or join")
    assert "3 passed" in out, out


def test_looking_at_the_plugin_loads_nothing_else():
    """Every pytest of an environment with Polydomo in it loads the plugin: it must cost nothing."""
    code = (
        "import sys, pytest; before = set(sys.modules); import polydomo.sdk.pytest_plugin; "
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('polydomo')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "msgspec", "structlog", "uvloop", "cbor2", "typer"}
    assert not heavy & set(done.stdout.split())
