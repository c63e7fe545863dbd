"""NFP, what it asks of a broker towards clients (topology, formats, statuses, §NFP/Client, §Job Persistence), in the
specification's own form, with REQ and DEALER sockets that are not ours."""

from __future__ import annotations

from typing import Any

import pytest
import zmq

from tests.support.broker import BrokerProcess, wait_for
from tests.support.nfp import (
    DELETE,
    GET,
    MMI,
    OPEN,
    POST,
    PUT,
    RESPONSE,
    NfpClient,
    NfpReqClient,
    NfpWorker,
    new_uuid,
)
from tests.support.peers import Manager, Peer, Peers, Serving, peers_of

CLIENTS = pytest.mark.parametrize("form", [NfpReqClient, NfpClient], ids=["REQ", "DEALER"])


def named(peers: Peers, service: bytes, *names: str) -> list[Any]:
    workers = [peers(NfpWorker, service, opening={"name": name}) for name in names]
    for worker in workers:
        worker.fence()
    return workers


def echo(peers: Peers, service: bytes, name: str = "echo") -> Serving:
    """A worker that gives back what it gets."""

    def make(context: zmq.Context) -> NfpWorker:
        return NfpWorker(peers.endpoint, service, opening={"name": name}, context=context)

    serving = Serving(make)
    peers.open.append(serving)
    return serving


# §Overall Topology


@pytest.mark.clause("NFP-T-01")
def test_clients_are_served_on_a_fair_basis(peers: Peers, service: bytes):
    """§Overall Topology: one client's ten jobs do not come before another's one."""
    greedy, modest = peers(NfpClient), peers(NfpClient)
    for _ in range(10):
        greedy.post(service, b"greedy")
    modest.post(service, b"modest")
    worker = peers(NfpWorker, service)
    order = []
    for _ in range(11):
        task = worker.take()
        order.append(task.body[0])
        worker.reply(task, [b"done"])
    assert order.index(b"modest") <= 1


@pytest.mark.clause("NFP-T-02")
@CLIENTS
def test_any_is_one_worker(peers: Peers, service: bytes, form: type):
    """§Overall Topology: requests go where the client's target says: `any`."""
    workers = named(peers, service, "w1", "w2")
    client = peers(form)
    uuids = [client.post(service, b"x", target=b"any") for _ in range(2)]
    tasks = [worker.take() for worker in workers]
    assert sorted(task.metadata[0] for task in tasks) == sorted(uuids)


@pytest.mark.clause("NFP-T-02")
@CLIENTS
@pytest.mark.parametrize("target", [b"all", b""])
def test_all_is_every_worker(peers: Peers, service: bytes, form: type, target: bytes):
    """§Overall Topology: requests go where the client's target says: `all`, which is also the default."""
    workers = named(peers, service, "w1", "w2", "w3")
    client = peers(form)
    uuid = client.post(service, b"x", target=target)
    for number, worker in enumerate(workers):
        task = worker.take()
        assert task.metadata == (uuid,)
        worker.reply(task, [b"%d" % number])
    reply = client.result(service, uuid)
    assert (reply.status, reply.said) == (b"200", {"w1": 0, "w2": 1, "w3": 2})


@pytest.mark.clause("NFP-T-02")
@pytest.mark.parametrize("target", [b"w1,w3", b" w1 , w3 ", b'["w1","w3"]'])
def test_names_are_those_workers(peers: Peers, service: bytes, target: bytes):
    """§POST: a comma separated list of names; norfab's JSON list is understood too."""
    workers = named(peers, service, "w1", "w2", "w3")
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x", target=target)
    for worker in (workers[0], workers[2]):
        worker.reply(worker.take(), [b"me"])
    assert client.result(service, uuid).said == {"w1": "me", "w3": "me"}
    assert workers[1].fence() == []


