"""Key files and fingerprints."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
import zmq.auth

from polydomo.errors import ConfigError
from polydomo.redaction import redact
from polydomo.security.key_files import create_key_pair, fingerprint, open_to, read_key_pair
from polydomo.wire.curve.keys import encode_key
from tests.support.curve import CLIENT


def test_a_fingerprint_is_short_and_in_groups() -> None:
    assert re.fullmatch(r"([0-9a-f]{4}-){4}[0-9a-f]{4}", fingerprint(CLIENT.public))
    assert fingerprint(CLIENT.public) == fingerprint(bytes(CLIENT.public))


def test_a_new_pair_is_written_for_its_owner_only_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "me.key"
    made = create_key_pair(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_key_pair(file).secret == made.secret
    assert os.listdir(tmp_path) == ["me.key"]
    assert not open_to(file)


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "me.key"
    file.write_text("mine")
    with pytest.raises(FileExistsError):
        create_key_pair(file)
    assert file.read_text() == "mine"
    assert os.listdir(tmp_path) == ["me.key"]


def test_pyzmq_reads_our_files_and_we_read_its_own(tmp_path: Path) -> None:
    made = create_key_pair(tmp_path / "ours.key")
    public, secret = zmq.auth.load_certificate(tmp_path / "ours.key")
    assert (public.decode(), secret.decode()) == (encode_key(made.public), encode_key(made.secret))
    _, theirs = zmq.auth.create_certificates(tmp_path, "theirs")
    public, secret = zmq.auth.load_certificate(theirs)
    pair = read_key_pair(Path(theirs))
    assert (encode_key(pair.public).encode(), encode_key(pair.secret).encode()) == (public, secret)


def test_a_secret_key_is_masked_wherever_it_is_shown(tmp_path: Path) -> None:
    secret = encode_key(create_key_pair(tmp_path / "me.key").secret)
    assert secret not in redact(f"it was {secret}")


@pytest.mark.parametrize("text", ["", "curve\n", "secret-key =\n", f"secret-key = {'~' * 40}\n", "\0\xff"])
def test_a_file_without_a_key_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "me.key"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"me\.key") as raised:
        read_key_pair(file)
    assert "~" not in str(raised.value)


def test_a_missing_file_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file.*polydomo keys new"):
        read_key_pair(tmp_path / "none")
    assert not open_to(tmp_path / "none")


def test_a_file_that_others_can_read_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "me.key"
    create_key_pair(file)
    file.chmod(0o644)
    assert open_to(file) == "all users"
