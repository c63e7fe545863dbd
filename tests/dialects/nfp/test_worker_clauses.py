"""NFP, what it asks of a broker towards workers (formats, §Opening and Closing a Connection, §POST and RESPONSE
Processing), in the specification's own form, with DEALER sockets that are not ours."""

from __future__ import annotations

import json

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.nfp import (
    DISCONNECT,
    EVENT,
    KEEPALIVE,
    MMI,
    OPEN,
    POST,
    PUT,
    READY,
    RESPONSE,
    STREAM,
    NfpClient,
    NfpReqClient,
    NfpWorker,
)
from tests.support.peers import Disconnected, Manager, Peers, peers_of
from tests.support.zmtp import Raw, message


def kinds(messages: list[list[bytes]]) -> list[bytes]:
    """The commands of what a worker was sent."""
    assert all(message[:2] == [b"", b"NFPB01"] for message in messages)
    return [message[2] for message in messages]


# §NFP messages


@pytest.mark.clause("NFP-F-01")
def test_a_worker_s_open_is_confirmed(peers: Peers, service: bytes):
    """§OPEN: answered with the broker's values; READY follows."""
    worker, client = peers(NfpWorker), peers(NfpReqClient)
    hello = worker.open(b'{"name":"w1","version":"2","credit":2,"resources":["r"]}')
    assert (hello["keepalive_ms"], hello["liveness"]) == (2500, 4)
    worker.command(READY, service)
    assert worker.fence() == []
    rows = client.mmi("show_workers")
    assert [row["name"] for row in rows if row["name"] == "w1"] == ["w1"]


@pytest.mark.clause("NFP-F-02")
@pytest.mark.parametrize("frames", [[], [b""], [b"svc", b"more"]])
def test_a_ready_has_four_frames_and_a_service(peers: Peers, manager: Manager, frames: list[bytes]):
    """§READY: anything else registers nobody, and harms nobody."""
    worker = peers(NfpWorker)
    worker.command(READY, *frames)
    assert worker.fence() == []
    assert not manager.offered(b"svc")


@pytest.mark.clause("NFP-F-03")
def test_a_keepalive_has_four_frames(brisk_peers: Peers, service: bytes):
    """§KEEPALIVE: header, command, the service's name."""
    worker = brisk_peers(NfpWorker, service)
    assert worker.recv() == [b"", b"NFPB01", KEEPALIVE, service]
    worker.command(KEEPALIVE)
    assert kinds(worker.fence()) == [DISCONNECT]


@pytest.mark.clause("NFP-F-04")
@pytest.mark.parametrize("frames", [[], [b"svc"], [b"svc", b"why"]])
def test_a_disconnect_says_service_and_body(
    peers: Peers, manager: Manager, service: bytes, frames: list[bytes]
):
    """§DISCONNECT: five frames from the broker; from a worker fewer do as well."""
    worker = peers(NfpWorker, service)
    worker.command(READY, service)
    (told,) = worker.fence()
    assert told[:4] == [b"", b"NFPB01", DISCONNECT, service]
    assert len(told) == 5
    other = peers(NfpWorker, service)
    other.command(DISCONNECT, *frames)
    assert other.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("NFP-F-10")
def test_events_and_pieces_are_signs_of_a_job(peers: Peers, service: bytes):
    """(ours) EVENT and STREAM, norfab's commands, in the specification's form."""
    worker, client = peers(NfpWorker, service, identity=b"w1"), peers(NfpClient)
    client.open(b'{"push":true}')
    uuid = client.post(service, b"x")
    task = worker.take()
    worker.command(EVENT, task.address, b"", uuid, b"200", b'{"event_type":"progress","percent":50}')
    worker.command(STREAM, task.address, b"", uuid, b"200", b"a", b"b")
    worker.command(EVENT, b"", b"", b"", b"200", b"weather", b"rain")  # not about a job
    worker.reply(task, [b"end"])
    assert client.reply().body == [b"w1", b"progress", b'{"event_type":"progress","percent":50}']
    assert client.reply() == (STREAM, service, uuid, b"200", [b"w1", b"a", b"b"])
    assert client.reply() == (RESPONSE, service, uuid, b"200", [b"end"])


# §Opening and Closing a Connection


@pytest.mark.clause("NFP-O-01")
def test_one_worker_is_one_connection(peers: Peers, manager: Manager, service: bytes):
    """§Opening and Closing: MUST have a single DEALER: two sockets are two workers."""
    for _ in range(2):
        peers(NfpWorker, service).fence()
    assert len(manager.show("show_workers", service=service.decode())) == 2


