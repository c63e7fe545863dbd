"""The forms of MDP that people run besides RFC 18's own (RFC 7's MDP/0.1, the majortomo package), and RFC 8/MMI."""

from __future__ import annotations

import pytest

from tests.support.peers import (
    Answer,
    DcpPeer,
    Manager,
    Mdp01Client,
    Mdp01DealerClient,
    Mdp01Worker,
    MdpClient,
    MdpReqClient,
    MdpWorker,
    Peer,
    Peers,
    TomoClient,
    TomoFormWorker,
)

FORMS = [MdpWorker, TomoFormWorker, Mdp01Worker]
CLIENTS = [MdpClient, MdpReqClient, Mdp01Client, Mdp01DealerClient, TomoClient, DcpPeer]


@pytest.mark.clause("FORM-01")
def test_a_0_1_client_gets_the_final_body_and_nothing_else(peers: Peers, service: bytes):
    """RFC 7 §MDP/Client: request and reply are an empty frame, "MDPC01", the service name, the body."""
    worker, client = peers(MdpWorker, service), peers(Peer)
    client.send(b"", b"MDPC01", service, b"a", b"b")
    task = worker.take()
    assert task.body == [b"a", b"b"]
    worker.partial(task, [b"half"])
    worker.reply(task, [b"c", b"", b"d"])
    assert client.recv() == [b"", b"MDPC01", service, b"c", b"", b"d"]
    assert client.fence() == []


@pytest.mark.clause("FORM-02")
def test_a_0_1_worker_speaks_in_its_own_commands(brisk_peers: Peers, service: bytes):
    """RFC 7 §MDP/Worker: REQUEST 02, REPLY 03, HEARTBEAT 04, DISCONNECT 05, each behind an empty frame."""
    worker, client = brisk_peers(Peer), brisk_peers(MdpClient)
    worker.send(b"", b"MDPW01", b"\x01", service)
    client.request(service, b"x")
    *head, address, delimiter, body = worker.recv()
    assert (head, delimiter, body) == ([b"", b"MDPW01", b"\x02"], b"", b"x")
    worker.send(b"", b"MDPW01", b"\x03", address, b"", b"y")
    assert client.answer(service) == Answer([], [b"y"])
    assert worker.recv() == [b"", b"MDPW01", b"\x04"]
    worker.send(b"", b"MDPW01", b"\x01", service)
    assert worker.recv() == [b"", b"MDPW01", b"\x05"]


@pytest.mark.clause("FORM-03")
def test_a_majortomo_client_gets_its_own_commands_and_no_service_frame(peers: Peers, service: bytes):
    """majortomo 0.2.0: REQUEST 02, PARTIAL 03, FINAL 04, each behind an empty frame."""
    worker, client = peers(MdpWorker, service), peers(Peer)
    client.send(b"", b"MDPC02", b"\x02", service, b"x")
    task = worker.take()
    worker.partial(task, [b"half"])
    worker.reply(task, [b"whole"])
    assert client.recv() == [b"", b"MDPC02", b"\x03", b"half"]
    assert client.recv() == [b"", b"MDPC02", b"\x04", b"whole"]


@pytest.mark.clause("FORM-04")
def test_a_majortomo_worker_is_answered_behind_an_empty_frame(brisk_peers: Peers, service: bytes):
    """majortomo 0.2.0: RFC 18's commands behind an empty frame."""
    worker, client = brisk_peers(Peer), brisk_peers(MdpClient)
    worker.send(b"", b"MDPW02", b"\x01", service)
    client.request(service, b"x")
    *head, address, delimiter, body = worker.recv()
    assert (head, delimiter, body) == ([b"", b"MDPW02", b"\x02"], b"", b"x")
    worker.send(b"", b"MDPW02", b"\x03", address, b"", b"half")
    worker.send(b"", b"MDPW02", b"\x04", address, b"", b"whole")
    assert client.answer(service) == Answer([[b"half"]], [b"whole"])
    assert worker.recv() == [b"", b"MDPW02", b"\x05"]


@pytest.mark.clause("FORM-05")
@pytest.mark.parametrize("form", FORMS)
def test_a_further_ready_is_answered_in_the_worker_s_form(
    peers: Peers, manager: Manager, service: bytes, form: type
):
    """Each peer is answered in the form it used."""
    worker = peers(form, service)
    worker.ready(service)
    assert worker.fence() == [[*form.head, form.DISCONNECT]]
    assert not manager.offered(service)


