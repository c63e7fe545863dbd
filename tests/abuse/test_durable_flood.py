"""Abuse: clients that send durable jobs faster than the disk takes them are slowed down, and no others."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import zmq

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import MdpClient
from tests.web.api.site import Site

TOML = """
[services.kept]
durable = true

[store]
backlog = %d
"""


def shown(client: MdpClient) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.call(b"mmi.service.broker", [b"show_broker"]).final[0])
    return found


def test_a_flood_of_durable_jobs_is_held_back_and_none_is_refused(full: bool) -> None:
    """Each client stays within its own limits; together they send several times what may wait to be written."""
    clients, jobs, size, backlog = (12, 1000, 40_000, 256 << 20) if full else (4, 24, 40_000, 1 << 20)
    with BrokerProcess(toml=TOML % backlog, http=True) as broker:
        context = zmq.Context()
        asker = MdpClient(broker.endpoint)
        peaks: list[int] = []
        over = threading.Event()

        def look() -> None:
            site = Site(broker.http)
            while not over.wait(0.02):
                peaks.append(site.get("/v1/broker").json()["store"]["backlog"])

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            body = os.urandom(size)
            sockets = [context.socket(zmq.DEALER) for _ in range(clients)]
            for socket in sockets:
                socket.set_hwm(0)
                socket.linger = 0
                socket.connect(broker.endpoint)
            for _ in range(jobs):
                for socket in sockets:
                    socket.send_multipart([b"MDPC02", b"\x01", b"kept", body], copy=False)
            wait_for(lambda: shown(asker)["submitted"] == clients * jobs, 300)
            wait_for(lambda: shown(asker)["undecided"] == 0, 60)
        finally:
            over.set()
            watcher.join()
            context.destroy(linger=0)
        counts = shown(asker)
        assert (counts["accepted"], counts["refused"]) == (clients * jobs, 0)
        assert counts["store"]["refused"] == 0
        assert max(peaks) < backlog
        assert "refused" not in broker.log()
        asker.close()
