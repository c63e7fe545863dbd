"""Write operations: which writes a job's state allows and what they record, in all three stores."""

from __future__ import annotations

from functools import partial

import pytest

from polydomo.store.errors import AlreadyFinished, DuplicateKey, StoreInvalid, Superseded
from polydomo.store.records import (
    CANCELLED,
    DEAD,
    DELAYED,
    DONE,
    FAILED,
    RUNNING,
    WAITING,
    AttemptRecord,
    JobChange,
    JobRecord,
    ResultRecord,
)
from tests.store.desk import NOW, SECOND, Desk, code, job, name


def add(desk: Desk, number: int = 1, **fields: object) -> str:
    record = job(number, **fields)
    assert desk.do(desk.store.add, record) is None
    return record.id


def get(desk: Desk, job_id: str) -> JobRecord:
    found = desk.ask(desk.store.get(job_id))
    assert found is not None
    return found


def test_a_job_comes_back_as_it_was_given(desk: Desk) -> None:
    given = job(
        1,
        state=DELAYED,
        not_before=NOW + 5 * SECOND,
        key="kéy",
        parent=name(9),
        target="resource:router-1",
        priority=-7,
        deadline=NOW + 60 * SECOND,
        client=b"\x00\xff",
        body=bytes(range(256)),
    )
    assert desk.do(desk.store.add, given) is None
    assert get(desk, given.id) == given
    assert given.size_in == 256
    assert given.seq > 0


def test_an_unknown_job_is_none(desk: Desk) -> None:
    store = desk.store
    assert desk.ask(store.get(name(1))) is None
    assert desk.ask(store.result(name(1))) is None
    assert desk.ask(store.attempts(name(1))) == []
    assert desk.ask(store.partials(name(1))) == []
    assert desk.ask(store.events(name(1))) == []
    assert desk.ask(store.by_key(b"echo", "key")) is None


def test_writes_for_an_unknown_job_are_refused(desk: Desk) -> None:
    store, unknown = desk.store, name(1)
    assert (
        desk.burst(
            partial(store.attempt, unknown, 1, b"w", NOW),
            partial(store.partial, unknown, 1, b"", NOW),
            partial(store.event, unknown, "kind", b"", NOW),
            partial(store.finish, unknown, 1, DONE, b"", NOW),
            partial(store.revive, unknown, NOW),
            partial(store.update, unknown, JobChange(max_attempts=1)),
            partial(store.forget, unknown),
        )
        == ["store-unknown-job"] * 7
    )


def test_a_job_goes_well(desk: Desk) -> None:
    job_id = add(desk)
    assert desk.do(desk.store.attempt, job_id, 1, b"worker", NOW + 10) is None
    running = get(desk, job_id)
    assert (running.state, running.attempt, running.worker) == (RUNNING, 1, b"worker")
    assert running.dispatched == NOW + 10
    assert desk.ask(desk.store.result(job_id)) is None
    assert desk.ask(desk.store.attempts(job_id)) == [AttemptRecord(1, b"worker", NOW + 10, None, "")]
    assert desk.do(desk.store.finish, job_id, 1, DONE, b"result", NOW + 20) is None
    assert desk.ask(desk.store.result(job_id)) == ResultRecord(
        job_id, b"echo", DONE, 1, b"worker", "", "", NOW + 20, b"result"
    )
    assert desk.ask(desk.store.attempts(job_id)) == [AttemptRecord(1, b"worker", NOW + 10, NOW + 20, DONE)]
    assert get(desk, job_id).size_out == 6


def test_a_failure_keeps_its_reason_and_its_body(desk: Desk) -> None:
    job_id = add(desk)
    desk.store.attempt(job_id, 1, b"worker", NOW)
    error = desk.do(
        desk.store.finish, job_id, 1, FAILED, b"traceback", NOW, code="worker-error", message="naïve\0\ud800"
    )
    assert error is None
    result = desk.ask(desk.store.result(job_id))
    assert result is not None
    assert (result.state, result.code, result.body) == (FAILED, "worker-error", b"traceback")
    assert result.message == "naïve\ufffd?"  # what no database can keep is replaced, not refused


