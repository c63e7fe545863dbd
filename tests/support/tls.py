"""Certificates for tests, made by a certificate authority of their own."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

import trustme


class Issued(NamedTuple):
    """The files of a certificate and its key."""

    certificate: str
    key: str


class Authority:
    """A certificate authority; `ca` is the file with its certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = name
        self._authority = trustme.CA()
        self.ca = str(folder / f"{name}.pem")
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, *hosts: str, common_name: str | None = None, name: str = "") -> Issued:
        """Write a certificate for a server at these hosts, or for a client with a common name."""
        issued = self._authority.issue_cert(*(hosts or ("client@example.org",)), common_name=common_name)
        stem = self._folder / f"{self._name}-{name or common_name or 'broker'}"
        found = Issued(f"{stem}.pem", f"{stem}.key")
        for number, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(found.certificate, append=number > 0)
        issued.private_key_pem.write_to_path(found.key)
        return found

    def client_context(self, files: Issued | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=self.ca)
        if files is not None:
            context.load_cert_chain(*files)
        return context