@pytest.mark.clause("NFP-T-02")
def test_a_name_is_that_worker(peers: Peers, service: bytes):
    """§Overall Topology: requests go where the client's target says: one worker by its name."""
    first, second = named(peers, service, "w1", "w2")
    client = peers(NfpReqClient)
    for _ in range(3):
        uuid = client.post(service, b"x", target=b"w2")
        second.reply(second.take(), [b"from", b"w2"])
        assert client.result(service, uuid).body == [b"from", b"w2"]
    assert first.fence() == []


@pytest.mark.clause("NFP-T-02")
def test_a_worker_s_identity_is_its_name(peers: Peers, service: bytes):
    """§Overall Topology: a worker that says no name is called by its socket's identity."""
    peers(NfpWorker, service, identity=b"other").fence()
    worker = peers(NfpWorker, service, identity=b"me")
    worker.fence()
    client = peers(NfpReqClient)
    client.post(service, b"x", target=b"me")
    assert worker.take().body == [b"x"]


@pytest.mark.clause("NFP-T-02")
def test_a_job_for_a_worker_that_is_not_there_yet_waits_for_it(peers: Peers, service: bytes):
    """§Overall Topology: others of its service do not get it."""
    (other,) = named(peers, service, "w1")
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x", target=b"w2")
    assert client.get(service, uuid).status == b"300"
    assert other.fence() == []
    wanted = peers(NfpWorker, service, opening={"name": "w2"})
    wanted.reply(wanted.take(), [b"mine"])
    assert client.result(service, uuid).body == [b"mine"]


@pytest.mark.clause("NFP-T-02")
def test_a_resource_is_reached_through_the_worker_that_has_it(peers: Peers, service: bytes):
    """§Goals: workers manage resources, and jobs can be addressed to them (ours: how the target says it)."""
    workers = [
        peers(NfpWorker, service, opening={"name": f"w{n}", "resources": [f"r{n}", "shared"]})
        for n in range(2)
    ]
    for worker in workers:
        worker.fence()
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x", target=b"resource:r1")
    workers[1].reply(workers[1].take(), [b"w1 has r1"])
    assert client.result(service, uuid).body == [b"w1 has r1"]
    uuid = client.post(service, b"x", target=b"resource:r0,resource:r1")
    for worker in workers:
        worker.reply(worker.take(), [b"me"])
    assert client.result(service, uuid).said == {"w0": "me", "w1": "me"}


@pytest.mark.clause("NFP-T-03")
def test_clients_and_workers_do_not_see_each_other(peers: Peers, service: bytes):
    """§Overall Topology: the broker stands between them: a worker does not learn who its client is."""
    worker = peers(NfpWorker, service)
    client = peers(NfpClient, identity=b"the client")
    uuid = client.post(service, b"x")
    frames = worker.expect(POST)
    assert b"the client" not in frames
    worker.command(RESPONSE, b"the client", b"", uuid, b"200", b"past the broker")
    worker.expect(b"\x03")
    assert client.get(service, uuid).status == b"300"


@pytest.mark.clause("NFP-T-04")
def test_the_broker_has_its_management_and_an_inventory(peers: Peers):
    """§Overall Topology: both are part of the broker itself."""
    client = peers(NfpReqClient)
    assert client.mmi("show_broker")["version"]
    reply = client.ask(
        MMI,
        b"sid.service.broker",
        b"any",
        b"q",
        b'{"task":"get_inventory","kwargs":{"name":"nobody"},"args":[]}',
    )
    assert (reply.command, reply.status) == (MMI, b"200")


# §ROUTER Addressing


@pytest.mark.clause("NFP-A-01")
def test_the_broker_is_a_router(peers: Peers, service: bytes):
    """§ROUTER Addressing: MUST be one: REQ and DEALER peers, many on one socket, each gets its own answers."""
    echo(peers, service)
    clients = [peers(form) for form in (NfpReqClient, NfpClient) for _ in range(5)]
    uuids = [client.post(service, b"%d" % number) for number, client in enumerate(clients)]
    for number, (client, uuid) in enumerate(zip(clients, uuids, strict=True)):
        assert client.result(service, uuid).body == [b"%d" % number]


