"""A dead letter that is sent again is tried as often as a new job."""

from __future__ import annotations

import json
from typing import Any

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import MdpClient, MdpWorker
from tests.web.desk import Desk

TOML = """
[services.fragile]
durable = true
retries = 1
grace = 0.5
"""


def lose(broker: BrokerProcess, times: int) -> None:
    """Workers that take the job and are gone."""
    for _ in range(times):
        with MdpWorker(broker.endpoint, b"fragile") as worker:
            worker.take()


def ask(broker: BrokerProcess, task: str, **kwargs: Any) -> Any:
    with MdpClient(broker.endpoint) as client:
        said = json.dumps({"task": task, "kwargs": kwargs}).encode()
        return json.loads(client.call(b"mmi.service.broker", [said]).final[0])


def test_a_resent_dead_letter_gets_all_attempts_of_its_policy_again_also_after_a_restart() -> None:
    with BrokerProcess(toml=TOML, http=True) as broker:
        uid = Desk(broker).job("fragile").rpartition("/")[2]

        def state() -> tuple[str, int]:
            shown = ask(broker, "show_stored_job", id=uid)
            return shown["state"], shown["attempts"]

        lose(broker, 2)
        wait_for(lambda: state() == ("dead", 2))
        assert ask(broker, "resend_job", id=uid)["sent"]
        lose(broker, 1)
        wait_for(lambda: state()[1] == 3)
        wait_for(lambda: ask(broker, "show_services")[0]["waiting"] == 1)
        broker.kill()
        broker.start_again()
        with MdpWorker(broker.endpoint, b"fragile", beat=0.5) as worker:
            task = worker.take(20)  # its former worker has some seconds to come back first
            worker.reply(task, [b"done"])
            wait_for(lambda: state() == ("done", 4))
