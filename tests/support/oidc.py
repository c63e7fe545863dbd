"""An OpenID provider for tests: its keys, its tokens, and its documents over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://id.example/realm"
AUDIENCE = "polydomo"


@cache
def private_key(kind: str, number: int = 0) -> Any:
    """A private key that is made once per run: kinds are RSA, EC, OKP and weak (RSA with 1024 bits)."""
    if kind == "EC":
        return ec.generate_private_key(ec.SECP256R1())
    if kind == "OKP":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 1024 if kind == "weak" else 2048)


def public_jwk(kind: str, kid: str | None, number: int = 0, **members: Any) -> dict[str, Any]:
    algorithm = {"EC": ECAlgorithm, "OKP": OKPAlgorithm}.get(kind, RSAAlgorithm)
    found: dict[str, Any] = algorithm.to_jwk(private_key(kind, number).public_key(), as_dict=True)
    return {**found, **({} if kid is None else {"kid": kid}), **members}


def token(
    *,
    kind: str = "RSA",
    number: int = 0,
    algorithm: str = "RS256",
    kid: str | None = "k1",
    key: Any = None,
    headers: dict[str, Any] | None = None,
    **claims: Any,
) -> str:
    """A token; a claim that is None is left out."""
    now = time.time()
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "exp": now + 300, "iat": now, **claims}
    return jwt.encode(
        {name: value for name, value in given.items() if value is not None},
        private_key(kind, number) if key is None else key,
        algorithm,
        headers={**({} if kid is None else {"kid": kid}), **(headers or {})},
    )


class Provider:
    """Documents by path, and how often each was fetched."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.documents: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.fetched: list[str] = []

    def publish(self, *keys: dict[str, Any]) -> None:
        self.documents["/keys"] = json.dumps({"keys": keys}).encode()
        discovery = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.documents["/.well-known/openid-configuration"] = json.dumps(discovery).encode()


@contextmanager
def serving() -> Iterator[Provider]:
    """A provider on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.fetched.append(self.path)
            if self.path in provider.redirects:
                self.send_response(302)
                self.send_header("location", provider.redirects[self.path])
                self.end_headers()
                return
            found = provider.documents.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.send_header("content-length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
