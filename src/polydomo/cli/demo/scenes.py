"""The demo's scenes: functions that are given a `SceneRunner`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import urllib.request
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rich.padding import Padding

from polydomo.cli import common, inspect
from polydomo.cli.common import Stopwatch
from polydomo.cli.demo.runner import Scene, SceneFailed, SceneRunner
from polydomo.cli.demo.spark_scene import on_spark
from polydomo.dialects.mdp.messages import CLIENT_01
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.connection import Dealer
from polydomo.sdk.transport import open_transport
from polydomo.sdk.url import parse
from polydomo.wire.frames import Message, join


async def majordomo(runner: SceneRunner) -> None:
    """Call an MDP/0.2 worker from an MDP/0.2 client. Then start the workers of the next scenes."""
    runner.start_worker("majordomo")
    async with runner.client() as client:
        await runner.wait_for_workers(client, "upper")
        await _call(runner, client.call, "an MDP client", "upper", "hello", "HELLO", "an MDP worker")
    runner.start_worker("reverse", "dcp")
    for _ in range(2):
        runner.start_worker("slow")


async def dialects(runner: SceneRunner) -> None:
    """Call workers of one dialect from clients of another."""
    async with runner.client("mdp") as mdp, runner.client("dcp") as dcp:
        await runner.wait_for_workers(mdp, "reverse")
        await _call(runner, mdp.call, "an MDP client", "reverse", "desserts", "stressed", "a DagBox worker")
        await _call(runner, dcp.call, "a DagBox client", "upper", "hello", "HELLO", "an MDP worker")
        await _call(runner, dcp.call, "a DagBox client", "reverse", "drawer", "reward", "a DagBox worker")
    old, who = partial(_call_as_0_1, runner), "an MDP/0.1 client, as in the ZeroMQ guide,"
    await _call(runner, old, who, "upper", "hello", "HELLO", "an MDP/0.2 worker")


async def partials(runner: SceneRunner) -> None:
    """Print partial replies as they arrive."""
    async with runner.client() as client:
        handle = client.submit("count", 5)
        got = []
        runner.begin_line("count(5) returns")
        async for part in handle.partials():
            got.append(part)
            runner.extend_line(f" {part}", "cyan")
        final = await handle.result()
        runner.extend_line(f" and finally {final}\n", "bold green")
    runner.check("the partial answers", got, [1, 2, 3, 4])
    runner.check("the final answer", final, 5)


async def killed_worker(runner: SceneRunner) -> None:
    """Kill a worker that has a job; another worker finishes the job."""
    async with runner.client() as client:
        await runner.wait_for_workers(client, "slow", workers=2)
        handle = client.submit("slow", {"x": 21, "seconds": 0.5})
        seen = handle.partials()
        victim = int(await anext(seen))
        runner.note(f"worker process {victim} has the job; kill -9 {victim}")
        watch = Stopwatch()
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(10):
            successor = int(await anext(seen))
        runner.report("process ", (str(successor), "bold"), f" got the job after {watch}")
        answer = await handle.result()
        if victim == successor or answer["worker"] != successor:
            raise SceneFailed(f"{answer} from {successor} after {victim} was killed")
        runner.check("the result", answer["result"], 42)
        jobs = await client.jobs(service="slow", limit=1)
        runner.check("the attempts", jobs[0]["attempts"], 2)
        runner.report(
            "the client got its answer, ",
            ("42", "bold green"),
            ", without noticing  ",
            ("attempts: 2", "dim"),
        )


async def broadcast(runner: SceneRunner) -> None:
    """Send one NFP request to all workers of a service, in three dialects."""
    for dialect in ("mdp", "dcp", "nfp"):
        runner.start_worker(f"greeter_{dialect}", dialect)
    async with runner.client("nfp") as client:
        await runner.wait_for_workers(client, "greet", workers=3)
        watch = Stopwatch()
        answers = await client.broadcast("greet", "everybody")
        took = str(watch)
        greetings = sorted(str(answer) for answer in answers.values())
        runner.check(
            "the answers", greetings, sorted(f"hello everybody, says a {kind} worker" for kind in KINDS)
        )
        runner.report("an NFP client calls ", ("all", "bold"), " workers of greet", (f"  {took}", "dim"))
        for line in greetings:
            runner.note(f"  {line}")


async def web_and_memo(runner: SceneRunner) -> None:
    """Call one service from three kinds of clients, twice: the second time from the cache."""
    runner.start_worker("cube")
    async with runner.client("mdp") as mdp, runner.client("memo") as memo:
        await runner.wait_for_workers(mdp, "cube")
        for round_ in ("first", "again"):
            await _call_by_http(runner, 12, 1728)
            await _call(runner, memo.call, "a MemoDB client, over NNG,", "cube", 13, 2197)
            await _call(runner, mdp.call, "a Majordomo client", "cube", 14, 2744)
            if round_ == "first":
                runner.note("the same requests again: cube is memoised, so that no worker is called")
        rows = await mdp.memos("cube")
    runner.check("executions", rows[0]["misses"], 3)
    runner.check("cache hits", rows[0]["hits"], 3)
    saved = common.duration(rows[0]["saved_seconds"])
    runner.report("3 of 6 results came from the cache: ", (f"{saved} saved", "bold green"))


async def joined(runner: SceneRunner) -> None:
    """Join a second broker, which offers its idle worker to the first over WMP."""
    other, endpoint = runner.group.start_another("--join", runner.url("wmp"), "--drain", "1s")
    here = runner.start_worker("carry")
    away = runner.start_worker("carry", "wmp", endpoint)
    runner.note(f"a second broker, {endpoint}, joins the first; each has one worker for carry")
    async with runner.client() as client:
        await runner.wait_for_workers(client, "carry", workers=2)
        watch = Stopwatch()
        jobs = [client.submit("carry", load) for load in ("a box", "another box")]
        answers = await asyncio.gather(*(job.result() for job in jobs))
        took = str(watch)
    runner.check("what was carried", [answer["load"] for answer in answers], ["a box", "another box"])
    runner.check(
        "who carried it", sorted(answer["worker"] for answer in answers), sorted((here.pid, away.pid))
    )
    for answer in answers:
        where = "here" if answer["worker"] == here.pid else "at the other broker"
        runner.report(
            (answer["load"], "cyan"), " was carried by process ", (str(answer["worker"]), "bold"), f" {where}"
        )
    runner.note(f"both jobs took {took} together")
    away.kill()
    other.stop()


async def killed_broker(runner: SceneRunner) -> None:
    """Kill the broker while durable jobs are queued."""
    runner.start_worker("careful", "nfp")
    runner.durable.append("square")
    async with runner.client("nfp") as client:
        await runner.wait_for_workers(client, "square")
        # The broker's counters are lost with it, except for what is in the ledger.
        runner.done_before = {row["name"]: row["done"] for row in await client.services()}
        await runner.wait_for_ledger(runner.done_before)
        handles = [client.submit("square", number) for number in range(JOBS)]
        await asyncio.gather(*(handle.accepted() for handle in handles))
        runner.report(f"{JOBS} NFP jobs were accepted and are on disk")
        await asyncio.gather(*(handle.result() for handle in handles[: JOBS // 4]))
        done = sum(handle.done() for handle in handles)
        runner.note(f"{done} are done; kill -9 {runner.broker.pid}, the broker")
        watch = Stopwatch()
        runner.restart_broker()
        runner.report("process ", (str(runner.broker.pid), "bold"), f" replaced it after {watch}")
        async with asyncio.timeout(60):
            results = await asyncio.gather(*(handle.result() for handle in handles))
    runner.check("the results", results, [number * number for number in range(JOBS)])
    runner.report("the client has ", (f"{JOBS} of {JOBS}", "bold green"), f" results {watch} after the kill")


async def counters(runner: SceneRunner) -> None:
    """Show the broker's own counters."""
    async with runner.client() as client:
        rows = await client.services()
    if not rows or any(row["failed"] for row in rows):
        raise SceneFailed(f"jobs failed: {rows}")
    common.show(Padding.indent(inspect.services_table(rows), 5))