@pytest.mark.clause("NFP-A-02")
def test_both_sub_protocols_share_a_socket_or_have_one_each(service: bytes):
    """§ROUTER Addressing: MAY be either."""
    with (
        BrokerProcess("--zmq", "tcp://127.0.0.1:*") as broker,
        peers_of(broker.endpoints[0]) as front,
        peers_of(broker.endpoints[1]) as back,
    ):
        worker = back(NfpWorker, service)
        for client in (front(NfpReqClient), back(NfpReqClient)):
            uuid = client.post(service, b"x")
            worker.reply(worker.take(), [b"y"])
            assert client.result(service, uuid).body == [b"y"]


# §NFP messages


@pytest.mark.clause("NFP-F-01")
@CLIENTS
@pytest.mark.parametrize("body", [b"", b"{}", b'{"name":"me","version":"1.0"}', b"\x00opaque\xff"])
def test_open_is_confirmed(peers: Peers, form: type, body: bytes):
    """§OPEN: four frames; confirmed with the same command, and the broker's values."""
    hello = peers(form).open(body)
    assert hello["broker"]
    assert hello["version"]
    assert (hello["keepalive_ms"], hello["liveness"]) == (2500, 4)
    assert isinstance(hello["limits"], dict)


@pytest.mark.clause("NFP-F-01")
@pytest.mark.parametrize("frames", [[], [b"{}", b"{}"]])
def test_an_open_of_other_frames_is_dropped(peers: Peers, frames: list[bytes]):
    client = peers(NfpClient)
    client.command(OPEN, *frames)
    assert client.fence() == []


@pytest.mark.clause("NFP-F-05")
@pytest.mark.clause("NFP-F-06")
@CLIENTS
def test_post_and_response_have_seven_frames_or_more(peers: Peers, service: bytes, form: type):
    """§POST, §RESPONSE: header, command, service, target or UUID, UUID or status, body of one frame or more."""
    worker, client = peers(NfpWorker, service), peers(form)
    uuid = new_uuid()
    client.command(POST, service, b"any", uuid, b"one", b"", b"two")
    reply = client.reply()
    assert (reply.command, reply.service, reply.uuid, reply.status) == (RESPONSE, service, uuid, b"202")
    assert reply.said["uuid"] == uuid.decode()
    assert len(reply.body) == 1
    token, delimiter, given, *body = worker.expect(POST)
    assert (delimiter, given, body) == (b"", uuid, [b"one", b"", b"two"])
    worker.command(RESPONSE, token, b"", uuid, b"200", b"three", b"")
    assert client.result(service, uuid) == (RESPONSE, service, uuid, b"200", [b"three", b""])


@pytest.mark.clause("NFP-F-05")
@pytest.mark.parametrize("command", [POST, GET, DELETE, PUT, MMI])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_shorter_messages_are_dropped(peers: Peers, command: bytes, count: int):
    """§POST, §GET, §DELETE: without a UUID nobody can be told."""
    client = peers(NfpClient)
    client.command(command, *[b"svc", b"any"][:count])
    assert client.fence() == []


@pytest.mark.clause("NFP-F-05")
@pytest.mark.parametrize("command", [POST, GET, DELETE])
def test_a_message_without_a_body_is_400(peers: Peers, command: bytes):
    """§POST, §GET, §DELETE: seven frames; a UUID was readable, so the client is told."""
    client = peers(NfpReqClient)
    reply = client.ask(command, b"svc", b"any", b"u1")
    assert reply.status == b"400"
    assert "body" in reply.said["error"]


@pytest.mark.clause("NFP-F-07")
@CLIENTS
def test_get_retrieves_a_result(peers: Peers, service: bytes, form: type):
    """§GET: as often as one likes."""
    echo(peers, service)
    client = peers(form)
    uuid = client.post(service, b"a", b"b")
    assert client.result(service, uuid).body == [b"a", b"b"]
    assert client.get(service, uuid).body == [b"a", b"b"]


