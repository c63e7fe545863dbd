"""Decision who a peer is: from the key that it has proved to own to the name of a principal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.errors import PolydomoError, ProtocolError
from polydomo.security.invitations import InvitationRefused, Invitations
from polydomo.security.key_files import fingerprint
from polydomo.security.keys import ACCEPTED, PENDING, REJECTED, ClientKey, KeyFolder

# Ends the name of the peer by which a worker of norfab asks for its inventory; the rest is the worker's name.
COMPANION: Final = "-NFPClient"


class KeyRefused(ProtocolError):
    """A peer's key is not accepted; `pending`: it may be later, so the peer should try again."""

    def __init__(self, message: str, *, pending: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pending = pending


class Authenticator:
    """The approval list of one broker.

    - `auto_accept`: accept unknown keys at once, and call `on_auto_accept` with each.
    - `pending`: the most keys that wait for approval.
    - `on_join`: called with each key that was accepted because of a join token.
    """

    def __init__(
        self,
        folder: KeyFolder,
        *,
        auto_accept: bool,
        pending: int,
        on_auto_accept: Callable[[ClientKey], object],
        on_join: Callable[[ClientKey], object],
    ) -> None:
        self.folder = folder
        self.auto_accept = auto_accept
        self.pending = pending
        self._invitations = Invitations(folder.path)
        self._on_auto_accept = on_auto_accept
        self._on_join = on_join

    def admit(self, key: bytes, address: str, name: str = "", join: str = "") -> str:
        """Return the name of the principal with this key, or raise KeyRefused with the reason for the operator.

        A worker of norfab and its companion, which have a key each, are one principal: the worker. An unknown key is
        recorded with the peer's `address` and the `name` that it suggests. With a valid join token (`join`) it is
        accepted instead, also if it waits for approval; for other keys the token is not used.
        """
        shown = fingerprint(key)
        not_joined = ""
        try:
            found = self.folder.find(key)
            if join and (found is None or found.state == PENDING):
                try:
                    found = self._join(key, address, join, found)
                except InvitationRefused as refused:
                    not_joined = f"; {refused.message}"
            if found is None:
                found = self._record(key, address, name)
        except (OSError, PolydomoError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise KeyRefused(f"the key {shown} cannot be checked: {reason}", pending=True) from error
        if found is None:
            raise KeyRefused(
                f"the key {shown} is unknown; too many unknown keys at the moment{not_joined}", pending=True
            )
        if found.state == ACCEPTED:
            return found.name.removesuffix(COMPANION) or found.name
        if found.state == REJECTED:
            raise KeyRefused(f"the key {shown} is rejected", pending=False)
        raise KeyRefused(
            f"the key {shown} waits for approval{not_joined}",
            pending=True,
            hint=f"polydomo keys accept {shown}",
        )

    def _join(self, key: bytes, address: str, join: str, found: ClientKey | None) -> ClientKey:
        """Accept a key under the name of its join token; raise InvitationRefused if the token cannot be used."""
        invitation = self._invitations.find(join)
        if not self.folder.is_free(invitation.name, key):
            raise InvitationRefused(f"another accepted key has the join token's name {invitation.name}")
        self._invitations.use(invitation)
        joined = self.folder.move(found or self.folder.describe(key, address), ACCEPTED, invitation.name)
        self._on_join(joined)
        return joined

    def _record(self, key: bytes, address: str, name: str) -> ClientKey | None:
        state = ACCEPTED if self.auto_accept else PENDING
        recorded = self.folder.record(key, name, address, state, self.pending)
        if recorded is not None and self.auto_accept:
            self._on_auto_accept(recorded)
        return recorded
