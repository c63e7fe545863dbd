"""server/uids: names for jobs (RFC 9562 §5.7)."""

from __future__ import annotations

import time
from uuid import RFC_4122, UUID

from polydomo.server.uuid7 import STOCK, Uuid7Source


def test_they_are_uuids_of_version_7_and_no_two_are_alike() -> None:
    uids = Uuid7Source()
    names = [uids() for _ in range(3 * STOCK)]
    assert len(set(names)) == 3 * STOCK
    found = [UUID(name) for name in names]
    assert [str(uuid) for uuid in found] == names
    assert {(uuid.version, uuid.variant) for uuid in found} == {(7, RFC_4122)}
    assert len({uuid.int & 0xFFFF for uuid in found}) > STOCK  # the end is random


def test_they_begin_with_the_time() -> None:
    before = time.time_ns() // 1_000_000
    stamp = UUID(Uuid7Source()()).int >> 80
    assert before <= stamp <= time.time_ns() // 1_000_000


def test_two_sources_differ() -> None:
    assert Uuid7Source()() != Uuid7Source()()
