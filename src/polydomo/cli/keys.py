"""`polydomo keys`: key pairs of clients, and the approval list of a broker. No broker needs to run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.config import ConfigFile, load
from polydomo.cli.inspect import ListingGroup
from polydomo.cli.local_acts import record_act
from polydomo.errors import ConfigError, PolydomoError
from polydomo.security.invitations import Invitation, Invitations
from polydomo.security.key_files import create_key_pair, fingerprint
from polydomo.security.keys import (
    ACCEPTED,
    BROKER_KEY,
    PENDING,
    REJECTED,
    ClientKey,
    KeyFolder,
    check_name,
)
from polydomo.server.config import Flag
from polydomo.server.data_dir import folder_for
from polydomo.server.settings import AUTO, Settings
from polydomo.wire.curve.keys import encode_key

app = typer.Typer(cls=ListingGroup, help="Keys of clients and of the broker. Without a command: ls.")

# The state of a name whose join token was not used yet.
INVITED = "invited"

STYLES = {ACCEPTED: "green", PENDING: "yellow", REJECTED: "red", INVITED: "cyan"}
COLUMNS: common.Columns = {
    "name": lambda row: Text(row["name"], "bold"),
    "state": lambda row: Text(row["state"], STYLES[row["state"]]),
    "fingerprint": lambda row: row["fingerprint"] or "–",
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
        str | None,
        typer.Option("--state", help="Only those that are accepted, pending, rejected or invited."),
    ] = None,
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """List the clients' keys, and the join tokens that were not used yet."""
    common.check_choice(state, list(STYLES), "--state")
    folder = _folder(key_settings(data, keys, configuration))
    states = [state] if state else list(STYLES)
    rows = [_row(key) for key in folder.entries(*(one for one in states if one != INVITED))]
    if INVITED in states:
        rows += [_row_of_invitation(one) for one in Invitations(folder.path).open()]
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


@app.command("invite")
def invite(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the key that will be accepted.")],
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help="How long the token can be used.")
    ] = "1h",
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Remove the unused tokens for NAME instead.")
    ] = False,
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Print a join token: the first peer that presents it gets its key accepted as NAME."""
    settings = key_settings(data, keys, configuration)
    folder = _folder(settings)
    invitations = Invitations(folder.path)
    if withdraw:
        record_act(settings, "keys invite --withdraw", name)
        number = invitations.withdraw(name)
        if not number:
            raise PolydomoError(f"there is no join token for {name!r}", hint="'polydomo keys ls' lists them")
        common.print_done({"name": name, "withdrawn": number}, as_json, "withdrawn ", (name, "bold"))
        return
    lifetime = common.lifetime(expires, "--expires")
    if lifetime == math.inf:
        raise typer.BadParameter("'forever' is no duration such as 30m, 12h", param_hint="--expires")
    check_name(name)
    if any(key.name == name for key in folder.entries(ACCEPTED)):
        raise PolydomoError(
            f"an accepted key has the name {name!r}", hint="choose another name, or revoke that key first"
        )
    record_act(settings, "keys invite", f"{name} for {expires}")
    text, invitation = invitations.new(name, lifetime)
    value = {"token": text, "id": invitation.id, "name": name, "expires": invitation.expires}
    shown = {"join token": text, "for": name, "expires": common.local_time(invitation.expires)}
    common.print_result(value, as_json, lambda: common.properties(shown))


def key_settings(data: str | None, keys: str | None, file: str | None) -> Settings:
    """Return the settings of a broker with these folders. Its data folder stays unknown if only `keys` is given."""
    given = {"--data": ("broker.data", data), "--keys": ("security.keys", keys)}
    flags = [Flag(flag, key, value) for flag, (key, value) in given.items() if value is not None]
    settings = load(file, flags).settings
    if settings.broker.data == AUTO and keys is None:
        settings.broker.data = folder_for(settings.broker.zmq)
    return settings


def _folder(settings: Settings) -> KeyFolder:
    return KeyFolder(key_folder(settings))


def key_folder(settings: Settings) -> Path:
    """Return the path of the key folder of a broker with these settings."""
    folder = settings.keys_folder()
    if not folder:
        raise ConfigError("this broker has no key folder", hint="give --data or --keys")
    return Path(folder)


def _row(key: ClientKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "state": key.state,
        "fingerprint": key.fingerprint,
        "key": key.key,
        "seen": key.seen,
        "address": key.address,
    }


def _row_of_invitation(invitation: Invitation) -> dict[str, Any]:
    empty = {"fingerprint": "", "key": "", "address": ""}
    return {"name": invitation.name, "state": INVITED, "seen": invitation.created, **empty}


def _report(key: ClientKey, as_json: bool) -> None:
    common.print_done(_row(key), as_json, f"{key.state} ", (key.name, "bold"), f"  {key.fingerprint}")


def _print_public(public: bytes, file: Path, as_json: bool) -> None:
    value = {"key": encode_key(public), "fingerprint": fingerprint(public), "file": str(file)}
    shown = {"public key": value["key"], "fingerprint": value["fingerprint"], "file": value["file"]}
    common.print_result(value, as_json, lambda: common.properties(shown))
