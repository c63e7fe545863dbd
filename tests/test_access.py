"""Who may do what: every principal, every verb, every task of the broker's own services, every route of HTTP, in every
dialect (services/access)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from polydomo.core.principals import ANONYMOUS, CALL, CANCEL, OBSERVE, OPERATE, READ, SERVE, VERBS
from polydomo.server.events import Subscriber
from polydomo.server.identification import BY_KEY
from polydomo.services import access
from polydomo.services.access import ROUTES, TASKS, Rule
from polydomo.services.authorizer import Authorizer
from polydomo.services.builtin import Tasks
from polydomo.services.management import ManagementService
from polydomo.store.errors import StoreBusy
from polydomo.web.access import guard
from polydomo.wire.frames import frame
from tests.support import memo
from tests.support.access import Acts, Grants
from tests.support.access_site import (
    BURIED,
    CLIENT,
    FORMS,
    IDLE,
    MEMO,
    OWNER,
    PATIENCE,
    PROBED,
    REACHED,
    SERVICE,
    WAITING,
    WORKER,
    WORKER_OWNER,
    Site,
)
from tests.support.core import Bench, FakeClient, make_broker
from tests.support.wmp import wmp

# Every verb at everything, and at what the tests are about; all verbs elsewhere; nothing.
GRANTS: dict[str, dict[str, list[str]]] = {
    **{f"{verb}-all": {verb: ["*"]} for verb in VERBS},
    **{f"{verb}-hidden": {verb: ["hidden*"]} for verb in VERBS},
    "elsewhere": {verb: ["elsewhere"] for verb in VERBS},
    OWNER: {},
    WORKER_OWNER: {},
    "nobody": {},
    ANONYMOUS: {},
}

# Arguments of the tasks that need some.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "mmi.service.broker pause_service": {"name": SERVICE},
    "mmi.service.broker resume_service": {"name": SERVICE},
    "mmi.service.broker forget_memos": {"name": SERVICE},
    "mmi.service.broker disconnect": {"service": IDLE},
    "mmi.service.broker set_resources": {"worker": WORKER, "resources": []},
    "mmi.service.broker share_out": {"service": SERVICE, "resources": []},
    "mmi.service.broker show_stored_job": {"id": BURIED},
    "mmi.service.broker cancel_job": {"id": WAITING},
    "mmi.service.broker resend_job": {"id": BURIED},
    "mmi.service.broker forget_job": {"id": BURIED},
    "mmi.service.broker trace_jobs": {"client": CLIENT, "ids": [BURIED]},
    "sid.service.broker get_inventory": {"name": WORKER},
    "sid.service.broker show_inventory": {"name": WORKER},
    "fss.service.broker file_details": {"url": "nf://x"},
    "fss.service.broker fetch_file": {"url": "nf://x"},
    "filesharing file_details": {"url": "nf://x"},
    "filesharing fetch_file": {"url": "nf://x"},
}

# Lists in which an owner finds its own without any verb.
OWN_ROWS = {
    "show_clients": OWNER,
    "show_jobs": OWNER,
    "show_stored_jobs": OWNER,
    "show_dead_letters": OWNER,
    "scan_jobs": OWNER,
    "scan_endings": OWNER,
    "trace_jobs": OWNER,
    "show_workers": WORKER_OWNER,
    "show_resources": WORKER_OWNER,
}

# Something that each list shows to those who may see it.
SHOWN = {
    "show_services": SERVICE,
    "show_workers": WORKER,
    "show_clients": CLIENT,
    "show_jobs": SERVICE,
    "show_memos": MEMO,
    "show_resources": WORKER,
    "show_stored_jobs": BURIED,
    "show_dead_letters": BURIED,
    "scan_jobs": BURIED,
    "scan_endings": BURIED,
    "trace_jobs": BURIED,
}


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    async with Site(folder, Grants(**GRANTS)) as made:
        yield made


def holds(principal: str, verbs: tuple[str, ...], service: str) -> bool:
    return any(Grants(**GRANTS).allows(principal, verb, service.encode(), b"x") for verb in verbs)


def expected(principal: str, rule: Rule) -> str:
    """Say what the table promises: reached, denied, or unknown."""
    service = rule.fixed.decode() or ("*" if rule.about in (access.BROKER, access.INVENTORY) else SERVICE)
    if rule.about == access.NOTHING or holds(principal, rule.verbs, service):
        return REACHED
    if rule.about == access.JOB:
        return REACHED if principal == OWNER else "unknown"
    if rule.about == access.INVENTORY and principal == WORKER_OWNER:
        return REACHED
    return "denied"


def outcome(answer: bytes) -> str:
    if REACHED.encode() in answer or b'"QUEUED"' in answer or b'"DISPATCHED"' in answer:
        return REACHED
    if b"may not" in answer:
        return "denied"
    return "unknown" if b"no job" in answer else f"neither: {answer!r}"


def requests() -> list[tuple[str, str, Rule, bytes]]:
    """Every task that is no list, with a request for it."""
    return [
        (
            service,
            task,
            rule,
            json.dumps({"task": task, "kwargs": ARGUMENTS.get(f"{service} {task}", {})}).encode(),
        )
        for service, rules in TASKS.items()
        for task, rule in rules.items()
        if rule.about != access.ROWS
    ]


async def test_every_task_for_every_principal_in_every_dialect(tmp_path: Path) -> None:
    wrong = []
    async with site(tmp_path) as made:
        made.probe_tasks()
        for principal in GRANTS:
            for form in FORMS:
                client = made.client(form, principal)
                for service, task, rule, body in requests():
                    promised = expected(principal, rule)
                    if rule.about == access.SUBMIT:
                        promised = REACHED if holds(principal, rule.verbs, service) else "denied"
                        client.close()
                        client = made.client(form, principal)  # the former may hear of its job later
                    found = outcome(await client.call(service, body))
                    if found != promised:
                        wrong.append((principal, form, service, task, promised, found))
                client.close()
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


async def test_every_task_for_every_principal_over_http(tmp_path: Path) -> None:
    wrong = []
    async with site(tmp_path) as made:
        made.probe_tasks()
        for principal in GRANTS:
            for service, task, rule, body in requests():
                path = f"/v1/services/{service}/jobs?durable=false"
                status, answer = await made.http(principal, "POST", path, body, prefer="wait=10")
                promised = expected(principal, rule)
                if rule.about == access.SUBMIT:
                    promised = REACHED if holds(principal, rule.verbs, service) else "denied"
                refused = {REACHED: 200, "unknown": 502, "denied": 401 if principal == ANONYMOUS else 403}
                if outcome(answer) != promised or status != refused[promised]:
                    wrong.append((principal, service, task, promised, status, answer))
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


def sees(principal: str, task: str, rule: Rule) -> bool:
    """Say whether a list shows what belongs to others, or what is the principal's own."""
    if OWN_ROWS.get(task) == principal:
        return True
    return holds(principal, rule.verbs[:1], "*" if task == "show_clients" else SERVICE)