def test_an_end_without_a_body_is_not_an_empty_body(desk: Desk) -> None:
    for number, body in ((1, None), (2, b"")):
        job_id = add(desk, number)
        assert desk.do(desk.store.finish, job_id, 0, FAILED, body, NOW, code="expired") is None
        result = desk.ask(desk.store.result(job_id))
        assert result is not None
        assert result.body == body


def test_a_result_is_recorded_once(desk: Desk) -> None:
    job_id = add(desk)
    desk.store.attempt(job_id, 1, b"worker", NOW)
    assert desk.do(desk.store.finish, job_id, 1, DONE, b"first", NOW) is None
    error = desk.do(desk.store.finish, job_id, 1, DONE, b"second", NOW)
    assert isinstance(error, AlreadyFinished)
    assert "is done since attempt 1" in str(error)
    result = desk.ask(desk.store.result(job_id))
    assert result is not None
    assert result.body == b"first"


def test_a_result_is_recorded_once_within_a_batch(desk: Desk) -> None:
    job_id = add(desk)
    finish = desk.store.finish
    assert desk.burst(
        partial(desk.store.attempt, job_id, 1, b"worker", NOW),
        partial(finish, job_id, 1, DONE, b"first", NOW),
        partial(finish, job_id, 1, DONE, b"second", NOW),
        partial(finish, job_id, 1, CANCELLED, None, NOW),
        partial(desk.store.attempt, job_id, 2, b"worker", NOW),
        partial(desk.store.partial, job_id, 1, b"late", NOW),
    ) == ["ok", "ok", *["store-finished"] * 4]
    result = desk.ask(desk.store.result(job_id))
    assert result is not None
    assert result.body == b"first"
    assert desk.ask(desk.store.partials(job_id)) == []


def test_a_superseded_attempt_is_fenced(desk: Desk) -> None:
    job_id = add(desk)
    store = desk.store
    assert desk.burst(
        partial(store.attempt, job_id, 1, b"slow", NOW),
        partial(store.attempt, job_id, 2, b"fast", NOW + 6),
        partial(store.partial, job_id, 1, b"late", NOW + 7),
        partial(store.attempt, job_id, 1, b"other", NOW + 7),
        partial(store.finish, job_id, 1, DONE, b"late", NOW + 8),
        partial(store.finish, job_id, 2, DONE, b"answer", NOW + 9),
    ) == ["ok", "ok", *["store-superseded"] * 3, "ok"]
    result = desk.ask(store.result(job_id))
    assert result is not None
    assert (result.body, result.attempt, result.worker) == (b"answer", 2, b"fast")
    assert desk.ask(store.attempts(job_id)) == [
        AttemptRecord(1, b"slow", NOW, NOW + 6, "superseded"),
        AttemptRecord(2, b"fast", NOW + 6, NOW + 9, DONE),
    ]


def test_a_reply_to_a_lost_attempt_is_refused_while_the_job_waits(desk: Desk) -> None:
    job_id = add(desk)
    desk.store.attempt(job_id, 1, b"worker", NOW)
    desk.store.finish(job_id, 1, DEAD, None, NOW, code="retries-exhausted")
    desk.store.revive(job_id, NOW + 1)
    error = desk.do(desk.store.finish, job_id, 1, DONE, b"late", NOW + 2)
    assert isinstance(error, Superseded)
    waiting = get(desk, job_id)
    assert (waiting.state, waiting.attempt, waiting.queued, waiting.worker) == (WAITING, 1, NOW + 1, b"")
    # But the broker may give the job up while it waits.
    assert desk.do(desk.store.finish, job_id, 1, DEAD, None, NOW + 3, code="expired") is None
    assert get(desk, job_id).state == DEAD