@pytest.mark.clause("NFP-F-07")
def test_get_is_relayed_to_workers_for_jobs_the_broker_does_not_know(peers: Peers, service: bytes):
    """§GET: a worker may have kept what the broker has forgotten."""
    (worker,) = named(peers, service, "w1")
    client = peers(NfpReqClient)
    client.command(GET, service, b"w1", b"an old one", b"body", b"of get")
    token, delimiter, uuid, *body = worker.expect(GET)
    assert (delimiter, uuid, body) == (b"", b"an old one", [b"body", b"of get"])
    worker.command(RESPONSE, token, b"", uuid, b"200", b"kept")
    reply = client.reply()
    assert (reply.status, reply.body) == (b"200", [b"kept"])


@pytest.mark.clause("NFP-F-08")
@CLIENTS
def test_delete_of_a_queued_job(peers: Peers, service: bytes, form: type):
    """§DELETE: it is never given to a worker."""
    client = peers(form)
    uuid = client.post(service, b"unwanted")
    reply = client.ask(DELETE, service, b"any", uuid, b"")
    assert (reply.command, reply.status) == (RESPONSE, b"200")
    assert client.result(service, uuid).said["reason"] == "cancelled"
    echo(peers, service)
    assert client.call(service, [b"next"]).final == [b"next"]


@pytest.mark.clause("NFP-F-08")
@CLIENTS
def test_delete_of_a_running_job_is_relayed_to_its_worker(peers: Peers, service: bytes, form: type):
    """§DELETE: the worker is told; its late answer reaches nobody, and it is given the next job after it."""
    worker, client = peers(NfpWorker, service), peers(form)
    uuid = client.post(service, b"unwanted")
    task = worker.take()
    assert client.ask(DELETE, service, b"any", uuid, b"").status == b"200"
    assert worker.expect(DELETE) == [task.address, b"", uuid, b""]
    reply = client.result(service, uuid)
    assert (reply.status, reply.said["reason"]) == (b"500", "cancelled")
    worker.reply(task, [b"too late"])
    assert client.get(service, uuid).status == b"500"
    again = client.post(service, b"wanted")
    worker.reply(worker.take(), [b"done"])
    assert client.result(service, again).body == [b"done"]


@pytest.mark.clause("NFP-F-08")
def test_delete_of_a_job_for_several_workers_tells_them_all(peers: Peers, service: bytes):
    """§DELETE: distributed among the workers."""
    workers = named(peers, service, "w1", "w2")
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x", target=b"all")
    tasks = [worker.take() for worker in workers]
    assert client.ask(DELETE, service, b"all", uuid, b"").status == b"200"
    for worker, task in zip(workers, tasks, strict=True):
        assert worker.expect(DELETE)[0] == task.address


@pytest.mark.clause("NFP-F-08")
def test_delete_of_an_unknown_job_is_400(peers: Peers):
    """§DELETE: there is nothing to cancel."""
    assert peers(NfpReqClient).ask(DELETE, b"svc", b"any", new_uuid(), b"").status == b"400"


@pytest.mark.clause("NFP-F-09")
def test_put_gives_a_running_job_more(peers: Peers, service: bytes):
    """(ours) PUT, norfab's command, in the specification's form."""
    worker, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = client.post(service, b"x")
    task = worker.take()
    assert client.ask(PUT, service, b"any", uuid, b"more", b"").status == b"202"
    assert worker.expect(PUT) == [task.address, b"", uuid, b"more", b""]
    worker.reply(task, [b"done"])
    assert client.result(service, uuid).status == b"200"
    assert client.ask(PUT, service, b"any", uuid, b"more").status == b"400"


# §Status Frames


@pytest.mark.clause("NFP-S-01")
@pytest.mark.parametrize("status", [b"200", b"200 OK", b"200 500 no good"])
def test_the_text_of_a_status_means_nothing(peers: Peers, service: bytes, status: bytes):
    """§Status Frames: three digits decide, also of what workers send."""
    worker, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = client.post(service, b"x")
    worker.respond(worker.take(), status, b"fine")
    reply = client.result(service, uuid)
    assert (reply.status, reply.body) == (b"200", [b"fine"])


