"""RFC 18/MDP, what it asks of a broker towards clients (§Overall Topology, §ROUTER Addressing, §MDP/Client)."""

from __future__ import annotations

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Answer, Manager, MdpClient, MdpWorker, Peers
from tests.support.zmtp import Raw, greeting, message, ready


@pytest.mark.clause("MDP-T-01")
def test_clients_are_served_on_a_fair_basis(peers: Peers, service: bytes):
    """§Overall Topology: no client SHOULD starve another."""
    greedy, modest = peers(MdpClient), peers(MdpClient)
    for n in range(10_000):
        greedy.request(service, b"greedy %d" % n)
    wait_for(lambda: waiting(peers, service) >= 100)
    modest.request(service, b"modest")
    modest.fence()
    worker = peers(MdpWorker, service)
    bodies = []
    for _ in range(3):
        task = worker.take()
        bodies.append(task.body)
        worker.reply(task, task.body)
    assert [b"modest"] in bodies
    assert bodies[0] == [b"greedy 0"]
    assert modest.answer(service).final == [b"modest"]


@pytest.mark.clause("MDP-T-01")
def test_a_client_s_own_requests_keep_their_order(peers: Peers, service: bytes):
    """§Overall Topology: fairness is between clients; one client's requests are a queue."""
    client = peers(MdpClient)
    for n in range(50):
        client.request(service, b"%d" % n)
    peers.echo(service)
    assert [client.answer(service).final for _ in range(50)] == [[b"%d" % n] for n in range(50)]


@pytest.mark.clause("MDP-T-02")
def test_the_least_recently_used_worker_is_next(peers: Peers, service: bytes):
    """§Overall Topology: which worker is next MAY be decided in any way; §Goals names this one."""
    workers = [peers(MdpWorker) for _ in range(3)]
    for worker in workers:
        worker.ready(service)
        worker.fence()
    client = peers(MdpClient)
    for n in range(3):
        client.request(service, b"%d" % n)
    tasks = [worker.take() for worker in workers]
    assert [task.body for task in tasks] == [[b"0"], [b"1"], [b"2"]]
    order = [1, 2, 0]
    for index in order:
        workers[index].reply(tasks[index], [b"done"])
        workers[index].fence()
    for n in range(3):
        client.request(service, b"again %d" % n)
    assert [workers[index].take().body for index in order] == [[b"again %d" % n] for n in range(3)]


@pytest.mark.clause("MDP-T-03")
def test_a_worker_is_given_one_request_at_a_time(peers: Peers, service: bytes):
    """§Overall Topology: a worker has one request in hand."""
    client, worker = peers(MdpClient), peers(MdpWorker, service)
    for n in range(2):
        client.request(service, b"%d" % n)
    client.fence()
    task = worker.take()
    assert worker.fence() == []
    worker.command(worker.HEARTBEAT)
    worker.partial(task, [b"not yet"])
    assert worker.fence() == []
    worker.reply(task, [b"now"])
    assert worker.take().body == [b"1"]


@pytest.mark.clause("MDP-A-01")
def test_the_broker_is_a_router_for_clients_and_workers(calm: BrokerProcess):
    """§ROUTER Addressing: the broker's socket MUST be a ROUTER."""
    with Raw(calm.endpoint) as raw:
        raw.send(greeting() + ready())
        raw.read(64)
        name, data = raw.command()
        assert name == b"READY"
        assert b"\x0bSocket-Type\0\0\0\x06ROUTER" in data


@pytest.mark.clause("MDP-A-02")
def test_both_sub_protocols_share_one_socket(peers: Peers, service: bytes):
    """§ROUTER Addressing: both sub-protocols MAY share a socket."""
    peers.echo(service)
    assert peers(MdpClient).call(service, [b"x"]) == Answer([], [b"x"])


