"""The forms in which values come and go: CBOR, MemoDB-JSON, and byte strings as they are.

`Content-Type` says which one a body has, `Accept` which one is wanted. Without a wish it is JSON; a byte string as it
is goes only to those who ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.bodies import CBOR, JSON, OCTETS, media_type, preferred, read_bytes
from polydomo.web.api.json_responses import unchanged
from polydomo.web.api.problems import problem
from polydomo.web.memodb import dagcbor, memojson
from polydomo.web.memodb.cid import RAW, BadCid, Cid
from polydomo.web.memodb.dagcbor import BadCbor, Node
from polydomo.web.memodb.memojson import BadJson
from polydomo.web.memodb.values import Value, aside

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

VARY: Final = {"vary": "Accept"}
# What may change has to be asked for again; what was said once is good for once.
MUTABLE: Final = VARY | {"cache-control": "no-cache"}
PASSING: Final = VARY | {"cache-control": "no-store"}

_MISSING: Final = object()


async def read_node(request: Request, server: BrokerServer, default: Any = _MISSING) -> Node:
    """The value in a request's body."""
    data = await read_bytes(request, server.settings.limits.message_bytes)
    kind = media_type(request.headers.get("content-type", ""))
    if not data and kind != OCTETS:
        if default is not _MISSING:
            return default
        raise problem("missing-body", f"a value is needed, as {JSON}, {CBOR} or {OCTETS}")
    try:
        if kind == CBOR:
            return await aside(len(data), _from_cbor, data)
        if kind == JSON:
            return await aside(len(data), memojson.decode, data)
    except BadCbor as error:
        raise problem("invalid-or-unsupported-cbor", str(error)) from None
    except BadJson as error:
        raise problem("invalid-or-unsupported-json", str(error)) from None
    if kind == OCTETS:
        return data
    said = f"{kind[:100]!r} is not understood" if kind else "the body has no Content-Type"
    raise problem("unsupported-media-type", f"{said}: {JSON}, {CBOR} and {OCTETS} are")


async def read_link(request: Request, server: BrokerServer) -> Cid:
    """The link that a request's body is."""
    node = await read_node(request, server)
    if not isinstance(node, Cid):
        raise problem("expected-cid", 'a link is written {"cid": "u..."} in JSON, and has tag 42 in CBOR')
    return node


def parse_cid(text: str) -> Cid:
    """A CID in a path."""
    try:
        return Cid.parse(text)
    except BadCid as error:
        raise problem("invalid-or-unsupported-cid", str(error)) from None


async def show_value(request: Request, value: Value) -> Response:
    """A value, for ever: a CID never means anything else."""
    try:
        if value.cid.content is not None:  # it is whatever stands in the URL: look at it before it is named
            await aside(len(value.block), value.node)
        kind = choose(request, [JSON, CBOR, OCTETS] if _is_bytes(value) else [JSON, CBOR])
        tag = f'"{value.cid}{_SUFFIXES[kind]}"'
        headers = VARY | {"etag": tag, "cache-control": "public, max-age=31536000, immutable"}
        if unchanged(request, tag):
            return Response(status_code=304, headers=headers)
        return Response(await aside(len(value.block), _written, value, kind), 200, headers, kind)
    except BadCbor as error:
        raise problem("invalid-or-unsupported-cid", f"its content is no value: {error}") from None


def show_node(
    request: Request, node: Node, status: int = 200, headers: Mapping[str, str] = MUTABLE
) -> Response:
    """A small value, which is of this moment. With 201 it is only good to know, and no reason to refuse anything."""
    value = Value.of_node(node)
    kind = choose(request, [JSON, CBOR], JSON if status == 201 else "")
    data = value.cbor() if kind == CBOR else memojson.encode(node)
    if status == 200 and headers is MUTABLE:
        tag = f'W/"{value.cid}{_SUFFIXES[kind]}"'
        headers = {**headers, "etag": tag}
        if unchanged(request, tag):
            return Response(status_code=304, headers=dict(headers))
    return Response(data, status, dict(headers), kind)


def show_json(request: Request, text: bytes, headers: Mapping[str, str]) -> Response:
    """JSON that was made elsewhere, if that is what is wanted."""
    choose(request, [JSON])
    return Response(text, 200, dict(headers), JSON)


def choose(request: Request, offers: Sequence[str], otherwise: str = "") -> str:
    """The form that the client likes best; `otherwise` if it likes none of them."""
    accept = request.headers.get("accept")
    if not accept:
        return offers[0]
    found = preferred(accept, offers)
    if not found and otherwise:
        return otherwise
    if not found:
        raise problem("not-acceptable", f"there is {', '.join(offers)}; Accept is {accept[:200]!r}")
    return found[0]


_SUFFIXES: Final = {JSON: "", CBOR: ".cbor", OCTETS: ".raw"}


def _is_bytes(value: Value) -> bool:
    """A byte string may also have come in CBOR, as a job's answer."""
    return value.cid.codec == RAW or (bool(value.block) and value.block[0] >> 5 == 2)


def _written(value: Value, kind: str) -> bytes:
    if kind == CBOR:
        return value.cbor()
    node = value.node()
    if kind == OCTETS:
        assert isinstance(node, bytes)
        return node
    return memojson.encode(node)


def _from_cbor(data: bytes) -> Node:
    return dagcbor.decode(data, strict=False)
