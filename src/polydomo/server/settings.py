"""What can be set, with its defaults. Where values come from (TOML, environment, flags) is in `config.py`.

Each field carries its sentence of documentation, its unit and its range in `msgspec.Meta`; the checks, the
texts of `polydomo config show` and the reference are made from these: a setting is described in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from polydomo import redaction
from polydomo.core.names import parse_name
from polydomo.core.policy import BrokerLimits, Heartbeat, Policy, WakePolicy
from polydomo.errors import ConfigError
from polydomo.wire.zmtp.connection import ConnectionLimits

MIB = 1024 * 1024

# The broker chooses its folder by itself (`server.data_dir.folder_for`).
AUTO = "auto"


def text(doc: str, *, unit: str = "text", restart: bool = False, secret: bool = False) -> Meta:
    """Words. `restart`: a reload does not change it. `secret`: there may be a password or a key in it, which is shown
    to nobody (`polydomo.redaction`)."""
    return Meta(description=doc, extra={"unit": unit, "restart": restart, "secret": secret})


def seconds(doc: str, *, zero: bool = False, endless: bool = False) -> Meta:
    """A duration above 0 (or from 0 on), which may be without end."""
    extra = {"unit": "duration", "endless": endless}
    return Meta(description=doc, extra=extra, ge=0) if zero else Meta(description=doc, extra=extra, gt=0)


def count(doc: str, ge: int = 1, *, restart: bool = False) -> Meta:
    """A whole number."""
    return Meta(description=doc, extra={"unit": "count", "restart": restart}, ge=ge)


def size(doc: str) -> Meta:
    """A number of bytes."""
    return Meta(description=doc, extra={"unit": "size"}, ge=1)


class Section(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table of the configuration file: a name nobody knows is an error, not ignored."""


class BrokerSection(Section):
    """The broker as a whole."""

    name: Annotated[str, text("what the broker calls itself", restart=True)] = "polydomo"
    zmq: Annotated[
        list[str],
        text("where ZeroMQ peers connect: tcp://HOST:PORT, ipc://PATH", unit="endpoint", restart=True),
    ] = msgspec.field(default_factory=lambda: ["tcp://127.0.0.1:5555"])
    nng: Annotated[
        list[str],
        text("where NNG peers (MemoDB) connect: tcp://HOST:PORT, ipc://PATH", unit="endpoint", restart=True),
    ] = msgspec.field(default_factory=list)
    http: Annotated[
        list[str],
        text("where the REST API is: HOST:PORT", unit="address", restart=True),
    ] = msgspec.field(default_factory=list)
    events: Annotated[
        list[str],
        text(
            "where ZeroMQ SUB sockets hear workers' events: tcp://HOST:PORT, ipc://PATH",
            unit="endpoint",
            restart=True,
        ),
    ] = msgspec.field(default_factory=list)
    data: Annotated[
        str,
        text(
            "folder for what must survive; auto: one per endpoint in the user's state folder; "
            "empty: nothing is kept",
            restart=True,
        ),
    ] = "auto"
    tracebacks: Annotated[
        Literal["never", "loopback", "always"],
        text(
            "whether clients see the tracebacks that our SDK's workers send; loopback: while nobody but this machine "
            "can connect"
        ),
    ] = "loopback"
    drain: Annotated[
        float, seconds("how long jobs may take to finish when the broker is told to stop", zero=True)
    ] = 10.0


class HeartbeatSection(Section):
    """Signs of life between the broker and its workers."""

    interval: Annotated[float, seconds("one sign of life this often, both ways")] = 2.5
    liveness: Annotated[int, count("silent intervals after which a worker is given up")] = 4


