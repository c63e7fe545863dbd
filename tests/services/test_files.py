"""services/files: `fss.service.broker`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest

from polydomo.services.files import LARGEST_CHUNK, NAME, Files, Fss
from polydomo.services.folder import Folder
from polydomo.services.management import ManagementService
from tests.services.support import Asker, ByHand
from tests.support import invariants
from tests.support.core import Bench

DATA = bytes(range(256)) * 40


@pytest.fixture
def hand() -> ByHand:
    return ByHand()


@pytest.fixture
def files(tmp_path: Path, hand: ByHand) -> Files:
    (tmp_path / "sub").mkdir()
    (tmp_path / "data.bin").write_bytes(DATA)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "sub/x.txt").write_bytes(b"x")
    os.utime(tmp_path / "data.bin", (1000, 1000))
    return Files(Folder(str(tmp_path)), hand, transfers=2)


@pytest.fixture
def asker(files: Files) -> Asker:
    bench = Bench()
    management = ManagementService(bench.broker, "house")
    Fss(management.authorizer, files)
    return Asker(bench.broker)


def test_list_and_walk(asker: Asker, hand: ByHand) -> None:
    assert asker.ask(hand, NAME, "list_files", url="nf://") == ["data.bin", "empty", "sub"]
    assert asker.ask(hand, NAME, "list_files") == ["data.bin", "empty", "sub"]
    assert asker.ask(hand, NAME, "walk", url="nf://") == ["nf://data.bin", "nf://empty", "nf://sub/x.txt"]
    assert asker.ask(hand, NAME, "walk", url="nf://sub") == ["nf://sub/x.txt"]
    rows = asker.ask(hand, NAME, "list_files", url="nf://", details=True)
    assert rows[0] == {"name": "data.bin", "kind": "file", "size_bytes": len(DATA), "modified": 1000.0}


def test_details_of_one_and_of_several(asker: Asker, hand: ByHand) -> None:
    details = asker.ask(hand, NAME, "file_details", url="nf://data.bin")
    assert details["size_bytes"] == len(DATA)
    assert details["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert details["md5hash"] == hashlib.md5(DATA).hexdigest()
    several = asker.ask(hand, NAME, "file_details", url=["nf://data.bin", "nf://nobody", "nf://../x"])
    assert several["nf://data.bin"]["result"] == details
    assert not several["nf://data.bin"]["failed"]
    assert several["nf://nobody"]["failed"]
    assert several["nf://nobody"]["errors"] == ["nf://nobody: file not found"]
    assert several["nf://../x"]["result"]["exists"] is False


def test_a_file_in_chunks(asker: Asker, hand: ByHand) -> None:
    """Chunk by chunk, as an interrupted client resumes."""
    got, offset, etag = b"", 0, ""
    while True:
        head, data = asker.frames(
            hand, NAME, "fetch_file", url="nf://data.bin", offset=offset, chunk_size=3000, etag=etag
        )
        about = json.loads(head)
        assert (about["offset"], about["size"], about["size_bytes"]) == (offset, len(data), len(DATA))
        got += data
        offset, etag = about["next"], about["etag"]
        if about["done"]:
            break
    assert got == DATA


def test_beyond_the_end_and_an_empty_file(asker: Asker, hand: ByHand) -> None:
    head, data = asker.frames(hand, NAME, "fetch_file", url="nf://data.bin", offset=10**9)
    assert data == b""
    assert json.loads(head)["done"]
    head, data = asker.frames(hand, NAME, "fetch_file", url="nf://empty")
    assert (data, json.loads(head)["done"]) == (b"", True)


def test_in_base64_for_those_who_read_one_frame(asker: Asker, hand: ByHand) -> None:
    answer = asker.ask(hand, NAME, "fetch_file", url="nf://data.bin", chunk_size=100, encoding="base64")
    assert base64.b64decode(answer["data"]) == DATA[:100]
    assert answer["next"] == 100


def test_several_chunks_for_one_request(asker: Asker, hand: ByHand, files: Files) -> None:
    answer = asker.ask(hand, NAME, "fetch_file", url="nf://data.bin", chunk_size=3000, credit=2)
    assert b"".join(asker.pieces) == DATA[:6000]
    assert (answer["next"], answer["done"], len(asker.pieces)) == (6000, False, 2)
    answer = asker.ask(
        hand,
        NAME,
        "fetch_file",
        url="nf://data.bin",
        offset=6000,
        chunk_size=3000,
        credit=9,
        etag=answer["etag"],
    )
    assert b"".join(asker.pieces) == DATA
    assert answer["done"]
    assert files.transfers == 0
    assert "not found" in asker.refused(hand, NAME, "fetch_file", url="nf://nobody", credit=1)
    assert files.transfers == 0


def test_too_many_at_once(asker: Asker, hand: ByHand, files: Files) -> None:
    for _ in range(2):
        asker.send(NAME, "fetch_file", url="nf://data.bin", credit=1)
    assert "try again" in asker.refused(hand, NAME, "fetch_file", url="nf://data.bin", credit=1)
    assert len(asker.answers) == 2
    assert files.transfers == 0


def test_a_file_that_has_changed(asker: Asker, hand: ByHand, tmp_path: Path) -> None:
    etag = asker.ask(hand, NAME, "file_details", url="nf://data.bin")["etag"]
    (tmp_path / "data.bin").write_bytes(b"other")
    assert "has changed" in asker.refused(hand, NAME, "fetch_file", url="nf://data.bin", etag=etag)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({}, "wrong arguments"),
        ({"url": "nf://../x"}, "leads out"),
        ({"url": 7}, "no URL"),
        ({"url": "nf://data.bin", "offset": -1}, "offset"),
        ({"url": "nf://data.bin", "offset": 1 << 70}, "offset"),
        ({"url": "nf://data.bin", "offset": "0"}, "whole number"),
        ({"url": "nf://data.bin", "offset": True}, "whole number"),
        ({"url": "nf://data.bin", "chunk_size": 0}, "chunk_size"),
        ({"url": "nf://data.bin", "chunk_size": LARGEST_CHUNK + 1}, "chunk_size"),
        ({"url": "nf://data.bin", "chunk_size": 1.5}, "whole number"),
        ({"url": "nf://data.bin", "credit": -1}, "credit"),
        ({"url": "nf://data.bin", "credit": 1000}, "credit"),
        ({"url": "nf://data.bin", "encoding": "gzip"}, "no encoding"),
    ],
)
def test_wrong_wishes(asker: Asker, hand: ByHand, kwargs: dict[str, object], words: str) -> None:
    assert words in asker.refused(hand, NAME, "fetch_file", **kwargs)
    assert asker.broker.accounting.active == 0
    invariants.check(asker.broker)


def test_without_a_folder_it_says_so(hand: ByHand) -> None:
    bench = Bench()
    management = ManagementService(bench.broker, "house")
    Fss(management.authorizer, None)
    asker = Asker(bench.broker)
    for _ in range(3):  # and not once in turn "501" of the fallback
        assert "--files" in asker.refused(hand, NAME, "list_files")


def test_it_is_no_job_in_the_figures(files: Files, hand: ByHand) -> None:
    bench = Bench()
    management = ManagementService(bench.broker, "house")
    management.own.append(Fss(management.authorizer, files).port)
    asker = Asker(bench.broker)
    asker.ask(hand, NAME, "walk")
    asker.refused(hand, NAME, "nonsense")
    asker.send(NAME, "walk")
    shown = management.show_broker()
    assert (shown["active"], shown["done"], shown["failed"], shown["clients"]) == (0, 0, 0, 0)
