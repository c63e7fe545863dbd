"""All settings with their defaults. Their sources (TOML, environment, flags) are in `config.py`.

Each field carries its description, unit and range in a `Setting`. The checks, the texts of `polydomo config show`
and the reference are made from these, so a setting is described in one place.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from polydomo.core.names import parse_name
from polydomo.core.policy import BrokerLimits, Heartbeat, Policy, WakePolicy
from polydomo.core.principals import ANONYMOUS
from polydomo.errors import ConfigError
from polydomo.server.section import Section, Setting, count, flag, listeners, seconds, size
from polydomo.server.security_settings import (
    AuditSection,
    OidcSection,
    QuotaSection,
    RoleSection,
    SecuritySection,
    TlsSection,
)
from polydomo.wire.zmtp.connection import ConnectionLimits

MIB = 1024 * 1024

# The broker chooses the folder (`server.data_dir.folder_for`).
AUTO = "auto"

# Prefix of the settings that make up a `WakePolicy`.
WAKE = "wake_"


class BrokerSection(Section):
    """The broker as a whole."""

    name: Annotated[str, Setting("name of the broker", restart=True)] = "polydomo"
    zmq: Annotated[list[str], listeners("endpoints for ZeroMQ peers: tcp://HOST:PORT, ipc://PATH")] = (
        msgspec.field(default_factory=lambda: ["tcp://127.0.0.1:5555"])
    )
    nng: Annotated[
        list[str],
        listeners(
            "endpoints for NNG peers (MemoDB): tcp://HOST:PORT, tls+tcp://HOST:PORT, ipc://PATH", "nng"
        ),
    ] = []
    http: Annotated[
        list[str], listeners("addresses of the REST API: HOST:PORT, https://HOST:PORT", "address")
    ] = []
    events: Annotated[
        list[str],
        listeners("endpoints where ZeroMQ SUB sockets receive workers' events: tcp://HOST:PORT, ipc://PATH"),
    ] = []
    data: Annotated[
        str,
        Setting(
            "folder for durable data; auto: one per endpoint in the user's state folder; "
            "empty: nothing is stored",
            restart=True,
        ),
    ] = "auto"
    tracebacks: Annotated[
        Literal["never", "loopback", "always"],
        Setting(
            "whether clients see the tracebacks that the SDK's workers send; loopback: while only this machine can "
            "connect"
        ),
    ] = "loopback"
    insecure: Annotated[
        bool,
        flag("listen where other machines can connect, although anybody there could use the broker"),
    ] = False
    drain: Annotated[
        float, seconds("time that running jobs have to finish when the broker stops", zero=True)
    ] = 10.0


class HeartbeatSection(Section):
    """Heartbeats between the broker and its workers."""

    interval: Annotated[float, seconds("interval of heartbeats, both ways")] = 2.5
    liveness: Annotated[int, count("silent intervals after which a worker is considered lost")] = 4


class LimitsSection(Section):
    """ConnectionLimits on the resources that peers can use."""

    message_bytes: Annotated[int, size("largest message, including the headers of its frames")] = (
        64 * MIB + 65536
    )
    frames: Annotated[int, count("frames in one message")] = 1024
    handshake: Annotated[float, seconds("time limit of a handshake")] = 5.0
    unauthenticated: Annotated[
        int, count("concurrent handshakes; beyond that the oldest one of the address with the most is cut")
    ] = 2000
    connections: Annotated[int, count("connected peers")] = 10_000
    client_jobs: Annotated[
        int, count("unanswered jobs of a client; beyond that its connection is not read")
    ] = 1000
    client_bytes: Annotated[int, size("bytes of these jobs, with the same effect")] = 256 * MIB
    client_grace: Annotated[
        float, seconds("how long the jobs of a disconnected client with an identity are kept", zero=True)
    ] = 10.0
    memory: Annotated[int, size("memory for all peers: jobs, unfinished input, unread output")] = 2048 * MIB
    output_bytes: Annotated[int, size("unread answers of a peer; beyond that it is cut off")] = 256 * MIB
    subscriber_bytes: Annotated[int, size("unread events of a subscriber; beyond that it loses events")] = (
        16 * MIB
    )
    stalled: Annotated[
        float, seconds("how long a peer may stall in the middle of a message that it sends or reads")
    ] = 60.0
    worker_jobs: Annotated[int, count("most jobs that a worker can request to hold at once")] = 64
    device_workers: Annotated[int, count("WMP workers on one connection")] = 10_000
    services: Annotated[int, count("known service names")] = 100_000
    hops: Annotated[int, count("how often a job may be forwarded", ge=0)] = 32
    invalid: Annotated[int, count("invalid messages of a peer after which it is cut off")] = 100


class ZmqSection(Section):
    """ZeroMQ connections."""

    duplicate_identity: Annotated[
        Literal["probe", "refuse"],
        Setting(
            "if a peer claims the identity of another: refused while that one answers a PING, or while it is connected"
        ),
    ] = "probe"
    probe: Annotated[float, seconds("time that a peer has to answer when another claims its identity")] = 2.0
    ping: Annotated[float, seconds("silence after which a peer is pinged; 0: never", zero=True)] = 30.0


class NfpSection(Section):
    """NORFAB's protocol."""

    durable: Annotated[bool, flag("store its jobs on disk, unless a service is configured otherwise")] = True
    credit: Annotated[
        int, count("jobs that a norfab worker gets at once; its protocol has no way to say how many it takes")
    ] = 32