KINDS = ("Majordomo", "DagBox", "NORFAB")
JOBS = 100

SCENES = [
    Scene("A client and a worker, both Majordomo (MDP/0.2)", majordomo),
    Scene("Clients and workers of different protocols", dialects),
    Scene("Partial replies arrive as they are made", partials),
    Scene("A worker is killed while it runs a job", killed_worker),
    Scene("One request to all workers of three protocols (NFP)", broadcast),
    Scene("curl, NNG and ZeroMQ call the same service; repeats are cached", web_and_memo),
    Scene("Two joined brokers: excess jobs go to the other (WMP)", joined),
    Scene("The broker is killed while it has durable jobs", killed_broker),
    Scene("The broker's counters (polydomo services ls)", counters),
    Scene("Tables and a capacity plan, computed by Spark (polydomo spark)", on_spark),
]


async def _call(
    runner: SceneRunner,
    call: Callable[[str, Any], Awaitable[Any]],
    who: str,
    service: str,
    body: Any,
    expected: Any,
    worker: str = "",
) -> None:
    """Make a call and report it in one line."""
    watch = Stopwatch()
    result = await call(service, body)
    took = str(watch)
    runner.check(f"{who} calls {service}", result, expected)
    runner.report(
        f"{who} calls {service}(",
        (str(body), "cyan"),
        f") of {worker}: " if worker else "): ",
        (str(result), "bold green"),
        (f"  {took}", "dim"),
    )


async def _call_by_http(runner: SceneRunner, number: int, expected: int) -> None:
    """Make an HTTP request with curl, or with Python if there is no curl."""
    url = f"http://{runner.http}/v1/services/cube/jobs"
    watch = Stopwatch()
    if shutil.which("curl"):
        who = f"curl {url} -H 'Prefer: wait' -d {number}"
        words = ("curl", "-sS", url, "-H", "Prefer: wait", "-d", str(number))
        curl = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        reply, _ = await curl.communicate()
    else:
        who = f"POST {url}, as curl would, of {number}"
        request = urllib.request.Request(url, str(number).encode(), {"Prefer": "wait"})
        reply = await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=15).read())
    runner.check(who, reply, str(expected).encode())
    runner.report((who, "cyan"), ": ", (reply.decode(), "bold green"), (f"  {watch}", "dim"))


async def _call_as_0_1(runner: SceneRunner, service: str, body: str) -> str:
    """Make an MDP/0.1 call as in the ZeroMQ guide: an empty frame, MDPC01, the service, the body."""
    answer: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    def received(message: Message) -> None:
        answer.set_result(message.frames())

    def lost(reason: str) -> None:
        answer.set_exception(SceneFailed(f"the connection was lost: {reason}"))

    dealer = Dealer(parse(runner.url()).addresses[0], REAL_TIME, received, lost)
    await open_transport(dealer)
    head = [b"", CLIENT_01, service.encode()]
    dealer.send(join([*head, body.encode()]))
    async with asyncio.timeout(10):
        frames = await answer
    dealer.close()
    runner.check("the answer's head", frames[:3], head)
    return frames[3].decode()
