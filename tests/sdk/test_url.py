"""Parsing of broker URLs."""

from __future__ import annotations

import pytest

from polydomo.errors import ConfigError
from polydomo.sdk.url import parse


def places(text: str | None) -> tuple[str, list[str]]:
    url = parse(text)
    return url.dialect, [str(place) for place in url.addresses]


@pytest.mark.parametrize(
    ("text", "dialect", "found"),
    [
        ("mdp://127.0.0.1:5555", "mdp", ["tcp://127.0.0.1:5555"]),
        ("dcp://broker.example", "dcp", ["tcp://broker.example:5555"]),
        ("mdp+tcp://h:1/", "mdp", ["tcp://h:1"]),
        ("mdp://a:5555,b:5556", "mdp", ["tcp://a:5555", "tcp://b:5556"]),
        ("mdp://a, b:7", "mdp", ["tcp://a:5555", "tcp://b:7"]),
        ("mdp://[::1]:99", "mdp", ["tcp://[::1]:99"]),
        ("mdp://[::1]", "mdp", ["tcp://[::1]:5555"]),
        ("mdp+ipc:///run/x.sock", "mdp", ["ipc:///run/x.sock"]),
        ("dcp+ipc://@abstract,/run/y", "dcp", ["ipc://@abstract", "ipc:///run/y"]),
        ("mdp+local://test", "mdp", ["local://test"]),
    ],
)
def test_dialect_and_places(text: str, dialect: str, found: list[str]):
    assert places(text) == (dialect, found)


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:5555",
        "http://x",
        "mdp://",
        "mdp://a,",
        "mdp+udp://a:1",
        "mdp://a:99999",
        "mdp://*:5555",
        "mdp:/a",
    ],
)
def test_anything_else_is_told_what_a_url_looks_like(text: str):
    with pytest.raises(ConfigError) as told:
        parse(text)
    assert told.value.advice


def test_without_a_url_the_environment_decides(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POLYDOMO_URL", "dcp://elsewhere:1")
    assert places(None) == ("dcp", ["tcp://elsewhere:1"])
    assert places("mdp://here:2") == ("mdp", ["tcp://here:2"])
    monkeypatch.delenv("POLYDOMO_URL")
    assert places(None) == ("mdp", ["tcp://127.0.0.1:5555"])
