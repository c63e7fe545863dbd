"""HTTP bodies and frames, both ways."""

from __future__ import annotations

from io import BytesIO
from types import SimpleNamespace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request

from polydomo.web.api import bodies, cbor
from polydomo.web.api.bodies import CBOR, JSON, OCTETS, TEXT, preferred, read_body, to_frames, write_body
from polydomo.web.api.problems import HttpProblem
from polydomo.wire.frames import EMPTY_BODY, frame, join, split

FRAMES = st.lists(st.binary(max_size=400), min_size=1, max_size=6)


def sent(*chunks: bytes, limit: int = 1000, disconnect: bool = False, **headers: str) -> Request:
    """A request whose body comes in these pieces."""
    settings = SimpleNamespace(limits=SimpleNamespace(message_bytes=limit, frames=4))
    app = SimpleNamespace(server=SimpleNamespace(settings=settings))
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": chunk, "more_body": disconnect or number < len(chunks) - 1}
        for number, chunk in enumerate(chunks)
    ]
    messages.append({"type": "http.disconnect"})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "headers": raw, "app": app}, receive)


def refused(raw: bytes, content_type: str, most: int = 10) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        to_frames(raw, content_type, most)
    return caught.value


class TestReading:
    async def test_one_frame_as_it_is(self) -> None:
        assert await read_body(sent(b"hel", b"", b"lo")) == frame(b"hello")
        assert await read_body(sent(b"\0\xff", content_type="image/png")) == frame(b"\0\xff")

    async def test_no_body_is_one_empty_frame(self) -> None:
        assert await read_body(sent(b"")) == EMPTY_BODY
        assert await read_body(sent(b"", content_type=JSON)) == EMPTY_BODY

    async def test_too_much_is_refused_before_it_is_read(self) -> None:
        with pytest.raises(HttpProblem) as caught:
            await read_body(sent(b"", content_length="1001"))
        assert caught.value.status == 413

    async def test_too_much_is_refused_while_it_is_read(self) -> None:
        request = sent(b"a" * 600, b"b" * 600, b"never read")
        with pytest.raises(HttpProblem) as caught:
            await read_body(request)
        assert caught.value.status == 413
        assert caught.value.headers["connection"] == "close"
        assert (await request.receive())["body"] == b"never read"

    async def test_too_much_in_one_piece(self) -> None:
        with pytest.raises(HttpProblem, match="1000 bytes"):
            await read_body(sent(b"a" * 1001))

    async def test_frames_headers_count(self) -> None:
        with pytest.raises(HttpProblem) as caught:
            await read_body(sent(b"a" * 1000))
        assert caught.value.status == 413

    async def test_content_encodings_are_not_understood(self) -> None:
        with pytest.raises(HttpProblem) as caught:
            await read_body(sent(b"x", content_encoding="gzip"))
        assert caught.value.status == 415
        assert await read_body(sent(b"x", content_encoding="identity")) == frame(b"x")

    @pytest.mark.parametrize("chunks", [(), (b"half",)])
    async def test_a_client_that_goes_away(self, chunks: tuple[bytes, ...]) -> None:
        with pytest.raises(ClientDisconnect):
            await read_body(sent(*chunks, disconnect=True))


class TestChecks:
    @pytest.mark.parametrize(
        "kind", ["application/json", "Application/JSON; charset=utf-8", "application/x+json"]
    )
    def test_json_is_checked(self, kind: str) -> None:
        assert to_frames(b' {"a": [1]} ', kind) == frame(b' {"a": [1]} ')
        for raw in (b"{", b"[1,]", b'"\xff"', b"[" * 100_000, b"1 2"):
            assert refused(raw, kind).status == 400

    def test_cbor_is_checked(self) -> None:
        raw = cbor2.dumps({"a": [1, 2.5, None, b"x"]})
        assert to_frames(raw, "application/cbor") == frame(raw)
        assert refused(raw[:-1], "application/cbor").status == 400
        assert refused(raw + b"\0", "application/cbor").status == 400

    def test_every_answer_of_cbor2_is_well_formed(self) -> None:
        values = [
            *(
                0,
                23,
                24,
                -1,
                2**64,
                1.5,
                True,
                None,
                "text",
                b"bytes" * 100,
                [],
                {},
                [[[]]],
                {"k": {"l": [1]}},
            ),
            cbor2.CBORTag(42, b"\0abc"),
            cbor2.undefined,
        ]
        for value in [*values, values]:
            assert cbor.well_formed(cbor2.dumps(value)), value

    @pytest.mark.parametrize(
        ("raw", "good"),
        [
            ("9f018202039fffff", True),
            ("5f42010243030405ff", True),
            ("bf6161019fffff", False),  # a map's break where a value should be
            ("bf616101ff", True),
            ("5f4201ff", False),
            ("5f6161ff", False),  # a piece of another kind
            ("5f5f4101ffff", False),
            ("ff", False),
            ("1c", False),
            ("1f", False),
            ("df00", False),
            ("f818", False),
            ("f820", True),
            ("f4", True),
            ("9a00000001", False),
            ("81" * 513 + "00", False),
            ("81" * 500 + "00", True),
            ("", False),
            ("00ff", False),
        ],
    )
    def test_well_formed(self, raw: str, good: bool) -> None:
        assert cbor.well_formed(bytes.fromhex(raw)) is good

    @given(st.binary(max_size=60))
    def test_what_cbor2_reads_to_the_end_is_well_formed(self, raw: bytes) -> None:
        stream = BytesIO(raw)
        try:
            cbor2.load(stream)
        except Exception:  # of whatever kind: it has many
            return
        assert cbor.well_formed(raw[: stream.tell()])


