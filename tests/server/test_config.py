"""Settings from a file, the environment and flags; every mistake told with its place."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from polydomo.core.principals import UNLIMITED
from polydomo.errors import ConfigError
from polydomo.server import config, units
from polydomo.server.config import ConfigProblem, Flag
from polydomo.server.setting_keys import KEYS, SERVICE_KEYS, show
from polydomo.server.settings import Settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No polydomo.toml of the developer's is near."""
    monkeypatch.chdir(tmp_path)


def gather(
    toml: str = "", environ: dict[str, str] | None = None, flags: list[Flag] | None = None
) -> config.Config:
    path = None
    if toml:
        Path("given.toml").write_text(toml, encoding="utf-8")
        path = "given.toml"
    return config.gather(path, flags or [], environ or {})


def only_problem(**given: Any) -> ConfigProblem:
    found = gather(**given)
    assert len(found.problems) == 1, found.problems
    return found.problems[0]


# Values


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (2, 2.0),
        (0.25, 0.25),
        ("2.5", 2.5),
        ("250ms", 0.25),
        ("10s", 10.0),
        ("1.5s", 1.5),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1m30s", 90.0),
        ("1h 30m", 5400.0),
        (" 10 S ", 10.0),
        ("forever", math.inf),
    ],
)
def test_a_duration_is_seconds_or_a_number_with_a_unit(text: object, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "10 parsecs", "1s1", True, None, [], math.nan])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (1024, 1024),
        ("1024", 1024),
        ("10B", 10),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("64MiB", 64 * 1024**2),
        ("1.5GiB", 1536 * 1024**2),
        ("1GB", 10**9),
        ("2kB", 2000),
        ("1TiB", 1024**4),
    ],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(text: object, number: int) -> None:
    assert units.parse_size(text) == number


@pytest.mark.parametrize("text", ["", "MiB", "1 potato", "64M", 1.5, True, "inf"])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError):
        units.parse_size(text)


# Precedence


def test_without_anything_the_defaults_apply() -> None:
    found = gather()
    assert found.settings == Settings()
    assert (found.sources, found.problems, found.file) == ({}, [], "")


def test_flags_win_over_the_environment_which_wins_over_the_file() -> None:
    found = gather(
        '[heartbeat]\ninterval = "1s"\nliveness = 2\n[broker]\nname = "file"',
        {"POLYDOMO_HEARTBEAT_INTERVAL": "500ms", "POLYDOMO_HEARTBEAT_LIVENESS": "7"},
        [Flag("--heartbeat", "heartbeat.interval", "250ms")],
    )
    assert found.settings.heartbeat.interval == 0.25
    assert found.settings.heartbeat.liveness == 7
    assert found.settings.broker.name == "file"
    assert found.sources == {
        "heartbeat.interval": "--heartbeat",
        "heartbeat.liveness": "POLYDOMO_HEARTBEAT_LIVENESS",
        "broker.name": "given.toml:5",
    }


def test_every_setting_has_a_variable_and_a_flag() -> None:
    words = {
        "endpoint": "tcp://h:1",
        "address": "h:1",
        "nng": "tls+tcp://h:1",
        "flag": "true",
        "origin": "http://h",
        "network": "10.0.0.0/8",
        "algorithm": "ES256",
    }
    for key in KEYS.values():
        value = key.choices[0] if key.choices else words.get(key.unit, "17")
        by_variable = gather(environ={key.variable: value})
        by_flag = gather(flags=[Flag("--set", key.path, value)])
        assert by_variable.sources == {key.path: key.variable}
        assert by_flag.sources == {key.path: "--set"}
        assert by_variable.settings == by_flag.settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("http.hosts", "broker.example:8080"),
        ("http.hosts", "a.*.example"),
        ("http.origins", "dashboard.example"),
        ("http.origins", "https://dashboard.example/path"),
        ("http.trusted_proxies", "proxy.example"),
        ("http.trusted_proxies", "10.0.0.0/40"),
    ],
)
def test_names_origins_and_networks_are_checked(key: str, value: str) -> None:
    (problem,) = gather(flags=[Flag("--set", key, value)]).problems
    assert "such as" in str(problem)


def test_every_setting_is_documented() -> None:
    for key in [*KEYS.values(), *SERVICE_KEYS.values()]:
        assert key.doc
        assert key.allowed


def test_lists_in_the_environment_are_separated_by_commas() -> None:
    found = gather(environ={"POLYDOMO_BROKER_ZMQ": "tcp://127.0.0.1:1, ipc:///tmp/x ,"})
    assert found.settings.broker.zmq == ["tcp://127.0.0.1:1", "ipc:///tmp/x"]