@pytest.mark.clause("FORM-05")
@pytest.mark.parametrize("form", FORMS)
def test_a_heartbeat_before_ready_is_answered_in_the_worker_s_form(peers: Peers, form: type):
    """Each peer is answered in the form it used."""
    worker = peers(form)
    worker.command(worker.HEARTBEAT)
    assert worker.fence() == [[*form.head, form.DISCONNECT]]


@pytest.mark.clause("FORM-05")
@pytest.mark.parametrize("form", FORMS)
def test_a_final_without_a_job_is_answered_in_the_worker_s_form(peers: Peers, service: bytes, form: type):
    """Each peer is answered in the form it used."""
    worker = peers(form, service)
    worker.command(worker.FINAL, b"address", b"", b"body")
    assert worker.fence() == [[*form.head, form.DISCONNECT]]


@pytest.mark.clause("FORM-06")
def test_a_client_that_changes_its_form_is_answered_in_the_new_one(peers: Peers, service: bytes):
    """What a peer speaks is remembered, not fixed."""
    peers.echo(service)
    client = peers(Peer)
    for _ in range(2):
        client.send(b"MDPC02", b"\x01", service, b"new")
        assert client.recv() == [b"MDPC02", b"\x03", service, b"new"]
        client.send(b"", b"MDPC01", service, b"old")
        assert client.recv() == [b"", b"MDPC01", service, b"old"]
        client.send(b"", b"MDPC02", b"\x02", service, b"tom")
        assert client.recv() == [b"", b"MDPC02", b"\x04", b"tom"]


@pytest.mark.clause("FORM-06")
def test_one_connection_may_be_client_and_worker(peers: Peers, service: bytes):
    """RFC 18 §Overall Topology knows roles, not kinds of socket."""
    peer, client = peers(MdpWorker, service), peers(MdpClient)
    client.request(service, b"x")
    task = peer.take()
    peer.send(b"MDPC02", b"\x01", b"mmi.service", service)
    assert peer.recv() == [b"MDPC02", b"\x03", b"mmi.service", b"200"]
    peer.reply(task, [b"y"])
    assert client.answer(service).final == [b"y"]


@pytest.mark.clause("MMI-01")
@pytest.mark.parametrize("form", CLIENTS)
def test_mmi_service_says_whether_a_service_has_workers(peers: Peers, service: bytes, form: type):
    """RFC 8 §mmi.service: "200" if it has workers, "404" if not; whichever protocol asks."""
    client = peers(form)
    assert client.call(b"mmi.service", [service]).final == [b"404"]
    worker = peers(MdpWorker, service)
    worker.fence()
    assert client.call(b"mmi.service", [service]).final == [b"200"]
    worker.command(worker.DISCONNECT)
    worker.fence()
    assert client.call(b"mmi.service", [service]).final == [b"404"]


@pytest.mark.clause("MMI-01")
def test_waiting_requests_do_not_make_a_service(peers: Peers, manager: Manager, service: bytes):
    """RFC 8 §mmi.service: a service is what a worker registered."""
    client = peers(MdpClient)
    client.request(service, b"x")
    client.fence()
    assert not manager.offered(service)


@pytest.mark.clause("MMI-02")
@pytest.mark.parametrize("name", [b"mmi.", b"mmi.nothing", b"mmi.service2"])
@pytest.mark.parametrize("form", CLIENTS)
def test_an_unknown_mmi_service_is_501(peers: Peers, form: type, name: bytes):
    """RFC 8: "501" for a service that is not implemented."""
    assert peers(form).call(name, [b"x"]).final == [b"501"]


@pytest.mark.clause("MMI-03")
@pytest.mark.parametrize("name", [b"mmi.service", b"mmi.mine", b"mmi."])
@pytest.mark.parametrize("form", FORMS)
def test_nobody_registers_for_the_broker_s_own_names(peers: Peers, manager: Manager, form: type, name: bytes):
    """RFC 8: names that begin with "mmi." are the broker's."""
    before = manager.show("show_broker")["workers"]
    worker = peers(form, name)
    assert worker.fence() == [[*form.head, form.DISCONNECT]]
    assert manager.show("show_broker")["workers"] == before
    assert peers(MdpClient).call(b"mmi.service", [b"mmi.service"]).final == [b"200"]
