"""One broker for the tests of what it shows: a folder, an inventory, a memoised service, and an echo worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import MdpClient, MdpWorker, Serving
from tests.web.api.site import Site

TOML = """
[http]
patience = 0.1
slow = 2.0

[defaults]
wait = 0.3
timeout = 5.0

[services.remembered]
memo = true
durable = false

[services.echo]
durable = false

[services.dies]
retries = 0
timeout = 0.05
durable = true
"""


class Place:
    """A broker process, and what it shares."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "files"
        (self.files / "sub").mkdir(parents=True)
        (self.files / "hello.txt").write_text("hello world")
        (self.files / "empty").touch()
        (self.files / "sub" / "large.bin").write_bytes(bytes(range(256)) * 4096)
        (self.files / "out").symlink_to("/etc")
        self.inventory = folder / "inventory.yaml"
        self.inventory.write_text("workers:\n  w-*:\n    - {role: echo}\n  w-1:\n    - {number: 1}\n")
        self.broker = BrokerProcess(
            "--files", str(self.files), "--inventory", str(self.inventory), toml=TOML, http=True
        )
        self.workers = [self.serve(name) for name in (b"echo", b"remembered")]
        self.site = Site(self.broker.http)

    def serve(self, service: bytes, handle: Any = None) -> Serving:
        """A worker over another protocol; it gives back what it gets."""
        return Serving(lambda context: MdpWorker(self.broker.endpoint, service, context=context), handle)

    def call(self, service: bytes, body: bytes) -> bytes:
        """A job over another protocol."""
        client = MdpClient(self.broker.endpoint)
        try:
            return bytes(client.call(service, [body]).final[0])
        finally:
            client.close()

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.broker.__exit__()


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("place"))
    try:
        wait_for(lambda: b'"remembered"' in made.site.get("/v1/services").body)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def site(place: Place) -> Site:
    return place.site
