"""Tests of redaction: secrets in texts are found by their form, and by their value."""

from __future__ import annotations

import pytest

from polydomo import redaction
from polydomo.redaction import MASK, redact, redact_option, secrets_in

CANARY = "c4n4ry-S3cret"


TOKEN = "aB3" * 13 + "x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"postgresql://anna:{CANARY}@db:5432/jobs", f"postgresql://anna:{MASK}@db:5432/jobs"),
        (f"postgresql+psycopg://:{CANARY}@db/x", f"postgresql+psycopg://:{MASK}@db/x"),
        (f"postgresql://anna:a@{CANARY}@db/x", f"postgresql://anna:{MASK}@db/x"),
        (f"postgresql://anna:{CANARY}/more@db/x", f"postgresql://anna:{MASK}@db/x"),
        (f"postgresql://db/x?user=anna&password={CANARY}", f"postgresql://db/x?user=anna&password={MASK}"),
        (f"postgresql://db/x?sslpassword={CANARY}&a=1", f"postgresql://db/x?sslpassword={MASK}&a=1"),
        (f"host=db password='a {CANARY}' dbname=x", f"host=db password={MASK} dbname=x"),
        (f"https://{CANARY}@catalog/v1", f"https://{MASK}@catalog/v1"),
        (f"https://catalog/v1?token={CANARY}", f"https://catalog/v1?token={MASK}"),
        (f"s3a://AKIA:{CANARY}@bucket/ledger", f"s3a://AKIA:{MASK}@bucket/ledger"),
        (f"the token pdm_{TOKEN}, and (pdj_{TOKEN})", f"the token pdm_{MASK}, and (pdj_{MASK})"),
        (f"mdp://a?join_token=pdj_{TOKEN}&key=x", f"mdp://a?join_token={MASK}&key=x"),
        (f"two: mdp://a:{CANARY}@b:1, wmp://c:{CANARY}@d:2", f"two: mdp://a:{MASK}@b:1, wmp://c:{MASK}@d:2"),
    ],
)
def test_a_secret_is_known_by_its_form(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "tcp://127.0.0.1:5555",
        "http://127.0.0.1:8080/v1/files/a@b",
        "sqlite:////var/lib/polydomo/jobs.db",
        "postgresql://anna@db:5432/jobs",
        "listening zmq=tcp://[::1]:5555 name=house",
        f"pdm_{TOKEN[1:]}, pdm_{TOKEN}x, updm_{TOKEN}",
        "a mail to anna@example.org: 1 = 2",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "s3.secret-access-key",
        "s3.access-key-id",
        "s3.session-token",
        "credential",
        "header.Authorization",
        "adls.account-key",
        "adls.sas-token",
        "adls.connection-string",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.ssl.keyPassword",
        "spark.executorEnv.PGPASSWORD",
    ],
)
def test_an_option_whose_name_speaks_of_a_secret_is_masked(name: str) -> None:
    assert redact_option(f"{name}={CANARY}") == f"{name}={MASK}"
    assert CANARY in set(secrets_in(f"{name}={CANARY}"))


def test_an_option_without_a_secret_is_shown() -> None:
    assert redact_option("spark.driver.memory=4g") == "spark.driver.memory=4g"
    assert redact_option(f"uri=postgresql://a:{CANARY}@b/c") == f"uri=postgresql://a:{MASK}@b/c"


def test_known_values_are_masked_in_any_form() -> None:
    known = redaction.Known()
    known.learn(secrets_in("postgresql://anna:p%40ss%2Fw%20rd-1@db/x"))
    for said in ("p%40ss%2Fw%20rd-1", "p@ss/w rd-1", 'could not translate host name "ss/w rd-1@db"'):
        shown = known.mask(f"the server said: {said}")
        assert "rd-1" not in shown, shown


def test_a_value_is_not_looked_for_inside_of_words() -> None:
    known = redaction.Known()
    known.learn(["data", "abc"])
    assert known.mask("the database of data, abc") == f"the database of {MASK}, abc"


def test_a_value_that_is_learned_later_is_masked_too() -> None:
    known = redaction.Known()
    known.learn(["first-one"])
    known.learn(["second-one"])
    assert known.mask("first-one second-one") == f"{MASK} {MASK}"
