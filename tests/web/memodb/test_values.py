"""`/cid`, from outside: values in and out, in every form, and what is refused."""

from __future__ import annotations

import json
import subprocess

import cbor2
import pytest

from tests.support.curl import need_curl
from tests.web.api.site import is_problem
from tests.web.memodb.rest import CBOR, JSON, OCTETS, Rest


def test_one_value_has_one_cid_in_every_form(rest: Rest) -> None:
    assert rest.store(b"2", JSON) == "uAXEAAQI"
    assert rest.store(b"\x02", CBOR) == "uAXEAAQI"
    assert rest.store(b"\x19\x00\x02", CBOR) == "uAXEAAQI"  # written longer than it must be
    assert rest.store(b"\x55\xaa", OCTETS) == "uAVUAAlWq"
    assert rest.store(b'{"base64":"Vao="}', JSON) == "uAVUAAlWq"
    assert rest.store(b"\x42\x55\xaa", CBOR) == "uAVUAAlWq"
    assert rest.store(b"", OCTETS) == "uAVUAAA"


def test_a_value_comes_back_in_the_form_that_is_liked_best(rest: Rest) -> None:
    data = bytes(range(256)) * 8
    cid = rest.store(data, OCTETS)
    assert cid.startswith("uAVWg5AIg")
    for accept, kind, body in [
        ("", JSON, None),
        ("*/*", JSON, None),
        (OCTETS, OCTETS, data),
        (f"{OCTETS}, {CBOR};q=0.9, application/problem+json", OCTETS, data),
        (CBOR, CBOR, cbor2.dumps(data)),
        (f"{OCTETS};q=0.1, {CBOR}", CBOR, cbor2.dumps(data)),
    ]:
        answer = rest.get(f"/cid/{cid}", **({"accept": accept} if accept else {}))
        assert (answer.status, answer.headers["content-type"]) == (200, kind)
        assert body is None or answer.body == body
        assert answer.headers["vary"] == "Accept"
    whole = {"map": {"a": [1, {"float": "-0"}], "link": {"cid": cid}}}
    node = rest.store(json.dumps(whole).encode(), JSON)
    assert rest.get(f"/cid/{node}").json() == whole
    tag = cbor2.loads(rest.get(f"/cid/{node}", accept=CBOR).body)["link"]
    assert (tag.tag, tag.value[:7]) == (42, bytes.fromhex("000155a0e40220"))
    is_problem(rest.get(f"/cid/{node}", accept=OCTETS), 406, "not-acceptable")
    is_problem(rest.get(f"/cid/{node}", accept="text/html"), 406, "not-acceptable")


def test_storing_is_not_refused_for_the_form_of_its_answer(rest: Rest) -> None:
    answer = rest.ask("POST", "/cid", b"2", content_type=JSON, accept=OCTETS)
    assert (answer.status, answer.headers["location"]) == (201, "/memodb/v1/cid/uAXEAAQI")


def test_it_never_changes_and_may_be_kept_for_ever(rest: Rest) -> None:
    cid = rest.store(b"x" * 100, OCTETS)
    answer = rest.get(f"/cid/{cid}")
    assert answer.headers["etag"] == f'"{cid}"'
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    again = rest.get(f"/cid/{cid}", if_none_match=answer.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", f'"{cid}"')
    other = rest.get(f"/cid/{cid}", accept=CBOR, if_none_match=answer.headers["etag"])
    assert (other.status, other.headers["etag"]) == (
        200,
        f'"{cid}.cbor"',
    )  # another form is another thing to keep
    head = rest.ask("HEAD", f"/cid/{cid}")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(answer.body)))


def test_a_value_can_be_removed_and_stored_again(rest: Rest) -> None:
    cid = rest.store(b"r" * 100, OCTETS)
    assert rest.ask("DELETE", f"/cid/{cid}").status == 204
    is_problem(rest.get(f"/cid/{cid}"), 404, "unknown-cid")
    is_problem(rest.ask("DELETE", f"/cid/{cid}"), 404, "unknown-cid")
    is_problem(rest.ask("DELETE", "/cid/uAXEAAQI"), 409, "conflict")  # it is always there
    assert rest.store(b"r" * 100, OCTETS) == cid
    assert rest.bytes_of(cid) == b"r" * 100


def test_small_values_are_there_without_being_stored(rest: Rest) -> None:
    assert rest.get("/cid/uAXEAAQQ").body == b"4"
    assert rest.get("/cid/bafyqaaie").body == b"4"
    assert rest.get("/cid/f0171000104").body == b"4"
    assert rest.get("/cid/uAVUAAlWq").body == b'{"base64":"Vao="}'
    assert rest.get("/cid/mAVUAA%2F%2F%2F%2F").status == 400
    assert rest.get("/cid/mAVUAA//%2B").status == 404  # two more steps in the path
    assert rest.get("/cid/mAVUAA%2F%2F%2B").status == 400
    is_problem(
        rest.get("/cid/uAXEAAf8"), 400, "invalid-or-unsupported-cid"
    )  # CBOR that is none, inside a CID