def test_a_new_attempt_ends_one_that_was_not_given_back(desk: Desk) -> None:
    job_id = add(desk)
    desk.store.attempt(job_id, 1, b"one", NOW)
    assert desk.do(desk.store.attempt, job_id, 2, b"two", NOW + 1) is None
    assert desk.ask(desk.store.attempts(job_id)) == [
        AttemptRecord(1, b"one", NOW, NOW + 1, "superseded"),
        AttemptRecord(2, b"two", NOW + 1, None, ""),
    ]


def test_an_attempt_whose_beginning_was_lost_may_still_answer(desk: Desk) -> None:
    """The disk was full when it began, and is not when it ends."""
    store = desk.store
    first, second = add(desk, 1), add(desk, 2)
    assert desk.do(store.finish, first, 1, DONE, b"answer", NOW) is None
    assert desk.do(store.partial, second, 1, b"part", NOW) is None
    assert get(desk, second).state == RUNNING
    assert desk.do(store.finish, second, 1, DONE, b"answer", NOW) is None


def test_partials_and_events_keep_their_order(desk: Desk) -> None:
    job_id, other = add(desk, 1), add(desk, 2)
    store = desk.store
    store.attempt(job_id, 1, b"worker", NOW)
    for number in range(5):
        store.partial(job_id, 1, b"part %d" % number, NOW + number)
        store.event(job_id, f"progress {number}", b"event %d" % number, NOW + number, b"worker")
        store.event(other, "other", b"", NOW)
    assert desk.do(store.finish, job_id, 1, DONE, b"", NOW) is None
    partials = desk.ask(store.partials(job_id))
    assert [record.body for record in partials] == [b"part %d" % number for number in range(5)]
    assert {record.attempt for record in partials} == {1}
    later = desk.ask(store.partials(job_id, after=partials[1].number, limit=2))
    assert later == partials[2:4]
    events = desk.ask(store.events(job_id))
    assert [(event.kind, event.body, event.at, event.worker) for event in events] == [
        (f"progress {number}", b"event %d" % number, NOW + number, b"worker") for number in range(5)
    ]
    assert desk.ask(store.events(job_id, after=events[3].number)) == events[4:]
    assert get(desk, job_id).size_out == 5 * 6
    assert desk.do(store.event, job_id, "late", b"", NOW) is None  # what was said was said


def test_waiting_and_running_jobs_can_be_cancelled(desk: Desk) -> None:
    waiting, running = add(desk, 1), add(desk, 2)
    desk.store.attempt(running, 1, b"worker", NOW)
    for attempt, job_id in enumerate((waiting, running)):
        cancel = partial(desk.store.finish, job_id, attempt, CANCELLED, None, code="cancelled")
        assert desk.do(cancel, at=NOW + 1) is None
        result = desk.ask(desk.store.result(job_id))
        assert result is not None
        assert (result.state, result.code, result.body) == (CANCELLED, "cancelled", None)
        assert isinstance(desk.do(cancel, at=NOW + 2), AlreadyFinished)
    assert isinstance(desk.do(desk.store.finish, running, 1, DONE, b"late", NOW + 2), AlreadyFinished)


def test_a_dead_letter_can_be_sent_again(desk: Desk) -> None:
    store = desk.store
    job_id = add(desk)
    seq = get(desk, job_id).seq
    store.attempt(job_id, 1, b"worker", NOW)
    store.partial(job_id, 1, b"part", NOW)
    store.finish(job_id, 1, DEAD, b"account", NOW + 1, code="retries-exhausted", message="three were lost")
    assert desk.do(store.revive, job_id, NOW + 9) is None
    again = get(desk, job_id)
    assert (again.state, again.attempt, again.queued, again.seq) == (WAITING, 1, NOW + 9, seq)
    assert (again.code, again.message, again.finished, again.size_out) == ("", "", None, 0)
    assert desk.ask(store.result(job_id)) is None
    store.attempt(job_id, 2, b"worker", NOW + 10)
    assert desk.do(store.finish, job_id, 2, DONE, b"answer", NOW + 11) is None
    result = desk.ask(store.result(job_id))
    assert result is not None
    assert result.body == b"answer"
    assert [attempt.outcome for attempt in desk.ask(store.attempts(job_id))] == [DEAD, DONE]


