"""RFC 18/MDP, what it asks of a broker towards workers (§MDP/Worker: formats, opening and closing, requests and
replies). Heartbeats are in test_heartbeat_clauses.py."""

from __future__ import annotations

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, Disconnected, Manager, MdpClient, MdpWorker, Peers, TomoWorker, echo
from tests.support.zmtp import Raw, message

DISCONNECT = [b"MDPW02", b"\x06"]


@pytest.mark.clause("MDP-W-01")
@pytest.mark.parametrize("extra", [[], [b""], [b"svc", b""], [b"svc", b"more"]])
def test_a_ready_has_exactly_three_frames(peers: Peers, manager: Manager, extra: list[bytes]):
    """§MDP/Worker: a READY has 3 frames. Anything else registers nobody."""
    worker = peers(MdpWorker)
    worker.command(worker.READY, *extra)
    assert worker.fence() == []
    assert not manager.offered(b"svc")


@pytest.mark.clause("MDP-W-02")
def test_a_request_is_formatted_as_the_specification_says(peers: Peers, service: bytes):
    """§MDP/Worker: REQUEST is "MDPW02", 0x02, the client's address, an empty frame, the body."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"one", b"", b"two")
    header, command, address, delimiter, *body = worker.recv()
    assert (header, command, delimiter, body) == (b"MDPW02", b"\x02", b"", [b"one", b"", b"two"])
    assert len(address) > 0


@pytest.mark.clause("MDP-W-03")
@pytest.mark.clause("MDP-W-04")
@pytest.mark.parametrize("command", [MdpWorker.PARTIAL, MdpWorker.FINAL])
@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"ADDRESS"],
        [b"ADDRESS", b""],
        [b"ADDRESS", b"not empty", b"body"],
        [b"ADDRESS", b"ADDRESS", b"", b"body"],
        [b"", b"ADDRESS", b"", b"body"],
    ],
    ids=["nothing", "address-only", "no-body", "no-delimiter", "two-addresses", "empty-first"],
)
def test_answers_with_other_frames_are_dropped(
    peers: Peers, service: bytes, command: bytes, frames: list[bytes]
):
    """§Request and Reply Processing: one address frame SHALL be, an empty one MUST follow. Other messages reach no
    client; their sender is treated as invalid and its job given to another."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    task = worker.take()
    worker.command(command, *(task.address if frame == b"ADDRESS" else frame for frame in frames))
    assert worker.fence() == [DISCONNECT]
    peers.echo(service)
    assert client.answer(service) == Answer([], [b"x"])


@pytest.mark.clause("MDP-W-05")
@pytest.mark.clause("MDP-W-06")
def test_heartbeat_and_disconnect_are_two_frames(brisk_peers: Peers, service: bytes):
    """§MDP/Worker: HEARTBEAT and DISCONNECT have 2 frames."""
    worker = brisk_peers(MdpWorker, service)
    assert worker.recv() == [b"MDPW02", b"\x05"]
    worker.ready(service)
    assert worker.fence() == [DISCONNECT]


@pytest.mark.clause("MDP-O-01")
def test_one_worker_is_one_connection(peers: Peers, manager: Manager, service: bytes):
    """§Opening and Closing: a worker MUST have one DEALER: two sockets are two workers."""
    workers = [peers(MdpWorker, service), peers(MdpWorker, service)]
    for worker in workers:
        worker.fence()
    assert len(manager.show("show_workers", service=service.decode())) == 2


@pytest.mark.clause("MDP-O-02")
@pytest.mark.parametrize("header", [b"", b"MDPW", b"MDPW03", b"mdpw02", b"MDPW021", b"MDPC03"])
def test_every_message_s_header_is_validated(peers: Peers, manager: Manager, service: bytes, header: bytes):
    """§Opening and Closing: the header is in every command, so that each can be checked."""
    worker = peers(MdpWorker)
    worker.send(header, b"\x01", service)
    assert worker.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("MDP-O-03")
def test_many_workers_may_handle_the_same_service(peers: Peers, service: bytes):
    """§Opening and Closing: a service MAY have several workers: they work at once."""
    workers = [peers(MdpWorker, service) for _ in range(10)]
    client = peers(MdpClient)
    for n in range(10):
        client.request(service, b"%d" % n)
    assert sorted(worker.take().body[0] for worker in workers) == [b"%d" % n for n in range(10)]


