"""MemoDB's specification, clause by clause, with NNG's own sockets (pynng) and cbor2 against a real broker."""

from __future__ import annotations

import io
import os
import socket
from pathlib import Path

import cbor2
import pynng
import pytest

from tests.support import sp
from tests.support.broker import BrokerProcess, wait_for
from tests.support.memo import (
    DISCONNECT,
    HEARTBEAT,
    JOB,
    RESULT,
    Contexts,
    heartbeat,
    job,
    pack,
    ready,
    result,
    unpack,
)
from tests.support.sp import REP_HELLO, Raw

MIB = 1024 * 1024

# The overview


@pytest.mark.clause("MEMO-O-01")
def test_a_job_goes_only_to_workers_that_support_its_service(contexts: Contexts, name: str) -> None:
    other, worker, client = contexts(), contexts(), contexts()
    other.ready(f"{name}.other")
    worker.ready(f"{name}.this")
    client.job(f"{name}.this", b"x")
    assert worker.next().fields[0] == f"{name}.this"
    worker.result(b"y", True)
    assert client.receive().payload == b"y"
    assert other.receive().kind == HEARTBEAT


def test_a_result_may_have_the_request_id_of_the_request_before_it(
    server: BrokerProcess, contexts: Contexts, name: str
) -> None:
    """A worker that connects again for its RESULT, and counts its requests from the same number."""
    client = contexts()
    with Raw(server.nng) as first:
        assert first.receive(len(REP_HELLO)) == REP_HELLO
        first.send(sp.request(1, ready(name)))
        client.job(name, b"x")
        number, content = first.receive_message()
        while (said := unpack(content)).kind == HEARTBEAT:  # the job took its time to get here
            first.send(sp.request(number + 1, heartbeat(said.id)))
            number, content = first.receive_message()
    assert (said.kind, said.payload) == (JOB, b"x")
    with Raw(server.nng) as second:
        assert second.receive(len(REP_HELLO)) == REP_HELLO
        second.send(sp.request(number, result(said.id, b"y")))
        assert client.receive().payload == b"y"


@pytest.mark.clause("MEMO-O-02")
@pytest.mark.clause("MEMO-C-02")
def test_a_worker_that_takes_longer_than_the_time_out_is_taken_for_disconnected(
    contexts: Contexts, name: str
) -> None:
    worker, client = contexts(), contexts(600)
    worker.ready(name)
    client.job(name, b"x", 200)
    worker.next()
    with pytest.raises(pynng.Timeout):
        client.receive()
    worker.result(b"late")
    said = worker.receive()
    assert (said.kind, said.id) == (DISCONNECT, worker.id)


@pytest.mark.clause("MEMO-O-03")
@pytest.mark.clause("MEMO-B-03")
def test_clients_and_workers_share_one_connection(contexts: Contexts, name: str) -> None:
    workers, clients = [contexts() for _ in range(20)], [contexts() for _ in range(20)]
    for worker in workers:
        worker.ready(name)
    for number, client in enumerate(clients):
        client.job(name, b"%d" % number)
    for worker in workers:
        worker.result(worker.next().payload + b"!", True)
    assert [client.receive().payload for client in clients] == [b"%d!" % number for number in range(20)]


@pytest.mark.clause("MEMO-O-04")
@pytest.mark.parametrize("size", [0, 24, 1000, 8 * MIB])
def test_payloads_from_nothing_to_several_megabytes(contexts: Contexts, name: str, size: int) -> None:
    worker, client = contexts(), contexts()
    there, back = os.urandom(size), os.urandom(size)
    worker.ready(name)
    client.job(name, there)
    assert worker.next().payload == there
    worker.result(back, True)
    assert client.receive().payload == back


@pytest.mark.clause("MEMO-O-05")
def test_slow_jobs_beside_fast_ones(contexts: Contexts, name: str) -> None:
    """A time-out of hours and one of a fraction of a second at the same time: each job has its own."""
    slow, fast, patient, hasty = contexts(), contexts(), contexts(), contexts(500)
    slow.ready(f"{name}.slow")
    fast.ready(f"{name}.fast")
    patient.job(f"{name}.slow", b"x", 5 * 3600 * 1000)
    hasty.job(f"{name}.fast", b"x", 200)
    assert slow.next().fields == [f"{name}.slow", 18_000_000]
    assert fast.next().fields == [f"{name}.fast", 200]
    with pytest.raises(pynng.Timeout):
        hasty.receive()
    slow.result(b"y", True)
    assert patient.receive().payload == b"y"


# Base layer


@pytest.mark.clause("MEMO-B-01")
def test_the_broker_is_a_rep_socket_and_its_peers_are_req(server: BrokerProcess) -> None:
    with Raw(server.nng) as raw:
        assert raw.receive(8) == REP_HELLO
    with Raw(server.nng, b"\0SP\0\0\x31\0\0") as raw:
        assert raw.receive(8) == REP_HELLO
        assert raw.is_closed()