def test_an_empty_variable_counts_as_not_set() -> None:
    assert gather(environ={"POLYDOMO_HEARTBEAT_INTERVAL": "", "POLYDOMO_CONFIG": ""}).settings == Settings()


def test_the_file_in_the_current_folder_is_used_if_there_is_one() -> None:
    Path("polydomo.toml").write_text('[broker]\nname = "here"')
    found = gather()
    assert (found.settings.broker.name, found.file) == ("here", "polydomo.toml")


def test_the_variable_names_the_file_and_the_flag_wins_over_it() -> None:
    Path("polydomo.toml").write_text('[broker]\nname = "here"')
    Path("other.toml").write_text('[broker]\nname = "other"')
    environ = {"POLYDOMO_CONFIG": "other.toml"}
    assert gather(environ=environ).settings.broker.name == "other"
    assert gather('[broker]\nname = "flag"', environ).settings.broker.name == "flag"


# Services


def test_services_by_name_and_by_prefix() -> None:
    found = gather(
        '[defaults]\nretries = 5\n[services."math.add"]\ntimeout = "5m"\n[services."m*"]\nwait = "forever"',
        flags=[Flag("--set", "services.math.add.queue", "9"), Flag("--set", 'services."x".retries', "0")],
    )
    assert not found.problems
    policies = found.settings.policies()
    add, prefix, x = policies[b"math.add"], policies[b"m*"], policies[b"x"]
    assert (add.timeout, add.retries, add.queue, add.wait) == (300, 5, 9, 60)
    assert (prefix.wait, prefix.retries) == (math.inf, 5)
    assert x.retries == 0
    assert found.sources['services."math.add".queue'] == "--set"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[services."a*b"]\nwait = 1', "only at its end"),
        ('[services.""]\nwait = 1', "1 to 255 bytes"),
        ("[services.echo]\nwiat = 1", "no such setting"),
        ("[services.echo]\nretries = -1", "0 or more"),
        ("[services]\necho = 3", "a service's name"),
    ],
)
def test_mistakes_in_services(toml: str, said: str) -> None:
    assert said in only_problem(toml=toml).message


# Roles, principals and quotas


def test_roles_principals_and_quotas() -> None:
    found = gather(
        '[roles.resizer]\nserve = ["resize", "mail.*@eu-*"]\n[principals]\n"shop-*" = ["resizer", "observer"]\n'
        '[quotas."shop-*"]\nrate = 2.5\nbytes = "1MiB"',
        flags=[
            Flag("--set", "roles.resizer.call", "a,b"),
            Flag("--set", "principals.cert:a.b", "admin"),
            Flag("--set", 'quotas."shop-*".jobs', "7"),
        ],
    )
    assert not found.problems
    settings = found.settings
    resizer = settings.roles["resizer"]
    assert [(grant.verb, *grant[1:]) for grant in resizer.parsed()] == [
        ("call", "a", "*"),
        ("call", "b", "*"),
        ("serve", "resize", "*"),
        ("serve", "mail.*", "eu-*"),
    ]
    assert settings.principals == {"shop-*": ["resizer", "observer"], "cert:a.b": ["admin"]}
    quota = settings.quotas["shop-*"].quota()
    assert (quota.rate, quota.jobs, quota.memory) == (2.5, 7, 1024**2)
    assert quota.stored == quota.connections == UNLIMITED
    assert found.sources['principals."shop-*"'] == "given.toml:4"
    assert found.sources['roles."resizer".serve'] == "given.toml:2"
    rows = {row.key: (row.value, row.source) for row in config.rows(found)}
    assert rows['principals."shop-*"'] == ("resizer, observer", "given.toml:4")
    assert rows['roles."resizer".call'] == ("a, b", "--set")
    assert rows['quotas."shop-*".bytes'] == ("1MiB", "given.toml:7")


