"""core: jobs that wait too long (MDP §MDP/Client: requests SHOULD not wait for ever)."""

from __future__ import annotations

from polydomo.core.policy import BrokerLimits, Policy
from tests.support.core import Bench, check_empty


def test_a_job_nobody_takes_expires() -> None:
    bench = Bench(wait=10)
    client = bench.client()
    job = client.ask(b"echo")
    assert job is not None
    bench.at(9.99)
    assert client.heard == []
    bench.at(10.0)
    assert client.heard == [("failed", job.id, "expired")]
    check_empty(bench.broker)


def test_a_job_expires_though_the_service_has_busy_workers() -> None:
    bench = Bench(wait=10, timeout=100)
    worker, client = bench.worker(b"echo"), bench.client()
    running = client.ask(b"echo")
    waiting = client.ask(b"echo")
    assert running is not None
    assert waiting is not None
    bench.at(10.0, worker)
    assert client.heard == [("failed", waiting.id, "expired")]
    worker.answer()
    assert client.heard[-1] == ("final", running.id, b"answer")


def test_jobs_expire_one_by_one_in_their_own_time() -> None:
    bench = Bench(wait=10)
    clients = [bench.client(), bench.client()]
    for now in range(8):
        bench.at(float(now))
        clients[now % 2].ask(b"echo")
    for now in range(8):
        bench.at(now + 9.9)
        assert bench.broker.services[b"echo"].queue.waiting == 8 - now
        bench.at(now + 10.0)
        assert bench.broker.accounting.active == 7 - now
    assert [client.reasons() for client in clients] == [["expired"] * 4] * 2
    check_empty(bench.broker)


def test_a_lost_job_in_front_neither_hides_nor_shares_the_expiry_of_those_behind() -> None:
    bench = Bench(wait=10, timeout=100)
    worker, client = bench.worker(b"echo"), bench.client()
    lost = client.ask(b"echo")
    early = client.ask(b"echo")
    assert lost is not None
    assert early is not None
    bench.at(5.0, worker)
    late = client.ask(b"echo")
    assert late is not None
    bench.at(8.0, worker)
    worker.leave()  # `lost` waits anew, in front, until 18
    bench.at(10.0)
    assert client.heard == [("failed", early.id, "expired")]
    bench.at(15.0)
    assert client.heard[1:] == [("failed", late.id, "expired")]
    bench.at(17.9)
    assert bench.broker.services[b"echo"].queue.waiting == 1
    bench.at(18.0)
    assert client.heard[2:] == [("failed", lost.id, "expired")]
    check_empty(bench.broker)


def test_several_lost_jobs_in_front_keep_their_order_when_others_expire_behind_them() -> None:
    bench = Bench(wait=10, timeout=100)
    worker, client = bench.worker(b"echo"), bench.client()
    lost = []
    for _ in range(3):
        worker.ask_for_more()
        job = client.ask(b"echo")
        assert job is not None
        lost.append(job.id)
    client.ask(b"echo")
    bench.at(5.0, worker)
    worker.leave()
    bench.at(11.0)
    assert client.reasons() == ["expired"]
    heir = bench.worker(b"echo")
    while heir.holds:
        heir.answer()
    assert heir.jobs == lost


def test_whoever_expires_when_many_do_at_once_hurts_nobody_else() -> None:
    bench = Bench(wait=10)
    clients = [bench.client() for _ in range(50)]
    for client in clients:
        client.ask(b"echo")
    bench.at(5.0)
    fresh = clients[25].ask(b"echo")
    assert fresh is not None
    bench.jump(12.0)
    assert all(client.reasons() == ["expired"] for client in clients)
    assert bench.worker(b"echo").jobs == [fresh.id]


def test_forever_is_forever() -> None:
    bench = Bench(wait=float("inf"))
    client = bench.client()
    job = client.ask(b"echo")
    assert job is not None
    assert bench.at(1e9) == float("inf")
    assert bench.worker(b"echo").jobs == [job.id]


def test_a_shorter_wait_set_at_run_time_holds_for_who_waits_already_counted_from_then() -> None:
    bench = Bench(wait=1000)
    client = bench.client()
    for _ in range(2):
        client.ask(b"echo")
    bench.at(5.0)
    bench.broker.control.configure(BrokerLimits(), Policy(wait=10), {})
    bench.at(6.0)
    client.ask(b"echo")
    bench.at(14.9)
    assert client.heard == []
    bench.at(15.0)
    assert client.reasons() == ["expired"] * 2
    bench.at(16.0)
    assert client.reasons() == ["expired"] * 3


def test_a_longer_wait_set_at_run_time_does_not_keep_older_jobs_from_expiring() -> None:
    bench = Bench(wait=10)
    client = bench.client()
    old = client.ask(b"echo")
    assert old is not None
    bench.broker.control.configure(BrokerLimits(), Policy(wait=1000), {})
    new = client.ask(b"echo")
    assert new is not None
    bench.at(10.0)
    assert client.heard == [("failed", old.id, "expired")]
    bench.at(1000.0)
    assert client.heard[1:] == [("failed", new.id, "expired")]


def test_no_wait_at_all_means_now_or_at_the_next_tick() -> None:
    bench = Bench(wait=0)
    client = bench.client()
    client.ask(b"echo")
    bench.at(0.0)
    assert client.reasons() == ["expired"]
    worker = bench.worker(b"echo")
    client.ask(b"echo")
    worker.answer()
    assert client.finals() == [b"answer"]


def test_ten_thousand_waiting_jobs_are_not_searched_for_each_that_expires() -> None:
    """One client's jobs lie in the order of their expiry: only the first that has time left is looked at."""
    bench = Bench(wait=10)
    client = bench.client()
    for number in range(10_000):
        bench.broker.advance(number / 10_000)
        client.ask(b"echo")
    bench.at(20.0)
    assert len(client.reasons()) == 10_000
    check_empty(bench.broker)


def test_the_jobs_of_ten_thousand_clients_that_expire_one_by_one_are_taken_out_in_batches() -> None:
    """Each look goes through all clients that wait: one look for each of them would stop the broker for a minute."""
    bench = Bench(wait=10)
    looks = []
    for number in range(10_000):
        bench.broker.advance(number / 10_000)
        bench.client().ask(b"echo")
    while (due := bench.broker.tick()) < 12.0:
        bench.broker.advance(due)
        looks.append(due)
    assert len(looks) < 30
    assert looks[0] == 10.0
    assert len(bench.ledger.finished_ids) == 10_000
    check_empty(bench.broker)