def test_only_what_ended_without_a_result_is_sent_again(desk: Desk) -> None:
    for number, state in enumerate((WAITING, RUNNING, DONE), 1):
        job_id = add(desk, number)
        if state != WAITING:
            desk.store.attempt(job_id, 1, b"worker", NOW)
        if state == DONE:
            desk.store.finish(job_id, 1, DONE, b"", NOW)
        assert code(desk.do(desk.store.revive, job_id, NOW)) == "store-wrong-state"
        assert get(desk, job_id).state == state


def test_an_unfinished_job_can_be_changed(desk: Desk) -> None:
    job_id = add(desk, key="key")
    assert desk.do(desk.store.update, job_id, JobChange(options=b"{}", max_attempts=9)) is None
    changed = get(desk, job_id)
    assert (changed.options, changed.max_attempts) == (b"{}", 9)
    # All other fields stay.
    assert (changed.body, changed.timeout, changed.envelope) == (b"body 1", 60 * SECOND, b"envelope")
    found = desk.ask(desk.store.by_key(b"echo", "key"))
    assert found is not None
    assert found.id == job_id


def test_several_changes_in_one_batch_add_up(desk: Desk) -> None:
    job_id = add(desk, key="key")
    update = desk.store.update
    assert (
        desk.burst(
            partial(update, job_id, JobChange(max_attempts=1)),
            partial(update, job_id, JobChange(options=b"a", max_attempts=2)),
            partial(update, job_id, JobChange(options=b"b")),
            partial(update, job_id, JobChange(release_key=True)),
        )
        == ["ok"] * 4
    )
    changed = get(desk, job_id)
    assert (changed.max_attempts, changed.options, changed.key) == (2, b"b", None)


def test_a_job_lives_its_whole_life_in_one_batch(desk: Desk) -> None:
    store, record = desk.store, job(1, key="key")
    assert (
        desk.burst(
            partial(store.add, record),
            partial(store.update, record.id, JobChange(options=b"new", max_attempts=5)),
            partial(store.attempt, record.id, 1, b"one", NOW),
            partial(store.attempt, record.id, 2, b"two", NOW + 1),
            partial(store.partial, record.id, 2, b"part", NOW + 2),
            partial(store.event, record.id, "kind", b"", NOW + 2),
            partial(store.finish, record.id, 2, DONE, b"result", NOW + 3),
        )
        == ["ok"] * 7
    )
    found = get(desk, record.id)
    assert (found.state, found.options, found.max_attempts, found.size_out) == (DONE, b"new", 5, 10)
    assert len(desk.ask(store.attempts(record.id))) == 2
    assert len(desk.ask(store.partials(record.id))) == len(desk.ask(store.events(record.id))) == 1
    assert desk.burst(partial(store.forget, record.id), partial(store.add, job(1, key="key"))) == ["ok", "ok"]
    assert get(desk, record.id).state == WAITING
    assert desk.ask(store.attempts(record.id)) == []
    assert desk.ask(store.partials(record.id)) == desk.ask(store.events(record.id)) == []


def test_what_has_ended_does_not_change(desk: Desk) -> None:
    job_id = add(desk)
    desk.store.finish(job_id, 0, CANCELLED, None, NOW)
    assert code(desk.do(desk.store.update, job_id, JobChange(max_attempts=1))) == "store-finished"
    assert get(desk, job_id).max_attempts == 3


def test_an_id_is_used_once(desk: Desk) -> None:
    add(desk)
    assert code(desk.do(desk.store.add, job(1, body=b"another"))) == "store-duplicate"
    assert get(desk, name(1)).body == b"body 1"
    assert desk.burst(partial(desk.store.add, job(2)), partial(desk.store.add, job(2))) == [
        "ok",
        "store-duplicate",
    ]


