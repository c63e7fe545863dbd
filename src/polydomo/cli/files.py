"""`polydomo files`: the files that a broker shares."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.inspect import ListingGroup
from polydomo.errors import PolydomoError, Timeout, Unreachable
from polydomo.sdk import Client

SERVICE = "fss.service.broker"
SCHEME = "nf://"

# A big file must be hashed before its details are known.
PATIENCE = 300.0

# Under way at once: enough to keep a fast network busy, little enough for a broker with many such clients.
CHUNK = 1024 * 1024
CREDIT = 8

app = typer.Typer(cls=ListingGroup, help="Files that the broker shares. Without a command: ls.")

FileUrl = Annotated[str, typer.Argument(metavar="URL", help="nf://FOLDER/FILE; nf:// may be left out.")]


@app.command("ls")
def ls(
    place: Annotated[
        str, typer.Argument(metavar="[URL]", help="A folder; nf:// may be left out.", show_default=False)
    ] = SCHEME,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="All files in it and in the folders in it.")
    ] = False,
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """What is in a folder."""
    task, asked = "list_files", {"url": _full(place), "details": True}
    if recursive:
        task, asked = "walk", {"url": _full(place)}
    rows = broker_client.run_task(url, task, asked, service=SERVICE, timeout=PATIENCE)
    if as_json:
        common.print_json(rows)
    elif not rows:
        common.show(Text("nothing there", "dim"))
    elif recursive:
        common.show(Text("\n".join(rows)))
    else:
        common.show(
            common.table(
                [">size", "modified", "name"],
                [
                    [
                        common.size(row["size_bytes"]) if row["kind"] == "file" else "",
                        _when(row["modified"]),
                        Text(row["name"] + "/" * (row["kind"] == "folder"), "bold"),
                    ]
                    for row in rows
                ],
            )
        )


@app.command("info")
def info(place: FileUrl, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """A file's size and hashes."""
    asked = {"url": _full(place)}
    found = broker_client.run_task(url, "file_details", asked, service=SERVICE, timeout=PATIENCE)
    if as_json:
        common.print_json(found)
        return
    rows = [
        ["size", f"{common.size(found['size_bytes'])} ({found['size_bytes']} bytes)"],
        ["sha256", found["sha256"]],
        ["md5", found["md5hash"]],
        ["modified", _when(found["modified"])],
    ]
    table = common.table(["", ""], [[Text(name, "cyan"), value] for name, value in rows])
    table.show_header = False
    common.show(table)


@app.command("get")
def get(
    place: FileUrl,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is stdout. Else: here.")
    ] = "",
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """Fetch a file. One that was broken off is gone on with; its hash is checked at the end."""
    full = _full(place)
    name = output or full.rpartition("/")[2]
    if not name:
        raise typer.BadParameter("it names no file", param_hint="URL")
    details, target = asyncio.run(_get(url, full, name))
    if as_json and target != "-":
        common.print_json({"file": target} | details)
    elif target != "-":
        common.show(
            Text.assemble((target, "bold"), f"  {common.size(details['size_bytes'])}, its hash is right")
        )


async def _get(url: str, place: str, name: str) -> tuple[dict[str, Any], str]:
    async with broker_client.connect(url) as client:
        details: dict[str, Any] = await broker_client.call_task(
            client, url, "file_details", {"url": place}, timeout=PATIENCE, service=SERVICE
        )
        if name == "-":
            digest = await _fetch(client, url, place, details, sys.stdout.buffer, 0, hashlib.sha256())
            _check(place, digest, details)
            return details, name
        target = Path(name)
        if target.is_dir():
            target /= place.rpartition("/")[2]
        # Its name says which content it is a part of.
        part = target.with_name(f".{target.name}.{details['etag']}.part")
        try:
            with part.open("a+b") as file:
                digest = hashlib.sha256()
                file.seek(0)
                while block := file.read(CHUNK):
                    digest.update(block)
                await _fetch(client, url, place, details, file, file.tell(), digest)
            if digest.hexdigest() != details["sha256"]:
                part.unlink()
            _check(place, digest, details)
            part.replace(target)
        except OSError as error:
            raise PolydomoError(f"{target}: {error.strerror}") from error
        return details, str(target)


async def _fetch(
    client: Client, url: str, place: str, details: dict[str, Any], file: BinaryIO, offset: int, digest: Any
) -> Any:
    """The rest of it, some chunks at once and in order."""

    async def chunk(at: int) -> bytes:
        asked = {"url": place, "offset": at, "chunk_size": CHUNK, "etag": details["etag"]}
        body = msgspec.json.encode({"task": "fetch_file", "kwargs": asked})
        try:
            return (await client.request(SERVICE, [body], timeout=60.0))[1]
        except Timeout:
            raise Unreachable(
                f"no answer from {url} within a minute", hint="run it again: it goes on"
            ) from None

    wanted = deque(range(offset, details["size_bytes"], CHUNK))
    under_way: deque[asyncio.Task[bytes]] = deque()
    try:
        while wanted or under_way:
            while wanted and len(under_way) < CREDIT:
                under_way.append(asyncio.create_task(chunk(wanted.popleft())))
            data = await under_way.popleft()
            digest.update(data)
            file.write(data)
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    return digest


def _check(place: str, digest: Any, details: dict[str, Any]) -> None:
    if digest.hexdigest() != details["sha256"]:
        raise PolydomoError(f"{place}: what came has another hash", hint="run it again")


def _full(place: str) -> str:
    return place if place.startswith(SCHEME) else SCHEME + place


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
