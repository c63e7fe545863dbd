"""`polydomo files`: list and download the files that a broker shares."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import deque
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

# Seconds: the broker hashes a large file before it returns the details.
DETAILS_TIMEOUT = 300.0

# Chunk size, and chunks in flight: enough for a fast network, little enough for a broker with many clients.
CHUNK = 1024 * 1024
CREDIT = 8

app = typer.Typer(cls=ListingGroup, help="Files shared by the broker. Without a command: ls.")

FileUrl = Annotated[str, typer.Argument(metavar="URL", help="nf://FOLDER/FILE; nf:// is optional.")]


@app.command("ls")
def ls(
    nf_url: Annotated[
        str, typer.Argument(metavar="[URL]", help="A folder; nf:// is optional.", show_default=False)
    ] = SCHEME,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="List all files in it and in its subfolders.")
    ] = False,
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """List the files of a folder."""
    task, arguments = "list_files", {"url": _full(nf_url), "details": True}
    if recursive:
        task, arguments = "walk", {"url": _full(nf_url)}
    rows = broker_client.run_task(url, task, arguments, service=SERVICE, timeout=DETAILS_TIMEOUT)
    if as_json:
        common.print_json(rows)
    elif not rows:
        common.show(Text("no files", "dim"))
    elif recursive:
        common.show(Text("\n".join(rows)))
    else:
        columns: common.Columns = {
            ">size": lambda row: common.size(row["size_bytes"]) if row["kind"] == "file" else "",
            "modified": lambda row: common.local_time(row["modified"]),
            "name": lambda row: Text(row["name"] + "/" * (row["kind"] == "folder"), "bold"),
        }
        common.show(common.listing(columns, rows))


@app.command("info")
def info(nf_url: FileUrl, url: common.Url = common.DEFAULT_URL, as_json: common.Json = False) -> None:
    """Show a file's size and hashes."""
    found = broker_client.run_task(
        url, "file_details", {"url": _full(nf_url)}, service=SERVICE, timeout=DETAILS_TIMEOUT
    )
    shown = {
        "size": f"{common.size(found['size_bytes'])} ({found['size_bytes']} bytes)",
        "sha256": found["sha256"],
        "md5": found["md5hash"],
        "modified": common.local_time(found["modified"]),
    }
    common.print_result(found, as_json, common.properties(shown))


@app.command("get")
def get(
    nf_url: FileUrl,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Target file or folder; - is stdout. Default: here."
        ),
    ] = "",
    url: common.Url = common.DEFAULT_URL,
    as_json: common.Json = False,
) -> None:
    """Download a file and check its hash. An interrupted download is resumed."""
    full = _full(nf_url)
    name = output or full.rpartition("/")[2]
    if not name:
        raise typer.BadParameter("not a file", param_hint="URL")
    details, target = asyncio.run(_get(url, full, name))
    if target != "-":
        line = Text.assemble((target, "bold"), f"  {common.size(details['size_bytes'])}, hash verified")
        common.print_result({"file": target} | details, as_json, line)


async def _get(url: str, nf_url: str, name: str) -> tuple[dict[str, Any], str]:
    async with broker_client.connect(url) as client:
        details: dict[str, Any] = await broker_client.call_task(
            client, url, "file_details", {"url": nf_url}, timeout=DETAILS_TIMEOUT, service=SERVICE
        )
        if name == "-":
            digest = await _fetch(client, url, nf_url, details, sys.stdout.buffer, 0, hashlib.sha256())
            _check(nf_url, digest, details)
            return details, name
        target = Path(name)
        if target.is_dir():
            target /= nf_url.rpartition("/")[2]
        # The etag in the name identifies the content of which this is a part.
        part = target.with_name(f".{target.name}.{details['etag']}.part")
        try:
            with part.open("a+b") as file:
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256")
                await _fetch(client, url, nf_url, details, file, file.tell(), digest)
            if digest.hexdigest() != details["sha256"]:
                part.unlink()
            _check(nf_url, digest, details)
            part.replace(target)
        except OSError as error:
            raise PolydomoError(f"{target}: {error.strerror}") from error
        return details, str(target)


async def _fetch(
    client: Client, url: str, nf_url: str, details: dict[str, Any], file: BinaryIO, offset: int, digest: Any
) -> Any:
    """Download the rest of a file, several chunks at once, and write it in order."""

    async def chunk(at: int) -> bytes:
        arguments = {"url": nf_url, "offset": at, "chunk_size": CHUNK, "etag": details["etag"]}
        body = msgspec.json.encode({"task": "fetch_file", "kwargs": arguments})
        try:
            return (await client.request(SERVICE, [body], timeout=60.0))[1]
        except Timeout:
            raise Unreachable(
                f"no reply from {url} within a minute", hint="run the command again: it resumes"
            ) from None

    offsets = deque(range(offset, details["size_bytes"], CHUNK))
    in_flight: deque[asyncio.Task[bytes]] = deque()
    try:
        while offsets or in_flight:
            while offsets and len(in_flight) < CREDIT:
                in_flight.append(asyncio.create_task(chunk(offsets.popleft())))
            data = await in_flight.popleft()
            digest.update(data)
            file.write(data)
    finally:
        for task in in_flight:
            task.cancel()
        await asyncio.gather(*in_flight, return_exceptions=True)
    return digest


def _check(nf_url: str, digest: Any, details: dict[str, Any]) -> None:
    if digest.hexdigest() != details["sha256"]:
        raise PolydomoError(f"{nf_url}: the download has another hash", hint="run the command again")


def _full(nf_url: str) -> str:
    return nf_url if nf_url.startswith(SCHEME) else SCHEME + nf_url