@pytest.mark.clause("NFP-S-02")
def test_200_and_202_and_300(peers: Peers, service: bytes):
    """§Status Frames: accepted, pending, done."""
    worker, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = new_uuid()
    assert client.ask(POST, service, b"any", uuid, b"x").status == b"202"
    task = worker.take()
    reply = client.get(service, uuid)
    assert (reply.status, reply.said["status"]) == (b"300", "RUNNING")
    worker.reply(task, [b"done"])
    assert client.result(service, uuid).status == b"200"


@pytest.mark.clause("NFP-S-02")
@pytest.mark.parametrize("status", [b"400", b"408", b"417", b"500"])
def test_400_408_417_500_of_a_worker_are_passed_on(peers: Peers, service: bytes, status: bytes):
    """§Status Frames: what the worker says of the job, with its reason."""
    worker, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = client.post(service, b"x")
    worker.respond(worker.take(), status, b"because")
    reply = client.result(service, uuid)
    assert reply.status == status
    assert "because" in reply.said["error"]
    assert reply.said["reason"] == "worker-error"


@pytest.mark.clause("NFP-S-02")
def test_only_the_specification_s_statuses_are_used(peers: Peers, service: bytes):
    """§Status Frames: norfab's own (201, 102, 404) are for norfab's peers."""
    worker, client = peers(NfpWorker, service), peers(NfpClient)
    uuid = client.post(service, b"x")
    task = worker.take()
    worker.respond(task, b"201", b"{}")
    worker.respond(task, b"102", b"{}")
    worker.fence()
    assert client.get(service, uuid).status == b"300"
    worker.respond(task, b"404", b"{}")
    assert client.result(service, uuid).status == b"500"
    assert client.fence() == []


@pytest.mark.clause("NFP-S-03")
def test_300_is_worth_asking_again(peers: Peers, service: bytes):
    """§Status Frames: pending; the same GET succeeds later."""
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x")
    assert [client.get(service, uuid).status for _ in range(3)] == [b"300"] * 3
    echo(peers, service)
    assert client.result(service, uuid).status == b"200"


@pytest.mark.clause("NFP-S-04")
def test_400_stays_400(peers: Peers, service: bytes):
    """§Status Frames: an unknown UUID is not worth asking for again."""
    client = peers(NfpReqClient)
    uuid = new_uuid()
    replies = [client.get(service, uuid) for _ in range(2)]
    assert [reply.status for reply in replies] == [b"400"] * 2
    assert replies[0].said["reason"] == "unknown"


@pytest.mark.clause("NFP-S-05")
def test_500_is_worth_trying_again_later(hasty_peers: Peers, service: bytes):
    """§Status Frames: a full queue refuses; the same job is taken when there is room."""
    service = b"small." + service
    client = hasty_peers(NfpReqClient)
    first, second = client.post(service, b"1"), new_uuid()
    reply = client.ask(POST, service, b"any", second, b"2")
    assert (reply.status, reply.said["reason"]) == (b"500", "queue-full")
    echo(hasty_peers, service)
    assert client.result(service, first).status == b"200"
    client.post(service, b"2", uuid=second)
    assert client.result(service, second).body == [b"2"]


# §NFP/Client


@pytest.mark.clause("NFP-C-01")
@CLIENTS
def test_the_dialog_is_strictly_synchronous(peers: Peers, service: bytes, form: type):
    """§NFP/Client: one RESPONSE for each command, and nothing else ever."""
    worker, client = peers(NfpWorker, service), peers(form)
    client.open()
    uuid = client.post(service, b"x")
    task = worker.take()
    worker.command(b"\x08", task.address, b"", uuid, b"200", b"kind", b"event")
    worker.command(b"\x09", task.address, b"", uuid, b"200", b"piece")
    worker.reply(task, [b"done"])
    assert worker.fence() == []
    if form is NfpClient:
        assert client.fence() == []
    assert client.result(service, uuid).body == [b"done"]


