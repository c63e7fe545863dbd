"""Files: whole, in parts, only if they have changed, and nothing outside the folder."""

from __future__ import annotations

import http.client

import pytest

from polydomo.web.api.files import parse_range
from polydomo.web.api.problems import HttpProblem
from tests.support.broker import wait_for
from tests.web.api.conftest import Place
from tests.web.api.site import Site, is_problem

LARGE = bytes(range(256)) * 4096


class TestSpan:
    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("bytes=0-0", (0, 1)),
            ("bytes=5-", (5, 10)),
            ("bytes=-3", (7, 10)),
            ("bytes=-30", (0, 10)),
            ("bytes=0-99", (0, 10)),
            ("Bytes=9-9", (9, 10)),
            ("bytes=5-4", None),
            ("bytes=-", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
            ("bytes=a-b", None),
            ("bytes= 0-1", None),
            ("bytes=" + "9" * 30 + "-", None),
        ],
    )
    def test_as_rfc_9110_has_it(self, text: str, part: tuple[int, int] | None) -> None:
        assert parse_range(text, 10) == part

    @pytest.mark.parametrize("text", ["bytes=10-", "bytes=10-20", "bytes=-0"])
    def test_behind_the_end(self, text: str) -> None:
        with pytest.raises(HttpProblem) as caught:
            parse_range(text, 10)
        assert (caught.value.status, caught.value.headers) == (416, {"content-range": "bytes */10"})

    def test_of_nothing(self) -> None:
        with pytest.raises(HttpProblem):
            parse_range("bytes=0-", 0)


class TestOverHttp:
    def test_a_folder(self, site: Site) -> None:
        found = site.get("/v1/files").json()
        assert [(entry["name"], entry["kind"]) for entry in found["entries"]] == [
            ("empty", "file"),
            ("hello.txt", "file"),
            ("sub", "folder"),
        ]
        assert site.get("/v1/files/sub").json()["entries"][0]["size_bytes"] == len(LARGE)
        assert site.get("/v1/files/sub/").json() == site.get("/v1/files/sub").json() | {"path": "sub/"}

    def test_a_file(self, site: Site) -> None:
        answer = site.get("/v1/files/hello.txt")
        assert (answer.status, answer.body) == (200, b"hello world")
        assert answer.headers["content-type"] == "text/plain"
        assert answer.headers["accept-ranges"] == "bytes"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert site.get("/v1/files/sub/large.bin").body == LARGE
        assert site.get("/v1/files/empty").body == b""

    def test_head(self, site: Site) -> None:
        answer = site.ask("HEAD", "/v1/files/sub/large.bin", range="bytes=0-9")
        assert (answer.status, answer.body) == (200, b"")
        assert int(answer.headers["content-length"]) == len(LARGE)

    def test_a_part(self, site: Site) -> None:
        answer = site.get("/v1/files/hello.txt", range="bytes=6-")
        assert (answer.status, answer.body) == (206, b"world")
        assert answer.headers["content-range"] == "bytes 6-10/11"
        assert site.get("/v1/files/sub/large.bin", range="bytes=300000-599999").body == LARGE[300000:600000]

    def test_no_such_part(self, site: Site) -> None:
        answer = site.get("/v1/files/hello.txt", range="bytes=11-")
        is_problem(answer, 416, "range")
        assert answer.headers["content-range"] == "bytes */11"

    def test_a_part_only_of_the_same_file(self, site: Site) -> None:
        whole = site.get("/v1/files/hello.txt")
        for same in (whole.headers["etag"], whole.headers["last-modified"]):
            assert site.get("/v1/files/hello.txt", range="bytes=0-3", if_range=same).status == 206
        for other in ('"other"', f"W/{whole.headers['etag']}", "Mon, 01 Jan 2024 00:00:00 GMT"):
            answer = site.get("/v1/files/hello.txt", range="bytes=0-3", if_range=other)
            assert (answer.status, answer.body) == (200, b"hello world")

    def test_only_if_it_has_changed(self, place: Place) -> None:
        file = place.files / "sub" / "changing"
        file.write_text("one")
        tag = place.site.get("/v1/files/sub/changing").headers["etag"]
        assert place.site.get("/v1/files/sub/changing", if_none_match=tag).status == 304
        file.write_text("three")
        assert place.site.get("/v1/files/sub/changing", if_none_match=tag).body == b"three"
        file.unlink()

    def test_details(self, site: Site) -> None:
        found = site.get("/v1/files/hello.txt?details=true").json()
        assert found["sha256"].startswith("b94d27b9934d3e08")
        assert found["size_bytes"] == 11

    @pytest.mark.parametrize(
        "path",
        [
            "none",
            "..",
            "../inventory.yaml",
            "out",
            "out/passwd",
            "sub/../../x",
            "%00",
            "%2e%2e/x",
            "hello.txt/x",
        ],
    )
    def test_nothing_outside_and_nothing_that_is_not_there(self, site: Site, path: str) -> None:
        is_problem(site.get(f"/v1/files/{path}"), 404, "not-found")

    def test_a_reader_that_leaves_ends_its_transfer(self, place: Place) -> None:
        for _ in range(70):  # more than may be under way at once
            connection = http.client.HTTPConnection(place.broker.http, timeout=10)
            connection.request("GET", "/v1/files/sub/large.bin")
            connection.getresponse().read(10)
            connection.close()
        wait_for(lambda: place.site.get("/v1/files/hello.txt").status == 200)