def test_an_idempotency_key_is_used_once_per_service(desk: Desk) -> None:
    add(desk, 1, key="key")
    error = desk.do(desk.store.add, job(2, key="key"))
    assert isinstance(error, DuplicateKey)
    assert name(1) in str(error)
    assert desk.do(desk.store.add, job(3, key="key", service=b"other")) is None
    assert desk.do(desk.store.add, job(4, key="other")) is None
    desk.store.attempt(name(1), 1, b"worker", NOW)
    desk.store.finish(name(1), 1, DONE, b"", NOW)
    assert code(desk.do(desk.store.add, job(2, key="key"))) == "store-duplicate-key"  # "the same key later"


def test_a_thousand_jobs_with_one_key_at_once_are_one(desk: Desk) -> None:
    adds = [partial(desk.store.add, job(number, key="key")) for number in range(1, 1001)]
    outcomes = desk.burst(*adds)
    assert outcomes == ["ok", *["store-duplicate-key"] * 999]
    assert sum(count.jobs for count in desk.ask(desk.store.counts())) == 1


def test_a_released_key_is_free_again(desk: Desk) -> None:
    store = desk.store
    add(desk, 1, key="key")
    store.finish(name(1), 0, FAILED, None, NOW, code="expired", message="kept")
    assert desk.burst(
        partial(store.add, job(2, key="key")),
        partial(store.update, name(1), JobChange(release_key=True)),
        partial(store.add, job(3, key="key")),
    ) == ["store-duplicate-key", "ok", "ok"]
    found = desk.ask(store.by_key(b"echo", "key"))
    assert found is not None
    assert found.id == name(3)
    assert get(desk, name(1)).key is None
    assert get(desk, name(1)).message == "kept"


def test_forgetting_leaves_nothing(desk: Desk) -> None:
    store = desk.store
    job_id = add(desk, key="key")
    store.attempt(job_id, 1, b"one", NOW)
    store.attempt(job_id, 2, b"two", NOW)
    store.partial(job_id, 2, b"part", NOW)
    store.event(job_id, "kind", b"", NOW)
    store.finish(job_id, 2, DEAD, b"body", NOW)
    assert desk.do(store.forget, job_id) is None
    assert desk.ask(store.get(job_id)) is None
    assert desk.ask(store.result(job_id)) is None
    assert desk.ask(store.by_key(b"echo", "key")) is None
    assert desk.ask(store.counts()) == []
    add(desk, key="key")
    assert desk.ask(store.attempts(job_id)) == []


def test_a_text_no_database_takes_is_refused_at_once(desk: Desk) -> None:
    for field in ("id", "key", "target", "parent"):
        for text in ("a\0b", "\ud800"):
            with pytest.raises(StoreInvalid):
                desk.store.add(job(**{field: text}))


def test_an_id_no_database_takes_is_refused_at_once(desk: Desk) -> None:
    for text in ("a\0b", "\ud800"):
        with pytest.raises(StoreInvalid):
            desk.store.revive(text, NOW)
        try:
            assert desk.ask(desk.store.get(text)) is None  # memory just does not find it
        except StoreInvalid:
            pass
    assert desk.ask(desk.store.get(name(1))) is None  # and others are answered


def test_states_that_make_no_sense_are_refused_at_once(desk: Desk) -> None:
    with pytest.raises(StoreInvalid, match="waiting or delayed"):
        desk.store.add(job(state=DONE))
    with pytest.raises(StoreInvalid, match="done, failed"):
        desk.store.finish(name(1), 1, RUNNING, b"", NOW)


