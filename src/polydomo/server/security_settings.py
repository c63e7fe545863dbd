"""Settings of who peers are and what they may do: keys, certificates, tokens, roles and quotas."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from polydomo.core.policy import FOREVER
from polydomo.core.principals import UNLIMITED, VERBS, Quota
from polydomo.security.roles import Grant
from polydomo.server.section import Section, Setting, count, flag, size

# Signatures of JSON Web Tokens with a public key (RFC 7518 §3.1, RFC 8037 §3.1).
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class SecuritySection(Section):
    """Keys of ZeroMQ peers, and whether roles decide what peers may do."""

    curve: Annotated[
        Literal["off", "on"],
        Setting(
            "on: all ZeroMQ listeners and the events endpoints require CURVE and an accepted key",
            restart=True,
        ),
    ] = "off"
    keys: Annotated[
        str, Setting("folder of the keys; empty: the folder `keys` in broker.data", restart=True)
    ] = ""
    auto_accept: Annotated[bool, flag("accept unknown keys at once, for tests and labs")] = False
    pending_keys: Annotated[
        int, count("keys that wait for approval; beyond that the oldest one is removed")
    ] = 100
    roles: Annotated[
        Literal["auto", "on", "off"],
        Setting(
            "on: what no role grants is denied; off: everything is allowed; auto: on if peers authenticate or "
            "[principals] has an entry"
        ),
    ] = "auto"


class TlsSection(Section):
    """Certificates of the listeners with TLS. SIGHUP reads the files again, for new connections."""

    certificate: Annotated[str, Setting("PEM file with the broker's certificate and its chain")] = ""
    key: Annotated[str, Setting("PEM file with its private key; empty: it is in the certificate's file")] = ""
    client_ca: Annotated[
        str,
        Setting("PEM file with the authorities that sign clients' certificates; empty: clients have none"),
    ] = ""
    clients: Annotated[
        Literal["optional", "required"],
        Setting("required: only clients with a certificate are admitted to listeners with TLS"),
    ] = "optional"


class OidcSection(Section):
    """OpenID provider whose tokens (JWT) are accepted over HTTP; needs the extra `oidc`."""

    issuer: Annotated[
        str, Setting("the provider, as its tokens name it: https://…; empty: none", restart=True)
    ] = ""
    audience: Annotated[str, Setting("what tokens must be for: this broker's name there", restart=True)] = ""
    algorithms: Annotated[list[str], Setting("allowed signatures", unit="algorithm", restart=True)] = (
        msgspec.field(default_factory=lambda: ["RS256"])
    )
    keys: Annotated[
        str,
        Setting(
            "file or URL of the provider's public keys (JWKS); empty: as its discovery document says",
            restart=True,
        ),
    ] = ""
    claim: Annotated[str, Setting("claim whose value names the principal, as oidc:VALUE", restart=True)] = (
        "sub"
    )
    leeway: Annotated[
        float,
        Setting("by how much the provider's clock may differ", "duration", restart=True),
    ] = 30.0


def grants(doc: str) -> Setting:
    """Describe the services at which a role allows a verb."""
    return Setting(doc, "grant")


class RoleSection(Section):
    """A role: what its principals may do, and at which services."""

    call: Annotated[list[str], grants("submit jobs to these services")] = []
    serve: Annotated[list[str], grants("be a worker of these services")] = []
    read: Annotated[list[str], grants("read others' jobs and results")] = []
    cancel: Annotated[list[str], grants("cancel others' jobs, and add input to them")] = []
    observe: Annotated[
        list[str], grants("see the services, their workers and clients, others' jobs, metrics and events")
    ] = []
    operate: Annotated[list[str], grants("pause services, resend dead letters, dismiss workers")] = []
    administer: Annotated[list[str], grants("stop the broker, read its log and its inventory")] = []
    delegate: Annotated[list[str], grants("act for other principals, as a relay or a joined broker")] = []

    def parsed(self) -> list[Grant]:
        """Return what the role grants."""
        return [Grant.parse(verb, text) for verb in VERBS for text in getattr(self, verb)]


class QuotaSection(Section):
    """Limits of each principal whose name matches. A value that is not set is not limited."""

    rate: Annotated[float | None, Setting("jobs per second", "rate", above=True)] = None
    jobs: Annotated[int | None, count("outstanding jobs")] = None
    bytes: Annotated[int | None, size("bytes of outstanding requests in memory")] = None
    stored: Annotated[
        int | None, size("bytes on disk: unfinished durable jobs, results and dead letters")
    ] = None
    connections: Annotated[int | None, count("connected peers")] = None

    def quota(self) -> Quota:
        """Return these limits for the core."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return Quota(
            given.get("rate", FOREVER),
            given.get("jobs", UNLIMITED),
            given.get("bytes", UNLIMITED),
            given.get("stored", UNLIMITED),
            given.get("connections", UNLIMITED),
        )


class AuditSection(Section):
    """The audit log: administrative acts and denials."""

    folder: Annotated[
        str,
        Setting(
            "folder of the audit log; auto: the folder `audit` in broker.data; empty: no audit log",
            restart=True,
        ),
    ] = "auto"
    keep: Annotated[
        float,
        Setting(
            "age at which segments are removed; 0: never. The removal is recorded",
            "duration",
            restart=True,
        ),
    ] = 365 * 86400.0
