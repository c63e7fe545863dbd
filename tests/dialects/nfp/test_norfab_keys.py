"""norfab 0.25's own authentication: its client and worker make their keys, `shared_key` is the broker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from polydomo.security.keys import ACCEPTED, PENDING, KeyFolder
from polydomo.wire.curve.keys import encode_key
from tests.support.broker import BrokerProcess, wait_for
from tests.support.norfab import PATIENCE, Client, Worker

ROLES = """\
[security]
curve = "on"

[roles.lab]
serve = ["lab"]

[roles.tester]
call = ["lab"]
observe = ["lab"]

[principals]
lab-1 = ["lab"]
tester = ["tester"]
"""


@pytest.mark.peers
@pytest.mark.slow
def test_norfab_peers_get_in_with_the_keys_that_they_make_and_do_what_their_roles_grant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerProcess(toml=ROLES) as broker:
        folder = KeyFolder(broker.data / "keys")
        key = encode_key(folder.open().public)
        worker = Worker(broker.endpoint, "lab", "lab-1", tmp_path, key)
        client = Client(broker.endpoint, tmp_path, "tester", key)
        try:
            # The client, the worker, and its companion, which asks for its inventory and acts for the worker.
            for name in ("tester", "lab-1-NFPClient", "lab-1"):
                wait_for(
                    lambda name=name: name in {entry.name for entry in folder.entries(PENDING)},
                    PATIENCE,
                    f"{name} is not pending: {folder.entries()}\n{worker.log()}",
                )
                folder.move(folder.resolve(name), ACCEPTED)
            wait_for(lambda: "lab-1" in client.alive(), PATIENCE, worker.log())
            assert client.run("lab", "whoami", word="curve")["lab-1"]["result"]["word"] == "curve"
            assert client.run("office", "whoami", word="curve") == {}
            assert "failed with status 400: tester may not call office" in caplog.text  # by norfab's client
            assert "tester may not call office" in broker.log()
        finally:
            client.close()
            worker.kill()
