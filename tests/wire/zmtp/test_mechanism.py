"""wire/zmtp/mechanism: NULL (RFC 37 §The NULL Security Mechanism)."""

from __future__ import annotations

import pytest

from polydomo.errors import ProtocolError
from polydomo.wire.zmtp.mechanism import Null
from tests.support import zmtp

METADATA = {b"Socket-Type": b"ROUTER", b"Identity": b""}


def test_who_connects_says_ready_at_once() -> None:
    null = Null(METADATA, late=False)
    assert null.start() == zmtp.ready(b"ROUTER")
    assert null.finish() == b""


def test_who_listens_says_ready_only_to_a_peer_it_accepted() -> None:
    null = Null(METADATA, late=True)
    assert null.start() == b""
    assert null.receive(b"READY", b"\x0bSocket-Type\0\0\0\6DEALER") == b""
    assert null.done
    assert null.finish() == zmtp.ready(b"ROUTER")


@pytest.mark.parametrize("name", [b"HELLO", b"INITIATE", b"ready", b"PING"])
def test_anything_but_ready_is_refused(name: bytes) -> None:
    null = Null(METADATA, late=True)
    with pytest.raises(ProtocolError, match="READY"):
        null.receive(name, b"")
    assert not null.done
