"""Server-Sent Events: what was, what is, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import json

from polydomo.web import job_events
from polydomo.web.api import sse
from polydomo.web.job_events import JobEvent, JobEventQueue
from polydomo.wire.frames import frame, join
from tests.support.broker import BrokerProcess
from tests.web.api.site import is_problem
from tests.web.desk import Desk, Stream, fresh, until
from tests.web.stub import all_events


def test_what_is_kept_comes_first_then_what_happens_then_the_end(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service)
    attempt = desk.poll(service, worker="teller")
    assert attempt.say("partials", b"one\ntwo").status == 204
    assert attempt.say("events", b"50 %", "?kind=percent").status == 204
    stream = Stream(desk, "GET", f"{path}/events")
    assert stream.next()[:2] == ("partial", "one\ntwo")
    name, data, number = stream.next()
    assert (name, json.loads(data)) == ("event", {"worker": "teller", "kind": "percent", "text": "50 %"})
    attempt.say("partials", b"three")
    live = stream.next()
    assert live[:2] == ("partial", "three")
    assert int(live[2]) > int(number)
    attempt.answer(b"four")
    assert stream.all() == [("result", "four", "end")]
    stream.close()
    # With the id of one, all that came behind it comes again: the live ones are kept under the same ids.
    again = Stream(desk, "GET", f"{path}/events", last_event_id=number)
    assert again.all() == [live, ("result", "four", "end")]
    again.close()
    assert desk.site.get(f"{path}/events", last_event_id="end").status == 204


def test_a_stream_goes_on_behind_a_restart_of_the_broker() -> None:
    with BrokerProcess(http=True) as broker:
        desk = Desk(broker)
        path = desk.job("told", b"x")
        attempt = desk.poll("told", worker="teller")
        stream = Stream(desk, "GET", f"{path}/events")
        for text in (b"one", b"two"):
            attempt.say("partials", text)
        seen = [stream.next(), stream.next()]
        stream.close()
        # What was told is not always on disk yet; a later answer of the same store is behind it.
        desk.job("other")
        broker.kill()
        broker.start_again()
        attempt.desk = desk = Desk(broker)
        again = Stream(desk, "GET", f"{path}/events", last_event_id=seen[0][2])
        assert again.next() == seen[1]
        assert attempt.say("partials", b"three").status == 204
        assert again.next()[:2] == ("partial", "three")
        attempt.answer(b"four")
        assert again.all() == [("result", "four", "end")]
        again.close()


def test_one_request_submits_and_hears_it_all(desk: Desk) -> None:
    service = fresh()
    stream = Stream(
        desk, "POST", f"/v1/services/{service}/jobs?durable=false", b"x", accept="text/event-stream"
    )
    name, data, _ = stream.next()
    job = json.loads(data)
    assert (name, job["service"], job["durable"]) == ("accepted", service, False)
    attempt = desk.poll(service, worker="teller")
    assert stream.next()[:2] == ("assigned", '{"worker":"teller"}')
    attempt.say("partials", b"half")
    assert stream.next() == ("partial", "half", "")
    attempt.say("failure", b'{"message": "the other half is missing"}')
    [(name, data, _)] = stream.all()
    found = json.loads(data)
    assert (name, found["reason"], found["detail"]) == ("failed", "worker-error", "the other half is missing")
    stream.close()


def test_who_hangs_up_takes_a_job_in_memory_along(desk: Desk) -> None:
    service = fresh()
    stream = Stream(
        desk, "POST", f"/v1/services/{service}/jobs?durable=false", b"x", accept="text/event-stream"
    )
    stream.next()
    assert desk.offered(service)["waiting"] == 1
    stream.close()
    until(lambda: desk.offered(service)["waiting"] == 0)


def test_who_only_watches_takes_nothing_along(desk: Desk) -> None:
    service = fresh()
    path = desk.job(service, b"x", "durable=false")
    stream = Stream(desk, "GET", f"{path}/events")
    stream.close()
    watching = Stream(desk, "GET", f"{path}/events")
    attempt = desk.poll(service)
    attempt.say("partials", b"heard")
    attempt.answer(b"end")
    assert [one[:2] for one in watching.all()] == [("partial", "heard"), ("result", "end")]
    watching.close()
    assert desk.result(path).body == b"end"


def test_several_workers_answers_are_heard_one_by_one(desk: Desk) -> None:
    service = fresh()
    workers = [desk.serving(service, lambda body, n=n: b"%d" % n) for n in range(2)]
    try:
        path = desk.job(service, b"who", "target=all")
        desk.result(path)
        stream = Stream(desk, "GET", f"{path}/events")
        found = stream.all()
        stream.close()
        assert [one[0] for one in found] == ["gathered", "gathered", "result"]
        said = {one["worker"]: one["body"] for one in map(json.loads, (data for _, data, _ in found[:2]))}
        assert said == {worker.name: n for n, worker in enumerate(workers)}
        assert {one["worker"] for one in json.loads(found[2][1])} == set(said)
    finally:
        for worker in workers:
            worker.__exit__()


def test_a_wrong_last_event_id_is_refused(desk: Desk) -> None:
    path = desk.job(fresh())
    is_problem(desk.site.get(f"{path}/events", last_event_id="yesterday"), 400, "malformed")
    desk.site.delete(path)


def test_bodies_that_are_no_plain_text_are_encoded() -> None:
    for frames in ([b"\xff"], [b"a\rb"], [b"a", b"b"], [b'{"polydomo:frames":[]}']):
        found = json.loads(sse.body_text(join(frames)))
        assert [base64.b64decode(one) for one in found["polydomo:frames"]] == frames
    assert sse.body_text(frame("ä\n\nb".encode())) == "ä\n\nb"
    assert sse.encode_event(JobEvent(job_events.PARTIAL, body=frame(b"a\nb"), number=7)) == (
        b"id: 7\nevent: partial\ndata: a\ndata: b\n\n"
    )


def test_a_listener_that_does_not_read_is_cut_off() -> None:
    async def listen() -> None:
        listener = JobEventQueue(asyncio.get_running_loop())
        for _ in range(job_events.QUEUE_MAX + 10):
            listener.add(JobEvent(job_events.PARTIAL, body=b"x"))
        heard = [event.kind for event in await all_events(listener)]
        assert len(heard) == job_events.QUEUE_MAX + 1
        assert heard[-1] == job_events.CUT
        assert await listener.next(0) is None

    asyncio.run(listen())


def test_a_listener_waits_no_longer_than_it_is_told_and_ends_with_the_job() -> None:
    async def listen() -> None:
        loop = asyncio.get_running_loop()
        listener = JobEventQueue(loop)
        assert await listener.next(0.01) is None
        assert not listener.over
        loop.call_soon(listener.add, JobEvent(job_events.RESULT, body=b"end"))
        assert [event.kind for event in await all_events(listener)] == [job_events.RESULT]
        listener.add(JobEvent(job_events.PARTIAL))
        assert listener.over

    asyncio.run(listen())