class TestMultipart:
    @given(FRAMES)
    def test_what_is_written_is_read(self, frames: list[bytes]) -> None:
        kind, raw = bodies.multipart([("", frame) for frame in frames])
        assert split(to_frames(raw, kind)) == frames

    def test_as_curl_sends_it(self) -> None:
        raw = (
            b'--------x\r\nContent-Disposition: form-data; name="a"\r\n\r\none\r\n'
            b'--------x\r\nContent-Disposition: form-data; name="b"; filename="f"\r\n'
            b"Content-Type: text/plain\r\n\r\n\r\ntwo\r\n\r\n--------x--\r\n"
        )
        assert split(to_frames(raw, "multipart/form-data; boundary=------x")) == [b"one", b"\r\ntwo\r\n"]

    def test_preamble_epilogue_padding_and_quotes(self) -> None:
        raw = b"hello\r\n--a b \t\r\n\r\n1\r\n--a b\r\nX: y\r\n z\r\n\r\n\r\n--a b--\r\nbye"
        assert split(to_frames(raw, 'multipart/mixed; charset=x; Boundary="a b"')) == [b"1", b""]

    @pytest.mark.parametrize(
        "raw",
        [
            b"no boundary at all",
            b"--b\r\n\r\nno end",
            b"--b\r\nno headers' end",
            b"--b\r\nnoheader\r\n\r\nx\r\n--b--",
            b"--b\r\n\r\nx\r\n--bc\r\n\r\ny\r\n--b--",
            b"--b--",
            b"--b\n\nx\n--b--",
            b"--b\r\nA: " + b"x" * 9000 + b"\r\n\r\n\r\n--b--",
        ],
    )
    def test_what_is_refused(self, raw: bytes) -> None:
        assert refused(raw, "multipart/mixed; boundary=b").status == 400

    def test_content_types_without_a_sound_boundary(self) -> None:
        for kind in (
            "multipart/mixed",
            'multipart/mixed; boundary=""',
            "multipart/mixed; boundary=" + "b" * 71,
        ):
            assert refused(b"--b\r\n\r\n\r\n--b--", kind).status == 400

    def test_encoded_parts_and_too_many(self) -> None:
        raw = b"--b\r\nContent-Transfer-Encoding: base64\r\n\r\nQQ==\r\n--b--"
        assert refused(raw, "multipart/mixed; boundary=b").status == 415
        kind, raw = bodies.multipart([("", b"")] * 11)
        assert refused(raw, kind).status == 413


class TestWriting:
    @given(FRAMES)
    def test_lossless(self, frames: list[bytes]) -> None:
        kind, raw = write_body(join(frames))
        assert split(to_frames(raw, kind)) == frames

    def test_one_frame_under_the_name_that_is_asked_for(self) -> None:
        body = frame(b'{"a":1}')
        assert write_body(body) == (OCTETS, b'{"a":1}')
        assert write_body(body, "*/*")[0] == OCTETS
        assert write_body(body, "application/json")[0] == JSON
        assert write_body(body, "application/json, */*;q=0.1")[0] == JSON
        assert write_body(body, "text/*")[0] == TEXT
        assert write_body(body, "multipart/mixed")[0].startswith("multipart/mixed; boundary=")
        assert write_body(frame(cbor2.dumps([1])), "application/cbor")[0] == CBOR

    def test_never_under_a_name_that_is_not_true(self) -> None:
        body = frame(b"\xffno json" * 100)
        for accept in ("application/json", "application/cbor", "text/plain", "image/png", "nonsense", ";;,,"):
            assert write_body(body, accept) == (OCTETS, b"\xffno json" * 100)

    def test_no_frame_and_several(self) -> None:
        assert write_body(b"") == (OCTETS, b"")
        assert write_body(join([b"a", b"b"]), "application/json")[0].startswith("multipart/mixed")


class TestAccept:
    @pytest.mark.parametrize(
        ("accept", "best"),
        [
            ("application/json;q=0.5, application/cbor", [CBOR, JSON]),
            ("application/*;q=0.5, application/cbor;q=0", [JSON]),
            ("*/*", [JSON, CBOR]),
            ("*/*, application/cbor", [CBOR, JSON]),
            ("application/json;q=0", []),
            ("application/json;q=x, application/cbor;q=2", []),
            ("APPLICATION/JSON ; q=1.0", [JSON]),
            ("text/html", []),
            ("json", []),
        ],
    )
    def test_by_quality_then_exactness(self, accept: str, best: list[str]) -> None:
        assert preferred(accept, (JSON, CBOR)) == best
