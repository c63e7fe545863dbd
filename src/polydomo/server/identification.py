"""Principals of peers that have no key, from the listener that they connected to.

A peer that shows a certificate on a TLS listener has its name. Otherwise a listener may name the principal of all its
peers (`?principal=NAME`), or take the user of a local peer's process (`?auth=user`), which the kernel tells. Peers of
such listeners need no CURVE key.
"""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from polydomo.core.principals import ANONYMOUS

# Prefixes of the principals of local users and of certificates.
USER: Final = "user:"
CERTIFICATE: Final = "cert:"

# Longest common name (RFC 5280 §A.1, ub-common-name).
COMMON_NAME_MAX: Final = 64

# A certificate as `ssl.SSLSocket.getpeercert` describes it.
Certificate = Mapping[str, Any]

# The kernel's `struct ucred`: process, user and group of the peer when it connected (unix(7)). Linux only.
PEER_CREDENTIALS: Final[int | None] = getattr(socket, "SO_PEERCRED", None)
_CREDENTIALS: Final = struct.Struct("iII")

# User names that are remembered: looking one up may ask a directory service.
_USERS_MAX: Final = 256


class Identification(NamedTuple):
    """How the peers of a listener are identified without a key."""

    principal: str = ""  # of all peers; empty: not given
    by_user: bool = False  # the principal is the user of the peer's process

    @property
    def is_given(self) -> bool:
        """Return whether peers have a principal without a key of their own."""
        return bool(self.principal) or self.by_user

    def principal_of(self, transport: asyncio.BaseTransport) -> str:
        """Return the principal of the peer at a connection."""
        certificate = transport.get_extra_info("peercert")
        if certificate:
            return CERTIFICATE + common_name(certificate)
        if self.by_user:
            return USER + user_name(peer_user(transport))
        return self.principal or ANONYMOUS


# Peers without a key are anonymous.
BY_KEY: Final = Identification()


def common_name(certificate: Certificate) -> str:
    """Return the common name of a certificate's subject; empty if it has none that can name a principal."""
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if len(names) != 1 or not names[0].isprintable() or len(names[0]) > COMMON_NAME_MAX:
        return ""
    return str(names[0])


def certificate_error(certificate: Certificate | None) -> str:
    """Return why a peer with this certificate is refused; empty if it is not, or has no certificate."""
    if not certificate or common_name(certificate):
        return ""
    return "the client certificate does not have exactly one common name, or it is not printable"


def peer_user(transport: asyncio.BaseTransport) -> int:
    """Return the user id of the process at the other end of a Unix socket."""
    assert PEER_CREDENTIALS is not None, "checked when the listener's options were parsed"
    found = transport.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, PEER_CREDENTIALS, _CREDENTIALS.size
    )
    _, user, _ = _CREDENTIALS.unpack(found)
    return int(user)


@lru_cache(_USERS_MAX)
def user_name(user: int) -> str:
    """Return the name of a user, or the number if it has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