@pytest.mark.clause("MDP-O-04")
@pytest.mark.parametrize("again", ["same service", "another service"])
def test_a_further_ready_is_answered_with_disconnect(
    peers: Peers, manager: Manager, service: bytes, again: str
):
    """§Opening and Closing: a second READY MUST NOT be."""
    worker = peers(MdpWorker, service)
    worker.ready(service if again == "same service" else service + b" 2")
    assert worker.fence() == [DISCONNECT]
    assert not manager.offered(service)
    assert not manager.offered(service + b" 2")


@pytest.mark.clause("MDP-O-04")
def test_a_further_ready_gives_the_job_in_hand_to_another(peers: Peers, service: bytes):
    """§Opening and Closing: a worker that broke its conversation will not answer; its client must not suffer."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    worker.take()
    worker.ready(service)
    worker.expect(worker.DISCONNECT)
    peers.echo(service)
    assert client.answer(service).final == [b"x"]


@pytest.mark.clause("MDP-O-05")
def test_there_is_no_response_to_a_ready(peers: Peers, manager: Manager, service: bytes):
    """§Opening and Closing: READY is not answered."""
    worker = peers(MdpWorker, service)
    assert worker.fence() == []
    assert manager.offered(service)


@pytest.mark.clause("MDP-O-06")
def test_disconnect_is_understood_at_any_time(peers: Peers, manager: Manager, service: bytes):
    """§Opening and Closing: a worker MAY leave whenever it likes, READY or not."""
    worker = peers(MdpWorker)
    worker.command(worker.DISCONNECT)
    assert worker.fence() == []
    other = peers(MdpWorker, service)
    other.fence()
    assert manager.offered(service)
    other.command(other.DISCONNECT)
    assert other.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("MDP-O-07")
@pytest.mark.parametrize("command", [b"\x05", b"\x04", b"\x03"])
def test_after_a_worker_s_disconnect_it_is_sent_nothing(peers: Peers, service: bytes, command: bytes):
    """§Opening and Closing: a worker that sent DISCONNECT MUST be sent nothing more, whatever it goes on to say."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    worker.command(worker.DISCONNECT)
    worker.fence()
    client.request(service, b"x")
    client.fence()
    worker.command(command, b"address", b"", b"body")
    assert worker.fence() == []


@pytest.mark.clause("MDP-O-07")
def test_a_worker_s_disconnect_gives_its_job_to_another(peers: Peers, service: bytes):
    """§Opening and Closing: it said goodbye with a request in hand."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    worker.take()
    worker.command(worker.DISCONNECT)
    peers.echo(service)
    assert client.answer(service).final == [b"x"]
    assert worker.fence() == []


@pytest.mark.clause("MDP-O-08")
def test_the_broker_never_speaks_first(brisk_peers: Peers):
    """§Opening and Closing: the worker speaks first: a peer that said nothing hears nothing, not even heartbeats."""
    with Raw(brisk_peers.endpoint) as raw:
        raw.shake()
        worker = brisk_peers(MdpWorker, b"beats")
        for _ in range(3):
            worker.expect(worker.HEARTBEAT)
            worker.command(worker.HEARTBEAT)
        raw.send(message(b"MDPC02", b"\x01", b"mmi.service", b"x"))
        assert raw.message() == [b"MDPC02", b"\x03", b"mmi.service", b"404"]


@pytest.mark.clause("MDP-O-09")
@pytest.mark.parametrize(
    "frames",
    [[b"\x05"], [b"\x03", b"address", b"", b"body"], [b"\x04", b"address", b"", b"body"]],
    ids=["HEARTBEAT", "PARTIAL", "FINAL"],
)
def test_any_command_before_ready_is_answered_with_disconnect(peers: Peers, frames: list[bytes]):
    """§Opening and Closing: a valid command out of place MUST be answered with DISCONNECT, and then nothing."""
    worker = peers(MdpWorker)
    worker.command(*frames)
    worker.command(*frames)
    assert worker.fence() == [DISCONNECT]


@pytest.mark.clause("MDP-O-09")
@pytest.mark.parametrize("command", [b"\x03", b"\x04"], ids=["PARTIAL", "FINAL"])
def test_an_answer_without_a_job_is_answered_with_disconnect(
    peers: Peers, manager: Manager, service: bytes, command: bytes
):
    """§Opening and Closing: valid but unexpected; afterwards nothing is given to that worker."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    worker.command(command, b"address", b"", b"body")
    assert worker.fence() == [DISCONNECT]
    client.request(service, b"x")
    client.fence()
    assert worker.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("MDP-O-10")