@pytest.mark.clause("NFP-O-02")
@pytest.mark.parametrize("header", [b"", b"NFPW", b"NFPW02", b"nfpw01", b"NFPW011", b"NFPB01"])
def test_every_message_s_header_is_validated(peers: Peers, manager: Manager, service: bytes, header: bytes):
    """§Opening and Closing: the header is in every command, so that each can be checked."""
    worker = peers(NfpWorker)
    worker.send(b"", header, READY, service)
    assert worker.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("NFP-O-02")
def test_the_empty_frame_is_part_of_every_message(peers: Peers, manager: Manager, service: bytes):
    """§NFP/Worker: all commands start with an empty frame."""
    worker = peers(NfpWorker)
    worker.send(b"NFPW01", READY, service)
    assert worker.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("NFP-O-03")
def test_many_workers_may_handle_the_same_service(peers: Peers, service: bytes):
    """§Opening and Closing: they work at once."""
    workers = [peers(NfpWorker, service) for _ in range(10)]
    for worker in workers:
        worker.fence()
    client = peers(NfpReqClient)
    for number in range(10):
        client.post(service, b"%d" % number)
    assert sorted(worker.take().body[0] for worker in workers) == [b"%d" % number for number in range(10)]


@pytest.mark.clause("NFP-O-04")
@pytest.mark.parametrize("again", ["same service", "another service"])
def test_a_further_ready_is_answered_with_disconnect(
    peers: Peers, manager: Manager, service: bytes, again: str
):
    """§Opening and Closing: a second READY MUST NOT be."""
    worker = peers(NfpWorker, service)
    worker.command(READY, service if again == "same service" else service + b" 2")
    assert kinds(worker.fence()) == [DISCONNECT]
    assert not manager.offered(service)
    assert not manager.offered(service + b" 2")


@pytest.mark.clause("NFP-O-04")
def test_a_further_ready_gives_the_job_in_hand_to_another(peers: Peers, service: bytes):
    """§Opening and Closing: its client must not suffer."""
    worker, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = client.post(service, b"x")
    worker.take()
    worker.command(READY, service)
    assert kinds(worker.fence()) == [DISCONNECT]
    other = peers(NfpWorker, service)
    other.reply(other.take(), [b"done"])
    assert client.result(service, uuid).body == [b"done"]


@pytest.mark.clause("NFP-O-05")
def test_there_is_no_response_to_a_ready(peers: Peers, manager: Manager, service: bytes):
    """§Opening and Closing: READY is not answered."""
    worker = peers(NfpWorker, service)
    assert worker.fence() == []
    assert manager.offered(service)


@pytest.mark.clause("NFP-O-06")
def test_disconnect_is_understood_at_any_time(peers: Peers, manager: Manager, service: bytes):
    """§Opening and Closing: a worker MAY leave whenever it likes, READY or not."""
    worker = peers(NfpWorker)
    worker.command(DISCONNECT, service)
    assert worker.fence() == []
    other = peers(NfpWorker, service)
    other.fence()
    assert manager.offered(service)
    other.command(DISCONNECT, service)
    assert other.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("NFP-O-07")
@pytest.mark.parametrize("command", [KEEPALIVE, RESPONSE, EVENT, STREAM])
def test_after_a_worker_s_disconnect_it_is_sent_nothing(brisk_peers: Peers, service: bytes, command: bytes):
    """§Opening and Closing: MUST be sent nothing more, whatever it goes on to say: no job, no keepalive."""
    worker, client = brisk_peers(NfpWorker, service), brisk_peers(NfpReqClient)
    worker.command(DISCONNECT, service)
    worker.fence()
    client.post(service, b"x")
    worker.command(command, b"address", b"", b"uuid", b"200", b"body")
    other = brisk_peers(NfpWorker, service + b" 2", beat=0.1)
    for _ in range(3):
        other.recv()
        other.keepalive()
    assert worker.fence() == []


@pytest.mark.clause("NFP-O-07")
def test_a_worker_s_disconnect_gives_its_job_to_another(peers: Peers, service: bytes):
    """§Opening and Closing: it said goodbye with a job in hand."""
    worker, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = client.post(service, b"x")
    worker.take()
    worker.command(DISCONNECT, service)
    other = peers(NfpWorker, service)
    other.reply(other.take(), [b"done"])
    assert client.result(service, uuid).body == [b"done"]
    assert worker.fence() == []


@pytest.mark.clause("NFP-O-08")
def test_the_broker_never_speaks_first(brisk_peers: Peers):
    """§Opening and Closing: a peer that said nothing hears nothing, not even keepalives."""
    with Raw(brisk_peers.endpoint) as raw:
        raw.shake()
        worker = brisk_peers(NfpWorker, b"beats")
        for _ in range(3):
            assert worker.recv()[2] == KEEPALIVE
            worker.keepalive()
        raw.send(message(b"MDPC02", b"\x01", b"mmi.service", b"x"))
        assert raw.message() == [b"MDPC02", b"\x03", b"mmi.service", b"404"]