@pytest.mark.clause("NFP-C-01")
def test_a_client_may_ask_to_be_told_unasked(peers: Peers, service: bytes):
    """(ours) `"push": true` in OPEN: events, pieces and the end come by themselves."""
    worker, client = peers(NfpWorker, service, identity=b"w1"), peers(NfpClient)
    client.open(b'{"push":true}')
    uuid = client.post(service, b"x")
    task = worker.take()
    worker.command(b"\x08", task.address, b"", uuid, b"200", b"kind", b"event")
    worker.command(b"\x09", task.address, b"", uuid, b"200", b"piece", b"")
    worker.reply(task, [b"done"])
    assert client.reply() == (b"\x08", service, uuid, b"200", [b"w1", b"kind", b"event"])
    assert client.reply() == (b"\x09", service, uuid, b"200", [b"w1", b"piece", b""])
    assert client.reply() == (RESPONSE, service, uuid, b"200", [b"done"])


@pytest.mark.clause("NFP-C-02")
def test_clients_with_req_sockets_are_served(peers: Peers, service: bytes):
    """§NFP/Client: a REQ socket adds and takes the empty frame; a hundred jobs, one after the other."""
    echo(peers, service)
    client = peers(NfpReqClient)
    client.open()
    for number in range(100):
        assert client.call(service, [b"%d" % number]).final == [b"%d" % number]


@pytest.mark.clause("NFP-C-03")
def test_a_client_may_send_a_request_again_on_a_new_socket(peers: Peers, service: bytes):
    """§NFP/Client: the recommended strategy. The same UUID is the same job: it is done once."""
    uuid = new_uuid()
    first = peers(NfpReqClient)
    first.command(POST, service, b"any", uuid, b"x")
    first.close()
    second = peers(NfpReqClient)
    second.post(service, b"x", uuid=uuid)
    second.post(service, b"x", uuid=uuid)
    serving = echo(peers, service)
    assert second.result(service, uuid).body == [b"x"]
    assert second.call(service, [b"y"]).final == [b"y"]
    assert serving.done == 2


@pytest.mark.clause("NFP-C-03")
def test_a_uuid_means_one_job(peers: Peers, service: bytes):
    """§NFP/Client: another job under a UUID that is taken is refused."""
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x")
    reply = client.ask(POST, service, b"any", uuid, b"something else")
    assert (reply.status, reply.said["reason"]) == (b"400", "duplicate-id")


@pytest.mark.clause("NFP-C-04")
@CLIENTS
def test_jobs_for_a_service_without_workers_are_queued(peers: Peers, service: bytes, form: type):
    """§NFP/Client: SHOULD be; in the order they came."""
    client = peers(form)
    uuids = [client.post(service, b"%d" % number) for number in range(5)]
    worker = peers(NfpWorker, service)
    for uuid in uuids:
        task = worker.take()
        assert task.metadata == (uuid,)
        worker.reply(task, task.body)
    assert client.result(service, uuids[-1]).body == [b"4"]


@pytest.mark.clause("NFP-C-04")
def test_jobs_for_all_workers_wait_for_the_first(peers: Peers, service: bytes):
    """§NFP/Client: also with the target `all`."""
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x", target=b"all")
    worker = peers(NfpWorker, service, opening={"name": "w1"})
    worker.reply(worker.take(), [b"1"])
    assert client.result(service, uuid).said == {"w1": 1}


@pytest.mark.clause("NFP-C-05")
def test_queued_jobs_expire_after_a_configurable_time(hasty_peers: Peers, service: bytes):
    """§NFP/Client: SHOULD be: by the service's configuration."""
    service = b"hasty." + service
    client = hasty_peers(NfpReqClient)
    uuid = client.post(service, b"x")
    reply = client.result(service, uuid)
    assert (reply.status, reply.said["reason"]) == (b"408", "expired")
    worker = hasty_peers(NfpWorker, service)
    assert worker.fence() == []


