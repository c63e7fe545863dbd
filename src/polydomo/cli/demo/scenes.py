"""The programme. An act is a function that plays on the stage; a further protocol adds one here."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
import urllib.request

from rich.padding import Padding

from polydomo.cli import common, inspect
from polydomo.cli.demo.runner import Scene, SceneFailed, SceneRunner
from polydomo.cli.demo.spark_scene import on_spark
from polydomo.dialects.mdp.messages import CLIENT_01
from polydomo.sdk import Client
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.connection import connect
from polydomo.sdk.url import parse
from polydomo.wire.frames import Message, join


async def majordomo(stage: SceneRunner) -> None:
    """MDP/0.2 to MDP/0.2. The other acts' workers start when there is something to read."""
    stage.start_worker("majordomo")
    async with stage.client() as client:
        await stage.offered(client, "upper")
        await _ask(stage, client, "an MDP client", "upper", "hello", "HELLO", "an MDP worker")
    stage.start_worker("dagbox", "dcp")
    for _ in range(2):
        stage.start_worker("steady")


async def dialects(stage: SceneRunner) -> None:
    """Each way round, between dialects that know nothing of each other."""
    async with stage.client("mdp") as mdp, stage.client("dcp") as dcp:
        await stage.offered(mdp, "reverse")
        await _ask(stage, mdp, "an MDP client", "reverse", "desserts", "stressed", "a DagBox worker")
        await _ask(stage, dcp, "a DagBox client", "upper", "hello", "HELLO", "an MDP worker")
        await _ask(stage, dcp, "a DagBox client", "reverse", "drawer", "reward", "a DagBox worker")
    start = time.perf_counter()
    answer = await _call_as_0_1(stage, b"upper", b"hello")
    stage.check("MDP/0.1", answer, b"HELLO")
    took = common.duration(time.perf_counter() - start)
    stage.happened(
        "an MDP/0.1 client, as in the ZeroMQ guide, asks upper(",
        ("hello", "cyan"),
        ") of an MDP/0.2 worker: ",
        (answer.decode(), "bold green"),
        (f"  {took}", "dim"),
    )


async def partials(stage: SceneRunner) -> None:
    """Answers that come piece by piece."""
    async with stage.client() as client:
        handle = client.submit("count", 5)
        got = []
        stage.begin("count(5) answers")
        async for part in handle.partials():
            got.append(part)
            stage.go_on(f" {part}", "cyan")
        final = await handle.result()
        stage.go_on(f" and at last {final}\n", "bold green")
    stage.check("the partial answers", got, [1, 2, 3, 4])
    stage.check("the final answer", final, 5)


async def killed_worker(stage: SceneRunner) -> None:
    """A worker process dies with a job in hand; another one finishes the job."""
    async with stage.client() as client:
        await stage.offered(client, "slow", workers=2)
        handle = client.submit("slow", {"x": 21, "seconds": 0.5})
        seen = handle.partials()
        victim = int(await anext(seen))
        stage.tell(f"worker process {victim} has the job; kill -9 {victim}")
        start = time.perf_counter()
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(10):
            heir = int(await anext(seen))
        took = common.duration(time.perf_counter() - start)
        stage.happened("process ", (str(heir), "bold"), f" was given the job {took} later")
        answer = await handle.result()
        if victim == heir or answer["worker"] != heir:
            raise SceneFailed(f"{answer} from {heir} after {victim} was killed")
        stage.check("the result", answer["result"], 42)
        jobs = await client.jobs(service="slow", limit=1)
        stage.check("the attempts", jobs[0]["attempts"], 2)
        stage.happened(
            "the client got its answer, ",
            ("42", "bold green"),
            ", and never noticed  ",
            ("attempts: 2", "dim"),
        )


