"""14/WMP, sentence by sentence, of what is between managers and workers."""

from __future__ import annotations

import pytest

from polydomo.dialects.wmp.device import Device
from polydomo.dialects.wmp.messages import DONE, GIVE, HOPS, NO, READY, STATUS, TAKE, WAKE
from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message, join, split
from tests.support.wmp import understood, wmp


class Case:
    """A device with managers a, b, … above and workers below, and all that each was sent."""

    def __init__(self, above: str = "ab", below: str = "wx") -> None:
        self.device = Device(b"box")
        self.sent: dict[str, list[list[bytes]]] = {name: [] for name in above + below}
        for name in above:
            self.device.add_above(name.encode(), self._sender(name))
        for name in below:
            self.device.add_below(name.encode(), self._sender(name))

    def up(self, name: str, frames: list[bytes]) -> None:
        data = join(frames)
        self.device.from_below(name.encode(), Message(data, 0, len(data)))

    def down(self, name: str, frames: list[bytes]) -> None:
        data = join(frames)
        self.device.from_above(name.encode(), Message(data, 0, len(data)))

    def take(self, name: str) -> list[list[bytes]]:
        found, self.sent[name] = self.sent[name], []
        return found

    def _sender(self, name: str):
        return lambda data: self.sent[name].append(split(data))


@pytest.mark.clause("WMP-I-01")
def test_ready_goes_to_all_above_with_the_way_back():
    case = Case()
    case.up("w", wmp(READY, {"roles": ["echo"]}))
    expected = wmp(READY, {"roles": ["echo"]}, source=(b"w",))
    assert case.take("a") == case.take("b") == [expected]


@pytest.mark.clause("WMP-I-02")
@pytest.mark.clause("WMP-R-01")
def test_everything_else_goes_where_its_path_says():
    case = Case()
    case.down("b", wmp(WAKE, {"wake": 1}, to=(b"w",)))
    assert case.take("w") == [wmp(WAKE, {"wake": 1}, source=(b"b",))]
    case.up("w", wmp(GIVE, {"wake": 1}, to=(b"b",)))
    assert case.take("b") == [wmp(GIVE, {"wake": 1}, source=(b"w",))]
    for command in (TAKE, NO):
        case.down("b", wmp(command, {"wake": 1}, b"x", to=(b"w",)))
        assert case.take("w") == [wmp(command, {"wake": 1}, b"x", source=(b"b",))]
    for command in (STATUS, DONE):
        case.up("w", wmp(command, {"job": "1"}, b"y", to=(b"b",)))
        assert case.take("b") == [wmp(command, {"job": "1"}, b"y", source=(b"w",))]
    assert case.take("a") == case.take("x") == []


def test_paths_grow_at_one_end_and_shrink_at_the_other():
    case = Case()
    case.down("a", wmp(TAKE, {"job": "1"}, b"x", to=(b"w", b"next", b"last"), source=(b"m1", b"m2")))
    [frames] = case.take("w")
    to, _, source, _, payload = understood(frames)
    assert (to, source, payload) == ([b"next", b"last"], [b"a", b"m1", b"m2"], [b"x"])


def test_headers_and_payload_pass_unread():
    case = Case()
    strange = [b"", b"WMP1", bytes((READY,)), b"", b"\xff not CBOR at all", b"", b"payload", b""]
    case.up("w", strange)
    [frames] = case.take("a")
    assert frames[-4:] == strange[-4:]


@pytest.mark.clause("WMP-I-05")
def test_a_manager_that_comes_later_hears_of_everybody_who_is_ready():
    case = Case()
    case.up("w", wmp(READY, {"roles": ["echo"]}))
    case.up("x", wmp(READY, {"roles": ["echo"]}, source=(b"far",)))
    case.device.remove_above(b"b")
    case.take("b")
    case.device.add_above(b"b", case._sender("b"))
    assert [understood(frames)[2] for frames in case.take("b")] == [[b"w"], [b"x", b"far"]]