def test_one_write_that_cannot_be_written_does_not_take_others_with_it(lasting: Desk) -> None:
    store = lasting.store
    outcomes = lasting.burst(
        *(partial(store.add, job(number)) for number in range(1, 6)),
        partial(store.add, job(6, priority=2**70)),
        *(partial(store.add, job(number)) for number in range(7, 11)),
    )
    assert outcomes == [*["ok"] * 5, "store-invalid", *["ok"] * 4]
    assert sum(count.jobs for count in lasting.ask(store.counts())) == 9


def test_an_attempt_keeps_its_token_until_it_is_lost(desk: Desk) -> None:
    store = desk.store
    assert desk.do(store.add, job(1)) is None
    assert desk.do(store.attempt, name(1), 1, b"one", NOW, b"0000000a") is None
    (running,) = desk.ask(store.unfinished())
    assert (running.worker, running.token) == (b"one", b"0000000a")
    assert desk.do(store.finish, name(1), 1, FAILED, None, NOW + 1) is None
    assert desk.do(store.revive, name(1), NOW + 1) is None
    (waiting,) = desk.ask(store.unfinished())
    assert (waiting.worker, waiting.token) == (b"", b"")
    assert desk.do(store.attempt, name(1), 2, b"two", NOW + 2, b"\xff\0") is None
    assert desk.do(store.finish, name(1), 2, DONE, b"result", NOW + 3) is None
    assert desk.ask(store.attempts(name(1))) == [
        AttemptRecord(1, b"one", NOW, NOW + 1, FAILED, b"0000000a"),
        AttemptRecord(2, b"two", NOW + 2, NOW + 3, DONE, b"\xff\0"),
    ]


def test_an_attempt_whose_beginning_was_not_written_has_no_token(desk: Desk) -> None:
    store = desk.store
    assert desk.do(store.add, job(1)) is None
    assert desk.do(store.attempt, name(1), 1, b"one", NOW, b"0000000a") is None
    assert desk.do(store.partial, name(1), 2, b"part", NOW + 1) is None
    (running,) = desk.ask(store.unfinished())
    assert (running.attempt, running.worker, running.token) == (2, b"", b"")


def test_a_job_may_have_further_names(desk: Desk) -> None:
    store = desk.store
    assert desk.do(store.add, job(1)) is None
    assert desk.do(store.add, job(2)) is None
    assert (
        desk.burst(partial(store.alias, name(1), "first"), partial(store.alias, name(1), "second"))
        == ["ok"] * 2
    )
    assert sorted(desk.ask(store.aliases())) == [("first", name(1)), ("second", name(1))]
    found = desk.ask(store.get("second"))
    assert found is not None
    assert found.id == name(1)
    assert desk.ask(store.result("first")) is None
    assert desk.do(store.finish, name(1), 0, DONE, b"result", NOW) is None
    result = desk.ask(store.result("first"))
    assert result is not None
    assert (result.id, result.body) == (name(1), b"result")
    assert desk.ask(store.aliases()) == []  # of jobs that have not ended
    assert desk.do(store.alias, name(1), "third") is None  # also after the end
    assert desk.ask(store.result("third")) == result
    # An id is an id, whoever else is called so.
    assert desk.do(store.alias, name(1), name(2)) is None
    other = desk.ask(store.get(name(2)))
    assert other is not None
    assert other.id == name(2)
    assert code(desk.do(store.alias, name(9), "nobody")) == "store-unknown-job"
    assert desk.do(store.forget, name(1)) is None
    assert desk.ask(store.get("first")) is None


def test_a_name_goes_to_the_last_who_claims_it(desk: Desk) -> None:
    store = desk.store
    assert (
        desk.burst(
            partial(store.add, job(1)),
            partial(store.add, job(2)),
            partial(store.alias, name(1), "it"),
            partial(store.alias, name(2), "it"),
        )
        == ["ok"] * 4
    )
    assert desk.ask(store.aliases()) == [("it", name(2))]
    assert desk.do(store.alias, name(1), "it") is None
    assert desk.ask(store.aliases()) == [("it", name(1))]
    assert desk.do(store.forget, name(2)) is None
    assert desk.ask(store.aliases()) == [("it", name(1))]
