"""Tests of bench/curve.py: both brokers serve its peers over CURVE. Nothing here asserts a speed."""

import importlib
import json
import socket
import sys
from pathlib import Path

import pytest

from tests.support import zmtp

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))  # the benchmark is a folder of scripts, not a package

curve = importlib.import_module("curve")
curveload = importlib.import_module("curveload")
harness = importlib.import_module("harness")
results = importlib.import_module("results")

TINY = harness.Settings(rounds=1, seconds=0.2, warmup=0.1)
SHAPE = results.Shape("tiny", clients=2, workers=2, window=4)


def test_both_brokers_are_measured_under_the_same_load(tmp_path, capsys):
    told = tmp_path / "told.json"
    words = [
        "--rounds",
        "1",
        "--seconds",
        "0.2",
        "--warmup",
        "0.1",
        "--scenarios",
        "many",
        "--json",
        str(told),
    ]
    assert curve.main([*words, "--candidate", f"ours={sys.executable}"]) == 0
    found = json.loads(told.read_text())
    assert [(row["broker"], row["rps"] > 0) for row in found["results"]] == [
        ("pyzmq loop", True),
        ("ours", True),
    ]
    assert [sample["disconnects"] for row in found["results"] for sample in row["rounds"]] == [0, 0]


@pytest.fixture(scope="module")
def ours():
    return harness.candidate(sys.executable, "ours")


@pytest.mark.parametrize("label", [curve.LOOP, "ours"])
def test_both_brokers_require_curve(tmp_path, ours, label):
    broker = curve.YARDSTICK.broker if label == curve.LOOP else ours
    with harness.running(curve.ServerKey.create(tmp_path).given_to(broker)) as process:
        host, port = process.endpoint.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as peer:
            peer.sendall(zmtp.greeting(mechanism=b"CURVE"))
            answer = peer.recv(64, socket.MSG_WAITALL)
    assert answer[12:32].rstrip(b"\0") == b"CURVE"


def test_a_refused_connection_ends_the_load(tmp_path, ours):
    right = curve.ServerKey.create(tmp_path)
    (tmp_path / "other").mkdir()
    wrong = curve.ServerKey.create(tmp_path / "other")
    with pytest.raises(harness.BenchError, match="the broker has refused the connection"):
        harness.measure(right.given_to(ours), SHAPE, curveload.find_generator(wrong.public), TINY)
