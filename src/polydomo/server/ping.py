"""Detection of silent ZeroMQ peers with PING (RFC 37)."""

from __future__ import annotations

from polydomo.wire.zmtp.connection import Connection


class SilenceCheck:
    """State of one peer: a PING that is unanswered for twice the interval ends the connection."""

    def __init__(self) -> None:
        self._pinged = False

    def check(self, connection: Connection, silence: float, interval: float) -> str:
        """Return the reason to cut the peer, or an empty text; send a PING after `interval` seconds of silence.

        An interval of 0 turns PINGs off. ZMTP 3.0 has no PING.
        """
        if connection.ttl and silence > connection.ttl:
            return "silent for longer than the TTL of its own PING"
        if interval and connection.established:
            if silence <= interval:
                self._pinged = False
            elif silence > 3 * interval and self._pinged:
                return f"silent for {silence:.0f} s and did not answer PING"
            elif connection.peer is not None and connection.peer.minor >= 1:
                connection.ping(3 * interval)
                self._pinged = True
        return ""