async def test_lists_show_each_principal_what_it_may_see_in_every_dialect(tmp_path: Path) -> None:
    wrong = []
    async with site(tmp_path) as made:
        for principal in GRANTS:
            for form in FORMS:
                client = made.client(form, principal)
                for task, marker in SHOWN.items():
                    service = "mmi.service.broker"
                    arguments = ARGUMENTS.get(f"{service} {task}", {})
                    body = json.dumps({"task": task, "kwargs": arguments}).encode()
                    answer = await client.call(service, body)
                    promised = sees(principal, task, TASKS[service][task])
                    if (marker.encode() in answer) != promised or b"may not" in answer:
                        wrong.append((principal, form, task, promised, answer))
                client.close()
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


def test_every_list_is_tested() -> None:
    lists = {task for task, rule in TASKS["mmi.service.broker"].items() if rule.about == access.ROWS}
    assert lists == {*SHOWN, "scan_events"}


@pytest.mark.parametrize("task", ["scan_jobs", "scan_endings"])
@pytest.mark.parametrize("column", ["request", "result"])
async def test_bodies_in_scans_need_read(tmp_path: Path, task: str, column: str) -> None:
    async with site(tmp_path) as made:
        for principal in GRANTS:
            client = made.client("mdp native", principal)
            body = json.dumps({"task": task, "kwargs": {column: True}}).encode()
            answer = await client.call("mmi.service.broker", body)
            promised = principal == OWNER or holds(principal, (READ,), SERVICE)
            assert (BURIED.encode() in answer) == promised, (principal, answer)
            assert (b"hidden-request" in answer) == (promised and column == "request"), (principal, answer)
            client.close()