async def broadcast(stage: SceneRunner) -> None:
    """One NFP request for every worker of a service, whatever each of them speaks."""
    for dialect in ("mdp", "dcp", "nfp"):
        stage.start_worker(f"greeter_{dialect}", dialect)
    async with stage.client("nfp") as client:
        await stage.offered(client, "greet", workers=3)
        start = time.perf_counter()
        answers = await client.broadcast("greet", "everybody")
        took = common.duration(time.perf_counter() - start)
        said = sorted(str(answer) for answer in answers.values())
        stage.check("the answers", said, sorted(f"hello everybody, says a {kind} worker" for kind in KINDS))
        stage.happened("an NFP client asks ", ("all", "bold"), " workers of greet", (f"  {took}", "dim"))
        for line in said:
            stage.tell(f"  {line}")


async def web_and_memo(stage: SceneRunner) -> None:
    """One service, three kinds of clients; and what was answered once is not done again."""
    stage.start_worker("thorough")
    async with stage.client("mdp") as mdp, stage.client("memo") as memo:
        await stage.offered(mdp, "cube")
        for round_ in ("first", "again"):
            await _ask_by_http(stage, 12, 1728)
            await _ask_number(stage, memo, "a MemoDB client, over NNG,", 13, 2197)
            await _ask_number(stage, mdp, "a Majordomo client", 14, 2744)
            if round_ == "first":
                stage.tell("the same again: cube is memoised, so no worker hears of it")
        rows = await mdp.memos("cube")
    stage.check("the executions", rows[0]["misses"], 3)
    stage.check("the repeats", rows[0]["hits"], 3)
    saved = common.duration(rows[0]["saved_seconds"])
    stage.happened("3 of 6 requests cost nothing: ", (f"{saved} saved", "bold green"))


async def joined(stage: SceneRunner) -> None:
    """A second broker offers its idle worker to the first, over WMP: what is too much for one goes to the other."""
    other, endpoint = stage.household.start_another("--join", stage.url("wmp"), "--drain", "1s")
    here = stage.start_worker("porter")
    away = stage.start_worker("porter", "wmp", endpoint)
    stage.tell(f"a second broker, {endpoint}, is joined to the first; each has one worker that can carry")
    async with stage.client() as client:
        await stage.offered(client, "carry", workers=2)
        start = time.perf_counter()
        jobs = [client.submit("carry", load) for load in ("a box", "another box")]
        answers = await asyncio.gather(*(job.result() for job in jobs))
        took = common.duration(time.perf_counter() - start)
    stage.check("what was carried", [answer["load"] for answer in answers], ["a box", "another box"])
    stage.check(
        "who carried it", sorted(answer["worker"] for answer in answers), sorted((here.pid, away.pid))
    )
    for answer in answers:
        where = "here" if answer["worker"] == here.pid else "at the other broker: its job overflowed"
        stage.happened(
            (answer["load"], "cyan"), " was carried by process ", (str(answer["worker"]), "bold"), f" {where}"
        )
    stage.tell(f"both at the same time: {took}")
    away.kill()
    other.stop()


