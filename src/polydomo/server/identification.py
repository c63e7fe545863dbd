"""Principals of peers that have no key, from the listener that they connected to.

A listener may name the principal of all its peers (`?principal=NAME`), or take the user of a local peer's process
(`?auth=user`), which the kernel tells. Such peers need no CURVE key.
"""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from functools import lru_cache
from typing import Final, NamedTuple

from polydomo.core.principals import ANONYMOUS

# Prefix of the principals of local users.
USER: Final = "user:"

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
        if self.by_user:
            return USER + user_name(peer_user(transport))
        return self.principal or ANONYMOUS


# Peers without a key are anonymous.
BY_KEY: Final = Identification()


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