@pytest.mark.parametrize(
    "frames",
    [[b"\x01"], [b"\x02", b"a", b"", b"b"], [b"\x00"], [b"\x07"], [b""], [b"\x01\x00"], [b"\x04"], []],
    ids=["no-service", "REQUEST", "zero", "seven", "empty", "two-bytes", "short-FINAL", "header-only"],
)
def test_invalid_messages_are_dropped_and_their_sender_is_invalid(
    peers: Peers, manager: Manager, service: bytes, frames: list[bytes]
):
    """§Opening and Closing: invalid messages SHOULD be dropped and their sender not trusted: it is a worker no longer,
    and told so, so that it can start again."""
    worker = peers(MdpWorker, service)
    worker.send(b"MDPW02", *frames)
    assert worker.fence() == [DISCONNECT]
    assert not manager.offered(service)


@pytest.mark.clause("MDP-O-11")
def test_a_worker_registers_again_on_a_new_socket(peers: Peers, service: bytes):
    """§Opening and Closing: a worker that is sent DISCONNECT MUST start again on a new socket."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    worker.ready(service)
    with pytest.raises(Disconnected):
        worker.take()
    worker.close()
    peers.echo(service)
    assert client.call(service, [b"x"]).final == [b"x"]


@pytest.mark.clause("MDP-O-11")
@pytest.mark.parametrize("form", [MdpWorker, TomoWorker])
def test_workers_register_again_with_a_restarted_broker(form: type):
    """§Opening and Closing: so a new broker finds the old one's workers: their sockets reconnect by themselves,
    their heartbeat is answered with DISCONNECT, they start again."""
    with BrokerProcess() as first:
        endpoint = first.endpoint
        with echo(endpoint, b"echo", form, beat=0.1) as serving:
            with MdpClient(endpoint) as client:
                assert client.call(b"echo", [b"before"]).final == [b"before"]
            first.kill()
            with BrokerProcess(zmq=endpoint), MdpClient(endpoint) as client:
                assert client.call(b"echo", [b"after"]).final == [b"after"]
                assert serving.registrations == 2


@pytest.mark.clause("MDP-R-01")
def test_exactly_one_final_counts(peers: Peers, manager: Manager, service: bytes):
    """§Request and Reply Processing: any number of PARTIALs SHALL be, and one FINAL: a second one is unexpected."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    task = worker.take()
    worker.partial(task, [b"part"])
    worker.reply(task, [b"first"])
    worker.reply(task, [b"second"])
    assert worker.fence() == [DISCONNECT]
    assert client.answer(service) == Answer([[b"part"]], [b"first"])
    assert client.fence() == []
    assert not manager.offered(service)


@pytest.mark.clause("MDP-R-02")
def test_a_request_has_one_address_and_an_empty_frame_whatever_its_body(peers: Peers, service: bytes):
    """§Request and Reply Processing: one address frame SHALL be, an empty one MUST follow; a body that looks like an
    envelope is a body."""
    worker, client = peers(MdpWorker, service), peers(MdpClient, identity=b"a client with a name")
    body = [b"", b"address", b"", b"MDPW02", b"\x04"]
    client.request(service, *body)
    task = worker.take()
    assert task.body == body
    worker.reply(task, body)
    assert client.answer(service).final == body


