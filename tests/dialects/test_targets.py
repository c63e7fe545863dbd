"""NFP's target frame."""

from __future__ import annotations

import pytest

from polydomo.core.targets import ALL, EACH, NAMES, RESOURCES
from polydomo.dialects.targets import names_in, parse


def test_any_is_no_target():
    assert parse(b"any") is None


@pytest.mark.parametrize("target", [b"all", b""])
def test_all(target: bytes):
    found = parse(target)
    assert found is not None
    assert (found.kind, found.names, found.single, found.everywhere) == (ALL, [], False, False)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (b"w1", [b"w1"]),
        (b"w1,w2", [b"w1", b"w2"]),
        (b" w1 , w2,,", [b"w1", b"w2"]),
        (b"w1,w1", [b"w1"]),
        (b'["w1"]', [b"w1"]),
        (b'["w1","w 2, too"]', [b"w1", b"w 2, too"]),
        ('["Größe"]'.encode(), ["Größe".encode()]),
    ],
)
def test_names(target: bytes, names: list[bytes]):
    found = parse(target)
    assert found is not None
    assert (found.kind, found.names, found.single) == (NAMES, names, len(names) == 1)
    assert names_in(target) == names


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (b"resource:r1", [b"r1"]),
        (b"resource:r1,resource:r2", [b"r1", b"r2"]),
        (b'["resource:r1","resource:r,2"]', [b"r1", b"r,2"]),
    ],
)
def test_resources(target: bytes, names: list[bytes]):
    found = parse(target)
    assert found is not None
    assert (found.kind, found.names, found.single) == (RESOURCES, names, len(names) == 1)
    assert names_in(target) == []


@pytest.mark.parametrize(
    "target",
    [b",", b"[]", b"[1]", b'[""]', b"[", b'["a"', b"resource:", b"resource:a,b", b"[" * 10_000, b"[\xff]"],
)
def test_wrong_targets_are_refused(target: bytes):
    with pytest.raises(ValueError, match="target"):
        parse(target)
    assert names_in(target) == []


def test_the_service_all_is_all_services():
    every, each, one = parse(b"all", b"all"), parse(b"any", b"all"), parse(b"w1", b"all")
    assert every is not None
    assert each is not None
    assert one is not None
    assert (every.kind, every.everywhere) == (ALL, True)
    assert (each.kind, each.everywhere, each.single) == (EACH, True, False)
    assert (one.kind, one.everywhere, one.single) == (NAMES, True, True)
    with pytest.raises(ValueError, match="resource"):
        parse(b"resource:r", b"all")


def test_names_that_are_no_text_are_written_in_hex_where_people_write_them():
    for target, written in ((b"0xcafe,w", True), (b'["0xcafe","w"]', False)):
        found = parse(target, written=written)
        assert found is not None
        assert found.names == [b"\xca\xfe", b"w"]
    found = parse(b"0xcafe")  # on the wire a name is its bytes
    assert found is not None
    assert found.names == [b"0xcafe"]
    found = parse(b"resource:0xcafe", written=True)
    assert found is not None
    assert found.names == [b"\xca\xfe"]