@pytest.mark.clause("NFP-C-05")
@pytest.mark.parametrize("target", [b"any", b"all", b"nobody", b"a,b", b"resource:r"])
@pytest.mark.parametrize("body", [b'{"timeout":0.3}', b'{"options":{"wait":0.3}}'])
def test_queued_jobs_expire_when_their_client_says(peers: Peers, service: bytes, target: bytes, body: bytes):
    """§NFP/Client: SHOULD be: the job's own time-out, whatever its target."""
    client = peers(NfpReqClient)
    uuid = client.post(service, body, target=target)
    reply = client.result(service, uuid)
    assert (reply.status, reply.said["reason"]) == (b"408", "expired")


@pytest.mark.clause("NFP-C-06")
def test_service_names_match_byte_by_byte(peers: Peers, service: bytes):
    """§NFP/Client: the name a worker's READY gave."""
    echo(peers, service)
    client = peers(NfpReqClient)
    assert client.call(service, [b"x"]).final == [b"x"]
    for other in (service + b" ", service[:-1], service.upper()):
        uuid = client.post(other, b'{"options":{"wait":0}}')
        assert client.result(other, uuid).status == b"408"


@pytest.mark.clause("NFP-C-07")
def test_options_of_a_job(peers: Peers, service: bytes):
    """(ours) A JSON body's `options`: priority, key, deadline."""
    client = peers(NfpReqClient)
    low = client.post(service, b'{"n":1}')
    high = client.post(service, b'{"n":2,"options":{"priority":5}}')
    keyed = [client.post(service, b'{"n":3,"options":{"key":"k"}}') for _ in range(2)]
    doomed = client.post(service, b'{"n":4,"options":{"deadline":0.2}}')
    assert client.result(service, doomed).status == b"408"
    worker = peers(NfpWorker, service)
    order = []
    for _ in range(3):
        task = worker.take()
        order.append(task.metadata[0])
        worker.reply(task, [b"done"])
    assert order == [high, low, keyed[0]]
    assert [client.result(service, uuid).body for uuid in keyed] == [[b"done"]] * 2
    reply = client.ask(POST, service, b"any", new_uuid(), b'{"options":{"colour":"red"}}')
    assert reply.status == b"400"
    assert "colour" in reply.said["error"]


# §Job Persistence


@pytest.mark.clause("NFP-J-03")
def test_any_client_may_get_a_result(peers: Peers, service: bytes):
    """§Job Persistence: not only the one that submitted it."""
    echo(peers, service)
    with NfpReqClient(peers.endpoint) as client:
        uuid = client.post(service, b"x")
        client.result(service, uuid)
    assert peers(NfpReqClient).get(service, uuid).body == [b"x"]


@pytest.mark.clause("NFP-J-03")
def test_the_result_waits_for_a_client_that_went_away(peers: Peers, service: bytes):
    """§Job Persistence: the job does not need its client."""
    with NfpReqClient(peers.endpoint) as client:
        uuid = client.post(service, b"x")
    worker = peers(NfpWorker, service)
    worker.reply(worker.take(), [b"done"])
    assert peers(NfpReqClient).result(service, uuid).body == [b"done"]


@pytest.mark.clause("NFP-J-04")
@pytest.mark.parametrize("target", [b"any", b"all"])
def test_jobs_and_results_survive_the_broker(service: bytes, target: bytes):
    """(ours) What was accepted is on the broker's disk: queued jobs and results are there after kill -9."""
    with BrokerProcess() as broker, peers_of(broker.endpoint) as peers:
        client, worker = peers(NfpReqClient), peers(NfpWorker, service, opening={"name": "w1"})
        done = client.post(service, b"1", target=target)
        worker.reply(worker.take(), [b"first"])
        wanted = client.result(service, done).body
        worker.close()
        wait_for(lambda: not client.mmi("show_workers"))
        queued = client.post(service, b"2", target=target)
        broker.kill()
        broker.start_again()
        client = peers(NfpReqClient)
        assert client.get(service, done).body == wanted
        assert client.get(service, queued).status == b"300"
        worker = peers(NfpWorker, service, opening={"name": "w1"})
        worker.reply(worker.take(), [b"second"])
        assert client.result(service, queued).status == b"200"


