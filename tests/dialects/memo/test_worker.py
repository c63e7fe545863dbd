"""A memo01 worker's side, message by message."""

from __future__ import annotations

from polydomo.dialects.memo import messages
from polydomo.dialects.memo.worker import RESEND, MemoRequest, MemoWorkerProtocol
from polydomo.wire.frames import frame

ID = b"\1\2\3\4"
READY = bytes.fromhex("84666d656d6f3031014081646563686f")
HEARTBEAT = bytes.fromhex("83666d656d6f3031044401020304")
RESULT = bytes.fromhex("83666d656d6f3031034401020304")
LEAVING = bytes.fromhex("84666d656d6f3031034401020304f5")
DISCONNECT = bytes.fromhex("83666d656d6f3031054401020304")


class Talk:
    """A side and the broker in front of it."""

    def __init__(self, contexts: int = 1, services: tuple[bytes, ...] = (b"echo",)) -> None:
        self.side = MemoWorkerProtocol(list(services), contexts, 0)
        self.now = 100.0
        self.side.start(self.now)

    def said(self) -> list[tuple[bytes, bytes]]:
        """Request IDs and contents, since last asked."""
        data = self.side.take_output()
        found = []
        while data:
            lead = 1 if self.side.ipc else 0
            end = lead + 8 + int.from_bytes(data[lead : lead + 8], "big")
            found.append((data[lead + 8 : lead + 12], data[lead + 12 : end]))
            data = data[end:]
        return found

    def one(self) -> tuple[bytes, bytes]:
        (only,) = self.said()
        return only

    def reply(self, stack: bytes, content: bytes) -> MemoRequest | None:
        return self.side.answer(stack, b"xx" + content, 2, 2 + len(content), self.now)

    def job(self, stack: bytes, payload: bytes = b"body", id: bytes = ID) -> MemoRequest:
        request = self.reply(stack, messages.job(id, b"echo", 10_000) + payload)
        assert request is not None
        return request


def test_ready_then_job_then_result():
    talk = Talk()
    stack, content = talk.one()
    assert content == READY
    request = talk.job(stack, b"hello")
    assert (request.service, request.body, request.timeout) == (b"echo", frame(b"hello"), 10_000)
    assert talk.said() == []
    talk.side.final(request, frame(b"answer"), talk.now)
    next_stack, content = talk.one()
    assert content == RESULT + b"answer"
    assert next_stack != stack
    assert talk.job(next_stack).address != request.address


def test_services_are_sorted_by_length():
    assert Talk(services=(b"ccc", b"b", b"aa")).one()[1] == messages.ready([b"b", b"aa", b"ccc"])


def test_a_heartbeat_is_answered_at_once():
    talk = Talk()
    stack, _ = talk.one()
    for _ in range(3):
        assert talk.reply(stack, HEARTBEAT) is None
        stack, content = talk.one()
        assert content == HEARTBEAT
    talk.job(stack)


def test_each_context_is_a_worker_of_its_own():
    talk = Talk(contexts=3)
    stacks = [stack for stack, content in talk.said() if content == READY]
    assert len(set(stacks)) == 3
    requests = [talk.job(stack, id=bytes([number])) for number, stack in enumerate(stacks)]
    for number in (2, 0, 1):
        talk.side.final(requests[number], frame(b"x"), talk.now)
        assert talk.one()[1] == messages.result(bytes([number])) + b"x"


def test_after_disconnect_it_begins_anew():
    talk = Talk()
    stack, _ = talk.one()
    talk.side.final(talk.job(stack), frame(b""), talk.now)
    stack, _ = talk.one()
    assert talk.reply(stack, DISCONNECT) is None
    stack, content = talk.one()
    assert content == READY
    talk.job(stack)


def test_a_refused_ready_is_not_repeated_before_a_while():
    talk = Talk()
    stack, _ = talk.one()
    talk.reply(stack, DISCONNECT)
    assert talk.said() == []
    talk.now = talk.side.due
    talk.side.tick(talk.now)
    assert talk.one()[1] == READY


def test_the_last_result_says_so_and_nothing_follows():
    talk = Talk()
    request = talk.job(talk.one()[0])
    talk.side.final(request, frame(b"bye"), talk.now, leaving=True)
    stack, content = talk.one()
    assert content == LEAVING + b"bye"
    talk.reply(stack, DISCONNECT)
    talk.side.tick(talk.now + 100)
    assert talk.said() == []


def test_a_new_connection_gets_what_was_not_answered_under_the_same_ids():
    talk = Talk(contexts=3)
    (one, _), (two, _), (three, _) = talk.said()
    request = talk.job(one)
    talk.side.final(request, frame(b"answer"), talk.now)
    held = talk.job(two)
    result = talk.one()
    talk.side.resume(True, talk.now)
    assert talk.said() == [result, (three, READY)]
    talk.side.final(held, frame(b"later"), talk.now)  # its job went on meanwhile
    assert talk.one()[1] == RESULT + b"later"


def test_what_has_no_answer_for_long_is_repeated():
    talk = Talk()
    ready = talk.one()
    talk.now += RESEND - 1
    talk.side.tick(talk.now)
    assert talk.said() == []
    talk.now += 1
    talk.side.tick(talk.now)
    assert talk.one() == ready
    request = talk.job(ready[0])
    assert talk.reply(ready[0], messages.job(ID, b"echo", 1)) is None  # the answer to the repeat
    talk.now += 10 * RESEND
    talk.side.tick(talk.now)  # a job in hand is nothing to repeat
    assert talk.said() == []
    talk.side.final(request, frame(b""), talk.now)
    assert talk.one()[1] == RESULT


def test_nonsense_is_dropped():
    talk = Talk()
    stack, _ = talk.one()
    for content in (b"", b"nonsense", READY, RESULT):
        assert talk.reply(stack, content) is None
    talk.job(stack)  # it is still waiting
    assert talk.reply(b"\x80\0\0\x77", HEARTBEAT) is None  # nothing that was asked


def test_answers_that_are_not_its_own_are_dropped():
    talk = Talk()
    request = talk.job(talk.one()[0])
    talk.side.partial(request, frame(b"part"), talk.now)  # memo01 has no word for it
    talk.side.final(request, frame(b""), talk.now)
    talk.side.final(request, frame(b"twice"), talk.now)
    assert [content for _, content in talk.said()] == [RESULT]
    stack = next(iter(talk.side._waiting))
    talk.side.disconnect()
    assert talk.reply(stack, HEARTBEAT) is None
    assert talk.said() == []
