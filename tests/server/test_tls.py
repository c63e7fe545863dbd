"""TLS listeners: HTTP with curl, SP with NNG's own TLS, our SDK, and peers that get no further than the handshake."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pynng
import pytest

from polydomo import Client, web
from polydomo.core.principals import CALL, Authority
from polydomo.errors import ConfigError, Unreachable
from polydomo.sdk.worker import Worker
from polydomo.security import audit_check
from polydomo.server.identification import certificate_error
from polydomo.server.security_settings import AuditSection, SecuritySection, TlsSection
from polydomo.server.server import BrokerServer
from polydomo.server.settings import BrokerSection, LimitsSection, Settings
from polydomo.server.tls_contexts import server_context
from tests.support import memo, tls
from tests.support.broker import BrokerProcess, wait_for
from tests.support.curl import need_curl
from tests.support.zmq_ends import patient

ANY_HTTPS = "https://127.0.0.1:*"
ANY_NNG = "tls+tcp://127.0.0.1:*"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tls.Authority:
    return tls.Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def files(authority: tls.Authority) -> tls.Issued:
    return authority.issue("127.0.0.1")


@pytest.fixture(scope="module")
def broker(authority: tls.Authority, files: tls.Issued) -> Iterator[BrokerProcess]:
    toml = f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\nclient_ca = "{authority.ca}"\n'
    toml += '[security]\nroles = "off"'
    with BrokerProcess(toml=toml, http=ANY_HTTPS, nng=ANY_NNG) as process:
        yield process
        assert "Traceback" not in process.log(), process.log()


def curl(url: str, authority: tls.Authority, *options: str) -> subprocess.CompletedProcess[str]:
    need_curl()
    command = ["curl", "-sS", "-m", "20", "--cacert", authority.ca, *options, url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_endpoints_say_that_they_have_tls(broker: BrokerProcess) -> None:
    assert broker.http.startswith("https://127.0.0.1:")
    assert broker.nng.startswith("tls+tcp://127.0.0.1:")


def test_curl_gets_small_and_large_answers(broker: BrokerProcess, authority: tls.Authority) -> None:
    assert curl(f"{broker.http}/healthz", authority).stdout
    assert len(curl(f"{broker.http}/openapi.json", authority).stdout) > 20_000


def test_curl_without_the_authority_gets_nothing(broker: BrokerProcess, tmp_path: Path) -> None:
    found = curl(f"{broker.http}/healthz", tls.Authority(tmp_path))
    assert found.returncode == 60  # curl's code for a certificate that is not trusted
    assert not found.stdout


def test_plain_http_on_a_tls_port_is_refused_and_logged(
    broker: BrokerProcess, authority: tls.Authority
) -> None:
    found = curl(broker.http.replace("https:", "http:") + "/healthz", authority)
    assert found.returncode
    assert not found.stdout
    wait_for(lambda: "the peer speaks HTTP without TLS" in broker.log())


def test_a_refused_request_is_answered_before_the_connection_ends(
    broker: BrokerProcess, authority: tls.Authority
) -> None:
    """The server half-closes such connections."""
    found = curl(f"{broker.http}/healthz", authority, "-H", f"x: {'x' * 70_000}", "-w", "%{http_code}")
    assert found.stdout.endswith("431")
    assert "head-too-large" in found.stdout


def nng_tls(authority: tls.Authority, files: tls.Issued | None = None) -> pynng.TLSConfig:
    return pynng.TLSConfig(
        pynng.TLSConfig.MODE_CLIENT,
        server_name="127.0.0.1",
        ca_files=[authority.ca],
        cert_key_file=files and joined(files),
    )


def joined(files: tls.Issued) -> str:
    """Return the file with both parts that NNG wants."""
    path = Path(files.certificate).with_suffix(".both")
    path.write_text(Path(files.key).read_text() + Path(files.certificate).read_text())
    return str(path)


def test_nng_peers_work_over_tls(broker: BrokerProcess, authority: tls.Authority) -> None:
    with pynng.Req0(tls_config=nng_tls(authority), recv_timeout=20_000) as client:
        client.dial(broker.nng, block=True)
        client.send(memo.job("mmi.service.broker", b"show_broker"))
        shown = json.loads(memo.unpack(client.recv()).payload)
    assert shown["nng"]["bound"] == [broker.nng]


@pytest.mark.parametrize("size", [0, 70_000, 3_000_000])
async def test_our_own_client_and_worker_meet_over_tls(
    broker: BrokerProcess, authority: tls.Authority, size: int
) -> None:
    url = f"{broker.nng.replace('tls+tcp:', 'memo+tls:')}?ca={authority.ca}"
    worker = Worker(url, grace=0.1)
    worker.add(f"echo{size}", lambda body: body, codec="raw")
    running = asyncio.create_task(worker.run())
    async with Client(url) as client:
        body = b"x" * size
        assert await client.call(f"echo{size}", body, codec="raw", timeout=20) == body
    if size:
        assert await echoed(broker, authority, f"echo{size}", body) == body
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def echoed(broker: BrokerProcess, authority: tls.Authority, service: str, body: bytes) -> bytes:
    """Return the answer to a job that curl submits."""
    need_curl()
    curl = await asyncio.create_subprocess_exec(
        *("curl", "-sS", "-m", "20", "--cacert", authority.ca, "-H", "Prefer: wait", "--data-binary", "@-"),
        *("-H", "content-type: application/octet-stream", f"{broker.http}/v1/services/{service}/jobs"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    answer, _ = await curl.communicate(body)
    return answer


async def test_our_own_client_says_why_it_gets_no_connection(broker: BrokerProcess, tmp_path: Path) -> None:
    place = broker.nng.replace("tls+tcp:", "memo+tls:")
    stranger = tls.Authority(tmp_path)
    with pytest.raises(Unreachable, match="the peer's certificate is refused"):
        async with Client(f"{place}?ca={stranger.ca}", connect_timeout=0.5) as client:
            await client.call("echo", b"", timeout=1)
    with pytest.raises(ConfigError, match="cannot read"):
        async with Client(f"{place}?ca={tmp_path}/missing", connect_timeout=0.5) as client:
            await client.call("echo", b"", timeout=1)


def test_a_renewed_certificate_is_used_after_sighup(tmp_path: Path) -> None:
    """A broker of its own: the certificate of the shared one is in use."""
    authority = tls.Authority(tmp_path)
    first = authority.issue("127.0.0.1", name="in-use")
    toml = f'[tls]\ncertificate = "{first.certificate}"\nkey = "{first.key}"'

    def in_use() -> bytes:
        place = broker.http.removeprefix("https://").split(":")
        with (
            socket.create_connection((place[0], int(place[1])), 10) as sock,
            authority.client_context().wrap_socket(sock, server_hostname="127.0.0.1") as secure,
        ):
            return secure.getpeercert(True) or b""

    with BrokerProcess(toml=toml, http=ANY_HTTPS) as broker:
        before = in_use()
        Path(first.key).write_text("")
        broker.signal(signal.SIGHUP)
        wait_for(lambda: "the old certificate stays in use" in broker.log())
        assert in_use() == before
        authority.issue("127.0.0.1", name="in-use")
        broker.signal(signal.SIGHUP)
        wait_for(lambda: in_use() != before)


# In this process: principals, limits and mistakes


class Calls(Authority):
    """An authority that allows everything, and the principals whose calls it allowed."""

    def __init__(self) -> None:
        self.callers: dict[bytes, str] = {}  # by service

    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        if verb == CALL:
            self.callers[service] = principal
        return True


Start = Callable[..., Any]


@pytest.fixture
async def start(authority: tls.Authority, files: tls.Issued, tmp_path: Path) -> AsyncIterator[Start]:
    """Start a broker with these limits, and its audit log in `tmp_path`."""
    started: list[BrokerServer] = []

    async def start(clients: str = "optional", **limits: Any) -> BrokerServer:
        section = TlsSection(
            certificate=files.certificate, key=files.key, client_ca=authority.ca, clients=clients
        )
        places = BrokerSection(zmq=["tcp://127.0.0.1:*"], nng=[ANY_NNG], http=[ANY_HTTPS], data="")
        places.nng.append(f"{ANY_NNG}?principal=legacy")
        settings = Settings(
            broker=places,
            tls=section,
            limits=LimitsSection(**limits),
            security=SecuritySection(roles="off"),
            audit=AuditSection(folder=str(tmp_path / "audit")),
        )
        server = BrokerServer(settings, [web.join])
        await server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop(drain=False)
        await server.wait()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def refused(folder: Path) -> list[str]:
    """Return the reasons of the refused peers in the audit log."""
    records = list(audit_check.read(folder / "audit"))
    return [record.reason for record in records if record is not None and record.action == "authentication"]


def place_of(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition("://")[2].rpartition(":")
    return host, int(port)


@patient
async def test_a_client_certificate_names_the_principal(start: Start, authority: tls.Authority) -> None:
    server = await start()
    calls = Calls()
    server.broker.principals.use(calls)
    named = authority.issue(common_name="shop 1")
    for number, (listener, shown, principal) in enumerate(
        [
            (0, named, "cert:shop 1"),
            (0, None, "anonymous"),
            (1, named, "cert:shop 1"),
            (1, None, "legacy"),
        ]
    ):
        with pynng.Req0(tls_config=nng_tls(authority, shown)) as client:
            client.dial(server.nng.bound[listener], block=False)
            await client.asend(memo.job(f"nng{number}"))
            await until(lambda: f"nng{number}".encode() in calls.callers)  # noqa: B023
        assert calls.callers[f"nng{number}".encode()] == principal
    for service, shown, principal in ((b"by-cert", named, "cert:shop 1"), (b"without", None, "anonymous")):
        _, writer = await asyncio.open_connection(
            *place_of(server.endpoints()["http"][0]), ssl=authority.client_context(shown)
        )
        writer.write(
            b"POST /v1/services/%b/jobs?durable=false HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            b"content-length: 0\r\n\r\n" % service
        )
        await until(lambda: service in calls.callers)  # noqa: B023
        writer.close()
        assert calls.callers[service] == principal


@patient
async def test_clients_without_a_certificate_are_refused_if_one_is_required(
    start: Start, authority: tls.Authority, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    server = await start("required")
    place = place_of(server.endpoints()["http"][0])
    health = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection(*place, ssl=authority.client_context())
    writer.write(health)
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        await reader.read()
    writer.transport.abort()
    await until(lambda: "the peer has no client certificate" in caplog.text)
    await until(lambda: refused(tmp_path) == ["the peer has no client certificate"])
    named = authority.issue(common_name="shop")
    reader, writer = await asyncio.open_connection(*place, ssl=authority.client_context(named))
    writer.write(health)
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


@patient
async def test_a_certificate_that_names_nobody_is_refused(
    start: Start, authority: tls.Authority, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    server = await start()
    nameless = authority.issue(name="nameless")
    reader, writer = await asyncio.open_connection(
        *place_of(server.endpoints()["http"][0]), ssl=authority.client_context(nameless)
    )
    assert await reader.read() == b""
    writer.close()
    await until(lambda: "does not have exactly one common name" in caplog.text)
    await until(lambda: "does not have exactly one common name" in "".join(refused(tmp_path)))


@patient
async def test_tls_handshakes_count_as_unauthenticated_and_expire(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start(unauthenticated=2, handshake=0.5)
    places = [server.endpoints()["http"][0], *server.nng.bound]
    silent = [await asyncio.open_connection(*place_of(place)) for place in places]
    await until(lambda: "made room for others" in caplog.text)
    assert len(server.handshakes) == 2
    for reader, writer in silent:
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
    assert "no TLS handshake within 0.5 s" in caplog.text
    assert not len(server.handshakes)


@patient
async def test_a_slow_reader_is_noticed_through_tls(start: Start, authority: tls.Authority) -> None:
    """The bytes of its answers count although they are encrypted and passed on."""
    server = await start()
    (connection,) = [
        await asyncio.open_connection(
            *place_of(server.nng.bound[0]), ssl=authority.client_context(), limit=1024
        )
    ]
    connection[1].write(b"\0SP\0\0\x30\0\0")
    await until(lambda: server.nng.peers)
    (peer,) = server.nng.peers
    peer.output.write(bytes(8 << 20))
    assert peer.backlog is not None
    assert peer.backlog.unsent > 1 << 20
    connection[1].transport.abort()
    await until(lambda: not server.nng.peers)


async def test_a_listener_with_tls_needs_a_certificate() -> None:
    server = BrokerServer(Settings(broker=BrokerSection(zmq=["tcp://127.0.0.1:*"], nng=[ANY_NNG], data="")))
    with pytest.raises(ConfigError, match="there is no certificate") as caught:
        await server.start()
    assert "tls.certificate" in caught.value.advice


def test_mistakes_in_the_files_are_explained(
    tmp_path: Path, authority: tls.Authority, files: tls.Issued
) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-in", files.key, "-aes256", "-passout", "pass:secret", "-out"]
    subprocess.run([*command, str(encrypted)], check=True)
    other = authority.issue("127.0.0.1", name="other")
    for section, message in (
        (TlsSection(certificate=f"{tmp_path}/missing.pem"), "cannot read .*missing.pem: No such file"),
        (TlsSection(certificate=str(garbage)), "no certificate with its key in .*garbage.pem"),
        (TlsSection(certificate=files.certificate), "no certificate with its key"),
        (TlsSection(certificate=files.certificate, key=other.key), "KEY_VALUES_MISMATCH"),
        (TlsSection(certificate=files.certificate, key=str(encrypted)), "the key has a password"),
        (
            TlsSection(certificate=files.certificate, key=files.key, clients="required"),
            "no authority is known",
        ),
        (
            TlsSection(certificate=files.certificate, key=files.key, client_ca=str(garbage)),
            "no certificates in .*garbage.pem",
        ),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            server_context(section)
        assert caught.value.advice


def test_only_one_printable_common_name_names_a_principal() -> None:
    def subject(*names: str) -> dict[str, Any]:
        return {"subject": tuple((("commonName", name),) for name in names)}

    assert certificate_error(None) == certificate_error({}) == certificate_error(subject("x")) == ""
    for names in ((), ("a", "b"), ("",), ("line\nbreak",), ("x" * 65,)):
        assert "common name" in certificate_error({"version": 3} | subject(*names))