class LimitsSection(Section):
    """What peers may make the broker hold."""

    message_bytes: Annotated[int, size("the largest message, its frames' headers included")] = (
        64 * MIB + 65536
    )
    frames: Annotated[int, count("frames in one message")] = 1024
    handshake: Annotated[float, seconds("how long a peer may take to introduce itself")] = 5.0
    unauthenticated: Annotated[
        int, count("peers in their handshake at once; then the oldest of the most crowded address goes")
    ] = 2000
    connections: Annotated[int, count("connected peers")] = 10_000
    client_jobs: Annotated[int, count("unanswered jobs of a client before it is no longer read from")] = 1000
    client_bytes: Annotated[int, size("bytes in those jobs, with the same effect")] = 256 * MIB
    client_grace: Annotated[
        float, seconds("how long the jobs of a named client that dropped off are kept", zero=True)
    ] = 10.0
    memory: Annotated[
        int, size("all that peers make the broker hold: jobs, unfinished input, unread output")
    ] = 2048 * MIB
    output_bytes: Annotated[int, size("unread answers of one peer before it is cut off")] = 256 * MIB
    subscriber_bytes: Annotated[int, size("unread events of one subscriber before it loses some")] = 16 * MIB
    stalled: Annotated[
        float, seconds("how long a peer may stand still in the middle of a message that it sends or reads")
    ] = 60.0
    worker_jobs: Annotated[int, count("jobs a worker may hold at once by asking for more")] = 64
    device_workers: Annotated[int, count("WMP workers behind one connection")] = 10_000
    services: Annotated[int, count("service names known at once")] = 100_000
    hops: Annotated[int, count("how often one job may be passed on", ge=0)] = 32
    invalid: Annotated[int, count("bad messages of a peer before it is cut off")] = 100


class ZmqSection(Section):
    """ZeroMQ connections."""

    duplicate_identity: Annotated[
        Literal["takeover", "refuse"],
        text("two peers with one identity: which of them stays, if they do not say which ones they are"),
    ] = "takeover"
    ping: Annotated[float, seconds("silence after which a peer is pinged; 0: never", zero=True)] = 30.0


class NfpSection(Section):
    """NORFAB's protocol."""

    durable: Annotated[
        bool, text("keep its jobs on disk, where a service does not say otherwise", unit="flag")
    ] = True
    credit: Annotated[
        int, count("jobs a norfab worker is given at once; it has no way to say how many it can take")
    ] = 32


class MemodbSection(Section):
    """MemoDB's protocol over NNG. Its workers have a rhythm of their own, its clients ask again by themselves."""

    heartbeat: Annotated[
        float, seconds("a worker that waits for a job is asked this often if it is there")
    ] = 10.0
    reply: Annotated[float, seconds("how long it may take to answer that")] = 10.0
    wait: Annotated[float, seconds("how long a job may wait for a worker", endless=True)] = 10.0
    retries: Annotated[int, count("further attempts after a worker was lost", ge=0)] = 0
    grace: Annotated[
        float, seconds("how long what a connection had under way is kept when it breaks", zero=True)
    ] = 10.0
    bytes: Annotated[int, size("content-addressed values that its REST API keeps, together")] = 1024 * MIB


class HttpSection(Section):
    """The REST API."""

    durable: Annotated[
        bool, text("keep its jobs on disk, where a service or a request does not say otherwise", unit="flag")
    ] = True
    patience: Annotated[float, seconds("the longest time one request may wait for an answer or a job")] = 60.0
    slow: Annotated[
        float, seconds("how long a request's head may take, and next to nothing come of its body")
    ] = 10.0
    idle: Annotated[float, seconds("how long a connection without a request is kept")] = 30.0
    worker_idle: Annotated[
        float, seconds("how long a worker may be silent between two requests before it is given up")
    ] = 30.0
    connections: Annotated[
        int, count("connections at once; when it is reached, the address with most of them makes room")
    ] = 2000
    hosts: Annotated[
        list[str],
        text(
            "names in `Host` that the broker answers to, beside addresses, localhost and what it listens on: "
            "NAME, *.DOMAIN, or * for any",
            unit="host",
        ),
    ] = msgspec.field(default_factory=list)
    origins: Annotated[
        list[str],
        text(
            "web pages of other sites that may use the REST API (CORS): SCHEME://HOST[:PORT], or * for any",
            unit="origin",
        ),
    ] = msgspec.field(default_factory=list)
    trusted_proxies: Annotated[
        list[str],
        text(
            "addresses and networks of reverse proxies, whose `Forwarded` and `X-Forwarded-For` are believed",
            unit="network",
        ),
    ] = msgspec.field(default_factory=list)