@pytest.mark.clause("MDP-A-02")
def test_each_sub_protocol_may_have_a_socket_of_its_own(tmp_path):
    """§ROUTER Addressing: each sub-protocol MAY have its own."""
    with BrokerProcess("--zmq", f"ipc://{tmp_path}/workers") as broker:
        front, back = broker.endpoints
        with MdpWorker(back, b"echo") as worker, MdpClient(front) as client:
            client.request(b"echo", b"x")
            task = worker.take()
            worker.reply(task, task.body)
            assert client.answer(b"echo").final == [b"x"]


@pytest.mark.clause("MDP-A-03")
def test_an_answer_goes_to_the_client_that_asked(peers: Peers, service: bytes):
    """§ROUTER Addressing: an outgoing message's first frame names its receiver."""
    clients = [peers(MdpClient) for _ in range(5)]
    workers = [peers(MdpWorker, service) for _ in range(5)]
    for n, client in enumerate(clients):
        client.request(service, b"%d" % n)
    for worker in reversed(workers):
        task = worker.take()
        worker.partial(task, [b"part", *task.body])
        worker.reply(task, task.body)
    for n, client in enumerate(clients):
        assert client.answer(service) == Answer([[b"part", b"%d" % n]], [b"%d" % n])


@pytest.mark.clause("MDP-C-01")
@pytest.mark.parametrize(
    "frames", [[], [b""], [b"MDPC02"], [b"MDPC02", b"\x01"], [b"MDPC02", b"\x01", b"svc"]]
)
def test_a_request_has_four_frames_or_more(peers: Peers, frames: list[bytes]):
    """§MDP/Client: a REQUEST has 4 frames or more. Less is dropped."""
    with Raw(peers.endpoint) as raw:
        raw.shake()
        raw.send(message(*(frames or [b""])))
        raw.send(message(b"MDPC02", b"\x01", b"mmi.service", b"x"))
        assert raw.message() == [b"MDPC02", b"\x03", b"mmi.service", b"404"]


@pytest.mark.clause("MDP-C-01")
def test_a_request_s_frames_reach_the_worker(peers: Peers, service: bytes):
    """§MDP/Client: from frame 3 on, the body; nobody looks into it."""
    client, worker = peers(MdpClient), peers(MdpWorker, service)
    client.send(b"MDPC02", b"\x01", service, b"a", b"", b"\0\xff")
    command, (address, delimiter, *body) = worker.heard()
    assert (command, delimiter, body) == (b"\x02", b"", [b"a", b"", b"\0\xff"])
    assert address


@pytest.mark.clause("MDP-C-02")
@pytest.mark.clause("MDP-C-03")
def test_partial_and_final_are_formatted_as_the_specification_says(peers: Peers, service: bytes):
    """§MDP/Client: "MDPC02", 0x02 for PARTIAL or 0x03 for FINAL, the service's name, the body."""
    client, worker = peers(MdpClient), peers(MdpWorker, service)
    client.request(service, b"x")
    task = worker.take()
    worker.partial(task, [b"half", b""])
    worker.reply(task, [b"", b"whole"])
    assert client.recv() == [b"MDPC02", b"\x02", service, b"half", b""]
    assert client.recv() == [b"MDPC02", b"\x03", service, b"", b"whole"]


@pytest.mark.clause("MDP-C-04")
def test_clients_with_dealer_sockets_are_served(peers: Peers, service: bytes):
    """§MDP/Client: a client's socket MUST be a DEALER. Theirs to do; here, that one is understood."""
    peers.echo(service)
    with Raw(peers.endpoint) as raw:
        raw.shake(socket_type=b"DEALER")
        raw.send(message(b"MDPC02", b"\x01", service, b"x"))
        assert raw.message() == [b"MDPC02", b"\x03", service, b"x"]