class MemodbSection(Section):
    """MemoDB's protocol over NNG, whose workers have their own heartbeat and whose clients repeat requests."""

    heartbeat: Annotated[float, seconds("interval of heartbeats to a worker that waits for a job")] = 10.0
    reply: Annotated[float, seconds("time limit of the answer to a heartbeat")] = 10.0
    wait: Annotated[float, seconds("how long a job may wait for a worker", endless=True)] = 10.0
    retries: Annotated[int, count("further attempts after a worker was lost", ge=0)] = 0
    grace: Annotated[
        float, seconds("how long requests and answers of a broken connection are kept", zero=True)
    ] = 10.0
    bytes: Annotated[int, size("total size of the content-addressed values of its REST API")] = 1024 * MIB


class HttpSection(Section):
    """The REST API."""

    durable: Annotated[bool, flag("store its jobs on disk, unless a service or a request says otherwise")] = (
        True
    )
    patience: Annotated[float, seconds("longest time that a request may wait for an answer or a job")] = 60.0
    slow: Annotated[float, seconds("time limit of a request's head, and of a stall in its body")] = 10.0
    idle: Annotated[float, seconds("how long an idle connection is kept")] = 30.0
    worker_idle: Annotated[
        float, seconds("time between two requests after which a worker is considered lost")
    ] = 30.0
    connections: Annotated[
        int, count("concurrent connections; beyond that the address with the most of them loses one")
    ] = 2000
    hosts: Annotated[
        list[str],
        Setting(
            "accepted names in `Host`, beside addresses, localhost and the broker's own addresses: "
            "NAME, *.DOMAIN, or * for any",
            unit="host",
        ),
    ] = []
    origins: Annotated[
        list[str],
        Setting(
            "origins of web pages that may use the REST API (CORS): SCHEME://HOST[:PORT], or * for any",
            unit="origin",
        ),
    ] = []
    trusted_proxies: Annotated[
        list[str],
        Setting(
            "addresses and networks of reverse proxies whose `Forwarded` and `X-Forwarded-For` are trusted",
            unit="network",
        ),
    ] = []


