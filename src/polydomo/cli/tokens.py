"""`polydomo tokens`: bearer tokens for HTTP clients. No broker needs to run."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.config import ConfigFile
from polydomo.cli.inspect import ListingGroup
from polydomo.cli.keys import Data, Keys, key_folder, key_settings
from polydomo.cli.local_acts import record_act
from polydomo.security.tokens import EXPIRED, REVOKED, STATES, VALID, Token, TokenFolder, check_token_name

app = typer.Typer(cls=ListingGroup, help="Bearer tokens for HTTP. Without a command: ls.")

STYLES = {VALID: "green", EXPIRED: "yellow", REVOKED: "red"}
COLUMNS: common.Columns = {
    "name": lambda row: Text(row["name"], "bold"),
    "state": lambda row: Text(row["state"], STYLES[row["state"]]),
    "id": "id",
    "created": lambda row: common.local_time(row["created"]),
    "expires": lambda row: "never" if row["expires"] is None else common.local_time(row["expires"]),
}


@app.command("ls")
def ls(
    state: Annotated[
        str | None, typer.Option("--state", help="Only those that are valid, expired or revoked.")
    ] = None,
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """List the tokens. Their texts are not stored."""
    common.check_choice(state, STATES, "--state")
    rows = [
        _row(token) for token in TokenFolder(key_folder(key_settings(data, keys, configuration))).entries()
    ]
    shown = [row for row in rows if state in (None, row["state"])]
    common.print_result(
        shown,
        as_json,
        lambda: common.listing(COLUMNS, shown, "no tokens: 'polydomo tokens new NAME' makes one"),
    )


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The principal that the token stands for.")],
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help="How long it is valid; forever: no limit.")
    ] = "90d",
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Make a token and print it. It cannot be shown again."""
    lifetime = common.lifetime(expires, "--expires")
    check_token_name(name)
    settings = key_settings(data, keys, configuration)
    record_act(settings, "tokens new", f"{name} for {expires}")
    folder = TokenFolder(key_folder(settings))
    text, token = folder.new(name, None if lifetime == math.inf else lifetime)
    row = _row(token)
    shown = {"token": text} | {column: row[column] for column in ("name", "id")}
    shown["expires"] = "never" if token.expires is None else common.local_time(token.expires)
    common.print_result({"token": text, **row}, as_json, lambda: common.properties(shown))


@app.command("revoke")
def revoke(
    token: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN", help="An id or its beginning, a name with one valid token, or the token."
        ),
    ],
    data: Data = None,
    keys: Keys = None,
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Refuse a token. A running broker does so within a second."""
    settings = key_settings(data, keys, configuration)
    folder = TokenFolder(key_folder(settings))
    found = folder.resolve(token)
    record_act(settings, "tokens revoke", f"{found.name} {found.id}")
    revoked = folder.revoke(found)
    common.print_done(_row(revoked), as_json, "revoked ", (revoked.name, "bold"), f"  {revoked.id}")


def _row(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "state": token.state(time.time()),
        "id": token.id,
        "created": token.created,
        "expires": token.expires,
        "revoked": token.revoked,
    }
