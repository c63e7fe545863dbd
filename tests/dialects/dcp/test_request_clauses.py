"""DagBox DCP v1 §Requests & Replies, what it asks of a broker."""

from __future__ import annotations

import pytest

from tests.support.broker import BrokerProcess
from tests.support.peers import DcpPeer, DcpPeer4, Manager, MdpClient, MdpWorker, Peers

WIDTHS = [DcpPeer, DcpPeer4]


@pytest.mark.clause("DCP-R-01")
@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"svc"],
        [b"svc", b""],
        [b"svc", b"", b"meta"],
        [b"", b"", b"", b"data"],
        [b"svc", b"address"],
        [b"svc", b"address", b"more", b"", b"", b"data"],
    ],
    ids=repr,
)
def test_a_request_of_another_format_is_dropped(peers: Peers, manager: Manager, frames: list[bytes]):
    """§Requests & Replies: the format MUST be kept."""
    client = peers(DcpPeer)
    before = manager.show("show_broker")
    client.say(client.REQUEST, *frames)
    assert client.fence() == []
    after = manager.show("show_broker")
    assert (after["active"], after["refused"]) == (before["active"], before["refused"])


@pytest.mark.clause("DCP-R-02")
def test_a_request_goes_to_a_worker_that_provides_its_service(peers: Peers, service: bytes):
    """§Requests & Replies: a request SHALL go to a worker of its service."""
    right, wrong, client = peers(DcpPeer, service), peers(DcpPeer, service + b"!"), peers(DcpPeer)
    for n in range(5):
        client.request(service, b"%d" % n)
        right.reply(right.take(), [b"right"])
        assert client.answer().body == [b"right"]
    assert wrong.fence() == []


@pytest.mark.clause("DCP-R-03")
def test_the_client_address_is_inserted_if_it_is_missing(peers: Peers, service: bytes):
    """§Requests & Replies: the broker MUST fill in the client's address where it is not given, and only there. What
    is inserted is good for one reply: a token of this attempt."""
    worker, client = peers(DcpPeer, service), peers(DcpPeer, identity=b"my name")
    client.say(client.REQUEST, service, b"", b"", b"absent")
    client.say(client.REQUEST, service, b"my name", b"", b"", b"present")
    for data in (b"absent", b"present"):
        name, address, delimiter, end, body = worker.expect(worker.REQUEST)
        assert (name, delimiter, end, body) == (service, b"", b"", data)
        assert address
        worker.say(worker.REPLY, address, b"", b"", data)
        assert client.expect(client.REPLY) == [b"my name", b"", b"", data]


@pytest.mark.clause("DCP-R-03")
def test_another_s_address_in_a_request_is_refused(peers: Peers, manager: Manager, service: bytes):
    """§Requests & Replies: an address that is there is that of the client itself, or of a job being passed on."""
    worker, victim, forger = peers(DcpPeer, service), peers(DcpPeer, identity=b"victim"), peers(DcpPeer)
    assert victim.call(b"mmi.service", [b"x"]).final == [b"404"]
    forger.request(service, b"x", address=[b"victim"])
    assert forger.fence() == []
    assert worker.fence() == []
    assert victim.fence() == []


@pytest.mark.clause("DCP-R-04")
@pytest.mark.clause("DCP-R-05")
@pytest.mark.parametrize(
    "metadata", [[], [b"one"], [b"a", b"\0", b"x" * 300, b"DGBX\x01"], [b"%d" % n for n in range(1, 200)]]
)
@pytest.mark.parametrize("form", WIDTHS)
def test_metadata_goes_through_untouched(peers: Peers, service: bytes, form: type, metadata: list[bytes]):
    """§Requests & Replies: the broker MUST NOT change metadata, workers MUST give it back as it came."""
    worker, client = peers(form, service), peers(form)
    client.request(service, b"x", metadata=metadata)
    task = worker.take()
    assert task.metadata == tuple(metadata)
    worker.reply(task, [b"y"])
    assert client.answer().metadata == tuple(metadata)


@pytest.mark.clause("DCP-R-05")
@pytest.mark.parametrize("forgotten", [[], [b"other"], [b"keep me", b"and more"]])
def test_a_client_gets_its_own_metadata_whatever_the_worker_returns(
    peers: Peers, service: bytes, forgotten: list[bytes]
):
    """§Requests & Replies: a worker that forgets or changes them does not confuse the client."""
    worker, client = peers(DcpPeer, service), peers(DcpPeer)
    client.request(service, b"x", metadata=[b"keep me"])
    task = worker.take()
    worker.reply(task._replace(metadata=tuple(forgotten)), [b"y"])
    answer = client.answer()
    assert (answer.metadata, answer.body) == ((b"keep me",), [b"y"])


@pytest.mark.clause("DCP-R-05")
def test_metadata_is_kept_for_a_client_whose_worker_speaks_another_protocol(peers: Peers, service: bytes):
    """§Requests & Replies: MDP has no metadata; a DCP client gets its own back all the same, an MDP client none."""
    mdp, dcp = peers(MdpWorker, service), peers(DcpPeer, service + b" dcp")
    client, other = peers(DcpPeer), peers(MdpClient)
    client.request(service, b"x", metadata=[b"mine", b"too"])
    task = mdp.take()
    assert task.body == [b"x"]
    mdp.reply(task, [b"y"])
    assert client.answer().metadata == (b"mine", b"too")
    other.request(service + b" dcp", b"x")
    task = dcp.take()
    assert (task.metadata, task.body) == ((), [b"x"])
    dcp.reply(task, [b"y"])
    assert other.answer(service + b" dcp").final == [b"y"]