@pytest.mark.clause("MDP-C-05")
@pytest.mark.parametrize("count", [0, 1, 100])
def test_partials_arrive_in_order_before_the_final(peers: Peers, service: bytes, count: int):
    """§MDP/Client: any number of PARTIALs, none included."""
    client, worker = peers(MdpClient), peers(MdpWorker, service)
    client.request(service, b"x")
    task = worker.take()
    for n in range(count):
        worker.partial(task, [b"%d" % n])
    worker.reply(task, [b"end"])
    assert client.answer(service) == Answer([[b"%d" % n] for n in range(count)], [b"end"])


@pytest.mark.clause("MDP-C-06")
@pytest.mark.parametrize("command", [MdpWorker.PARTIAL, MdpWorker.FINAL])
def test_after_a_final_the_client_hears_no_more(peers: Peers, service: bytes, command: bytes):
    """§MDP/Client: after a FINAL there SHALL be nothing."""
    client, worker = peers(MdpClient), peers(MdpWorker, service)
    client.request(service, b"x")
    task = worker.take()
    worker.reply(task, [b"end"])
    worker.command(command, task.address, b"", b"more")
    worker.fence()
    assert client.answer(service).final == [b"end"]
    assert client.fence() == []


@pytest.mark.clause("MDP-C-07")
def test_requests_for_an_unregistered_service_are_queued(peers: Peers, service: bytes):
    """§MDP/Client: requests SHOULD wait for a service that is not there yet."""
    client = peers(MdpClient)
    client.request(service, b"early")
    client.fence()
    assert waiting(peers, service) == 1
    peers.echo(service)
    assert client.answer(service).final == [b"early"]


@pytest.mark.clause("MDP-C-08")
def test_requests_expire_after_a_configurable_time(brisk_peers: Peers, brisk_manager: Manager):
    """§MDP/Client: they SHOULD not wait for ever; how long can be set."""
    client = brisk_peers(MdpClient)
    client.request(b"hasty.service", b"soon forgotten")
    client.request(b"patient.service", b"kept")
    client.fence()
    wait_for(lambda: "hasty.service" not in services(brisk_manager))
    jobs = brisk_manager.show("show_jobs", service="hasty.service")
    assert [(job["state"], job["reason"]) for job in jobs] == [("failed", "expired")]
    assert services(brisk_manager)["patient.service"]["waiting"] == 1
    worker = brisk_peers(MdpWorker, b"hasty.service")
    assert worker.fence() == []
    assert client.fence() == []
    assert brisk_peers(MdpWorker, b"patient.service").take().body == [b"kept"]


@pytest.mark.clause("MDP-C-09")
def test_a_client_may_give_up_and_ask_again_on_a_new_socket(peers: Peers, service: bytes):
    """§MDP/Client: a client may give up its socket and ask again on another. The request
    of the closed socket is dropped, not worked on for nobody."""
    first = peers(MdpClient)
    first.request(service, b"asked")
    first.fence()
    first.close()
    wait_for(lambda: waiting(peers, service) == 0)
    second = peers(MdpClient)
    second.request(service, b"asked again")
    peers.echo(service)
    assert second.answer(service).final == [b"asked again"]


@pytest.mark.clause("MDP-C-10")
@pytest.mark.parametrize("name", [b"a", b"plain name", "Größe/π".encode(), b"\0\x01\xff", b"x" * 255])
def test_service_names_match_byte_by_byte(peers: Peers, name: bytes):
    """§MDP/Client: the name is the one a worker's READY gave."""
    worker = peers(MdpWorker, name)
    other = peers(MdpWorker, name[:-1] + b"?")
    client = peers(MdpClient)
    client.request(name, b"x")
    task = worker.take()
    worker.reply(task, [b"mine"])
    assert client.answer(name).final == [b"mine"]
    assert other.fence() == []
    worker.command(worker.DISCONNECT)
    worker.fence()


def services(manager: Manager) -> dict[str, dict]:
    return {row["name"]: row for row in manager.show("show_services")}


def waiting(peers: Peers, service: bytes) -> int:
    with Manager(peers.endpoint) as manager:
        return services(manager).get(service.decode(), {"waiting": 0})["waiting"]