@pytest.mark.clause("NFP-O-09")
@pytest.mark.parametrize(
    "frames",
    [
        [KEEPALIVE, b"svc"],
        [RESPONSE, b"address", b"", b"uuid", b"200", b"body"],
        [EVENT, b"address", b"", b"uuid", b"200", b"body"],
        [STREAM, b"address", b"", b"uuid", b"200", b"body"],
    ],
    ids=["KEEPALIVE", "RESPONSE", "EVENT", "STREAM"],
)
def test_any_command_before_ready_is_answered_with_disconnect(peers: Peers, frames: list[bytes]):
    """§Opening and Closing: a valid command out of place MUST be answered with DISCONNECT, and then nothing."""
    worker = peers(NfpWorker)
    worker.command(*frames)
    worker.command(*frames)
    assert kinds(worker.fence()) == [DISCONNECT]


@pytest.mark.clause("NFP-O-09")
def test_an_answer_without_a_job_is_answered_with_disconnect(peers: Peers, service: bytes):
    """§Opening and Closing: a RESPONSE to nothing is out of place."""
    worker = peers(NfpWorker, service)
    worker.command(RESPONSE, b"00000001", b"", b"uuid", b"200", b"body")
    assert kinds(worker.fence()) == [DISCONNECT]


@pytest.mark.clause("NFP-O-09")
def test_open_after_ready_is_answered_with_disconnect(peers: Peers, service: bytes):
    """§Opening and Closing: it comes first or not at all."""
    worker = peers(NfpWorker, service)
    worker.command(OPEN, b"")
    assert kinds(worker.fence()) == [DISCONNECT]


@pytest.mark.clause("NFP-O-10")
@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\xff", b"svc"],
        [b"\x0a", b"svc"],
        [POST, b"svc", b"any", b"uuid", b"x"],
        [PUT, b"svc", b"any", b"uuid", b"x"],
        [KEEPALIVE],
        [RESPONSE],
        [RESPONSE, b"address", b"", b"uuid"],
        [RESPONSE, b"address", b"x", b"uuid", b"200", b"body"],
        [RESPONSE, b"address", b"", b"uuid", b"OK", b"body"],
    ],
    ids=lambda frames: repr(frames)[:40],
)
def test_invalid_messages_are_dropped_and_their_sender_is_invalid(
    peers: Peers, manager: Manager, service: bytes, frames: list[bytes]
):
    """§Opening and Closing: SHOULD be. A registered worker is told, and no longer one."""
    stranger = peers(NfpWorker)
    stranger.send(b"", b"NFPW01", *frames)
    assert kinds(stranger.fence()) in ([], [DISCONNECT])
    worker = peers(NfpWorker, service)
    worker.send(b"", b"NFPW01", *frames)
    assert kinds(worker.fence()) == [DISCONNECT]
    assert not manager.offered(service)


@pytest.mark.clause("NFP-O-11")
def test_a_worker_registers_again_on_a_new_socket(peers: Peers, service: bytes):
    """§Opening and Closing: MUST, after a DISCONNECT; it may use the identity of the socket that it has closed."""
    worker = peers(NfpWorker, service, identity=b"w1")
    worker.command(READY, service)
    with pytest.raises(Disconnected):
        worker.take()
    worker.close()
    again = peers(NfpWorker, service, identity=b"w1")
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x", target=b"w1")
    again.reply(again.take(), [b"back"])
    assert client.result(service, uuid).body == [b"back"]


@pytest.mark.clause("NFP-O-11")
def test_workers_register_again_with_a_restarted_broker(service: bytes):
    """§Opening and Closing: the new broker does not know them, and says so at their next keepalive."""
    with BrokerProcess() as broker, peers_of(broker.endpoint) as peers:
        worker = peers(NfpWorker, service)
        worker.fence()
        broker.kill()
        broker.start_again()
        wait_for(lambda: worker.socket.poll(10) or worker.keepalive())
        command, frames = worker.heard()
        assert (command, frames[0]) == (DISCONNECT, service)
        worker.close()
        again, client = peers(NfpWorker, service), peers(NfpReqClient)
        uuid = client.post(service, b"x")
        again.reply(again.take(), [b"back"])
        assert client.result(service, uuid).body == [b"back"]


# §POST and RESPONSE Processing


@pytest.mark.clause("NFP-P-01")
@pytest.mark.clause("NFP-P-02")
@pytest.mark.parametrize("body", [[b"x"], [b""], [b"", b""], [b"a", b"", b"b"]])
def test_a_post_has_one_address_and_an_empty_frame_whatever_its_body(
    peers: Peers, service: bytes, body: list[bytes]
):
    """§POST and RESPONSE Processing: precisely one address frame MUST be, an empty one MUST follow."""
    worker, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = client.post(service, *body)
    lead, header, command, address, delimiter, given, *rest = worker.recv()
    assert (lead, header, command, delimiter, given, rest) == (b"", b"NFPB01", POST, b"", uuid, body)
    assert address