async def test_presence_is_told_to_those_who_may_call_or_observe(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        for principal in GRANTS:
            client = made.client("mdp/0.2", principal)
            answer = await client.call("mmi.service", IDLE.encode())
            promised = b"200" if holds(principal, (CALL, OBSERVE), IDLE) else b"404"
            assert answer.endswith(promised), (principal, answer)
            client.close()


# Routes of HTTP. Those that the core decides, and lists, are asked for real: the request, and the statuses of success.

PATHS = {
    "/v1/dead/{id}": f"/v1/dead/{BURIED}",
    "/v1/dead/{id}/resend": f"/v1/dead/{BURIED}/resend",
    "/v1/jobs/{id}": f"/v1/jobs/{WAITING}",
    "/v1/jobs/{id}/result": f"/v1/jobs/{WAITING}/result",
    "/v1/jobs/{id}/events": f"/v1/jobs/{WAITING}/events",
    "/v1/services/{service:path}/memo": f"/v1/services/{SERVICE}/memo",
    "/v1/services/{service:path}/pause": f"/v1/services/{SERVICE}/pause",
    "/v1/services/{service:path}/resume": f"/v1/services/{SERVICE}/resume",
    "/v1/services/{service:service}": f"/v1/services/{SERVICE}",
    "/v1/services/{service:path}/jobs": f"/v1/services/{SERVICE}/jobs",
    "/v1/services/{service:path}/bulk": f"/v1/services/{SERVICE}/bulk?wait=0.001",
    "/v1/inventory/{worker:path}": f"/v1/inventory/{WORKER}",
    "/v1/files/{path:path}": "/v1/files/x",
    "/v1/workers/{name:path}": f"/v1/workers/{WORKER}",
    "/problems/{reason}": "/problems/denied",
    "/memodb/v1/cid/{cid}": "/memodb/v1/cid/uAXEAAQI",
    "/memodb/v1/head/{name:path}": "/memodb/v1/head/h",
    "/memodb/v1/call/{func}": f"/memodb/v1/call/{SERVICE}",
    "/memodb/v1/call/{func}/{args}": f"/memodb/v1/call/{SERVICE}/uAXEAAQI",
    "/memodb/v1/call/{func}/{args}/evaluate": f"/memodb/v1/call/{SERVICE}/uAXEAAQI/evaluate",
}

NO_ROWS = {"/v1/jobs": BURIED, "/v1/dead": BURIED, "/v1/services": SERVICE, "/v1/workers": WORKER}
NO_ROWS |= {"/v1/clients": CLIENT, "/memodb/v1/call": SERVICE}
OWN_LISTS = {"/v1/jobs": OWNER, "/v1/dead": OWNER, "/v1/clients": OWNER, "/v1/workers": WORKER_OWNER}


def refusals(principal: str, rule: Rule) -> tuple[int, ...]:
    """Return the statuses of a refusal."""
    if expected(principal, rule) == "unknown":
        return (404,)
    return (401,) if principal == ANONYMOUS else (403,)


async def test_every_route_that_its_door_decides_for_every_principal(tmp_path: Path) -> None:
    decided = {
        key: rule for key, rule in ROUTES.items() if rule.about not in (*access.ASKED_BY_CORE, access.ROWS)
    }
    wrong = []
    async with site(tmp_path) as made:
        made.probe_routes()
        for principal in GRANTS:
            for (method, path), rule in decided.items():
                status, _ = await made.http(principal, method, PATHS.get(path, path))
                if rule.about == access.NOTHING:
                    promised: tuple[int, ...] = (200, 307)
                elif expected(principal, rule) == REACHED:
                    promised = (PROBED,)
                else:
                    promised = refusals(principal, rule)
                if status not in promised:
                    wrong.append((principal, method, path, promised, status))
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


async def test_every_rule_has_a_route(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        routes = {
            (method, route.path)
            for route in made.app.router.routes
            for method in route.methods
            if method != "HEAD"
        }
    assert routes == set(ROUTES)


async def test_lists_over_http_show_each_principal_what_it_may_see(tmp_path: Path) -> None:
    assert set(NO_ROWS) == {path for (_, path), rule in ROUTES.items() if rule.about == access.ROWS}
    wrong = []
    async with site(tmp_path) as made:
        await made.record_call()
        for principal in GRANTS:
            for path, marker in NO_ROWS.items():
                status, body = await made.http(principal, "GET", path)
                verbs = ROUTES["GET", path].verbs
                promised = OWN_LISTS.get(path) == principal or holds(
                    principal, verbs, "*" if path == "/v1/clients" else SERVICE
                )
                if status != 200 or (f'{marker}"'.encode() in body) != promised:
                    wrong.append((principal, path, promised, status, body))
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


async def test_every_route_that_the_core_decides_for_every_principal(tmp_path: Path) -> None:
    wrong = []
    left = {key for key, rule in ROUTES.items() if rule.about in access.ASKED_BY_CORE}
    async with site(tmp_path) as made:
        attempt = await made.attempt()
        checks: dict[tuple[str, str], tuple[str, bytes, tuple[str, ...], str, tuple[int, ...]]] = {
            # route: path, body, verbs, who may without one, statuses of success
            ("GET", "/v1/jobs/{id}"): ("", b"", (READ,), OWNER, (200,)),
            ("GET", "/v1/jobs/{id}/result"): ("", b"", (READ,), OWNER, (202,)),
            ("GET", "/v1/jobs/{id}/events"): ("", b"", (READ,), OWNER, (200,)),
            ("POST", "/v1/services/{service:path}/jobs"): ("", b"x", (CALL,), "", (202,)),
            ("POST", "/v1/workers/poll"): (
                "",
                b'{"services":["hidden-polled"],"wait":0}',
                (SERVE,),
                "",
                (204,),
            ),
            ("DELETE", "/v1/workers/{name:path}"): ("/v1/workers/polling", b"", (), "", ()),
            ("POST", "/v1/attempts/{token}/partials"): (
                f"{attempt}/partials",
                b"x",
                (),
                WORKER_OWNER,
                (204,),
            ),
            ("POST", "/v1/attempts/{token}/events"): (f"{attempt}/events", b"x", (), WORKER_OWNER, (204,)),
            ("POST", "/v1/attempts/{token}/heartbeat"): (
                f"{attempt}/heartbeat",
                b"",
                (),
                WORKER_OWNER,
                (204,),
            ),
            ("PUT", "/v1/attempts/{token}/failure"): (f"{attempt}/failure", b"x", (), "", ()),
            ("PUT", "/v1/attempts/{token}/result"): (f"{attempt}/result", b"x", (), "", ()),
            ("POST", "/memodb/v1/worker"): (
                "",
                b'{"map":{"funcs":["hidden-polled"]}}',
                (SERVE,),
                "",
                (200,),
            ),
        }
        for principal in GRANTS:
            for (method, route), (path, body, verbs, owner, fine) in checks.items():
                if principal == WORKER_OWNER and not fine:
                    continue  # the act itself is the end of the attempt, or of the worker
                path = path or PATHS.get(route, route)
                headers = {"content-type": "application/json"} if route == "/memodb/v1/worker" else {}
                status, answer = await made.http(principal, method, path, body, **headers)
                may = principal == owner or holds(principal, verbs, SERVICE)
                if (status in fine) != may or (not may and status < 400):
                    wrong.append((principal, method, route, may, status, answer))
        for principal in GRANTS:
            path = PATHS["/v1/services/{service:path}/bulk"]
            _, answer = await made.http(principal, "POST", path, b'{"body":1}\n')
            if (b'"denied"' in answer) == holds(principal, (CALL,), SERVICE):
                wrong.append((principal, "POST", path, False, 200, answer))
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"
    assert left == {*checks, ("POST", "/v1/services/{service:path}/bulk")}


# Commands of the dialects.


async def test_every_client_may_call_what_it_is_granted(tmp_path: Path) -> None:
    wrong = []
    async with site(tmp_path) as made:
        refused = made.server.broker.accounting.totals
        for principal in GRANTS:
            for form in FORMS:
                client = made.client(form, principal)
                before = refused.refused
                made.server.advance()
                client.request(SERVICE, b'{"task":"x"}')
                may = refused.refused == before
                if may != holds(principal, (CALL,), SERVICE):
                    wrong.append((principal, form, may))
                client.close()
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


# The first message of a worker of a service.
READY: dict[str, Callable[[bytes], list[bytes]]] = {
    "mdp/0.2": lambda service: [b"MDPW02", b"\x01", service],
    "mdp/0.1": lambda service: [b"", b"MDPW01", b"\x01", service],
    "dcp/1": lambda service: [b"", b"DGBX\x01", b"\x01", service],
    "dcp/4": lambda service: [b"", b"DGBX\x01", b"\x01\0\0\0", service],
    "nfp": lambda service: [b"", b"NFPW01", b"\x01", service],
    "nfp/norfab": lambda service: [b"", b"NFPW01", b"0x01", service],
    "wmp": lambda service: wmp(1, {"roles": [service.decode()]}),
    "memo01": lambda service: [memo.ready(service.decode())],
}


async def test_every_worker_may_serve_what_it_is_granted(tmp_path: Path) -> None:
    wrong = []
    async with site(tmp_path) as made:
        for principal in GRANTS:
            for form, ready in READY.items():
                peer = made.client("memo01" if form == "memo01" else "mdp/0.2", principal)
                service = f"hidden-{form}-{principal}"
                made.server.advance()
                peer.seat.send(*ready(service.encode()))
                found = made.server.broker.services.get(service.encode())
                may = found is not None and len(found.workers) == 1
                if may != holds(principal, (SERVE,), SERVICE):
                    wrong.append((principal, form, may))
                peer.close()
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


NFP_COMMANDS = {
    # command: word, verb for others' jobs, what those hear who may not
    "GET": (b"\x06", READ, b"there is no job with this UUID"),
    "DELETE": (b"\x07", CANCEL, b"no job with this UUID can be cancelled"),
    "PUT": (b"\x10", CANCEL, b"no worker that has a job with this UUID takes input"),
}


@pytest.mark.parametrize("name", NFP_COMMANDS)
async def test_nfp_commands_reach_jobs_of_others_only_with_a_grant(tmp_path: Path, name: str) -> None:
    word, verb, unknown = NFP_COMMANDS[name]
    async with site(tmp_path) as made:
        reached: list[str] = []
        broker = made.server.broker
        broker.cancel = lambda job, failure=None: bool(reached.append(job.uid))  # type: ignore[method-assign]
        broker.put = lambda job, names, body: reached.append(job.uid) or 0  # type: ignore[method-assign,func-returns-value]
        for principal in GRANTS:
            reached.clear()
            client = made.client("nfp", principal)
            made.server.advance()
            client.command(word, SERVICE, WAITING)  # type: ignore[attr-defined]
            answer = await client.answer()
            may = principal == OWNER or holds(principal, (verb,), SERVICE)
            if name == "GET":
                assert (b"PENDING" in answer) == may, (principal, answer)
            else:
                assert reached == [WAITING] * may, principal
            assert may or unknown in answer, (principal, answer)
            client.close()


@pytest.mark.parametrize(("word", "verb"), [(b"\x11", OPERATE), (b"\x06", READ)])
async def test_nfp_queries_reach_workers_only_with_a_grant(tmp_path: Path, word: bytes, verb: str) -> None:
    async with site(tmp_path) as made:
        worker = made.client("nfp", "serve-all")
        made.server.advance()
        worker.seat.send(b"", b"NFPW01", b"\x00", b"{}")  # it can be asked for more than jobs
        worker.seat.send(b"", b"NFPW01", b"\x01", b"hidden-queried")
        assert made.server.broker.services[b"hidden-queried"].workers
        worker.received()
        for principal in GRANTS:
            client = made.client("nfp", principal)
            made.server.advance()
            service = "mmi.service.worker" if verb == OPERATE else "hidden-queried"
            client.seat.send(b"", b"NFPC01", word, service.encode(), b"all", b"unknown-uuid", b"{}")
            for _ in range(100):  # the store is asked first
                await asyncio.sleep(0)
            made.desk.settle()
            asked = worker.received()
            assert (b"unknown-uuid" in asked) == holds(principal, (verb,), "hidden-queried"), (
                principal,
                asked,
            )
            client.close()


async def test_events_are_told_to_those_who_may_observe(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        events = made.server.events
        heard: dict[str, list[bytes]] = {}
        for principal in GRANTS:
            subscriber = Subscriber(events, "", BY_KEY)
            subscriber.principal = principal
            subscriber.subscriptions.change(b"", True)
            subscriber.send = heard.setdefault(principal, []).append  # type: ignore[method-assign]
            events.listening[subscriber] = None
        events.published(SERVICE.encode(), WORKER.encode(), "progress", b"x")
        events.listening.clear()
    assert {principal for principal, data in heard.items() if data} == {"observe-all", "observe-hidden"}


# Acts over HTTP. Those of tasks and of NFP: tests/services/test_acts.py.


@pytest.mark.parametrize("recorded", [True, False])
async def test_acts_over_http_are_recorded_before_they_are_done(tmp_path: Path, recorded: bool) -> None:
    async with site(tmp_path) as made:
        broker = made.server.broker
        acts = broker.acts = Acts()
        for principal, method, path, record in (
            ("operate-all", "POST", f"/v1/services/{IDLE}/pause", ("operate", IDLE)),
            ("cancel-hidden", "DELETE", f"/v1/jobs/{WAITING}", ("cancel", f"job {WAITING} of {OWNER}")),
        ):
            asked = asyncio.create_task(made.http(principal, method, path))
            async with asyncio.timeout(PATIENCE):
                while not acts.records:
                    await asyncio.sleep(0.001)
            verb, target = record
            assert acts.records.pop() == (principal, verb, f"{method} {path}", target, "127.0.0.1")
            assert not broker.services[IDLE.encode()].paused or principal == "cancel-hidden"
            assert broker.jobs.is_open(WAITING)
            if recorded:
                acts.confirm()
            else:
                acts.fail("disk full")
            status, body = await asked
            assert status in ((200, 204) if recorded else (503,)), body
            assert recorded or b'"reason":"not-recorded"' in body
        assert broker.services[IDLE.encode()].paused is recorded
        assert broker.jobs.is_open(WAITING) is not recorded
        if not recorded:  # what the owner does is no act
            status, _ = await made.http(OWNER, "DELETE", f"/v1/jobs/{WAITING}")
            assert status == 204
            assert not acts.records


async def test_a_store_that_cannot_tell_whose_a_job_is_is_the_stores_problem(tmp_path: Path) -> None:
    async def busy(_: str) -> None:
        raise StoreBusy("the disk is busy")

    async with site(tmp_path) as made:
        made.server.management.authorizer.find_stored = busy
        status, answer = await made.http("all-verbs", "GET", f"/v1/dead/{BURIED}")
        assert status == 503
        assert b'"reason":"store"' in answer


# What would make the table useless.


def test_a_task_without_a_rule_cannot_be_added() -> None:
    tasks = Tasks(Authorizer(make_broker()), "mmi.service.broker")
    with pytest.raises(LookupError, match="the task new_task has no rule"):
        tasks.add({"new_task": lambda: None})


async def test_a_route_without_a_rule_cannot_be_added(tmp_path: Path) -> None:
    async with site(tmp_path) as made:

        @made.app.get("/v1/new")
        async def new() -> None: ...

        with pytest.raises(LookupError, match="the route GET /v1/new has no rule"):
            guard(made.app.router.routes[-1:], made.server.management.authorizer)


async def test_a_worker_cannot_forward_a_job_to_the_brokers_own_services() -> None:
    """It would do there what the job's client may do."""
    bench = Bench()
    management = ManagementService(bench.broker, "house")
    bench.broker.principals.use(Grants(admin={"administer": ["*"], "call": ["*"], "observe": ["*"]}))
    bench.broker.principals.authority.grants["anonymous"] = {"serve": ["*"], "call": ["*"]}  # type: ignore[union-attr]
    performed: list[str] = []
    management.tasks.add({"show_broker": lambda: performed.append("show_broker")})
    client = FakeClient(bench.broker, b"admin")
    client.core.principal = bench.broker.principals.get("admin")
    worker = bench.worker(b"svc")
    client.ask(b"svc")
    bench.broker.forward(worker.core, worker.holds[0], b"mmi.service.broker", frame(b"show_broker"))
    assert performed == []
    assert client.heard[-1][::2] == ("failed", "denied")
    client.ask(b"mmi.service.broker", frame(b"show_broker"))
    assert performed == ["show_broker"]
