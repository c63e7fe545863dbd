"""Secrets of the configuration: canaries in every setting that can hold one, looked for wherever something is shown."""

from __future__ import annotations

import io
import json
import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog

from polydomo import SyncClient, redaction
from polydomo.errors import ConfigError
from polydomo.server import config, log
from polydomo.server.config import Flag
from polydomo.server.setting_keys import KEYS, Key
from polydomo.server.settings import LogSection, Settings
from polydomo.store import open_store
from polydomo.store.errors import StoreError
from tests.cli.support import here, run
from tests.support.broker import BrokerProcess, wait_for

CANARY = "c4n4ry-S3cret"

# A value with the canary in it, for every setting that is declared to hold secrets.
VALUES: dict[str, str | list[str]] = {
    "store.url": f"postgresql://anna:{CANARY}@127.0.0.1:1/jobs?sslpassword={CANARY}",
    "join.up": [f"wmp://anna:{CANARY}@127.0.0.1:1"],
    "spark.master": f"k8s://https://anna:{CANARY}@127.0.0.1:1",
    "spark.ledger": f"s3a://AKIA:{CANARY}@bucket/ledger",
    "spark.tables": f"s3a://AKIA:{CANARY}@bucket/tables",
    "spark.catalog": f"postgresql+psycopg://anna:{CANARY}@127.0.0.1:1/tables",
    "spark.catalog_options": [f"s3.secret-access-key={CANARY}", f"token={CANARY}"],
    "spark.conf": [f"spark.hadoop.fs.s3a.secret.key={CANARY}", f"spark.a=jdbc:x?password={CANARY}"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield tmp_path
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_every_setting_for_a_url_or_options_is_declared_to_hold_secrets() -> None:
    """A new one must say `secret=True`, and have a canary above."""

    def may_hold_one(key: Key) -> bool:
        return (
            key.section != "oidc"
            and key.unit == "text"
            and any(  # its keys are public
                word in key.doc for word in ("URL", "://", "KEY=VALUE", "password", "token")
            )
        )

    assert {key.path for key in KEYS.values() if key.secret} == VALUES.keys()
    assert {key.path for key in KEYS.values() if may_hold_one(key)} <= VALUES.keys()


@pytest.mark.parametrize("path", VALUES)
@pytest.mark.parametrize("source", ["file", "environment", "flag"])
def test_config_show_masks_the_secret(path: str, source: str, folder: Path) -> None:
    section, _, name = path.partition(".")
    value = VALUES[path]
    environ = {}
    if source == "environment":
        environ[KEYS[path].variable] = ",".join(value) if isinstance(value, list) else value
    elif source == "file":
        Path("polydomo.toml").write_text(f"[{section}]\n{name} = {json.dumps(value)}\n")
    else:
        rows = config.rows(config.gather(None, [Flag("--set", path, value)], {}))
        assert CANARY not in repr(rows)
    for form in ([], ["--json"], ["--docs"]):
        done = here("config", "show", *form, env=environ)
        assert done.exit_code == 0
        assert CANARY not in done.output
        if source != "flag":
            assert redaction.MASK in done.output


def test_doctor_masks_the_secret_of_the_environment(folder: Path) -> None:
    environ = {
        KEYS[path].variable: ",".join(value) if isinstance(value, list) else value
        for path, value in VALUES.items()
    }
    done = here("doctor", "--json", "--url", f"mdp://anna:{CANARY}@127.0.0.1:1", env=environ)
    assert done.exit_code in (1, 2)
    assert CANARY not in done.output
    done = here("spark", "doctor", "--no-job", env=environ)
    assert CANARY not in done.output
    assert CANARY not in done.stderr


@pytest.mark.parametrize(
    ("toml", "environ"),
    [
        (f'[store]\nurll = "postgresql://anna:{CANARY}@db/x"', {}),
        (f'[store]\npassword = "{CANARY}"', {}),
        (f'store = "postgresql://anna:{CANARY}@db/x"', {}),
        (f'[stor]\nurl = "{CANARY}"', {}),
        (f'[store]\nurl = ["postgresql://anna:{CANARY}@db/x"]', {}),
        (f'[spark]\nconf = ["spark.password={CANARY}", "spark.password={CANARY}"]', {}),
        (f'[broker]\nzmq = ["tcp://anna:{CANARY}@:x"]', {}),
        (f'[services.echo]\ntoken = "{CANARY}"', {}),
        ("", {"POLYDOMO_STORE_PASSWORD": CANARY}),
        ("", {"POLYDOMO_STORE_URLL": f"postgresql://anna:{CANARY}@db/x"}),
    ],
)
def test_a_mistake_in_the_configuration_is_told_without_the_secret(
    toml: str, environ: dict[str, str], folder: Path
) -> None:
    Path("polydomo.toml").write_text(toml)
    for words in (["config", "check"], ["config", "check", "--json"], ["config", "show"]):
        done = here(*words, env=environ)
        assert done.exit_code in (1, 2)
        assert CANARY not in done.output
        assert CANARY not in done.stderr


def test_the_errors_of_store_and_configuration_are_without_the_secret() -> None:
    for url in (
        f"postgresql://anna:{CANARY}/x@127.0.0.1:1/jobs",
        f"postgresql://anna:{CANARY}%zz@127.0.0.1/jobs",
        f"mysql://anna:{CANARY}@db/x",
    ):
        redaction.learn(redaction.secrets_in(url))
        with pytest.raises(StoreError) as caught:
            open_store(url, lambda call: None).close()
        assert CANARY not in str(caught.value)
    assert CANARY not in str(ConfigError(f"cannot open the catalog https://catalog?token={CANARY}"))


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_library_that_quotes_a_secret_is_cleaned_in_the_log(form: str) -> None:
    settings = msgspec.convert({"store": {"url": VALUES["store.url"]}}, Settings)
    redaction.learn(config.secrets(settings))
    stream = io.StringIO()
    log.setup(LogSection(format=form), stream)  # type: ignore[arg-type]
    log.recent.clear()
    log.Log().warning(f"said {CANARY}", reason=ValueError(f"<{CANARY}>"), many=[CANARY], deep={"a": CANARY})
    logging.getLogger("psycopg").warning("connecting with %r", {"password": CANARY})
    try:
        raise RuntimeError(f"conninfo {CANARY}")
    except RuntimeError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved")
    assert CANARY not in stream.getvalue()
    assert stream.getvalue().count(redaction.MASK) >= 6
    assert CANARY not in repr(list(log.recent))


def test_a_running_broker_tells_its_secrets_to_nobody(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Log, catalogue, REST, metrics and ledger of a real broker whose settings are full of canaries."""
    for path in ("spark.catalog", "spark.catalog_options", "spark.conf", "spark.tables"):
        value = VALUES[path]
        monkeypatch.setenv(KEYS[path].variable, ",".join(value) if isinstance(value, list) else value)
    store = f"sqlite:///{folder}/jobs.db?password={CANARY}"
    toml = f'[store]\nurl = "{store}"\n[ledger]\nfolder = "auto"\nroll = "100ms"\n'
    with BrokerProcess("--log-level", "debug", toml=toml, http=True) as broker:
        tasks = ("show_broker", "get_logs", "get_status", "get_stats", "show_broker_inventory")
        with SyncClient(broker.endpoint.replace("tcp://", "mdp://")) as client:
            shown = [json.dumps(client.call("mmi.service.broker", {"task": task})) for task in tasks]
        assert "keeping durable jobs" in shown[1]
        for path in ("/metrics", "/v1/broker", "/healthz", "/readyz", "/v1/services", "/v1/workers"):
            try:
                with urllib.request.urlopen(f"http://{broker.http}{path}", timeout=10) as found:
                    shown.append(found.read().decode())
            except urllib.error.HTTPError as error:
                shown.append(error.read().decode())
        wait_for(lambda: list((broker.data / "ledger" / "events").glob("[!.]*.parquet")))
        assert broker.stop() == 0
        written = b"".join(path.read_bytes() for path in broker.data.rglob("*.parquet"))
        for text in [*shown, broker.log(), written.decode("latin-1")]:
            assert CANARY not in text
        assert f"password={redaction.MASK}" in broker.log()


def test_a_broker_that_cannot_start_does_not_tell_the_password(folder: Path) -> None:
    for environ in (
        {"POLYDOMO_STORE_URL": f"postgresql://anna:{CANARY}%zz@127.0.0.1:1/jobs", "POLYDOMO_DEBUG": "1"},
        {"POLYDOMO_JOIN_UP": f"wmp://anna:{CANARY}@127.0.0.1:x"},
    ):
        done = run("broker", "--zmq", "tcp://127.0.0.1:*", "--data", str(folder / "data"), env=environ)
        assert done.returncode != 0
        assert CANARY not in done.stdout + done.stderr