@pytest.mark.clause("MEMO-B-02")
def test_a_worker_has_one_job_at_a_time(contexts: Contexts, name: str) -> None:
    worker, clients = contexts(), [contexts() for _ in range(3)]
    worker.ready(name)
    for client in clients:
        client.job(name, b"x")
    seen = 0
    for number in range(3):
        assert worker.next().kind == JOB
        seen += 1
        worker.result(b"y", number == 2)
    assert seen == 3
    assert [client.receive().kind for client in clients] == [RESULT] * 3


@pytest.mark.clause("MEMO-B-04")
@pytest.mark.parametrize("transport", ["tcp", "tcp6", "ipc"])
def test_over_ipv4_ipv6_and_ipc(transport: str, name: str, tmp_path: Path) -> None:
    if transport == "tcp6":
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
            except OSError:
                pytest.skip("THIS MACHINE HAS NO IPv6 LOOPBACK: the clause is not proved for it here")
    place = {"tcp": "tcp://127.0.0.1:*", "tcp6": "tcp://[::1]:*", "ipc": f"ipc://{tmp_path}/memo.sock"}
    with BrokerProcess(nng=place[transport]) as server, Contexts(server.nng) as contexts:
        worker, client = contexts(), contexts()
        worker.ready(name)
        client.job(name, b"x" * 70_000)
        assert worker.next().payload == b"x" * 70_000
        worker.result(b"y")
        assert client.receive().payload == b"y"


# Simple client


