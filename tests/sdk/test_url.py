"""Parsing of broker URLs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from polydomo.errors import ConfigError
from polydomo.sdk.curve_keys import CurveKeys
from polydomo.sdk.tls import TlsFiles
from polydomo.sdk.url import TLS_VARIABLES, parse
from polydomo.security.key_files import create_key_pair, read_key_pair
from polydomo.security.token_text import JOIN, new_token
from polydomo.wire.curve.keys import decode_key, encode_key


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


TOKEN = new_token(JOIN)
PUBLIC = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"  # the server's of zmq_curve(7)


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("POLYDOMO_SERVER_KEY", "POLYDOMO_KEY", "POLYDOMO_JOIN_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    create_key_pair(tmp_path / "me & you.key")
    return tmp_path / "me & you.key"


@pytest.mark.parametrize("dialect", ["mdp", "dcp", "nfp", "wmp", "mdp+ipc"])
def test_keys_are_in_the_query(dialect: str, key_file: Path) -> None:
    """A public key may stand there as it is, although it has a % and could have an &."""
    own = read_key_pair(key_file)
    for server_key in (PUBLIC, quote(PUBLIC, safe="")):
        for query in (
            f"server_key={server_key}&key={quote(str(key_file))}",
            f"key={quote(str(key_file))}&server_key={server_key}",
        ):
            url = parse(f"{dialect}://a:1,b:2?{query}")
            assert len(url.addresses) == 2
            for address in url.addresses:
                assert address.keys == CurveKeys(decode_key(PUBLIC), own)
                assert "?" not in str(address)


def test_a_public_key_with_an_ampersand_is_taken_whole(key_file: Path) -> None:
    server_key = next(text for text in (encode_key(bytes([n]) * 32) for n in range(256)) if "&" in text)
    for query in (f"server_key={server_key}", f"server_key={server_key}&key={quote(str(key_file))}"):
        (address,) = parse(f"mdp://a?{query}").addresses
        assert address.keys is not None
        assert encode_key(address.keys.server_key) == server_key


def test_keys_are_in_the_environment_too(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("mdp://a").addresses[0].keys is None
    monkeypatch.setenv("POLYDOMO_SERVER_KEY", PUBLIC)
    made = parse("mdp://a").addresses[0].keys
    assert made == parse("dcp://b").addresses[0].keys, "one key pair for the whole process"
    monkeypatch.setenv("POLYDOMO_KEY", str(key_file))
    assert parse("mdp://a").addresses[0].keys == CurveKeys(decode_key(PUBLIC), read_key_pair(key_file))
    assert parse("mdp+local://a").addresses[0].keys is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mdp://a?serverkey=x", "no parameter 'serverkey'"),
        ("mdp://a?server_key=short", "public key is not valid"),
        ("mdp://a?key=/nowhere", "without the broker's public key"),
        (f"mdp://a?server_key={PUBLIC}&key=/nowhere", "/nowhere cannot be read: No such file"),
        (f"memo://a?server_key={PUBLIC}", "cannot use CURVE"),
        ("mdp://a?join_token=pdj_x", "a join token is of no use without the broker's public key"),
        (f"mdp://a?server_key={PUBLIC}&join_token={TOKEN}", "of no use without a key file"),
        (f"mdp://a?server_key={PUBLIC}&key=/nowhere/x&join_token={TOKEN}", "cannot make the key file"),
        (f"mdp://a?server_key={PUBLIC}&key=/nowhere&join_token=pdj_x", "join token is malformed"),
    ],
)
def test_mistakes_in_keys_are_explained(text: str, reason: str, key_file: Path) -> None:
    with pytest.raises(ConfigError, match=reason) as told:
        parse(text)
    assert told.value.advice


def test_a_key_file_that_others_can_read_is_reported(
    key_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_file.chmod(0o640)
    parse(f"mdp://a?server_key={PUBLIC}&key={quote(str(key_file))}")
    assert "can be read by its group: chmod 600" in caplog.text


# TLS


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TLS_VARIABLES.values():
        monkeypatch.delenv(name, raising=False)


def test_memo_with_tls_uses_the_systems_authorities(no_files: None) -> None:
    (address,) = parse("memo+tls://broker.example").addresses
    assert str(address) == "tls+tcp://broker.example:12703"
    assert address.tls == TlsFiles()
    assert parse("memo://broker.example").addresses[0].tls is None


def test_files_for_tls_are_in_the_query_or_the_environment(
    no_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "?ca=my%20ca.pem&certificate=me.pem&certificate_key=me.key"
    for address in parse(f"memo+tls://a:1,b:2{query}").addresses:
        assert address.tls == TlsFiles("my ca.pem", "me.pem", "me.key")
    monkeypatch.setenv("POLYDOMO_CA", "ca.pem")
    monkeypatch.setenv("POLYDOMO_CERTIFICATE", "both.pem")
    assert parse("memo+tls://a:1").addresses[0].tls == TlsFiles("ca.pem", "both.pem")
    assert parse("memo+tls://a:1?ca=other.pem").addresses[0].tls == TlsFiles("other.pem", "both.pem")
    assert parse("memo://a:1").addresses[0].tls is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mdp+tls://a:1", "no transport 'tls'"),
        ("memo://a:1?ca=ca.pem", "without TLS has no certificates"),
        ("memo+tls://a:1?key=me.key", "has no CURVE keys"),
        ("memo+tls://a:1?certificate_key=me.key", "of no use without the certificate"),
        ("memo+tls://a:1?authority=x", "no parameter 'authority'"),
    ],
)
def test_mistakes_about_tls_are_explained(no_files: None, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(text)
    assert caught.value.advice


def test_with_a_join_token_a_missing_key_file_is_made_once(
    key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYDOMO_SERVER_KEY", PUBLIC)
    monkeypatch.setenv("POLYDOMO_JOIN_TOKEN", TOKEN)
    monkeypatch.setenv("POLYDOMO_KEY", str(tmp_path / "new.key"))
    found = [parse("mdp://a").addresses[0].keys for _ in "12"]
    assert found[0] == found[1]
    assert found[0] is not None
    assert (found[0].join, found[0].pair.public) == (TOKEN, read_key_pair(tmp_path / "new.key").public)
    before = key_file.read_bytes()
    assert parse(f"mdp://a?key={quote(str(key_file))}").addresses[0].keys is not None
    assert key_file.read_bytes() == before
