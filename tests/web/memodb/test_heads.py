"""`/head`: names for values."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from tests.web.api.site import is_problem
from tests.web.memodb.rest import CBOR, OCTETS, Rest


def test_a_head_is_set_seen_moved_and_removed(rest: Rest) -> None:
    is_problem(rest.get("/head/latest"), 404, "not-found")
    assert rest.send("PUT", "/head/latest", {"cid": "uAXEAAQI"}).status == 201
    seen = rest.get("/head/latest")
    assert (seen.json(), seen.headers["cache-control"]) == ({"cid": "uAXEAAQI"}, "no-cache")
    assert rest.get("/head/latest", if_none_match=seen.headers["etag"]).status == 304
    link = bytes.fromhex("d82a46000171000104")
    assert rest.ask("PUT", "/head/latest", link, content_type=CBOR).status == 201
    assert rest.get("/head/latest", if_none_match=seen.headers["etag"]).json() == {"cid": "uAXEAAQQ"}
    assert rest.get("/head/latest", accept=CBOR).body == link
    assert rest.ask("DELETE", "/head/latest").status == 204
    is_problem(rest.ask("DELETE", "/head/latest"), 404, "not-found")


def test_names_are_any_text(rest: Rest) -> None:
    names = {
        "a%2Fb": "/head/a/b",
        "a/c": "/head/a/c",
        "%C3%A9%20%3F": "/head/%C3%A9%20%3F",
        "100%25": "/head/100%25",
    }
    for name in names:
        assert rest.send("PUT", f"/head/{name}", {"cid": "uAXEAAQI"}).status == 201
    listed = rest.get("/head").json()
    assert [path for path in listed if path in names.values()] == sorted(names.values(), key=_order)
    assert all(rest.get(path).status == 200 for path in listed)
    assert rest.get("/head/a/b").json() == rest.get("/head/a%2Fb").json()
    behind = rest.get("/head?after=a/b").json()
    assert "/head/a/b" not in behind
    assert "/head/a/c" in behind
    for name in names:
        assert rest.ask("DELETE", f"/head/{name}").status == 204


def test_what_no_head_can_be(rest: Rest) -> None:
    is_problem(rest.send("PUT", "/head/x", 2), 400, "expected-cid")
    is_problem(rest.ask("PUT", "/head/x", b"uAXEAAQI", content_type=OCTETS), 400, "expected-cid")
    is_problem(rest.ask("PUT", "/head/x"), 400, "missing-body")
    is_problem(rest.send("PUT", "/head/%FF", {"cid": "uAXEAAQI"}), 400, "invalid-string")
    is_problem(rest.send("PUT", f"/head/{'x' * 1025}", {"cid": "uAXEAAQI"}), 400, "invalid-string")
    is_problem(rest.get("/head/"), 400, "invalid-string")


def _order(path: str) -> bytes:
    return unquote_to_bytes(path)