@pytest.mark.clause("MEMO-C-01")
@pytest.mark.clause("MEMO-F-05")
@pytest.mark.clause("MEMO-F-06")
def test_a_job_is_answered_with_a_result(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    worker.ready(name)
    client.job(name, b"question", 1234)
    said = worker.next()
    assert (said.kind, said.fields, said.payload) == (JOB, [name, 1234], b"question")
    worker.result(b"answer", True)
    said = client.receive()
    assert (said.kind, said.fields, said.payload) == (RESULT, [], b"answer")


@pytest.mark.clause("MEMO-C-02")
def test_a_job_nobody_takes_is_not_answered(contexts: Contexts, name: str) -> None:
    client, other = contexts(800), contexts()
    client.job(name, b"x")
    with pytest.raises(pynng.Timeout):
        client.receive()
    other.job("mmi.service", b"x")  # and the connection is as good as before
    assert other.receive().payload == b"404"


@pytest.mark.clause("MEMO-C-03")
def test_a_client_that_times_out_asks_again_and_is_answered(server: BrokerProcess, name: str) -> None:
    """NNG does so by itself: the first request expires, the same one again counts as new."""
    with Contexts(server.nng, resend_time=700) as asking, Contexts(server.nng) as working:
        client, worker = asking(), working()
        client.job(name, b"x")
        manager = working()

        def waiting() -> bool:
            manager.job("mmi.service", name.encode())
            return manager.receive().payload == b"200"

        wait_for(lambda: not waiting(), 5)
        worker.ready(name)
        assert worker.next().payload == b"x"
        worker.result(b"y", True)
        assert client.receive().payload == b"y"


@pytest.mark.clause("MEMO-C-04")
@pytest.mark.clause("MEMO-F-02")
@pytest.mark.parametrize("id", [b"", b"\1\2\3\4", b"anything"])
def test_a_client_s_id_means_nothing_and_its_answer_has_none(
    contexts: Contexts, name: str, id: bytes
) -> None:
    worker, client = contexts(), contexts()
    worker.ready(name)
    client.send(pack(JOB, id, name, 10_000, payload=b"x"))
    assert worker.next().id != id
    worker.result(b"y", True)
    assert client.receive().id == b""


@pytest.mark.clause("MEMO-C-04")
def test_each_request_is_handled_by_itself(contexts: Contexts, name: str) -> None:
    """Equal requests of one context and of several are as many jobs."""
    worker, one, other = contexts(), contexts(), contexts()
    worker.ready(name)
    for client in (one, other, one):
        client.job(name, b"same")
        worker.next()
        worker.result(b"y")
        assert client.receive().payload == b"y"


@pytest.mark.clause("MEMO-C-05")
def test_more_requests_than_are_taken_at_once_wait_outside(name: str) -> None:
    with (
        BrokerProcess(nng=True, toml="[limits]\nclient_jobs = 10\n[memodb]\nwait = 60\n") as server,
        Contexts(server.nng) as asking,
        Contexts(server.nng) as working,
    ):
        clients = [asking() for _ in range(100)]
        for number, client in enumerate(clients):
            client.job(name, b"%d" % number)
        worker = working()
        worker.ready(name)
        for _ in clients:
            worker.result(worker.next().payload)
        assert {client.receive().payload for client in clients} == {b"%d" % number for number in range(100)}


# Worker


@pytest.mark.clause("MEMO-W-01")
@pytest.mark.clause("MEMO-F-04")
def test_a_ready_names_services_and_is_answered_with_a_job(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    services = [f"{name}.zz", f"{name}.a", f"{name}.é"]
    client.job(services[1], b"x")
    worker.ready(*services)
    for service in (services[1], services[2], services[0]):
        if service != services[1]:
            client.job(service, b"x")
        said = worker.next()
        assert (said.kind, said.fields[0]) == (JOB, service)
        worker.result(b"y")
        client.receive()


@pytest.mark.clause("MEMO-W-01")
@pytest.mark.clause("MEMO-F-07")
def test_a_ready_is_answered_with_a_heartbeat_when_there_is_no_job(contexts: Contexts, name: str) -> None:
    worker = contexts()
    worker.ready(name)
    said = worker.receive()
    assert (said.kind, said.fields, said.payload) == (HEARTBEAT, [], b"")
    assert said.id


@pytest.mark.clause("MEMO-W-02")
@pytest.mark.clause("MEMO-W-04")
def test_a_result_is_answered_with_the_next_job_or_a_heartbeat(contexts: Contexts, name: str) -> None:
    worker, one, other = contexts(), contexts(), contexts()
    worker.ready(name)
    one.job(name, b"1")
    other.job(name, b"2")
    worker.next()
    worker.result(b"y")
    said = worker.receive()
    assert said.kind == JOB
    worker.result(b"y")
    assert worker.receive().kind == HEARTBEAT
    assert (one.receive().payload, other.receive().payload) == (b"y", b"y")


@pytest.mark.clause("MEMO-W-03")
@pytest.mark.clause("MEMO-W-04")
def test_a_heartbeat_is_answered_with_a_job_or_another_heartbeat(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    worker.ready(name)
    for _ in range(3):
        said = worker.receive()
        assert said.kind == HEARTBEAT
        worker.send(heartbeat(said.id))
    client.job(name, b"x")
    assert worker.next().kind == JOB


@pytest.mark.clause("MEMO-W-03")
def test_a_worker_that_leaves_a_heartbeat_unanswered_is_gone(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    worker.ready(name)
    said = worker.receive()

    def known() -> bool:
        client.job("mmi.service", name.encode())
        return client.receive().payload == b"200"

    assert known()
    wait_for(lambda: not known(), 10)
    worker.send(heartbeat(said.id))
    assert worker.receive().kind == DISCONNECT


@pytest.mark.clause("MEMO-W-05")
@pytest.mark.clause("MEMO-F-08")
@pytest.mark.parametrize("id", [b"", b"\1\2\3\4", b"any byte string will do" * 10])
def test_an_id_nobody_has_is_answered_with_disconnect(contexts: Contexts, id: bytes) -> None:
    worker = contexts()
    for request in (heartbeat(id), result(id, b"x"), result(id, b"x", True)):
        worker.send(request)
        said = worker.receive()
        assert (said.kind, said.id, said.fields, said.payload) == (DISCONNECT, id, [], b"")


@pytest.mark.clause("MEMO-W-05")
def test_a_worker_out_of_step_is_disconnected_and_starts_again(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    worker.ready(name)
    worker.id = worker.receive().id
    worker.result(b"of no job")
    assert worker.receive().kind == DISCONNECT
    worker.ready(name)
    client.job(name, b"x")
    assert worker.next().payload == b"x"
    worker.result(b"y", True)
    assert client.receive().payload == b"y"


@pytest.mark.clause("MEMO-W-06")
@pytest.mark.clause("MEMO-O-07")
def test_a_broker_that_was_restarted_disconnects_workers_it_does_not_know(name: str) -> None:
    with (
        BrokerProcess(nng=True, toml="[memodb]\nheartbeat = 0.3\n") as server,
        Contexts(server.nng, resend_time=500) as contexts,
    ):
        worker, client = contexts(), contexts()
        worker.ready(name)
        said = worker.receive()
        worker.send(heartbeat(said.id))
        server.kill()
        server.start_again()
        assert worker.receive().kind == DISCONNECT
        worker.ready(name)
        client.job(name, b"x")
        assert worker.next().payload == b"x"
        worker.result(b"y")
        assert client.receive().payload == b"y"


@pytest.mark.clause("MEMO-W-06")
def test_a_broker_that_stops_says_so(name: str) -> None:
    with BrokerProcess(nng=True) as server, Contexts(server.nng) as contexts:
        worker = contexts()
        worker.ready(name)
        contexts().job("mmi.service", b"x")
        assert server.stop() == 0
        assert worker.receive().kind == DISCONNECT


@pytest.mark.clause("MEMO-W-07")
@pytest.mark.clause("MEMO-F-02")
def test_each_worker_has_an_id_of_its_own_in_every_message(contexts: Contexts, name: str) -> None:
    workers = [contexts() for _ in range(30)]
    for worker in workers:
        worker.ready(name)
    first = [worker.receive().id for worker in workers]
    assert len(set(first)) == 30
    assert all(len(id) == 16 for id in first)
    for worker, id in zip(workers, first, strict=True):
        worker.send(heartbeat(id))
    assert [worker.receive().id for worker in workers] == first


# Message format


@pytest.mark.clause("MEMO-F-01")
def test_any_well_formed_encoding_of_a_header_is_understood(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    text = name.encode()
    worker.send(b"\x9f\x66memo01\x18\x01\x5f\xff\x9f\x79" + len(text).to_bytes(2, "big") + text + b"\xff\xff")
    assert worker.receive().kind == HEARTBEAT
    worker.ready(name)
    client.send(
        b"\x98\x05\x78\x06memo01\x19\x00\x02\x40\x7a"
        + len(text).to_bytes(4, "big")
        + text
        + b"\x1b"
        + (10_000).to_bytes(8, "big")
        + b"payload"
    )
    said = worker.next()
    assert (said.kind, said.fields, said.payload) == (JOB, [name, 10_000], b"payload")


@pytest.mark.clause("MEMO-F-03")
def test_what_the_broker_says_is_encoded_deterministically(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    said = []
    worker.send(ready(name))
    said.append(worker.context.recv())
    id = unpack(said[0]).id
    worker.send(heartbeat(id))
    client.send(job(name, b"", 70_000))
    said.append(worker.context.recv())
    while unpack(said[-1]).kind == HEARTBEAT:
        worker.send(heartbeat(id))
        said.append(worker.context.recv())
    worker.send(result(id, b"", True))
    said += [client.context.recv(), worker.context.recv()]
    assert {unpack(each).kind for each in said} == {JOB, RESULT, HEARTBEAT, DISCONNECT}
    for each in said:
        stream = io.BytesIO(each)
        assert cbor2.dumps(cbor2.load(stream), canonical=True) == each[: stream.tell()]


@pytest.mark.clause("MEMO-F-05")
def test_the_time_out_s_clock_starts_when_a_worker_has_the_job(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    client.job(name, b"x", 200)  # it waits for longer than that
    other = contexts()
    other.ready(f"{name}.other")
    assert other.receive().kind == HEARTBEAT  # 0.3 s later
    worker.ready(name)
    assert worker.next().fields == [name, 200]
    worker.result(b"y", True)
    assert client.receive().payload == b"y"


@pytest.mark.clause("MEMO-F-06")
def test_a_result_that_says_true_is_the_last(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    worker.ready(name)
    client.job(name, b"x")
    worker.next()
    worker.result(b"y", True)
    said = worker.receive()
    assert (said.kind, said.id, said.fields, said.payload) == (DISCONNECT, worker.id, [], b"")
    assert client.receive().payload == b"y"
    client.job("mmi.service", name.encode())
    assert client.receive().payload == b"404"


@pytest.mark.clause("MEMO-F-06")
def test_a_result_that_says_false_is_followed_by_more(contexts: Contexts, name: str) -> None:
    worker, client = contexts(), contexts()
    worker.ready(name)
    client.job(name, b"x")
    worker.next()
    worker.result(b"y", False)
    assert worker.receive().kind == HEARTBEAT


@pytest.mark.clause("MEMO-F-04")
@pytest.mark.clause("MEMO-F-07")
@pytest.mark.clause("MEMO-F-08")
@pytest.mark.parametrize(
    "message",
    [
        pack(1, b"", ["a"], payload=b"payload"),
        pack(1, b"", "a"),
        pack(1, b"", []),
        pack(1, b"", ["mmi.service"]),
        pack(2, b"", "a"),
        pack(2, b"", "a", -1),
        pack(4, b"\1\2\3\4", payload=b"payload"),
        pack(4, b"\1\2\3\4", 1),
        pack(5, b"\1\2\3\4"),
        pack(6, b"\1\2\3\4"),
        cbor2.dumps(["memo02", 4, b"\1\2\3\4"]),
        b"\xff\xff\xff",
    ],
)
def test_messages_of_another_shape_are_not_answered(contexts: Contexts, message: bytes) -> None:
    bad, good = contexts(200), contexts()
    bad.send(message)
    good.job("mmi.service", b"x")
    assert good.receive().payload == b"404"
    with pytest.raises(pynng.Timeout):
        bad.receive()
