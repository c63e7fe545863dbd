"""Profiles: which one applies, and the file that they are in."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from polydomo import Client, Worker
from polydomo.errors import ConfigError
from polydomo.sdk import profiles
from polydomo.sdk.profiles import Profile, profile_file
from polydomo.sdk.url import default_url, parse
from polydomo.security.key_files import create_key_pair
from polydomo.wire.curve.keys import decode_key

SERVER_KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"  # the server's of zmq_curve(7)
OTHER_KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"  # the client's


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("URL", "SERVER_KEY", "KEY", "JOIN_TOKEN", "PROFILE"):
        monkeypatch.delenv(f"POLYDOMO_{name}", raising=False)
    return tmp_path / "polydomo"


@pytest.fixture
def lab(folder: Path) -> Profile:
    lab = Profile(url="dcp://lab:7", server_key=SERVER_KEY)
    profile_file().set("lab", lab)
    return lab


def server_key(url: str | None, profile: str | None = None) -> bytes | None:
    keys = parse(url, profile).addresses[0].keys
    return None if keys is None else keys.server_key


def test_without_profiles_no_folder_is_made(folder: Path) -> None:
    assert default_url() == "mdp://127.0.0.1:5555"
    assert not folder.exists()


def test_the_file_is_private_and_complete(folder: Path, lab: Profile) -> None:
    profile_file().set("prod", Profile(url="mdp://prod", token="pdm_secret"))
    profile_file().use("lab")
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    read = profile_file()
    assert read.current == "lab"
    assert dict(read.all) == {"lab": lab, "prod": Profile(url="mdp://prod", token="pdm_secret")}
    read.remove("lab")
    assert (profile_file().current, list(profile_file().all)) == ("", ["prod"])


def test_a_named_profile_fills_in_what_the_url_and_the_environment_do_not_say(
    lab: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(parse(None, "lab").addresses[0]) == "tcp://lab:7"
    assert server_key(None, "lab") == decode_key(SERVER_KEY)
    assert str(parse("mdp://other:1", "lab").addresses[0]) == "tcp://other:1"
    assert server_key("mdp://other:1", "lab") == decode_key(SERVER_KEY)
    assert server_key(f"mdp://other:1?server_key={OTHER_KEY}", "lab") == decode_key(OTHER_KEY)
    monkeypatch.setenv("POLYDOMO_URL", "mdp://env:2")
    monkeypatch.setenv("POLYDOMO_SERVER_KEY", OTHER_KEY)
    assert str(parse(None, "lab").addresses[0]) == "tcp://env:2"
    assert server_key(None, "lab") == decode_key(OTHER_KEY)


def test_a_profile_is_named_by_the_environment_too(lab: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    profile_file().set("prod", Profile(url="mdp://prod:1"))
    profile_file().use("prod")
    monkeypatch.setenv("POLYDOMO_PROFILE", "lab")
    assert default_url() == lab.url
    assert default_url("prod") == "mdp://prod:1"


def test_the_profile_in_use_applies_only_to_its_own_broker(
    lab: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys are not for brokers that somebody names."""
    assert server_key(None) is None
    profile_file().use("lab")
    assert (default_url(), server_key(None)) == (lab.url, decode_key(SERVER_KEY))
    assert server_key("nfp://lab:7/") == decode_key(SERVER_KEY), "the same broker in another dialect"
    assert server_key("mdp://other:1") is None
    monkeypatch.setenv("POLYDOMO_URL", "mdp://env:2")
    assert server_key(None) is None
    profile_file().use("")
    monkeypatch.delenv("POLYDOMO_URL")
    assert default_url() == "mdp://127.0.0.1:5555"


async def test_clients_and_workers_take_a_profile(lab: Profile, tmp_path: Path) -> None:
    pair = create_key_pair(tmp_path / "me.key")
    profile_file().set("lab", Profile(url=lab.url, server_key=SERVER_KEY, key=str(tmp_path / "me.key")))
    for peer in (Client(profile="lab"), Worker(profile="lab")):
        (address,) = peer.url.addresses
        assert (peer.url.dialect, str(address)) == ("dcp", "tcp://lab:7")
        assert address.keys is not None
        assert address.keys.pair.public == pair.public
    worker = Worker(profile="lab")
    worker.use("mdp://other:1")
    assert worker.url.addresses[0].keys is not None


def test_an_unknown_profile_is_explained(lab: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="there is no profile 'prod'") as caught:
        parse(None, "prod")
    assert "known: lab" in caught.value.advice
    monkeypatch.setenv("POLYDOMO_PROFILE", "prod")
    with pytest.raises(ConfigError, match="there is no profile 'prod'"):
        parse("mdp://a")
    for act in (profile_file().remove, profile_file().use):
        with pytest.raises(ConfigError):
            act("prod")


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"profiles": {"lab": {"tokn": "pdm_secret"}}}'])
def test_a_damaged_file_is_reported_and_not_quoted(folder: Path, lab: Profile, content: bytes) -> None:
    (folder / "profiles.json").write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged") as caught:
        profile_file()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_file_that_others_can_read_is_reported(
    folder: Path, lab: Profile, caplog: pytest.LogCaptureFixture
) -> None:
    assert "can be read" not in caplog.text
    (folder / "profiles.json").chmod(0o644)
    profiles.choose("lab", "")
    assert "can be read by all users: chmod 600" in caplog.text


def test_a_folder_that_cannot_be_used_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot (read|write) the profiles"):
        profile_file().set("lab", Profile())