@pytest.mark.parametrize(
    ("toml", "place", "said", "hint"),
    [
        ('[roles.a]\ncal = ["x"]', 2, "no such verb", "did you mean call?"),
        ("[roles.a]\ncall = []", 2, "at least one", ""),
        ('[roles.a]\ncall = ["@w"]', 2, "resize@WORKER", ""),
        ('[roles.a]\ncall = ["x@"]', 2, "resize@WORKER", ""),
        ('[roles.a]\ncall = ["x", "x"]', 2, "listed twice", ""),
        ('[roles.admin]\ncall = ["x"]', 1, "built-in role", ""),
        ("[roles.client]", 1, "built-in role", ""),
        ('[roles."a b"]\ncall = ["x"]', 1, "a role's name", ""),
        ("[roles]\na = 3", 2, "is a role's name", 'write [roles."a"]'),
        ('[principals]\nann = ["clint"]', 2, "no such role", "did you mean client?"),
        ('[roles.resizer]\n[principals]\nann = ["resize"]', 3, "no such role", "did you mean resizer?"),
        ("[principals]\nann = 3", 2, "names of roles", ""),
        ('[principals]\n"a b" = ["client"]', 2, "a principal's name", ""),
        ('[principals]\n"ldap:ann" = ["client"]', 2, "user:NAME, cert:NAME, oidc:NAME", ""),
        ('[principals]\n"user:" = ["client"]', 2, "user:NAME", ""),
        ("[quotas.ann]\nrate = 0", 2, "above 0", ""),
        ('[quotas.ann]\nrate = "nan"', 2, "above 0", ""),
        ("[quotas.ann]\njob = 1", 2, "no such setting", "did you mean jobs?"),
        ('[quotas."a b"]\njobs = 1', 1, "a principal's name", ""),
        ('[security]\nroles = "of"', 2, "auto, on, off", "did you mean off?"),
    ],
)
def test_mistakes_in_roles_principals_and_quotas(toml: str, place: int, said: str, hint: str) -> None:
    problem = only_problem(toml=toml)
    assert problem.where == f"given.toml:{place}"
    assert said in problem.message
    assert problem.hint == hint


def test_roles_apply_once_peers_authenticate_or_a_principal_has_one() -> None:
    entry = '[principals]\nann = ["client"]\n'
    for toml, apply in [
        ("", False),
        ('[roles.a]\ncall = ["x"]', False),
        (entry, True),
        ('[security]\ncurve = "on"', True),
        (entry + '[security]\nroles = "off"', False),
        ('[security]\nroles = "on"', True),
    ]:
        assert gather(toml).settings.roles_apply() is apply, toml


# Mistakes


def test_all_mistakes_are_told_at_once_each_with_its_place() -> None:
    found = gather(
        '[broker]\nnmae = "x"\n\n[heartbeat]\ninterval = 0\n[log]\nlevel = "inof"\n[limit]\nx = 1',
        {"POLYDOMO_LIMITS_FRAMES": "many"},
        [Flag("--drain", "broker.drain", "soon")],
    )
    assert [(problem.where, problem.key, problem.value) for problem in found.problems] == [
        ("given.toml:2", "broker.nmae", ""),  # who knows what it was meant to be
        ("given.toml:5", "heartbeat.interval", "0"),
        ("given.toml:7", "log.level", '"inof"'),
        ("given.toml:8", "limit", ""),
        ("POLYDOMO_LIMITS_FRAMES", "limits.frames", '"many"'),
        ("--drain", "broker.drain", '"soon"'),
    ]
    assert [problem.hint for problem in found.problems[:4]] == [
        "did you mean name?",
        "",
        "did you mean info?",
        "did you mean limits?",
    ]
    assert found.settings == Settings()
    with pytest.raises(ConfigError) as raised:
        found.checked()
    assert raised.value.message.count("\n") == len(found.problems) - 1


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("heartbeat.interval", "0", "above 0"),
        ("heartbeat.interval", "-1", "above 0"),
        ("heartbeat.interval", "forever", "forever is not allowed"),
        ("heartbeat.interval", "soon", "250ms"),
        ("heartbeat.liveness", "0", "1 or more"),
        ("heartbeat.liveness", "1.5", "whole number"),
        ("limits.memory", "64M", "64MiB"),
        ("limits.memory", "0", "bytes"),
        ("broker.drain", "-1s", "0 or more"),
        ("broker.zmq", "http://x", "'http://x' is not an endpoint"),
        ("broker.zmq", "tcp://h:99999", "tcp://127.0.0.1:5555"),
        ("broker.zmq", "tcp://h:1,tcp://h:1", "twice"),
        ("broker.zmq", ",", "at least one"),
        ("zmq.duplicate_identity", "fight", "probe, refuse"),
        ("log.format", "xml", "auto, text, json"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(key: str, value: str, said: str) -> None:
    problem = only_problem(flags=[Flag("--set", key, value)])
    assert problem.key == key
    assert said in problem.message


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("[broker]\nname = 3", "broker.name"),
        ('[broker]\nzmq = "tcp://h:1"\ndrain = true', "broker.drain"),
        ("[broker]\nzmq = [1]", "broker.zmq"),
        ("[limits]\nframes = [1]", "limits.frames"),
        ("heartbeat = 3", "heartbeat"),
    ],
)
def test_a_value_of_the_wrong_type(toml: str, key: str) -> None:
    assert only_problem(toml=toml).key == key


def test_zero_is_allowed_where_it_means_something() -> None:
    found = gather(
        "[broker]\ndrain = 0\n[limits]\nclient_grace = 0\n[zmq]\nping = 0\n[defaults]\nretries = 0"
    )
    assert not found.problems