@pytest.mark.clause("WMP-I-04")
def test_who_is_gone_below_is_gone_for_all_above():
    case = Case()
    case.up("w", wmp(READY, {"roles": ["echo"]}))
    case.take("a"), case.take("b")
    case.device.remove_below(b"w")
    for name in "ab":
        [frames] = case.take(name)
        assert understood(frames)[1:4] == (READY, [b"w"], {"roles": [], "gone": True})
    case.device.remove_below(b"x")  # it never said anything
    assert case.take("a") == []


def test_a_manager_that_comes_later_hears_of_nobody_who_is_gone():
    case = Case()
    ready = {"roles": ["echo"]}
    for path in ((), (b"d",), (b"d", b"e"), (b"f",)):
        case.up("w", wmp(READY, ready, source=path))
    case.up("x", wmp(READY, ready))
    case.up("w", wmp(READY, {"roles": [], "gone": True}, source=(b"d",)))  # and whoever is behind it

    def later() -> list[list[bytes]]:
        case.device.add_above(b"b", case._sender("b"))
        return [understood(frames)[2] for frames in case.take("b")]

    case.take("b")
    assert later() == [[b"w"], [b"w", b"f"], [b"x"]]
    case.up("x", wmp(READY, {"roles": []}))  # it is there, and offers nothing
    case.take("b")
    case.device.add_above(b"b", case._sender("b"))
    assert understood(case.take("b")[-1])[3] == {"roles": []}
    case.device.remove_below(b"w")
    case.device.remove_below(b"x")
    case.take("b")
    assert (later(), case.device._kept) == ([], 0)


def test_a_manager_that_speaks_to_somebody_who_is_gone_is_told():
    case = Case()
    case.down("a", wmp(WAKE, {"wake": 1}, to=(b"nobody", b"behind"), source=(b"m",)))
    [frames] = case.take("a")
    assert understood(frames)[:4] == ([b"m"], READY, [b"nobody"], {"roles": [], "gone": True})
    assert case.device.lost == 1


def test_what_is_for_a_manager_that_is_gone_is_dropped():
    case = Case()
    case.up("w", wmp(DONE, {"job": "1"}, b"y", to=(b"z",)))
    assert (case.take("a"), case.take("b"), case.device.lost) == ([], [], 1)


@pytest.mark.clause("WMP-I-06")
def test_a_message_that_was_here_before_is_refused():
    case = Case()
    with pytest.raises(ProtocolError, match="circle"):
        case.up("w", wmp(READY, {"roles": ["echo"]}, source=(b"other", b"box", b"w0")))
    assert (case.device.loops, case.take("a")) == (1, [])


@pytest.mark.clause("WMP-I-06")
def test_a_path_that_is_too_long_is_refused():
    case = Case()
    with pytest.raises(ProtocolError, match="circle"):
        case.up("w", wmp(READY, source=tuple(b"%d" % hop for hop in range(HOPS + 1))))
    assert case.take("a") == []


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        wmp(WAKE, {"wake": 1}),
        wmp(TAKE, {"wake": 1}, to=(b"a",)),
        wmp(GIVE, {"wake": 1}),
        wmp(DONE, {"job": "1"}),
        [b"", b"NOPE", b"\x01", b"", b"\xa0"],
    ],
)
def test_what_cannot_come_from_below_is_refused(frames: list[bytes]):
    case = Case()
    with pytest.raises(ProtocolError):
        case.up("w", frames)
    assert case.device.refused == 1
    assert not any(case.sent.values())


@pytest.mark.parametrize(
    "frames", [wmp(READY, to=(b"w",)), wmp(DONE, to=(b"w",)), wmp(WAKE, {"wake": 1}), [b"x"]]
)
def test_what_cannot_come_from_above_is_refused(frames: list[bytes]):
    case = Case()
    with pytest.raises(ProtocolError):
        case.down("a", frames)
    assert case.device.refused == 1
    assert not any(case.sent.values())