class ServiceSection(Section):
    """How the jobs of a service are treated. What is not set comes from [defaults], then from the broker."""

    wait: Annotated[float, seconds("how long a job may wait for a worker", endless=True)] | None = None
    timeout: Annotated[float, seconds("how long one attempt may run", endless=True)] | None = None
    retries: Annotated[int, count("further attempts after a worker was lost", ge=0)] | None = None
    queue: Annotated[int, count("how many jobs may wait", ge=0)] | None = None
    durable: (
        Annotated[bool, text("keep its jobs on disk, and acknowledge them only then", unit="flag")] | None
    ) = None
    liveness_busy: (
        Annotated[
            int,
            count(
                "silent intervals after which a worker that holds a job is given up; 0: only one that was heard "
                "while busy before, after heartbeat.liveness, and others when the job's timeout is over",
                ge=0,
            ),
        ]
        | None
    ) = None
    backoff: (
        Annotated[float, seconds("pause before the second attempt, doubled for each further one", zero=True)]
        | None
    ) = None
    grace: (
        Annotated[
            float,
            seconds("after a restart, how long a running job's worker may take to come back", zero=True),
        ]
        | None
    ) = None
    retention: Annotated[float, seconds("how long a durable job's result is kept", endless=True)] | None = (
        None
    )
    ageing: (
        Annotated[
            float,
            seconds("a job that waited so long counts like one of the next higher priority", endless=True),
        ]
        | None
    ) = None
    memo: (
        Annotated[bool, text("answer a request that was answered before from memory, or disk", unit="flag")]
        | None
    ) = None
    memo_ttl: Annotated[float, seconds("how long such an answer is good", endless=True)] | None = None
    memo_bytes: Annotated[int, size("all answers that are kept for this service together")] | None = None
    wake_rule: (
        Annotated[
            Literal["idle", "least-loaded", "weighted"],
            text(
                "which WMP workers are woken first: the longest idle, the less loaded of two, by their label weight"
            ),
        ]
        | None
    ) = None
    wake_first: Annotated[int, count("WMP workers that one job wakes")] | None = None
    wake_widest: (
        Annotated[int, count("twice as many each time that none of them answers, up to this")] | None
    ) = None
    wake_patience: Annotated[float, seconds("how long they have to answer")] | None = None
    wake_labels: (
        Annotated[list[str], text("only WMP workers with these labels are woken: NAME=VALUE")] | None
    ) = None


class JoinSection(Section):
    """Other brokers that this one helps out: it offers them its idle workers, over WMP."""

    up: Annotated[list[str], text("URLs of brokers, wmp://HOST:PORT", restart=True, secret=True)] = (
        msgspec.field(default_factory=list)
    )


class StoreSection(Section):
    """Where durable jobs are kept."""

    url: Annotated[
        str,
        text("sqlite:///FILE, postgresql://…; empty: a file in broker.data", restart=True, secret=True),
    ] = ""
    sweep: Annotated[float, seconds("how often results that were kept long enough are removed")] = 60.0
    batch: Annotated[int, count("acknowledgements that may wait for the same commit", restart=True)] = 4096
    check: Annotated[
        float,
        seconds("how long a SQLite file is searched for damage after a start; 0: not at all", zero=True),
    ] = 10.0
    backlog: Annotated[
        int,
        size(
            "what may wait to be written: clients are held back from an eighth of it on, "
            "and durable jobs beyond it are refused"
        ),
    ] = 256 * MIB


class LedgerSection(Section):
    """What happened to every job, as Parquet files for Spark and others."""

    folder: Annotated[
        str,
        text(
            "where its segments are written; auto: the folder `ledger` in broker.data; empty: none are",
            restart=True,
        ),
    ] = ""
    roll: Annotated[float, seconds("a segment is finished after this time at the latest")] = 10.0
    rows: Annotated[int, count("or when it has so many rows")] = 250_000
    keep: Annotated[
        float, seconds("segments that are older are removed, read or not; 0: never", zero=True)
    ] = 30 * 86400.0
    bytes: Annotated[int, size("all segments together; beyond that the oldest are removed")] = 16384 * MIB