class ServiceSection(Section):
    """Policy for the jobs of a service. Values that are not set come from [defaults], then from the broker."""

    wait: Annotated[float | None, seconds("how long a job may wait for a worker", endless=True)] = None
    timeout: Annotated[float | None, seconds("time limit of one attempt", endless=True)] = None
    retries: Annotated[int | None, count("further attempts after a worker was lost", ge=0)] = None
    queue: Annotated[int | None, count("most jobs that may wait", ge=0)] = None
    durable: Annotated[bool | None, flag("store the jobs on disk, and acknowledge them only then")] = None
    liveness_busy: Annotated[
        int | None,
        count(
            "silent intervals after which a worker with a job is considered lost; 0: heartbeat.liveness for a "
            "worker that has sent heartbeats while busy, the job's timeout for others",
            ge=0,
        ),
    ] = None
    backoff: Annotated[
        float | None, seconds("delay before the second attempt, doubled for each further one", zero=True)
    ] = None
    grace: Annotated[
        float | None,
        seconds("how long the worker of a running job may take to reconnect after a restart", zero=True),
    ] = None
    retention: Annotated[
        float | None, seconds("how long the result of a durable job is kept", endless=True)
    ] = None
    ageing: Annotated[
        float | None, seconds("waiting time that raises the priority of a job by one", endless=True)
    ] = None
    memo: Annotated[bool | None, flag("memoise answers: repeat the answer to an equal request")] = None
    memo_ttl: Annotated[float | None, seconds("how long a memoised answer is valid", endless=True)] = None
    memo_bytes: Annotated[int | None, size("total size of the service's memoised answers")] = None
    memo_scope: Annotated[
        Literal["shared", "principal"] | None,
        Setting(
            "shared: all principals that may call the service get the same memoised answers; "
            "principal: each has its own"
        ),
    ] = None
    wake_rule: Annotated[
        Literal["idle", "least-loaded", "weighted"] | None,
        Setting(
            "which WMP workers are woken first: the longest idle, the less loaded of two, by their label weight"
        ),
    ] = None
    wake_first: Annotated[int | None, count("WMP workers that one job wakes at first")] = None
    wake_widest: Annotated[
        int | None, count("most WMP workers that one job wakes; their number doubles while none answers")
    ] = None
    wake_patience: Annotated[float | None, seconds("time that woken WMP workers have to answer")] = None
    wake_labels: Annotated[
        list[str] | None, Setting("wake only WMP workers with these labels: NAME=VALUE")
    ] = None


class JoinSection(Section):
    """Other brokers to which this one lends its idle workers, over WMP."""

    up: Annotated[list[str], Setting("URLs of the brokers, wmp://HOST:PORT", restart=True, secret=True)] = []
    principal: Annotated[
        str,
        Setting(
            "principal that owns the jobs of those brokers here; "
            "if it may delegate for a service, a job belongs to the principal that submitted it there"
        ),
    ] = ANONYMOUS


class StoreSection(Section):
    """Store of the durable jobs."""

    url: Annotated[
        str,
        Setting("sqlite:///FILE, postgresql://…; empty: a file in broker.data", restart=True, secret=True),
    ] = ""
    sweep: Annotated[float, seconds("interval at which expired results are removed")] = 60.0
    batch: Annotated[int, count("most acknowledgements that share a commit", restart=True)] = 4096
    check: Annotated[
        float, seconds("how long a SQLite file is checked for damage after a start; 0: not at all", zero=True)
    ] = 10.0
    bytes: Annotated[
        int,
        size(
            "total size of all jobs; beyond that results are removed before their retention is over, the oldest of the "
            "principal with the most first, and then its dead letters"
        ),
    ] = 16384 * MIB
    backlog: Annotated[
        int,
        size(
            "limit of unwritten data: from an eighth of it on clients are slowed down, "
            "and beyond it durable jobs are refused"
        ),
    ] = 256 * MIB


class LedgerSection(Section):
    """The ledger: a row for every job, in Parquet files."""

    folder: Annotated[
        str,
        Setting(
            "folder of the segments; auto: the folder `ledger` in broker.data; empty: no ledger",
            restart=True,
        ),
    ] = ""
    roll: Annotated[float, seconds("longest time that rows wait for their segment")] = 10.0
    rows: Annotated[int, count("most rows of a segment")] = 250_000
    keep: Annotated[float, seconds("age at which segments are removed, read or not; 0: never", zero=True)] = (
        30 * 86400.0
    )
    bytes: Annotated[int, size("total size of all segments; beyond that the oldest are removed")] = (
        16384 * MIB
    )