def test_any_number_of_listeners_on_ports_the_system_chooses() -> None:
    assert not gather('[broker]\nzmq = ["tcp://127.0.0.1:*", "tcp://127.0.0.1:*"]').problems


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"environ": {"POLYDOMO_CONFIG": "gone.toml"}}, "named by POLYDOMO_CONFIG"),
        ({"toml": "[broker"}, "is not TOML"),
        ({"toml": "x ="}, "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_read(given: dict[str, Any], said: str) -> None:
    assert said in only_problem(**given).message


def test_a_file_that_is_not_text() -> None:
    Path("polydomo.toml").write_bytes(b"\xff\xfe")
    assert "UTF-8" in only_problem().message


def test_a_variable_that_looks_like_a_setting_but_is_none() -> None:
    problem = only_problem(environ={"POLYDOMO_HEARTBEAT_INTERVL": "3"})
    assert problem.where == "POLYDOMO_HEARTBEAT_INTERVL"
    assert problem.hint == "did you mean POLYDOMO_HEARTBEAT_INTERVAL?"
    assert "in the file" in only_problem(environ={"POLYDOMO_SERVICES_ECHO_WAIT": "3"}).hint
    assert "in the file" in only_problem(environ={"POLYDOMO_PRINCIPALS_ANN": "client"}).hint


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes adds the first three beside a service called polydomo-broker."""
    names = [
        "POLYDOMO_BROKER_SERVICE_HOST",
        "POLYDOMO_BROKER_PORT",
        "POLYDOMO_BROKER_PORT_5555_TCP_ADDR",
        "POLYDOMO_URL",
        "POLYDOMO_DEBUG",
        "POLYDOMO_COMPILE",
        "POLYDOMO_JOIN_TOKEN",
        "POLYDOMO_PROFILE",
        "POLYDOMO_TOKEN",
    ]
    assert not gather(environ=dict.fromkeys(names, "x")).problems


@pytest.mark.parametrize("key", ["nonsense", "broker", "brokr.name", "services", "services.wait", ""])
def test_a_flag_for_something_that_cannot_be_set(key: str) -> None:
    assert only_problem(flags=[Flag("--set", key, "1")]).where == "--set"


# Showing


def test_rows_tell_every_value_in_effect_and_where_it_is_from() -> None:
    found = gather(
        '[services."echo*"]\ntimeout = 0.5\n[limits]\nmemory = "1GB"', {"POLYDOMO_HEARTBEAT_INTERVAL": "0.25"}
    )
    rows = {row.key: (row.value, row.source) for row in config.rows(found)}
    assert rows["heartbeat.interval"] == ("250ms", "POLYDOMO_HEARTBEAT_INTERVAL")
    assert rows["limits.memory"] == ("1GB", "given.toml:4")
    assert rows["limits.client_bytes"] == ("256MiB", "default")
    assert rows["defaults.wait"] == ("1m", "default")
    assert rows['services."echo*".timeout'] == ("500ms", "given.toml:2")
    assert len(rows) == len(KEYS) + 1


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (2.5, "2.5s"),
        (60, "1m"),
        (90, "1m30s"),
        (61.5, "61.5s"),
        (3600, "1h"),
        (90_061, "1d1h1m1s"),
        (float("inf"), "forever"),
    ],
)
def test_durations_are_shown_as_one_would_write_them(seconds: float, shown: str) -> None:
    assert show(KEYS["defaults.wait"], seconds) == shown
    assert units.parse_duration(shown) == seconds


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (1, "1B"),
        (1536, "1536B"),
        (5000, "5kB"),
        (64 * 1024**2, "64MiB"),
        (64 * 1024**2 + 65536, "64MiB+64KiB"),
        (10**9, "1GB"),
        (1024**2 + 1, "1048577B"),
    ],
)
def test_sizes_are_shown_as_one_would_write_them(size: int, shown: str) -> None:
    assert show(KEYS["limits.memory"], size) == shown
    assert units.parse_size(shown) == size


def test_what_is_shown_can_be_set_again() -> None:
    for row in config.rows(gather()):
        if row.value:
            found = gather(flags=[Flag("--set", row.key, row.value)])
            assert not found.problems
            assert config.rows(found)[list(KEYS).index(row.key)].value == row.value


def test_changes_are_told_apart_by_whether_a_reload_is_enough() -> None:
    old = gather().settings
    new = gather(
        '[broker]\nname = "x"\ndrain = 1\n[services.echo]\nwait = 1\n[principals]\nann = ["admin"]'
    ).settings
    assert config.changes(old, new) == (["broker.drain", "services.echo", "principals.ann"], ["broker.name"])
    assert config.changes(old, old) == ([], [])