@pytest.mark.clause("MDP-R-03")
@pytest.mark.parametrize("command", [MdpWorker.PARTIAL, MdpWorker.FINAL])
def test_the_address_is_good_for_one_request_of_one_worker(peers: Peers, service: bytes, command: bytes):
    """§Request and Reply Processing: the address decides which client gets a reply: what a worker was given
    for one request is no way to speak to a client otherwise, nor is a client's identity or another's address."""
    victim = peers(MdpClient, identity=b"victim")
    honest, forger = peers(MdpWorker, service), peers(MdpWorker, service + b" forger")
    victim.request(service, b"x")
    task = honest.take()
    for address in (task.address, b"victim", b"\0\0\0\0\x01", b""):
        forger.command(command, address, b"", b"forged")
        forger.expect(forger.DISCONNECT)
        forger.close()
        forger = peers(MdpWorker, service + b" forger")
    assert victim.fence() == []
    honest.reply(task, [b"genuine"])
    assert victim.answer(service) == Answer([], [b"genuine"])


@pytest.mark.clause("MDP-L-01")
def test_a_worker_that_dies_with_a_job_loses_it_to_another(peers: Peers, service: bytes):
    """§Reliability: workers may crash; §Goals: their requests go to others."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    worker.take()
    worker.close()
    peers.echo(service)
    assert client.answer(service).final == [b"x"]


@pytest.mark.clause("MDP-L-01")
def test_partials_of_a_lost_attempt_do_not_end_the_job(peers: Peers, service: bytes):
    """§Reliability: the second worker's answer is whole; what the first had sent cannot be called back."""
    worker, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    worker.partial(worker.take(), [b"half"])
    worker.fence()
    worker.close()
    peers.echo(service)
    assert client.answer(service) == Answer([[b"half"]], [b"x"])


@pytest.mark.clause("MDP-L-01")
def test_a_request_to_an_idle_worker_whose_socket_closes_is_answered_by_another(peers: Peers, service: bytes):
    """§Reliability: nobody waits for a worker that went without a word, even if it had only just gone."""
    for n in range(20):
        dead = peers(MdpWorker, service)
        dead.fence()
        client = peers(MdpClient)
        client.request(service, b"%d" % n)
        dead.close()
        alive = peers(MdpWorker, service)
        task = alive.take()
        alive.reply(task, task.body)
        assert client.answer(service).final == [b"%d" % n]
        alive.command(alive.DISCONNECT)
        alive.fence()


@pytest.mark.clause("MDP-L-02")
def test_a_named_client_that_drops_off_is_answered_when_it_is_back(peers: Peers, service: bytes):
    """§Reliability: clients may lose the network for a while."""
    worker, client = peers(MdpWorker, service), peers(MdpClient, identity=b"comes back")
    for n in range(2):
        client.request(service, b"%d" % n)
    first = worker.take()
    client.fence()
    client.close()
    back = peers(MdpClient, identity=b"comes back")
    back.fence()  # an answer that is sent before the broker notices the end of a connection is lost with it
    worker.reply(first, [b"first"])
    worker.reply(worker.take(), [b"second"])
    assert [back.answer(service).final for _ in range(2)] == [[b"first"], [b"second"]]
    back.request(service, b"third")
    worker.reply(worker.take(), [b"third"])
    assert back.answer(service).final == [b"third"]


@pytest.mark.clause("MDP-L-03")
@pytest.mark.parametrize("identity", [b"", b"gone for good"])
def test_what_a_client_that_is_gone_for_good_had_asked_is_dropped(
    brisk_peers: Peers, brisk_manager: Manager, service: bytes, identity: bytes
):
    """§Reliability: its queued jobs and its running job's answer are dropped, nothing is left of it."""
    worker, client = brisk_peers(MdpWorker, service), brisk_peers(MdpClient, identity=identity)
    worker.fence()
    before = brisk_manager.show("show_broker")
    for n in range(5):
        client.request(service, b"%d" % n)
    task = worker.take()
    client.fence()
    client.close()

    def gone() -> bool:
        worker.command(worker.HEARTBEAT)
        rows = brisk_manager.show("show_services")
        return all(row["waiting"] == 0 for row in rows if row["name"] == service.decode())

    wait_for(gone)
    worker.reply(task, [b"for nobody"])
    assert worker.fence() == []
    after = brisk_manager.show("show_broker")
    for key in ("active", "memory", "clients", "services"):
        assert after[key] <= before[key], key