class SparkSection(Section):
    """The pipeline (`polydomo spark …`, `polydomo.spark`). The broker does not use this section."""

    master: Annotated[
        str, Setting("Spark's master: local[N], spark://HOST:PORT, yarn, k8s://…", secret=True)
    ] = "local[*]"
    ledger: Annotated[
        str,
        Setting(
            "folder of the ledger, or its URL in an object store; empty: that of the broker", secret=True
        ),
    ] = ""
    tables: Annotated[
        str, Setting("folder or URL of the tables; empty: the folder `tables` in broker.data", secret=True)
    ] = ""
    catalog: Annotated[
        str,
        Setting(
            "Iceberg catalog: the URL of a database (sqlite:///…, postgresql+psycopg://…) or of a REST catalog, or a "
            "name from pyiceberg's configuration; empty: a SQLite file beside the tables",
            secret=True,
        ),
    ] = ""
    catalog_options: Annotated[
        list[str], Setting("further properties of the catalog, KEY=VALUE", secret=True)
    ] = []
    conf: Annotated[list[str], Setting("further settings of Spark, KEY=VALUE", secret=True)] = []
    interval: Annotated[float, seconds("interval at which the stream looks for new segments")] = 10.0
    files: Annotated[int, count("most segments in one batch of the stream")] = 200
    slo: Annotated[
        list[str],
        Setting('objectives "SERVICE LATENCY PERCENT": the share of jobs to be done within the latency'),
    ] = msgspec.field(default_factory=lambda: ["* 1s 99%"])


class InventorySection(Section):
    """Inventory of the workers (`sid.service.broker`)."""

    file: Annotated[str, Setting("main file, in norfab's layout; empty: none", restart=True)] = ""
    watch: Annotated[
        float, seconds("interval at which its files are checked for changes; 0: never", zero=True)
    ] = 2.0


class FilesSection(Section):
    """Files for clients and workers (`fss.service.broker`, and norfab's service `filesharing`)."""

    folder: Annotated[str, Setting("shared folder; empty: none", restart=True)] = ""
    transfers: Annotated[int, count("concurrent transfers")] = 64
    idle: Annotated[float, seconds("how long a transfer waits for its client")] = 30.0


