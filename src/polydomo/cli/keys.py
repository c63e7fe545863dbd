"""`polydomo keys`: key pairs of clients, and the approval list of a broker. No broker needs to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.config import ConfigFile, load
from polydomo.cli.inspect import ListingGroup
from polydomo.cli.local_acts import record_act
from polydomo.errors import ConfigError, PolydomoError
from polydomo.security.key_files import create_key_pair, fingerprint
from polydomo.security.keys import ACCEPTED, BROKER_KEY, PENDING, REJECTED, ClientKey, KeyFolder
from polydomo.server.config import Flag
from polydomo.server.data_dir import folder_for
from polydomo.server.settings import AUTO, Settings
from polydomo.wire.curve.keys import encode_key

app = typer.Typer(cls=ListingGroup, help="Keys of clients and of the broker. Without a command: ls.")

STYLES = {ACCEPTED: "green", PENDING: "yellow", REJECTED: "red"}
COLUMNS: common.Columns = {
    "name": lambda row: Text(row["name"], "bold"),
    "state": lambda row: Text(row["state"], STYLES[row["state"]]),
    "fingerprint": "fingerprint",
    "seen": lambda row: common.local_time(row["seen"]),
    "from": lambda row: row["address"] or "–",
}

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FOLDER", help="The broker's data folder; default: as configured."),
]
Keys = Annotated[
    str | None,
    typer.Option("--keys", metavar="FOLDER", help="The key folder; default: `keys` in the data folder."),
]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="A name, a fingerprint or its beginning, or the key.")
]


@app.command("ls")
def ls(
    state: Annotated[
        str | None, typer.Option("--state", help="Only those that are accepted, pending or rejected.")
    ] = None,
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """List the clients' keys."""
    common.check_choice(state, list(STYLES), "--state")
    rows = [
        _row(key)
        for key in _folder(key_settings(data, keys, configuration)).entries(*([state] if state else []))
    ]
    nothing = "no keys: a client's key appears here when the client connects"
    common.print_result(rows, as_json, lambda: common.listing(COLUMNS, rows, nothing))


@app.command("accept")
def accept(
    key: Key,
    name: Annotated[str, typer.Option("--name", help="Give the key this name.")] = "",
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Accept a key: its owner gets in when it connects the next time. KEY may also be a key that was never seen."""
    settings = key_settings(data, keys, configuration)
    found = _folder(settings).resolve(key)
    record_act(settings, "keys accept", f"{name or found.name} {found.fingerprint}")
    _report(_folder(settings).move(found, ACCEPTED, name), as_json)


@app.command("reject")
def reject(
    key: Key,
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Refuse a key until it is accepted. A running broker closes its connections within seconds."""
    settings = key_settings(data, keys, configuration)
    found = _folder(settings).resolve(key)
    record_act(settings, "keys reject", f"{found.name} {found.fingerprint}")
    _report(_folder(settings).move(found, REJECTED), as_json)


@app.command("revoke")
def revoke(
    key: Key,
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Reject a key that was accepted. A running broker closes its connections within seconds."""
    settings = key_settings(data, keys, configuration)
    found = _folder(settings).resolve(key)
    if found.state != ACCEPTED:
        raise PolydomoError(
            f"the key {found.fingerprint} is not accepted", hint="'polydomo keys reject' refuses any key"
        )
    record_act(settings, "keys revoke", f"{found.name} {found.fingerprint}")
    _report(_folder(settings).move(found, REJECTED), as_json)


@app.command("show")
def show(
    data: Data = None, keys: Keys = None, configuration: ConfigFile = None, as_json: common.Json = False
) -> None:
    """Show the broker's public key, which clients need. The key pair is made if there is none."""
    folder = _folder(key_settings(data, keys, configuration))
    _print_public(folder.open().public, folder.path / BROKER_KEY, as_json)


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")],
    as_json: common.Json = False,
) -> None:
    """Make a key pair for a client or worker, in a file that only its owner can read."""
    try:
        pair = create_key_pair(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}", hint="choose another file") from error
    _print_public(pair.public, file, as_json)


def key_settings(data: str | None, keys: str | None, file: str | None) -> Settings:
    """Return the settings of a broker with these folders. Its data folder stays unknown if only `keys` is given."""
    given = {"--data": ("broker.data", data), "--keys": ("security.keys", keys)}
    flags = [Flag(flag, key, value) for flag, (key, value) in given.items() if value is not None]
    settings = load(file, flags).settings
    if settings.broker.data == AUTO and keys is None:
        settings.broker.data = folder_for(settings.broker.zmq)
    return settings


def _folder(settings: Settings) -> KeyFolder:
    """Return the key folder of a broker with these settings."""
    folder = settings.keys_folder()
    if not folder:
        raise ConfigError("this broker has no key folder", hint="give --data or --keys")
    return KeyFolder(Path(folder))


def _row(key: ClientKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "state": key.state,
        "fingerprint": key.fingerprint,
        "key": key.key,
        "seen": key.seen,
        "address": key.address,
    }


def _report(key: ClientKey, as_json: bool) -> None:
    common.print_done(_row(key), as_json, f"{key.state} ", (key.name, "bold"), f"  {key.fingerprint}")


def _print_public(public: bytes, file: Path, as_json: bool) -> None:
    value = {"key": encode_key(public), "fingerprint": fingerprint(public), "file": str(file)}
    shown = {"public key": value["key"], "fingerprint": value["fingerprint"], "file": value["file"]}
    common.print_result(value, as_json, lambda: common.properties(shown))
