"""Abuse: unauthenticated peers that send a lot of text fill neither the log nor the ledger."""

from __future__ import annotations

import time

from pyarrow import dataset

from polydomo import SyncClient
from tests.support.broker import BrokerProcess
from tests.support.zmtp import Raw, command, greeting, ready

MIB = 1024 * 1024
LONG = 60_000


def test_text_from_before_the_handshake_fills_neither_log_nor_ledger(full: bool) -> None:
    """Each peer sends 60 KB of text that becomes the reason of its refusal. 140 MiB were written for 20 s of it."""
    strangers, seconds = (20_000, 20.0) if full else (200, 60.0)
    toml = '[ledger]\nfolder = "auto"\nroll = "100ms"\nbytes = "1MiB"\n[limits]\nhandshake = "1s"'
    with BrokerProcess(toml=toml) as broker:
        with SyncClient(broker.endpoint.replace("tcp://", "mdp://")) as client:
            client.call("mmi.service.broker", {"task": "show_services"})
        began, sent = time.monotonic(), 0
        while sent < strangers and time.monotonic() - began < seconds:
            raw = Raw(broker.endpoint)
            text = b"%08d" % sent + b"x" * LONG
            mine = (
                greeting() + ready(socket_type=text),
                greeting() + command(b"ERROR", text),
                greeting(mechanism=b"M%08d" % sent),
                text,
            )[sent % 4]
            try:
                raw.send(mine)
            except OSError:
                pass  # refused before everything was sent
            raw.socket.close()
            sent += 1
        assert sent > 100
        with SyncClient(broker.endpoint.replace("tcp://", "mdp://")) as client:
            assert client.call("mmi.service.broker", {"task": "show_broker"})["name"] == "polydomo"
        assert broker.stop() == 0
        log = broker.log()
        assert len(log) < MIB // 4, len(log)
        assert max(map(len, log.splitlines())) < 2000
        assert "repeated messages" in log
        events = dataset.dataset(broker.data / "ledger" / "events").to_table().to_pylist()
        denied = [event["reason"] for event in events if event["kind"] == "denied"]
        assert 0 < len(denied) <= 50 * (1 + seconds // 60)
        assert max(map(len, denied)) < 400
        counted = sum(int(text.rpartition("(")[2].split()[0]) for text in denied if text.endswith(" more)"))
        assert len(denied) + counted > sent / 2
