"""`polydomo device` between real brokers and peers that we did not write."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess, DeviceProcess, free_port, wait_for
from tests.support.peers import MdpClient, Serving
from tests.support.wmp_peer import DONE, GIVE, READY, TAKE, WAKE, WmpManager, WmpWorker
from tests.web.api.site import Site


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        yield broker


def serve(device: DeviceProcess, role: bytes) -> Serving:
    return Serving(lambda context: WmpWorker(device.endpoint, role, context=context))


def test_a_worker_below_a_device_serves_the_broker_above(broker: BrokerProcess):
    place = f"127.0.0.1:{free_port()}"
    with DeviceProcess(broker.endpoint, http=place) as device, MdpClient(broker.endpoint) as client:
        worker = serve(device, b"below")
        for number in range(20):
            body = [b"%d" % number, b"", bytes(1000)]
            assert client.call(b"below", body).final == body
        figures = get(place, "/metrics")
        assert 'polydomo_device_messages_total{command="TAKE"} 20.0' in figures
        assert "polydomo_device_above 1.0" in figures
        assert "polydomo_device_below 1.0" in figures
        assert get(place, "/healthz") == '{"status":"ok"}'
        worker.stop()
        assert device.stop() == 0


def test_devices_below_devices_and_managers_side_by_side(broker: BrokerProcess):
    with (
        BrokerProcess() as other,
        DeviceProcess(broker.endpoint, other.endpoint) as upper,
        DeviceProcess(upper.endpoint) as middle,
        DeviceProcess(middle.endpoint) as lower,
        MdpClient(broker.endpoint) as one,
        MdpClient(other.endpoint) as two,
    ):
        worker = serve(lower, b"deep")
        for number in range(10):
            for client in (one, two):
                assert client.call(b"deep", [b"%d" % number]).final == [b"%d" % number]
        worker.stop()


def test_a_device_killed_and_restarted_mid_job(broker: BrokerProcess):
    """The job is given out again when the device is gone; the worker's old answer finds nobody."""
    device = DeviceProcess(broker.endpoint)
    with WmpWorker(device.endpoint, b"torn") as worker, MdpClient(broker.endpoint) as client:
        client.request(b"torn", b"x")
        first = worker.take()
        device.kill()
        with DeviceProcess(broker.endpoint, endpoint=device.endpoint):
            worker.ready()  # it repeats it now and then, in case it was forgotten
            second = worker.take()
            assert (second.body, second.address != first.address) == ([b"x"], True)
            worker.reply(first, [b"old"])
            worker.reply(second, [b"new"])
            assert client.answer(b"torn").final == [b"new"]


def test_a_worker_lost_below_a_device_is_missed_above_at_once(broker: BrokerProcess):
    with DeviceProcess(broker.endpoint) as device, MdpClient(broker.endpoint) as client:
        lost = WmpWorker(device.endpoint, b"lost")
        client.request(b"lost", b"x")
        lost.take()
        began = time.monotonic()
        lost.close()
        worker = serve(device, b"lost")
        assert client.answer(b"lost").final == [b"x"]
        assert time.monotonic() - began < 10
        worker.stop()


def test_a_broker_that_comes_later_hears_of_workers_that_are_ready():
    port = free_port()
    with DeviceProcess(f"tcp://127.0.0.1:{port}") as device:
        worker = serve(device, b"early")
        time.sleep(0.5)
        with (
            BrokerProcess(zmq=f"tcp://127.0.0.1:{port}") as broker,
            MdpClient(broker.endpoint) as client,
        ):
            assert client.call(b"early", [b"x"]).final == [b"x"]
        worker.stop()


def test_devices_in_a_circle_refuse_to_pass_it_on():
    manager = WmpManager()
    ports = [free_port(), free_port()]
    places = [f"tcp://127.0.0.1:{port}" for port in ports]
    with (
        DeviceProcess(manager.endpoint, places[1], endpoint=places[0]) as one,
        DeviceProcess(places[0], endpoint=places[1]) as other,
        WmpWorker(other.endpoint, b"round") as worker,
    ):
        ready = manager.hear(READY)
        assert ready.headers == {"roles": ["round"]}
        wait_for(lambda: "circle" in one.log() + other.log())
        manager.say(ready, WAKE, {"wake": 1, "roles": ["round"]})
        assert worker.hear().command == WAKE
    manager.close()


def test_a_raw_manager_above_and_what_peers_should_not_say():
    manager = WmpManager()
    with (
        DeviceProcess(manager.endpoint, name="the-device") as device,
        WmpWorker(device.endpoint, b"x") as worker,
        MdpClient(device.endpoint) as stranger,
    ):
        stranger.request(b"x", b"nobody speaks MDP here")
        worker.say(GIVE, {"wake": 1}, path=[])
        ready = manager.hear(READY)
        assert ready.to == [b"the-device"]
        manager.say(ready, WAKE, {"wake": 5, "roles": ["x"]})
        wake = worker.hear()
        worker.path = wake.source
        worker.say(GIVE, {"wake": 5})
        give = manager.hear(GIVE)
        manager.say(give, TAKE, {"wake": 5, "job": "j", "manager": "m", "role": "x"}, [b"body"])
        assert worker.hear().payload == [b"body"]
        worker.say(DONE, {"job": "j"}, [b"done"])
        assert manager.hear(DONE).payload == [b"done"]
        wait_for(lambda: device.log().count("message dropped") >= 2)
    manager.close()


def get(place: str, path: str) -> str:
    return Site(place).get(path).body.decode()