def test_what_is_not_there_and_what_is_no_cid(rest: Rest) -> None:
    is_problem(rest.get("/cid/uAXGg5AIg6aa9gvagXHAJtTCI5l_QXWbIMNnQN6905en1kSnHNPo"), 404, "unknown-cid")
    for text in ("nonsense", "uAXEAAQJ", "%FF", "u" + "A" * 9000):
        found = is_problem(
            rest.get(f"/cid/{text}"), 400, "invalid-string" if text == "%FF" else "invalid-or-unsupported-cid"
        )
        assert found["detail"]
    assert rest.get("/problems/nothing").status == 404
    assert rest.site.get("/problems/invalid-or-unsupported-cid").status == 200


@pytest.mark.parametrize(
    ("body", "kind", "status", "reason"),
    [
        (b"", JSON, 400, "missing-body"),
        (b"", "", 400, "missing-body"),
        (b"2", "", 415, "unsupported-media-type"),
        (b"2", "text/plain", 415, "unsupported-media-type"),
        (b'{"foo":"bar"}', JSON, 400, "invalid-or-unsupported-json"),
        (b"1.5", JSON, 400, "invalid-or-unsupported-json"),
        (b"\xff\xfe", JSON, 400, "invalid-or-unsupported-json"),
        (b"[" * 5000, JSON, 400, "invalid-or-unsupported-json"),
        (b"\x18", CBOR, 400, "invalid-or-unsupported-cbor"),
        (b"\xc1\x02", CBOR, 400, "invalid-or-unsupported-cbor"),
        (b"\x81" * 5000, CBOR, 400, "invalid-or-unsupported-cbor"),
        (b"\xa1\x01\x02", CBOR, 400, "invalid-or-unsupported-cbor"),
    ],
)
def test_bodies_that_are_no_values(rest: Rest, body: bytes, kind: str, status: int, reason: str) -> None:
    headers = {"content_type": kind} if kind else {}
    is_problem(rest.ask("POST", "/cid", body, **headers), status, reason)


def test_methods_and_paths_that_are_none(rest: Rest) -> None:
    found = rest.ask("DELETE", "/cid")
    is_problem(found, 405, "method-not-allowed")
    assert found.headers["allow"] == "POST"
    is_problem(rest.get("/nothing"), 404, "not-found")
    is_problem(rest.get("/cid/uAXEAAQI/nothing"), 404, "not-found")


def test_links_can_be_shown_with_their_values(rest: Rest) -> None:
    assert rest.get("/cid/uAXEACdgqRgABcQABAg?depth=0").json() == {"cid": "uAXEAAQI"}
    assert rest.get("/cid/uAXEACdgqRgABcQABAg?depth=1").json() == {"node": 2}
    leaf = rest.store(b'"' + b"x" * 50 + b'"', JSON)
    missing = "uAXGg5AIg6aa9gvagXHAJtTCI5l_QXWbIMNnQN6905en1kSnHNPo"
    middle = rest.store(json.dumps([{"cid": leaf}, {"cid": leaf}, {"cid": missing}]).encode(), JSON)
    top = rest.store(json.dumps({"map": {"down": {"cid": middle}}}).encode(), JSON)
    shown = rest.get(f"/cid/{top}?depth=2")
    node = {"node": "x" * 50}
    assert shown.json() == {"map": {"down": {"node": [node, node, {"cid": missing}]}}}
    assert shown.headers["cache-control"] == "no-cache"  # what is missing may come
    assert rest.get(f"/cid/{top}?depth=1").json()["map"]["down"]["node"][0] == {"cid": leaf}
    is_problem(rest.get(f"/cid/{top}?depth=x"), 400, "malformed")


def test_a_few_links_to_links_do_not_become_a_flood(rest: Rest) -> None:
    cid = rest.store(b"x" * 40, OCTETS)
    for _ in range(12):
        cid = rest.store(json.dumps([{"cid": cid}] * 32).encode(), JSON)
    answer = rest.get(f"/cid/{cid}?depth=16")
    assert answer.status == 200
    assert len(answer.body) < 64 * 1024 * 1024


def test_a_large_value_as_curl_has_it(rest: Rest, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("values") / "large"
    file.write_bytes(bytes(range(256)) * 20_000)
    url = f"http://{rest.broker.http}/memodb/v1/cid"
    made = _curl("-H", f"content-type: {OCTETS}", "--data-binary", f"@{file}", url)
    cid = json.loads(made)["cid"]
    assert _curl("-H", f"accept: {OCTETS}", f"{url}/{cid}") == file.read_bytes()


def _curl(*flags: str) -> bytes:
    need_curl()
    return subprocess.run(["curl", "-sSf", *flags], check=True, capture_output=True, timeout=20).stdout