@pytest.mark.clause("NFP-P-01")
@pytest.mark.clause("NFP-P-02")
@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"ADDRESS"],
        [b"ADDRESS", b""],
        [b"ADDRESS", b"", b"uuid"],
        [b"ADDRESS", b"not empty", b"uuid", b"200", b"body"],
        [b"ADDRESS", b"ADDRESS", b"", b"uuid", b"200", b"body"],
        [b"", b"ADDRESS", b"", b"uuid", b"200", b"body"],
    ],
    ids=["nothing", "address-only", "no-uuid", "no-status", "no-delimiter", "two-addresses", "empty-first"],
)
def test_responses_with_other_frames_reach_no_client(peers: Peers, service: bytes, frames: list[bytes]):
    """§POST and RESPONSE Processing: their sender is treated as invalid and its job given to another."""
    worker, client = peers(NfpWorker, service), peers(NfpReqClient)
    uuid = client.post(service, b"x")
    task = worker.take()
    worker.command(RESPONSE, *(task.address if frame == b"ADDRESS" else frame for frame in frames))
    assert kinds(worker.fence()) == [DISCONNECT]
    other = peers(NfpWorker, service)
    other.reply(other.take(), [b"done"])
    assert client.result(service, uuid).body == [b"done"]


@pytest.mark.clause("NFP-P-03")
def test_the_address_is_good_for_one_job_of_one_worker(peers: Peers, service: bytes):
    """(ours) Nobody can answer for another, nor twice."""
    worker, forger = peers(NfpWorker, service), peers(NfpWorker, service + b" forger")
    forger.fence()
    client = peers(NfpReqClient)
    uuid = client.post(service, b"x")
    task = worker.take()
    forger.reply(task, [b"forged"])
    assert kinds(forger.fence()) == [DISCONNECT]
    worker.reply(task, [b"true"])
    worker.reply(task, [b"twice"])
    assert kinds(worker.fence()) == [DISCONNECT]
    assert client.result(service, uuid).body == [b"true"]


@pytest.mark.clause("NFP-P-04")
def test_a_worker_has_one_job_at_a_time_unless_it_asked_for_more(peers: Peers, service: bytes):
    """§Overall Topology: workers handle one request at a time (an assumption); OPEN may say otherwise."""
    one, client = peers(NfpWorker, service), peers(NfpReqClient)
    first, second = client.post(service, b"1"), client.post(service, b"2")
    task = one.take()
    assert one.fence() == []
    one.reply(task, [b"done"])
    assert one.take().metadata == (second,)
    assert client.result(service, first).status == b"200"
    many = service + b" many"
    worker = peers(NfpWorker, many, opening={"credit": 3})
    for number in range(5):
        client.post(many, b"%d" % number)
    tasks = [worker.take() for _ in range(3)]
    assert worker.fence() == []
    for task in tasks:
        worker.reply(task, task.body)
    assert [worker.take().body for _ in range(2)] == [[b"3"], [b"4"]]


# Resources (§Goals)


@pytest.mark.clause("NFP-G-01")
def test_a_worker_may_declare_its_resources_anew(peers: Peers, service: bytes):
    """§Goals: workers manage resources (ours: OPEN's `resources`, later `set_resources`); jobs find the new holder."""
    first = peers(NfpWorker, service, opening={"name": "w1", "resources": ["r"]})
    second = peers(NfpWorker, service, opening={"name": "w2"})
    second.fence()
    client = peers(NfpReqClient)
    client.post(service, b"1", target=b"resource:r")
    first.reply(first.take(), [b"1"])
    for worker, resources in ((first, []), (second, ["r"])):
        task = {"task": "set_resources", "kwargs": {"resources": resources}}
        worker.command(MMI, b"", b"", b"q", b"200", json.dumps(task).encode())
        told = worker.expect(MMI)
        assert told[:4] == [b"", b"", b"q", b"200"]
        assert json.loads(told[4]) == {"resources": resources}
    client.post(service, b"2", target=b"resource:r")
    assert second.take().body == [b"2"]


@pytest.mark.clause("NFP-G-01")
def test_a_job_waits_for_the_worker_that_has_its_resource(peers: Peers, service: bytes):
    """§Goals: nobody has it yet; whoever brings it gets the job."""
    other, client = peers(NfpWorker, service, opening={"resources": ["x"]}), peers(NfpReqClient)
    other.fence()
    uuid = client.post(service, b"1", target=b"resource:r")
    assert other.fence() == []
    holder = peers(NfpWorker, service, opening={"resources": ["r"]})
    holder.reply(holder.take(), [b"mine"])
    assert client.result(service, uuid).body == [b"mine"]