class SparkSection(Section):
    """The pipeline (`polydomo spark …`, `polydomo.spark`). The broker needs none of this."""

    master: Annotated[
        str, text("where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://…", secret=True)
    ] = "local[*]"
    ledger: Annotated[
        str,
        text("the ledger's folder, or its URL in an object store; empty: that of the broker", secret=True),
    ] = ""
    tables: Annotated[
        str, text("folder or URL of the tables; empty: the folder `tables` in broker.data", secret=True)
    ] = ""
    catalog: Annotated[
        str,
        text(
            "the Iceberg catalog: a database's URL (sqlite:///…, postgresql+psycopg://…), the URL of a REST "
            "catalog, or the name of one that pyiceberg is configured for; empty: a SQLite file beside the tables",
            secret=True,
        ),
    ] = ""
    catalog_options: Annotated[
        list[str], text("further properties of the catalog, KEY=VALUE", secret=True)
    ] = msgspec.field(default_factory=list)
    conf: Annotated[list[str], text("further settings of Spark, KEY=VALUE", secret=True)] = msgspec.field(
        default_factory=list
    )
    interval: Annotated[float, seconds("how often the stream looks for new segments")] = 10.0
    files: Annotated[int, count("segments in one batch of the stream, at most")] = 200
    slo: Annotated[
        list[str],
        text('objectives, each "SERVICE LATENCY PERCENT": that share of its jobs is done within that time'),
    ] = msgspec.field(default_factory=lambda: ["* 1s 99%"])


class InventorySection(Section):
    """What workers are told about themselves (`sid.service.broker`)."""

    file: Annotated[str, text("the main file, in norfab's layout; empty: none", restart=True)] = ""
    watch: Annotated[float, seconds("how often its files are looked at for changes; 0: never", zero=True)] = (
        2.0
    )


class FilesSection(Section):
    """Files for clients and workers (`fss.service.broker`, and norfab's service `filesharing`)."""

    folder: Annotated[str, text("the folder that is shared; empty: none", restart=True)] = ""
    transfers: Annotated[int, count("files that may be on their way at once")] = 64
    idle: Annotated[float, seconds("how long a transfer may wait for its client")] = 30.0


class LogSection(Section):
    """What the broker writes to stderr."""

    level: Annotated[Literal["debug", "info", "warning", "error"], text("the least that is worth a line")] = (
        "info"
    )
    format: Annotated[
        Literal["auto", "text", "json"], text("text for people, json for programs; auto: text on a terminal")
    ] = "auto"