class LogSection(Section):
    """The broker's log on stderr."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Setting("lowest level that is logged")] = (
        "info"
    )
    format: Annotated[
        Literal["auto", "text", "json"], Setting("text or json; auto: text on a terminal, else json")
    ] = "auto"


class Settings(Section):
    """The whole configuration."""

    broker: BrokerSection = msgspec.field(default_factory=BrokerSection)
    heartbeat: HeartbeatSection = msgspec.field(default_factory=HeartbeatSection)
    limits: LimitsSection = msgspec.field(default_factory=LimitsSection)
    zmq: ZmqSection = msgspec.field(default_factory=ZmqSection)
    security: SecuritySection = msgspec.field(default_factory=SecuritySection)
    tls: TlsSection = msgspec.field(default_factory=TlsSection)
    oidc: OidcSection = msgspec.field(default_factory=OidcSection)
    roles: dict[str, RoleSection] = {}
    principals: dict[str, list[str]] = {}
    quotas: dict[str, QuotaSection] = {}
    nfp: NfpSection = msgspec.field(default_factory=NfpSection)
    memodb: MemodbSection = msgspec.field(default_factory=MemodbSection)
    http: HttpSection = msgspec.field(default_factory=HttpSection)
    join: JoinSection = msgspec.field(default_factory=JoinSection)
    defaults: ServiceSection = msgspec.field(default_factory=ServiceSection)
    services: dict[str, ServiceSection] = {}
    store: StoreSection = msgspec.field(default_factory=StoreSection)
    ledger: LedgerSection = msgspec.field(default_factory=LedgerSection)
    audit: AuditSection = msgspec.field(default_factory=AuditSection)
    spark: SparkSection = msgspec.field(default_factory=SparkSection)
    inventory: InventorySection = msgspec.field(default_factory=InventorySection)
    files: FilesSection = msgspec.field(default_factory=FilesSection)
    log: LogSection = msgspec.field(default_factory=LogSection)

    def store_url(self) -> str:
        """Return the URL of the store of durable jobs; empty if there is none."""
        if self.store.url or self.broker.data in ("", AUTO):
            return self.store.url
        return f"sqlite:///{self.broker.data}/jobs.db"

    def data_folder(self) -> str:
        """Return the data folder; empty if there is none."""
        return "" if self.broker.data == AUTO else self.broker.data

    def ledger_folder(self) -> str:
        """Return the folder of the ledger; empty if there is none."""
        if self.ledger.folder != AUTO:
            return self.ledger.folder
        return "" if self.broker.data in ("", AUTO) else f"{self.broker.data}/ledger"

    def audit_folder(self) -> str:
        """Return the folder of the audit log; empty if there is none."""
        if self.audit.folder != AUTO:
            return self.audit.folder
        return "" if self.broker.data in ("", AUTO) else f"{self.broker.data}/audit"

    def keys_folder(self) -> str:
        """Return the folder of the keys; empty if there is none."""
        if self.security.keys:
            return self.security.keys
        return "" if self.broker.data in ("", AUTO) else f"{self.broker.data}/keys"

    def authenticates(self) -> bool:
        """Return whether peers can prove who they are at one listener at least."""
        return self.security.curve == "on" or bool(self.tls.client_ca or self.oidc.issuer)

    def roles_apply(self) -> bool:
        """Return whether what no role grants is denied."""
        if self.security.roles == "auto":
            return self.authenticates() or bool(self.principals)
        return self.security.roles == "on"

    def bounds(self) -> BrokerLimits:
        """Return the limits of the core."""
        limits = self.limits
        return BrokerLimits(
            client_jobs=limits.client_jobs,
            client_bytes=limits.client_bytes,
            client_grace=limits.client_grace,
            memory=limits.memory,
            hops=limits.hops,
            services=limits.services,
        )

    def beat(self) -> Heartbeat:
        """Return the heartbeat between the broker and its workers."""
        return Heartbeat(self.heartbeat.interval, self.heartbeat.liveness)

    def wire_limits(self) -> ConnectionLimits:
        """Return the limits of a connection's messages."""
        return ConnectionLimits(message_bytes=self.limits.message_bytes, frames=self.limits.frames)

    def policy(self) -> Policy:
        """Return the policy of services without a section of their own."""
        return _policy(self.defaults, Policy())

    def policies(self) -> dict[bytes, Policy]:
        """Return the policies by service name, or by prefix if the name ends in `*`."""
        default = self.policy()
        found = {parse_name(name): _policy(section, default) for name, section in self.services.items()}
        if self.files.folder:  # the broker's own worker does these jobs: they need not be durable
            found[b"filesharing"] = _policy(ServiceSection(durable=False), found.get(b"filesharing", default))
        return found


def _policy(section: ServiceSection, base: Policy) -> Policy:
    """Return the policy of a section; values that are not set are those of `base`."""
    values: dict[str, Any] = {
        name: in_effect(base, name) if value is None else value
        for name, value in msgspec.structs.asdict(section).items()
    }
    waking = {name[len(WAKE) :]: values.pop(name) for name in list(values) if name.startswith(WAKE)}
    waking["labels"] = _labels(waking["labels"])
    volatile = base.volatile if section.durable is None else not section.durable
    return Policy(**values, volatile=volatile, waking=WakePolicy(**waking))


def in_effect(policy: Policy, name: str) -> object:
    """Return a policy's value for the setting `name` of a service."""
    if not name.startswith(WAKE):
        return getattr(policy, name)
    value = getattr(policy.waking, name.removeprefix(WAKE))
    return [f"{label}={meant}" for label, meant in value.items()] if isinstance(value, dict) else value


def _labels(texts: list[str]) -> dict[str, str]:
    """Return labels written as NAME=VALUE by their names."""
    found: dict[str, str] = {}
    for one in texts:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise ConfigError(f"{one!r} in wake_labels is not NAME=VALUE", hint="write gpu=true, or zone=a")
        found[name] = value
    return found
