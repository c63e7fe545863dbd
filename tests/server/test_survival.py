"""Durable jobs through kill -9, and restarts of the database's server: NFP in the specification's form, on bare pyzmq.

No acknowledged job is lost, none is recorded twice, none is stuck. `make survival` kills the broker a hundred times.
"""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tests.store.server import NoServer, PostgresServer
from tests.support.broker import BrokerProcess
from tests.support.survivors import Client, Sockets, Worker, run, until

TOML = """
[heartbeat]
interval = 0.5
[limits]
client_jobs = 100000
[services.safe]
grace = 2
retries = 20
"""
WINDOW = 1000  # jobs under way
ENDS = "SELECT jobs.id, jobs.state, results.body FROM jobs LEFT JOIN results ON results.seq = jobs.seq"


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except NoServer as error:
        pytest.skip(f"NO POSTGRESQL, its restart is not survived: {error}")
    yield server
    server.close()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    found: int = request.config.getoption("--survival-rounds")
    return found


def crowd(sockets: Sockets, endpoint: str) -> list[Worker]:
    """Half of them know after a restart of the broker what they did before, the others say that they do not."""
    return [Worker(sockets, endpoint, b"w%d" % number, remembers=number % 2 == 0) for number in range(4)]


Ends = dict[bytes, tuple[str, bytes]]


def ends_in_file(broker: BrokerProcess) -> Ends:
    """How the jobs ended, read from the store itself."""
    with closing(sqlite3.connect(broker.data / "jobs.db")) as database:
        return _ends(database.execute(ENDS).fetchall())


def ends_on_server(url: str) -> Ends:
    with psycopg.connect(url) as database:
        return _ends(database.execute(ENDS).fetchall())


def _ends(rows: list[tuple[str, str, bytes | None]]) -> Ends:
    # A stored body is framed: one flags byte and one of size before these short ones.
    return {name.encode(): (state, b"" if body is None else bytes(body)[2:]) for name, state, body in rows}


def stuck(client: Client, broker: BrokerProcess) -> str:
    """Return a description of unfinished jobs."""
    query = "SELECT id, state, attempt, worker, token, queued, not_before, dispatched, finished FROM jobs WHERE id = ?"
    with closing(sqlite3.connect(broker.data / "jobs.db")) as database:
        rows = [database.execute(query, (name.decode(),)).fetchone() for name in list(client.accepted)[:5]]
    counts = f"{len(client.posted)} not acknowledged, {len(client.accepted)} without a result"
    return f"{counts}\n{rows}\n{broker.log()[-3000:]}"


def check(client: Client, ends: Ends) -> None:
    """Compare the client's answers with the store."""
    assert client.acknowledged - ends.keys() == set(), "acknowledged jobs were lost"
    assert {name: end for name, end in ends.items() if end[0] != "done"} == {}, "jobs did not end"
    assert client.changed == [], "a job had two results"
    assert client.refused == {}
    told = {
        name: body
        for name, body in client.results.items()
        if client.target(name) in (b"any", b"w0")
        and ends[name][1] != body  # gathered ones are kept in another form
    }
    assert told == {}, "the store has other results than were told"


def stumble(broker: BrokerProcess, seconds: float) -> None:
    """Start the broker and kill it again, perhaps during recovery."""
    with subprocess.Popen(broker.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(seconds)
        process.kill()


def test_kill_9_of_the_broker_with_a_thousand_jobs_in_flight(sockets: Sockets, rounds: int) -> None:
    dice = random.Random(20)
    with BrokerProcess(toml=TOML) as broker:
        workers = crowd(sockets, broker.endpoint)
        client = Client(sockets, broker.endpoint, b"client", WINDOW)
        for number in range(1, rounds + 1):
            moment = dice.uniform(0.0, 0.7)
            run(workers, [client], moment)
            client.turn(more=True)
            assert client.under_way >= WINDOW
            broker.kill()
            if number % 5 == 2:
                stumble(broker, dice.uniform(0.0, 1.0))
            broker.start_again()
            if rounds > 5:
                print(
                    f"round {number}/{rounds}: killed after {moment:.3f} s, {len(client.acknowledged):,} acknowledged, "
                    f"{len(client.results):,} done",
                    flush=True,
                )
        assert until(workers, [client], lambda: not client.under_way, 60), stuck(client, broker)
        check(client, ends_in_file(broker))
        assert len(client.acknowledged) > WINDOW
        # Without a kill each would have run once: at least once is what is promised.
        assert sum(sum(worker.ran.values()) for worker in workers) >= len(client.results)


def test_graceful_restarts_with_a_thousand_jobs_in_flight(sockets: Sockets) -> None:
    """SIGTERM, as systemd does it. What is refused because the broker stops is submitted again, and taken."""
    with BrokerProcess("--drain", "0.2", toml=TOML) as broker:
        workers = crowd(sockets, broker.endpoint)
        client = Client(sockets, broker.endpoint, b"client", WINDOW)
        for _ in range(3):
            run(workers, [client], 0.4)
            broker.process.terminate()
            assert until(workers, [client], lambda: broker.process.poll() is not None, 20, more=True)
            assert broker.stop() == 0
            broker.start_again()
        assert until(workers, [client], lambda: not client.under_way, 60), (client.posted, client.accepted)
        assert all(b"draining" in told for told in client.refused.values()), client.refused
        client.refused.clear()
        check(client, ends_in_file(broker))


def test_kill_9_of_the_broker_with_jobs_for_one_for_some_and_for_all_workers(sockets: Sockets) -> None:
    """Answers of several workers are gathered: a worker that answered before the kill is not asked again."""
    dice = random.Random(21)
    targets = (b"any", b"w0", b"w1,w2", b"all")
    with BrokerProcess(toml=TOML) as broker:
        workers = crowd(sockets, broker.endpoint)
        client = Client(sockets, broker.endpoint, b"client", 200, targets)
        assert until(workers, [client], lambda: len(client.results) > 100, 20, more=True)
        for _ in range(4):
            run(workers, [client], dice.uniform(0.0, 0.7))
            broker.kill()
            broker.start_again()
        assert until(workers, [client], lambda: not client.under_way, 60), stuck(client, broker)
        check(client, ends_in_file(broker))
        named = [json.loads(body) for name, body in client.results.items() if client.target(name) == b"w1,w2"]
        assert named
        assert all(set(pieces) == {"w1", "w2"} for pieces in named)


def test_restarts_of_the_database_server_with_a_thousand_jobs_in_flight(
    sockets: Sockets, server: PostgresServer
) -> None:
    """In order and as in a crash; at last the broker is killed as well."""
    url = server.space("survival")
    with BrokerProcess("--set", f"store.url={url}", toml=TOML) as broker:
        workers = crowd(sockets, broker.endpoint)
        client = Client(sockets, broker.endpoint, b"client", WINDOW)
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGINT):
            assert until(workers, [client], lambda: len(client.results) > 100, 20, more=True)
            run(workers, [client], 0.3)
            server.stop(how)
            run(workers, [client], 0.3)
            assert client.under_way == WINDOW
            server.start()
            before = len(client.results)
            assert until(workers, [client], lambda before=before: len(client.results) > before, 20, more=True)
        broker.kill()
        broker.start_again()
        assert until(workers, [client], lambda: not client.under_way, 60), (client.posted, client.accepted)
        check(client, ends_on_server(url))
