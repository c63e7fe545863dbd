"""`polydomo profile`: where brokers are, and the keys and tokens for them, under names."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.inspect import ListingGroup
from polydomo.errors import ConfigError
from polydomo.redaction import MASK
from polydomo.sdk import url as urls
from polydomo.sdk.profiles import Profile, profile_file
from polydomo.security.names import NAME_MAX, is_name
from polydomo.wire.curve.keys import decode_key

app = typer.Typer(cls=ListingGroup, help="Brokers, keys and tokens under names. Without a command: ls.")

COLUMNS: common.Columns = {
    "": lambda row: Text("*" if row["current"] else "", "bold green"),
    "name": lambda row: Text(row["name"], "bold"),
    "url": lambda row: row["url"] or "–",
    "key": lambda row: row["key"] or "–",
    "http": lambda row: row["http"] or "–",
    "token": lambda row: row["token"] or "–",
}

# The environment variables with the parts of a profile.
VARIABLES = {
    "url": urls.VARIABLE,
    "server_key": urls.SERVER_KEY_VARIABLE,
    "key": urls.KEY_VARIABLE,
    "http": "POLYDOMO_HTTP",
    "token": "POLYDOMO_TOKEN",
}

Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]
OptionalName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="The profile; default: the one in use.")
]


@app.command("ls")
def ls(as_json: common.Json = False) -> None:
    """List the profiles; a star marks the one in use."""
    profiles = profile_file()
    rows = [_row(name, profile, name == profiles.current) for name, profile in profiles.all.items()]
    nothing = "no profiles: 'polydomo profile add NAME --url URL' makes one"
    common.print_result(rows, as_json, lambda: common.listing(COLUMNS, rows, nothing))


@app.command("add")
def add(
    name: Name,
    broker: Annotated[str | None, typer.Option("--url", "-u", metavar="URL", help="The broker.")] = None,
    server_key: Annotated[
        str | None, typer.Option("--server-key", metavar="KEY", help="The broker's public key.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The file with the own key pair.")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="URL", help="The broker's REST API, https://HOST:PORT.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", help="The token for HTTP; -: read it from stdin."),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Add a profile, or change the given parts of one."""
    if not is_name(name):
        raise typer.BadParameter(f"use 1 to {NAME_MAX} letters, digits and . _ @ -", param_hint="NAME")
    given = {
        "url": broker,
        "server_key": server_key,
        "key": None if key is None else str(key.expanduser().absolute()),
        "http": http,
        "token": sys.stdin.readline().strip() if token == "-" else token,
    }
    _check(given)
    profiles = profile_file()
    changes = {part: value for part, value in given.items() if value is not None}
    profile = msgspec.structs.replace(profiles.all.get(name, Profile()), **changes)
    profiles.set(name, profile)
    common.print_done(_row(name, profile, name == profiles.current), as_json, "saved ", (name, "bold"))


@app.command("use")
def use(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The profile's name; - for none.")],
    as_json: common.Json = False,
) -> None:
    """Let a profile apply where none is named."""
    wanted = "" if name == "-" else name
    profile_file().use(wanted)
    common.print_done({"current": wanted}, as_json, "using ", (wanted or "no profile", "bold"))


@app.command("show")
def show(name: OptionalName = None, as_json: common.Json = False) -> None:
    """Show a profile. The token is masked."""
    row = _row(*_find(name))
    shown = {part: value for part, value in row.items() if part != "current" and value}
    common.print_result(row, as_json, lambda: common.properties(shown))


@app.command("env")
def env(name: OptionalName = None) -> None:
    """Print the profile as variables for a shell, with the token: eval "$(polydomo profile env)"."""
    _, profile, _ = _find(name)
    for part, variable in VARIABLES.items():
        value = getattr(profile, part)
        if value:
            sys.stdout.write(f"export {variable}={shlex.quote(value)}\n")


@app.command("rm")
def rm(name: Name, as_json: common.Json = False) -> None:
    """Remove a profile. Its key file stays."""
    profile_file().remove(name)
    common.print_done({"name": name}, as_json, "removed ", (name, "bold"))


def _find(name: str | None) -> tuple[str, Profile, bool]:
    """Return a profile, with its name and whether it is in use."""
    profiles = profile_file()
    wanted = name or profiles.current
    if not wanted:
        raise ConfigError(
            "no profile is in use", hint="name one, or choose one with 'polydomo profile use NAME'"
        )
    return wanted, profiles.get(wanted), wanted == profiles.current


def _check(given: dict[str, str | None]) -> None:
    """Raise ConfigError if a part of a profile is malformed. A key file may be missing still."""
    if given["url"]:
        _, separator, _ = given["url"].partition("?")
        if separator:
            raise ConfigError(
                "the URL of a profile has no parameters", hint="give the keys with --server-key and --key"
            )
        urls.check(given["url"])
    if given["server_key"]:
        try:
            decode_key(given["server_key"])
        except ValueError as error:
            raise ConfigError(
                f"the broker's public key is not valid: {error}", hint="'polydomo keys show' prints it"
            ) from None
    if given["http"]:
        parts = urlsplit(given["http"])
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ConfigError("--http is not the URL of a REST API", hint="write https://HOST:PORT")
    token = given["token"]
    if token and (not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError(
            "the token has characters that no token has", hint="'polydomo tokens new' prints one"
        )


def _row(name: str, profile: Profile, current: bool) -> dict[str, Any]:
    parts = msgspec.structs.asdict(profile)
    return {"name": name, "current": current, **parts, "token": MASK if profile.token else ""}
