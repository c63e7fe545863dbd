"""TLS contexts from certificate files: the server's, and our own clients'."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, NoReturn

from polydomo.errors import ConfigError
from polydomo.server.security_settings import TlsSection

# The protocol of HTTP clients that ask (RFC 7301). NNG peers do not.
PROTOCOLS: Final = ["http/1.1"]


def server_context(section: TlsSection) -> ssl.SSLContext:
    """Return the context of new connections, or raise ConfigError."""
    if not section.certificate:
        raise ConfigError(
            "a listener has TLS, and there is no certificate", hint="set tls.certificate and tls.key"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(PROTOCOLS)
    load_certificate(context, section.certificate, section.key)
    if section.client_ca:
        load_authorities(context, section.client_ca)
        required = section.clients == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    elif section.clients == "required":
        raise ConfigError(
            "clients must have certificates, and no authority is known that signs them",
            hint="set tls.client_ca",
        )
    return context


def client_context(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    """Return the context of a connection to a server; empty: the system's authorities, no certificate of our own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca:
        load_authorities(context, ca)
    else:
        context.load_default_certs()
    if certificate:
        load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate with the chain in its file, and its key, which may be in the same file."""
    for file in (certificate, key or certificate):
        _check_readable(file)
    try:
        context.load_cert_chain(certificate, key or None, password=_refuse_password)
    except ssl.SSLError as error:
        raise ConfigError(
            f"no certificate with its key in {certificate}{f' and {key}' if key else ''}: "
            f"{error.reason or 'not in PEM'}",
            hint="both are PEM; the key belongs to the first certificate and has no password",
        ) from None


def load_authorities(context: ssl.SSLContext, file: str) -> None:
    """Load the certificates that sign the peers'."""
    _check_readable(file)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise ConfigError(
            f"no certificates in {file}: {error.reason or 'not in PEM'}", hint="the file is PEM"
        ) from None


def _check_readable(file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", hint="does the file exist, and may this user read it?"
        ) from None


def _refuse_password() -> NoReturn:
    """Refuse an encrypted key: OpenSSL would ask for its password on the terminal."""
    raise ConfigError("the key has a password", hint="openssl pkey -in KEY -out NEW removes it")
