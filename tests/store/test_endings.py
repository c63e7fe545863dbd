"""Ends of jobs are numbered in their order: the ledger after a crash, and streams of results, go by that."""

from __future__ import annotations

from polydomo.store.database import migrate
from polydomo.store.records import CANCELLED, DEAD, DONE, FAILED, Retention
from polydomo.store.schema import MIGRATIONS
from tests.store.desk import NOW, SECOND, Desk, job, name
from tests.store.test_opening import DATABASES, FIRST_VERSION_JOB, Urls, database


def add(desk: Desk, *numbers: int) -> None:
    for number in numbers:
        assert desk.do(desk.store.add, job(number)) is None


def end(desk: Desk, number: int, state: str = DONE) -> None:
    assert desk.do(desk.store.finish, name(number), 0, state, b"result", NOW + SECOND) is None


def ended(desk: Desk, after: int = 0, limit: int = 1000) -> list[str]:
    return [record.id for record in desk.ask(desk.store.endings(after, limit))]


def test_they_come_in_the_order_in_which_the_jobs_ended(desk: Desk) -> None:
    add(desk, 1, 2, 3, 4)
    end(desk, 3)
    end(desk, 1, FAILED)
    assert desk.do(desk.store.finish, name(4), 0, CANCELLED, None, NOW) is None
    assert ended(desk) == [name(3), name(1), name(4)]
    records = desk.ask(desk.store.endings(0))
    assert [record.state for record in records] == [DONE, FAILED, CANCELLED]
    assert all(record.body == b"" for record in records)  # without what may be large
    first = records[0].ending
    assert first is not None
    assert ended(desk, first) == [name(1), name(4)]
    assert ended(desk, first, limit=1) == [name(1)]
    assert desk.store.ending >= (records[-1].ending or 0)


def test_an_end_that_was_refused_takes_no_place(desk: Desk) -> None:
    add(desk, 1)
    end(desk, 1)
    assert desk.do(desk.store.finish, name(1), 0, DONE, b"again", NOW) is not None
    assert ended(desk) == [name(1)]


def test_a_job_that_is_sent_again_ends_again_later(desk: Desk) -> None:
    add(desk, 1, 2)
    end(desk, 1, DEAD)
    end(desk, 2)
    assert desk.do(desk.store.revive, name(1), NOW) is None
    assert ended(desk) == [name(2)]
    end(desk, 1)
    assert ended(desk) == [name(2), name(1)]


def test_numbers_are_not_given_out_twice(lasting: Desk) -> None:
    """Whoever has seen one must not miss what comes behind it, whatever was removed before a restart."""
    add(lasting, 1, 2)
    end(lasting, 1)
    end(lasting, 2, DEAD)
    last = lasting.ask(lasting.store.endings(0))[-1].ending
    assert last is not None
    assert lasting.do(lasting.store.revive, name(2), NOW) is None
    lasting.ask(lasting.store.sweep(NOW + 100 * SECOND, Retention(0)))
    lasting.reopen()
    end(lasting, 2)
    assert ended(lasting, last) == [name(2)]


def test_how_far_the_ledger_is_survives(lasting: Desk) -> None:
    assert lasting.ask(lasting.store.ledger_position()) == 0
    assert lasting.do(lasting.store.set_ledger_position, 7) is None
    assert lasting.do(lasting.store.set_ledger_position, 5) is None  # an older one changes nothing
    lasting.reopen()
    assert lasting.ask(lasting.store.ledger_position()) == 7
    assert lasting.store.ending >= 7


@DATABASES
def test_a_store_of_the_version_before_gets_its_ends_numbered(kind: str, new_url: Urls) -> None:
    url = new_url(kind)
    connection = database(url)
    migrate(connection, MIGRATIONS[:4])
    for seq in (1, 2):
        parameters = {"seq": seq, "id": name(seq), "service": b"echo", "worker": b"w", "client": b"c"}
        connection.execute(FIRST_VERSION_JOB, **parameters)
    connection.execute("UPDATE jobs SET state = 'done', finished = 5 WHERE seq = 2")
    connection.close()
    desk = Desk(url)
    assert ended(desk) == [name(2)]
    desk.close()
