"""Media types of values: CBOR, MemoDB-JSON, and raw byte strings.

`Content-Type` names the type of a request's body, `Accept` the wanted one. The default is JSON; a raw byte string is
sent only if it is requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.bodies import CBOR, JSON, OCTETS, media_type, preferred, read_bytes
from polydomo.web.api.json_responses import matches_etag
from polydomo.web.api.problems import problem
from polydomo.web.memodb import dagcbor, memojson
from polydomo.web.memodb.cid import RAW, BadCid, Cid
from polydomo.web.memodb.dagcbor import BadCbor, Node
from polydomo.web.memodb.memojson import BadJson
from polydomo.web.memodb.values import Value, run_aside

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

VARY: Final = {"vary": "Accept"}
# Responses that may change must be revalidated; others must not be cached.
MUTABLE: Final = VARY | {"cache-control": "no-cache"}
UNCACHED: Final = VARY | {"cache-control": "no-store"}

_MISSING: Final = object()


async def read_node(request: Request, server: BrokerServer, default: Any = _MISSING) -> Node:
    """Return the value in a request's body."""
    data = await read_bytes(request, server.settings.limits.message_bytes)
    kind = media_type(request.headers.get("content-type", ""))
    if not data and kind != OCTETS:
        if default is not _MISSING:
            return default
        raise problem("missing-body", f"a value is required, as {JSON}, {CBOR} or {OCTETS}")
    try:
        if kind == CBOR:
            return await run_aside(len(data), dagcbor.decode, data)
        if kind == JSON:
            return await run_aside(len(data), memojson.decode, data)
    except BadCbor as error:
        raise problem("invalid-or-unsupported-cbor", str(error)) from None
    except BadJson as error:
        raise problem("invalid-or-unsupported-json", str(error)) from None
    if kind == OCTETS:
        return data
    reason = f"{kind[:100]!r} is not supported" if kind else "the body has no Content-Type"
    raise problem("unsupported-media-type", f"{reason}: use {JSON}, {CBOR} or {OCTETS}")


async def read_link(request: Request, server: BrokerServer) -> Cid:
    """Return the link in a request's body."""
    node = await read_node(request, server)
    if not isinstance(node, Cid):
        raise problem("expected-cid", 'a link is written {"cid": "u..."} in JSON, and has tag 42 in CBOR')
    return node


def parse_cid(text: str) -> Cid:
    """Parse a CID in a path."""
    try:
        return Cid.parse(text)
    except BadCid as error:
        raise problem("invalid-or-unsupported-cid", str(error)) from None


async def value_response(request: Request, value: Value) -> Response:
    """Return a value, cacheable for ever: the content of a CID never changes."""
    try:
        if value.cid.content is not None:  # the content comes from the URL: validate it before use
            await run_aside(len(value.block), value.node)
        kind = choose_type(request, [JSON, CBOR, OCTETS] if _is_bytes(value) else [JSON, CBOR])
        tag = f'"{value.cid}{_SUFFIXES[kind]}"'
        headers = VARY | {"etag": tag, "cache-control": "public, max-age=31536000, immutable"}
        if matches_etag(request, tag):
            return Response(status_code=304, headers=headers)
        return Response(await run_aside(len(value.block), _encode, value, kind), 200, headers, kind)
    except BadCbor as error:
        raise problem("invalid-or-unsupported-cid", f"the content is not a value: {error}") from None


def node_response(
    request: Request, node: Node, status: int = 200, headers: Mapping[str, str] = MUTABLE
) -> Response:
    """Return a small value that may change. With 201 it is informative, so any `Accept` is tolerated."""
    value = Value.of_node(node)
    kind = choose_type(request, [JSON, CBOR], JSON if status == 201 else "")
    data = value.cbor() if kind == CBOR else memojson.encode(node)
    if status == 200 and headers is MUTABLE:
        tag = f'W/"{value.cid}{_SUFFIXES[kind]}"'
        headers = {**headers, "etag": tag}
        if matches_etag(request, tag):
            return Response(status_code=304, headers=dict(headers))
    return Response(data, status, dict(headers), kind)


def choose_type(request: Request, offers: Sequence[str], otherwise: str = "") -> str:
    """Return the offered type that the client prefers; `otherwise` if it accepts none."""
    accept = request.headers.get("accept")
    if not accept:
        return offers[0]
    found = preferred(accept, offers)
    if not found and otherwise:
        return otherwise
    if not found:
        raise problem("not-acceptable", f"available: {', '.join(offers)}; Accept is {accept[:200]!r}")
    return found[0]


_SUFFIXES: Final = {JSON: "", CBOR: ".cbor", OCTETS: ".raw"}


def _is_bytes(value: Value) -> bool:
    """Return whether the value is a byte string, raw or (as a job's result may be) in CBOR."""
    return value.cid.codec == RAW or (bool(value.block) and value.block[0] >> 5 == 2)


def _encode(value: Value, kind: str) -> bytes:
    if kind == CBOR:
        return value.cbor()
    node = value.node()
    if kind == OCTETS:
        assert isinstance(node, bytes)
        return node
    return memojson.encode(node)
