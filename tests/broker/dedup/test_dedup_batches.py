"""Batches of idempotent producers that are seen to be new at once: no other outcome than message by message, only sooner."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.broker.dedup.dedup import Dedup, rising_numbers
from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.validation import check
from firearrow.net.connection import Connection
from firearrow.store.errors import NotWritableError
from firearrow.wire import batch
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command, FrameDecoder
from tests.broker.dedup.test_dedup import Result, Story
from tests.broker.kit import T0
from tests.broker.running import send_header


def block(number: int | str, producer: str = "p", before: str = "UNIQ_KEY\x01U{}\x02") -> bytes:
    return f"{before.format(number)}__PRODUCER_ID\x01{producer}\x02__PRODUCER_SEQ\x01{number}\x02".encode()


def joined(*blocks: bytes) -> bytes:
    return batch.join((0, b"body %d" % place, raw) for place, raw in enumerate(blocks))


def sent(story: Story, body: bytes, queue: int = 0) -> Result:
    """A batch whose round is not over yet."""
    return story.request(RequestCode.SEND_BATCH_MESSAGE, send_header("Orders", queue, "", batch="true"), body)


def numbers(first: int, end: int, producer: str = "p") -> bytes:
    return batch.join((0, b"%d" % number, block(number, producer)) for number in range(first, end))


def test_the_numbers_of_a_batch() -> None:
    numbers = [7, 8, 2**63 - 1]
    keys = [b"UNIQ_KEY\x01U%d" % number for number in numbers]
    assert rising_numbers(joined(*map(block, numbers))) == ("p", numbers, keys)


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [b""],
        [block(1), b""],
        [block(1), b"2\x02"],
        [block(1), block(1)],
        [block(2), block(1)],
        [block(1), block(2, "q")],
        [block(1), block(2, before="INNER_NUM\x012\x02")],
        [block(1), block(2, before="TIMER_DEL_UNIQKEY\x012\x02")],
        [block(1), block(2, before="x\x01y\x02__PRODUCER_SEQ\x0177\x02")],
        [block(1, before="")],
        [block(1, before="X")],
        [block(1, "p" * 129)],
        [block(1, "")],
        [block(2**63)],
        [block("0" * 19 + "1")],
        [block("-1")],
        [block("+1")],
        [block("1 ")],
        [block("")],
        [block("1")[:-1]],
        [block("1") + b"more\x01\x02"],
        [block("1") + b"INNER_BASE\x011\x02"],
        [block(1).replace(b"__PRODUCER_ID\x01p\x02", b"__PRODUCER_ID\x01p\x02x\x01y\x02")],
    ],
)
def test_other_batches_have_no_rising_numbers(blocks: list[bytes]) -> None:
    assert rising_numbers(joined(*blocks)) is None


def test_invalid_lengths_have_no_rising_numbers(tmp_path: Path) -> None:
    story = Story(tmp_path)
    whole = numbers(0, 3)
    for broken in (whole[:-1], whole + b"\0", whole[:3], b"\xff" * 40, whole.replace(b"\0\0\0\x01", b"\0\0\0\x02", 1)):
        with pytest.raises(Exception, match="lengths that do not fit"):
            sent(story, broken)
    assert sent(story, whole)[1] == 0  # nothing was claimed by what was refused
    story.kit.close()


pieces = st.sampled_from([
    "UNIQ_KEY\x01U\x02", "TAGS\x01a\x02", "__PRODUCER_ID\x01p\x02", "__PRODUCER_ID\x01q\x02", "__PRODUCER_SEQ\x013\x02",
    "__PRODUCER_SEQ\x014\x02", "__PRODUCER_SEQ\x0105\x02", "\x02", "\x01", "x", "INNER_NUM\x011\x02", "__PRODUCER_ID\x01", "9",
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(pieces, max_size=5).map("".join), max_size=4))
def test_one_pass_equals_message_by_message(texts: list[str]) -> None:
    body = joined(*(text.encode() for text in texts))
    found = rising_numbers(body)
    if found is not None:
        assert [(found[0], number) for number in found[1]] == [check(raw) for _, _, raw in batch.split(body)]


def test_a_batch_in_flight_is_a_repeat_too(tmp_path: Path) -> None:
    story = Story(tmp_path)
    first = sent(story, numbers(0, 200))

    assert sent(story, numbers(0, 200)) == first
    single = story.start(b"again", UNIQ_KEY="other", __PRODUCER_ID="p", __PRODUCER_SEQ="7")
    story.end_round()

    assert single == (0, 7, first[2].split(",")[7])
    assert story.stored() == [b"%d" % number for number in range(200)]
    story.kit.close()


@pytest.mark.parametrize("round_is_over", [False, True])
def test_the_repeat_of_one_of_a_batch_names_the_first_key(tmp_path: Path, round_is_over: bool) -> None:
    story = Story(tmp_path)
    sent(story, numbers(0, 3))
    if round_is_over:
        story.end_round()
    raw = block(1, before="UNIQ_KEY\x01OTHER\x02").decode()
    request = Command(RequestCode.SEND_MESSAGE_V2, opaque=1, ext=send_header("Orders", 0, raw), body=b"x")

    story.sends.send(cast(Connection, story.peer), request, T0)

    assert FrameDecoder().feed(story.replies.on_ack.pop().data)[0].ext["transactionId"] == "U1"
    story.kit.close()


def test_overlapping_batches_are_stored_once(tmp_path: Path) -> None:
    """The repeats of a task that is tried again begin and end anywhere."""
    story = Story(tmp_path)
    first: dict[int, str] = {}
    for begin, end in ((0, 100), (0, 60), (50, 150), (149, 151), (100, 300), (299, 400), (399, 400), (250, 450)):
        ids = sent(story, numbers(begin, end))[2].split(",")
        for number, id_ in zip(range(begin, end), ids, strict=True):
            assert first.setdefault(number, id_) == id_
        if end % 100:
            story.end_round()
    story.end_round()
    assert story.stored() == [b"%d" % number for number in range(450)]
    story.kit.close()


def test_a_batch_larger_than_the_window_keeps_its_end(tmp_path: Path) -> None:
    story = Story(tmp_path, idempotent_producer_window=16)
    first = sent(story, numbers(0, 50))
    story.end_round()

    assert sent(story, numbers(34, 50))[2].split(",") == first[2].split(",")[34:]
    with pytest.raises(Refused, match="__PRODUCER_SEQ 32 is older than the last 17"):
        sent(story, numbers(32, 50))
    assert len(story.stored()) == 50
    story.kit.close()


def test_a_number_below_the_last_batch_that_was_left_out_is_new(tmp_path: Path) -> None:
    story = Story(tmp_path)
    sent(story, joined(block(0), block(5), block(9)))
    sent(story, joined(block(3), block(4), block(5)))
    story.end_round()
    assert story.stored() == [b"body 0", b"body 1", b"body 2", b"body 0", b"body 1"]
    story.kit.close()


def test_rejected_batch_leaves_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(tmp_path)

    def refuse(*_: Any, **__: Any) -> list[int]:
        raise NotWritableError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(story.store, "append_batch_body", refuse)
        with pytest.raises(NotWritableError):
            sent(story, numbers(0, 10))
    assert sent(story, numbers(0, 10))[1] == 0
    story.end_round()
    assert len(story.stored()) == 10
    story.kit.close()


def test_batch_is_restored_after_a_kill(tmp_path: Path) -> None:
    story = Story(tmp_path)
    first = sent(story, numbers(0, 200))
    story.end_round()
    story.save()
    second = sent(story, numbers(200, 300))
    story.end_round()
    for name, keep_file in (("with", True), ("without", False)):
        again = story.reopened(name, keep_file=keep_file)
        assert sent(again, numbers(200, 300)) == second
        assert sent(again, numbers(150, 350))[2].split(",")[:150] == [*first[2].split(",")[150:], *second[2].split(",")]
        again.end_round()
        assert again.stored() == [b"%d" % number for number in range(350)]
        again.kit.close()
    story.kit.close()


def test_unwritten_messages_are_new_after_a_crash(tmp_path: Path) -> None:
    story = Story(tmp_path)
    sent(story, numbers(0, 10))
    story.end_round()
    sent(story, numbers(10, 20))  # dies before the end of the round
    again = story.reopened("again")
    assert sent(again, numbers(5, 20))[1] == 5
    again.end_round()
    assert again.stored() == [b"%d" % number for number in range(20)]
    again.kit.close()
    story.kit.close()


steps = st.lists(
    st.tuples(
        st.sampled_from(["batch", "batch", "batch", "single", "round", "kill"]),
        st.integers(0, 40),
        st.integers(1, 12),
        st.sampled_from(["p", "q"]),
        st.integers(0, 1),
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(steps)
def test_fast_path_has_the_same_outcome(told: list[tuple[str, int, int, str, int]]) -> None:
    def outcome(root: Path) -> list[Any]:
        story = Story(root, idempotent_producer_window=20)
        dead: list[Story] = []
        seen: list[Any] = []
        for place, (what, first, count, producer, queue) in enumerate(told):
            try:
                if what == "batch":
                    seen.append(sent(story, numbers(first, first + count, producer), queue))
                elif what == "single":
                    names = {"UNIQ_KEY": "U", "__PRODUCER_ID": producer, "__PRODUCER_SEQ": str(first)}
                    seen.append(story.start(b"%d" % first, queue=queue, **names))
                elif what == "round":
                    story.end_round()
                else:
                    dead.append(story)
                    story = story.reopened(str(place))
            except Refused as error:
                seen.append(error.code)
        story.end_round()
        seen += [story.stored(queue=queue) for queue in (0, 1)]
        for ended in (*dead, story):
            ended.kit.close()
        for bodies in seen[-2:]:
            assert max((bodies.count(body) for body in bodies), default=0) <= 2  # once for each producer
        return seen

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other, pytest.MonkeyPatch.context() as patched:
        quick = outcome(Path(one))
        patched.setattr("firearrow.broker.dedup.dedup.Dedup.claim_new", lambda *_: None)
        assert outcome(Path(other)) == quick


def test_numbered_batch_takes_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(tmp_path)
    monkeypatch.setattr(Dedup, "claim", lambda *_, **__: pytest.fail("message by message"))
    sent(story, numbers(0, 200))
    sent(story, numbers(200, 400))
    story.end_round()
    assert len(story.stored()) == 400
    story.kit.close()