class Settings(Section):
    """The whole configuration."""

    broker: BrokerSection = msgspec.field(default_factory=BrokerSection)
    heartbeat: HeartbeatSection = msgspec.field(default_factory=HeartbeatSection)
    limits: LimitsSection = msgspec.field(default_factory=LimitsSection)
    zmq: ZmqSection = msgspec.field(default_factory=ZmqSection)
    nfp: NfpSection = msgspec.field(default_factory=NfpSection)
    memodb: MemodbSection = msgspec.field(default_factory=MemodbSection)
    http: HttpSection = msgspec.field(default_factory=HttpSection)
    join: JoinSection = msgspec.field(default_factory=JoinSection)
    defaults: ServiceSection = msgspec.field(default_factory=ServiceSection)
    services: dict[str, ServiceSection] = msgspec.field(default_factory=dict)
    store: StoreSection = msgspec.field(default_factory=StoreSection)
    ledger: LedgerSection = msgspec.field(default_factory=LedgerSection)
    spark: SparkSection = msgspec.field(default_factory=SparkSection)
    inventory: InventorySection = msgspec.field(default_factory=InventorySection)
    files: FilesSection = msgspec.field(default_factory=FilesSection)
    log: LogSection = msgspec.field(default_factory=LogSection)

    def store_url(self) -> str:
        """Where durable jobs are kept; empty: nowhere."""
        if self.store.url or self.broker.data in ("", AUTO):
            return self.store.url
        return f"sqlite:///{self.broker.data}/jobs.db"

    def ledger_folder(self) -> str:
        """Where the ledger's segments are written; empty: nowhere."""
        if self.ledger.folder != AUTO:
            return self.ledger.folder
        return "" if self.broker.data in ("", AUTO) else f"{self.broker.data}/ledger"

    def secrets(self) -> Iterator[str]:
        """Yield the passwords and keys in the settings that may hold one."""
        for section in msgspec.structs.fields(Settings):
            if isinstance(section.type, type):
                for field in msgspec.structs.fields(section.type):
                    meta = getattr(field.type, "__metadata__", None)
                    if meta and meta[0].extra.get("secret"):
                        value = getattr(getattr(self, section.name), field.name)
                        for one in value if isinstance(value, list) else [value]:
                            yield from redaction.secrets_in(one)

    def bounds(self) -> BrokerLimits:
        """For the core."""
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
        """For the workers' liveness."""
        return Heartbeat(self.heartbeat.interval, self.heartbeat.liveness)

    def wire_limits(self) -> ConnectionLimits:
        """For each connection."""
        return ConnectionLimits(message_bytes=self.limits.message_bytes, frames=self.limits.frames)

    def policy(self) -> Policy:
        """For services without a section of their own."""
        return _policy(self.defaults, Policy())

    def policies(self) -> dict[bytes, Policy]:
        """By service name, or by prefix where the name ends in `*`."""
        default = self.policy()
        found = {parse_name(name): _policy(section, default) for name, section in self.services.items()}
        if self.files.folder:  # the broker does it itself: there is nothing to be kept for a worker
            found[b"filesharing"] = _policy(ServiceSection(durable=False), found.get(b"filesharing", default))
        return found


def _policy(section: ServiceSection, base: Policy) -> Policy:
    """A section's own values over those of `base`."""
    return Policy(
        wait=base.wait if section.wait is None else section.wait,
        timeout=base.timeout if section.timeout is None else section.timeout,
        retries=base.retries if section.retries is None else section.retries,
        queue=base.queue if section.queue is None else section.queue,
        durable=base.durable if section.durable is None else section.durable,
        backoff=base.backoff if section.backoff is None else section.backoff,
        grace=base.grace if section.grace is None else section.grace,
        retention=base.retention if section.retention is None else section.retention,
        ageing=base.ageing if section.ageing is None else section.ageing,
        volatile=base.volatile if section.durable is None else not section.durable,
        memo=base.memo if section.memo is None else section.memo,
        memo_ttl=base.memo_ttl if section.memo_ttl is None else section.memo_ttl,
        memo_bytes=base.memo_bytes if section.memo_bytes is None else section.memo_bytes,
        waking=_waking(section, base.waking),
        liveness_busy=base.liveness_busy if section.liveness_busy is None else section.liveness_busy,
    )


def in_effect(policy: Policy, name: str) -> object:
    """What a policy has for the setting `name` of a service."""
    if not name.startswith("wake_"):
        return getattr(policy, name)
    value = getattr(policy.waking, name.removeprefix("wake_"))
    return [f"{label}={meant}" for label, meant in value.items()] if isinstance(value, dict) else value


def _waking(section: ServiceSection, base: WakePolicy) -> WakePolicy:
    return WakePolicy(
        rule=section.wake_rule or base.rule,
        first=base.first if section.wake_first is None else section.wake_first,
        widest=base.widest if section.wake_widest is None else section.wake_widest,
        patience=base.patience if section.wake_patience is None else section.wake_patience,
        labels=base.labels if section.wake_labels is None else _labels(section.wake_labels),
    )


def _labels(texts: list[str]) -> dict[str, str]:
    """NAME=VALUE, by name."""
    found: dict[str, str] = {}
    for one in texts:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise ConfigError(f"{one!r} in wake_labels is not NAME=VALUE", hint="write gpu=true, or zone=a")
        found[name] = value
    return found