@pytest.mark.clause("DCP-R-06")
@pytest.mark.parametrize("data", [[], [b""], [b"", b"", b""], [b"a", b"", b"b", b""], [b"x"] * 500], ids=len)
def test_any_number_of_data_parts_empty_ones_too(peers: Peers, service: bytes, data: list[bytes]):
    """§Requests & Replies: data may have as many parts as one likes; DagBox itself stops at the first empty one and
    loses the rest."""
    worker, client = peers(DcpPeer, service), peers(DcpPeer)
    for metadata in ([], [b"meta"]):
        client.request(service, *data, metadata=metadata)
        task = worker.take()
        assert task.body == data
        worker.reply(task, data)
        assert client.answer().body == data


@pytest.mark.clause("DCP-R-07")
def test_a_reply_has_type_5_and_no_service_name(peers: Peers, service: bytes):
    """§Requests & Replies: a reply has the type `0x05` and no service name."""
    worker, client = peers(DcpPeer, service), peers(DcpPeer, identity=b"client")
    client.request(service, b"x", metadata=[b"meta"])
    worker.reply(worker.take(), [b"y", b"z"])
    assert client.recv() == [b"", b"DGBX\x01", b"\x05", b"client", b"", b"meta", b"", b"y", b"z"]


@pytest.mark.clause("DCP-R-08")
def test_a_client_may_send_many_requests_without_waiting(peers: Peers, service: bytes):
    """§Requests & Replies: a client MAY have several requests outstanding; their replies come in any order."""
    workers, client = [peers(DcpPeer, service) for _ in range(3)], peers(DcpPeer)
    for n in range(3):
        client.request(service, b"%d" % n, metadata=[b"id %d" % n])
    tasks = [worker.take() for worker in workers]
    for worker, task in reversed(list(zip(workers, tasks, strict=True))):
        worker.reply(task, task.body)
        worker.fence()
    answers = [client.answer() for _ in range(3)]
    assert [answer.metadata for answer in answers] == [task.metadata for task in reversed(tasks)]
    assert all(answer.metadata == (b"id " + answer.body[0],) for answer in answers)


@pytest.mark.clause("DCP-R-09")
@pytest.mark.clause("DCP-R-10")
def test_a_worker_gets_no_more_until_it_has_replied(peers: Peers, service: bytes):
    """§Requests & Replies: a worker SHOULD NOT be given more before it has answered; its first choice is a reply."""
    worker, client = peers(DcpPeer, service), peers(DcpPeer)
    for n in range(3):
        client.request(service, b"%d" % n)
    client.fence()
    for n in range(3):
        task = worker.take()
        assert task.body == [b"%d" % n]
        assert worker.fence() == []
        worker.reply(task, [])


@pytest.mark.clause("DCP-R-11")
def test_a_worker_may_pass_its_job_on_to_another_service(peers: Peers, service: bytes):
    """§Requests & Replies: a worker may do a part and pass the job on: the last one's reply goes to the first client,
    and whoever passed it on is free."""
    first, second = peers(DcpPeer, service), peers(DcpPeer, service + b" 2")
    client = peers(DcpPeer)
    client.request(service, b"raw", metadata=[b"id"])
    client.request(service, b"next")
    client.fence()
    task = first.take()
    first.pass_on(task, service + b" 2", [b"half done"])
    onward = second.take()
    assert (onward.body, onward.metadata) == ([b"half done"], (b"id",))
    assert first.take().body == [b"next"]
    second.reply(onward, [b"done"])
    answer = client.answer()
    assert (answer.body, answer.metadata) == ([b"done"], (b"id",))


@pytest.mark.clause("DCP-R-11")
def test_a_job_may_be_passed_on_to_a_worker_of_another_protocol(peers: Peers, service: bytes):
    """§Requests & Replies, and back to a client of a third form."""
    peers.echo(service + b" mdp")
    worker, client = peers(DcpPeer4, service), peers(MdpClient)
    client.request(service, b"x")
    worker.pass_on(worker.take(), service + b" mdp", [b"half", b"done"])
    command, _, *body = client.recv()[1:]
    assert (command, body) == (b"\x03", [b"half", b"done"])


@pytest.mark.clause("DCP-R-12")
def test_a_busy_worker_s_ping_asks_for_more_work(peers: Peers, service: bytes):
    """§Requests & Replies: a busy worker's ping asks for more: each raises what it may hold by one."""
    worker, client = peers(DcpPeer, service), peers(DcpPeer)
    for n in range(4):
        client.request(service, b"%d" % n)
    client.fence()
    tasks = [worker.take()]
    for _ in range(2):
        worker.ping()
        assert worker.heard() == (worker.PONG, [])
        tasks.append(worker.take())
        assert worker.fence() == []
    assert [task.body for task in tasks] == [[b"0"], [b"1"], [b"2"]]
    for task in reversed(tasks):
        worker.reply(task, task.body)
    assert [client.answer().body for _ in tasks] == [[b"2"], [b"1"], [b"0"]]
    assert worker.take().body == [b"3"]


@pytest.mark.clause("DCP-R-12")
def test_asking_for_more_is_bounded():
    """§Requests & Replies: limits.worker_jobs, so that one worker cannot take everything."""
    with (
        BrokerProcess(toml="[limits]\nworker_jobs = 3") as broker,
        DcpPeer(broker.endpoint, b"greedy") as worker,
        DcpPeer(broker.endpoint) as client,
    ):
        for n in range(10):
            client.request(b"greedy", b"%d" % n)
        client.fence()
        for _ in range(10):
            worker.ping()
        kinds = [message[2] for message in worker.fence()]
        assert (kinds.count(b"\x04"), kinds.count(b"\x03")) == (3, 10)