@pytest.mark.clause("NFP-J-04")
def test_a_worker_is_asked_what_became_of_its_job_while_the_broker_was_away(service: bytes):
    """(ours) It is not done twice: after a restart the broker GETs the result from the worker that had the job."""
    with BrokerProcess() as broker, peers_of(broker.endpoint) as peers:
        client, worker = peers(NfpReqClient), peers(NfpWorker, service, opening={"name": "w1"})
        uuid = client.post(service, b"x")
        task = worker.take()
        client.post(service + b" next", b"x")  # accepted: what was written before it is on disk, too
        broker.kill()
        worker.close()
        broker.start_again()
        worker = peers(NfpWorker, service, opening={"name": "w1"})
        assert worker.expect(GET) == [task.address, b"", uuid, b""]
        worker.respond(task, b"200", b"done meanwhile")
        assert peers(NfpReqClient).result(service, uuid).body == [b"done meanwhile"]


@pytest.mark.clause("NFP-J-04")
@pytest.mark.parametrize("status", [b"400", b"404"])
def test_a_job_its_worker_has_forgotten_is_given_out_again(service: bytes, status: bytes):
    """(ours) The worker lost it: it is a job like any other again."""
    with BrokerProcess() as broker, peers_of(broker.endpoint) as peers:
        client, worker = peers(NfpReqClient), peers(NfpWorker, service, opening={"name": "w1"})
        uuid = client.post(service, b"x")
        worker.take()
        client.post(service + b" next", b"x")  # accepted: what was written before it is on disk, too
        broker.kill()
        worker.close()
        broker.start_again()
        worker = peers(NfpWorker, service, opening={"name": "w1"})
        token, _, given, _ = worker.expect(GET)
        worker.command(RESPONSE, token, b"", given, status, b"who?")
        task = worker.take()
        assert task.metadata == (uuid,)
        worker.reply(task, [b"again"])
        assert peers(NfpReqClient).result(service, uuid).body == [b"again"]


# §Reliability


@pytest.mark.clause("NFP-L-01")
def test_a_lost_worker_s_job_is_done_by_another(peers: Peers, service: bytes):
    """§Goals, §Reliability: requests are sent again to other workers; a late answer is refused."""
    lost, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = client.post(service, b"x")
    lost.take()
    lost.close()
    echo(peers, service)
    assert client.result(service, uuid).body == [b"x"]


@pytest.mark.clause("NFP-L-01")
def test_a_worker_that_is_too_slow_loses_its_job(hasty_peers: Peers, service: bytes):
    """§Reliability: workers that run too slowly; here without a second try."""
    service = b"slow." + service
    worker, client = hasty_peers(NfpWorker, service), hasty_peers(NfpReqClient)
    uuid = client.post(service, b"x")
    task = worker.take()
    reply = client.result(service, uuid)
    assert (reply.status, reply.said["reason"]) == (b"500", "retries-exhausted")
    worker.reply(task, [b"too late"])
    assert worker.fence() == []
    assert client.get(service, uuid).status == b"500"


def test_wrong_messages_harm_nobody(peers: Peers, manager: Manager, service: bytes):
    """The broker lives and others are served."""
    echo(peers, service)
    client = peers(NfpReqClient)
    rubbish = [b"", b"\x00", b"NFPC01", b"NFPW01", b"NFPB01", b"\x04", b"0x04", b"\xff" * 300, b"[", b"{"]
    peer = peers(Peer)
    for first in rubbish:
        for second in rubbish:
            peer.send(b"", b"NFPC01", first, second, first, second)
            peer.send(b"", b"NFPW01", first, second, first, second)
    assert client.call(service, [b"x"]).final == [b"x"]
    assert manager.offered(service)