async def killed_broker(stage: SceneRunner) -> None:
    """Durable jobs, some of them done, when the broker dies."""
    stage.start_worker("careful", "nfp")
    stage.durable.append("square")
    async with stage.client("nfp") as client:
        await stage.offered(client, "square")
        # Its books go with it, but for what it has written down.
        stage.counted = {row["name"]: row["done"] for row in await client.services()}
        await stage.written(stage.counted)
        handles = [client.submit("square", number) for number in range(JOBS)]
        await asyncio.gather(*(handle.accepted() for handle in handles))
        stage.happened(f"{JOBS} NFP jobs were accepted: they are on disk")
        await asyncio.gather(*(handle.result() for handle in handles[: JOBS // 4]))
        done = sum(handle.done() for handle in handles)
        stage.tell(f"{done} are done; kill -9 {stage.broker.pid}, the broker")
        start = time.perf_counter()
        stage.restart_broker()
        took = common.duration(time.perf_counter() - start)
        stage.happened("process ", (str(stage.broker.pid), "bold"), f" took its place {took} later")
        async with asyncio.timeout(60):
            results = await asyncio.gather(*(handle.result() for handle in handles))
    stage.check("the results", results, [number * number for number in range(JOBS)])
    took = common.duration(time.perf_counter() - start)
    stage.happened("the client has ", (f"{JOBS} of {JOBS}", "bold green"), f" results {took} after the kill")


async def books(stage: SceneRunner) -> None:
    """What the broker knows of all this."""
    async with stage.client() as client:
        rows = await client.services()
    if not rows or any(row["failed"] for row in rows):
        raise SceneFailed(f"jobs failed: {rows}")
    common.show(Padding.indent(inspect.services_table(rows), 5))


KINDS = ("Majordomo", "DagBox", "NORFAB")
JOBS = 100

SCENES = [
    Scene("A worker and a client, both Majordomo (MDP/0.2)", majordomo),
    Scene("Other dialects call each other through it", dialects),
    Scene("Partial answers arrive as they are made", partials),
    Scene("A worker is killed in the middle of a job", killed_worker),
    Scene("One request for all workers of three protocols (NFP)", broadcast),
    Scene("curl, NNG and ZeroMQ call the same service; a repeat costs nothing", web_and_memo),
    Scene("Two brokers joined: what is too much for one overflows to the other (WMP)", joined),
    Scene("The broker itself is killed, with durable jobs under way", killed_broker),
    Scene("What the broker knows of it (polydomo services ls)", books),
    Scene("All of it as tables, and a capacity plan, by Spark (polydomo spark)", on_spark),
]


async def _ask(
    stage: SceneRunner, client: Client, who: str, service: str, body: str, expected: str, whom: str
) -> None:
    """One call, told in one line."""
    start = time.perf_counter()
    answer = await client.call(service, body)
    took = common.duration(time.perf_counter() - start)
    stage.check(f"{who} asks {service}", answer, expected)
    stage.happened(
        f"{who} asks {service}(",
        (body, "cyan"),
        f") of {whom}: ",
        (answer, "bold green"),
        (f"  {took}", "dim"),
    )


async def _ask_number(stage: SceneRunner, client: Client, who: str, number: int, expected: int) -> None:
    start = time.perf_counter()
    answer = await client.call("cube", number)
    took = common.duration(time.perf_counter() - start)
    stage.check(who, answer, expected)
    stage.happened(
        f"{who} asks cube(", (str(number), "cyan"), "): ", (str(answer), "bold green"), (f"  {took}", "dim")
    )


async def _ask_by_http(stage: SceneRunner, number: int, expected: int) -> None:
    """With curl where there is one; otherwise the same request by Python."""
    url = f"http://{stage.http}/v1/services/cube/jobs"
    start = time.perf_counter()
    if shutil.which("curl"):
        who = f"curl {url} -H 'Prefer: wait' -d {number}"
        words = ("curl", "-sS", url, "-H", "Prefer: wait", "-d", str(number))
        curl = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        said, _ = await curl.communicate()
    else:
        who = f"POST {url}, as curl would, of {number}"
        request = urllib.request.Request(url, str(number).encode(), {"Prefer": "wait"})
        said = await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=15).read())
    took = common.duration(time.perf_counter() - start)
    stage.check(who, said, str(expected).encode())
    stage.happened((who, "cyan"), ": ", (said.decode(), "bold green"), (f"  {took}", "dim"))


async def _call_as_0_1(stage: SceneRunner, service: bytes, body: bytes) -> bytes:
    """As the examples of the ZeroMQ guide do it: an empty frame, MDPC01, the service, the body."""
    answer: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    def received(message: Message) -> None:
        answer.set_result(message.frames())

    def lost(reason: str) -> None:
        answer.set_exception(SceneFailed(f"the connection was lost: {reason}"))

    dealer = await connect(parse(stage.url()).places[0], received, lost, clock=REAL_TIME)
    dealer.send(join([b"", CLIENT_01, service, body]))
    async with asyncio.timeout(10):
        frames = await answer
    dealer.close()
    stage.check("the answer's head", frames[:3], [b"", CLIENT_01, service])
    return frames[3]
