"""TLS between a TCP connection and the protocol that uses it, for either side.

`TlsTransport` is the protocol of the TCP transport and the transport of the protocol above it. The encryption is
OpenSSL's (`ssl.SSLObject`), and so are the buffers of a record; nothing else is buffered here: what is written is
encrypted at once and is then the TCP transport's, whose limits, sizes and pauses the protocol above sees unchanged. So
a slow reader is noticed as without TLS. (asyncio's own TLS transport does not count the bytes that it has passed on.)

The protocol above is connected after the handshake, never without: `HandshakeWatch` hears of its begin and end.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, Protocol, cast

# Largest content of a record (RFC 8446 §5.1). OpenSSL returns one record per call.
RECORD: Final = 16 * 1024

# Plain bytes that are encrypted before the result is taken out of OpenSSL's buffer, which never shrinks.
PIECE: Final = 16 * RECORD

# Bytes that TLS itself may answer to a peer that does not read them: each KeyUpdate causes one (RFC 8446 §4.6.3).
UNREAD_REPLIES_MAX: Final = 64 * 1024

# What OpenSSL calls the usual mistakes, for people.
_REASONS: Final = {
    "HTTP_REQUEST": "the peer speaks HTTP without TLS",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer has no client certificate",
    "UNSUPPORTED_PROTOCOL": "the peer's version of TLS is too old",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the authority of our certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer refuses our version of TLS",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a client certificate",
}


class HandshakeWatch(Protocol):
    """Owner of a handshake."""

    def started(self, transport: TlsTransport) -> None:
        """Hear that the TCP connection exists; it may be aborted."""

    def finished(self, reason: str) -> str:
        """Hear, once, that the handshake was done (`reason` is empty) or failed.

        Returns the reason why the peer is refused after all; empty: it is not.
        """


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """One connection. `server_name` makes it the client's side: the name that the server's certificate must have."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        context: ssl.SSLContext,
        watch: HandshakeWatch,
        server_name: str | None = None,
    ) -> None:
        super().__init__()
        self._inner: asyncio.BaseProtocol = inner
        self._watch = watch
        self._context = context
        self._raw: asyncio.Transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._handshaking = True
        self._established = False  # the protocol above is connected
        self._shut = False  # nothing is written any more
        self._error = ""  # what ended the connection
        self._unread_replies = 0  # bytes of TLS's own answers since the peer had read everything

    # The TCP transport's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._watch.started(self)
        if not self._raw.is_closing():
            self._continue_handshake()

    def data_received(self, data: bytes) -> None:
        if self._shut:
            return
        self._incoming.write(data)
        if self._handshaking:
            self._continue_handshake()
        if self._established:
            self._read()

    def eof_received(self) -> bool | None:
        if self._established:
            return cast(asyncio.Protocol, self._inner).eof_received()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._shut = True
        if self._established:
            self._inner.connection_lost(ConnectionError(self._error) if self._error else exc)
        else:
            self._end_handshake(
                str(exc) if exc else "the peer closed the connection during the TLS handshake"
            )

    def pause_writing(self) -> None:
        if self._established:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._established:
            self._inner.resume_writing()

    # The transport of the protocol above

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._shut or not data:
            return
        rest = memoryview(data)
        sealed = []
        while rest:
            rest = rest[self._tls.write(rest[:PIECE]) :]
            sealed.append(self._outgoing.read())
        self._raw.write(b"".join(sealed))  # as one: the protocol above counts what its write has added

    def write_eof(self) -> None:
        self._shut_down()
        self._raw.write_eof()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self._shut_down()
        self._raw.close()

    def abort(self) -> None:
        self._shut = True
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._raw.get_write_buffer_limits()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":
            return default if self._handshaking else self._tls.getpeercert()
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._context
        return self._raw.get_extra_info(name, default)

    # TLS

    def _continue_handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._end_handshake(reason_of(error))
        else:
            self._flush()
            self._end_handshake("")

    def _end_handshake(self, reason: str) -> None:
        """Report the end of the handshake, then connect the protocol above or close the connection."""
        if not self._handshaking:
            return
        self._handshaking = False
        if self._watch.finished(reason) or reason:
            self._shut_down()
            self._raw.close()
        elif not self._raw.is_closing():
            self._established = True
            self._inner.connection_made(self)

    def _read(self) -> None:
        """Pass on everything that is complete, at once."""
        received = []
        ended = False  # by the peer's close_notify
        try:
            while data := self._tls.read(RECORD):
                received.append(data)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:  # an alert or a broken record; what came before it is valid
            self._error = reason_of(error)
            self._shut = True
        self._reply()
        if self._raw.is_closing():
            return
        inner = cast(asyncio.Protocol, self._inner)
        if received:
            inner.data_received(received[0] if len(received) == 1 else b"".join(received))
        if self._error:
            self._raw.close()
        elif ended and not self._shut and not inner.eof_received():
            self.close()

    def _shut_down(self) -> None:
        """Send close_notify, if there is a session to end. The peer's is not awaited."""
        if self._shut:
            return
        self._shut = True
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass
        self._flush()

    def _reply(self) -> None:
        """Send what reading has caused: an alert, or the answer to a KeyUpdate."""
        if not self._raw.get_write_buffer_size():
            self._unread_replies = 0
        self._unread_replies += self._outgoing.pending
        if self._unread_replies > UNREAD_REPLIES_MAX:
            self.abort()
        self._flush()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._raw.is_closing():
            self._raw.write(data)


def reason_of(error: ssl.SSLError) -> str:
    """Return what went wrong in a handshake, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    reason = error.reason or str(error)
    return _REASONS.get(reason) or f"TLS failed: {reason.lower().replace('_', ' ')}"
