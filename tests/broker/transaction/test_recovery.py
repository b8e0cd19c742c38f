"""Transactions after a crash: the log is cut behind any of its records, and the saved offsets are older than the log or not."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.transaction import recovery, service
from firearrow.broker.transaction.recovery import committed_since
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import T0
from tests.broker.transaction_story import COMMIT, QUEUE, ROLLBACK, TOPIC, Sent, TransactionStory
from tests.store.archives import manifest, unpack

ROUND = 30_000


def test_a_commit_whose_op_message_was_lost_is_not_committed_again(tmp_path: Path) -> None:
    before = TransactionStory(tmp_path / "before")
    sent = before.half(b"x")
    before.commit(sent)
    assert before.ops() == []

    after = before.reopened(tmp_path / "after", now_ms=T0 + 1_000)
    after.connect(after.producer)
    assert after.delivered() == [b"x"]
    assert after.rollback(sent).code == ResponseCode.SYSTEM_ERROR
    assert after.commit(sent).code == ResponseCode.SYSTEM_ERROR  # it cannot know what was decided; nothing is done
    after.through(*range(T0 + 1_000, T0 + 5 * ROUND, 1_000))
    assert (after.delivered(), after.asked) == ([b"x"], [])
    assert after.ops() == [b"0,"]
    assert after.progress() == (1, 1)
    before.close()
    after.close()


def test_a_commit_through_an_old_copy_decides_the_newest_after_a_crash_too(tmp_path: Path) -> None:
    before = TransactionStory(tmp_path / "before")
    before.connect(before.producer)
    sent = before.half(b"x")
    before.through(T0, T0 + ROUND, T0 + 2 * ROUND)
    before.commit(sent)  # the first; two copies were made of it

    for offsets in (before.saved_offsets(), {}):
        after = before.reopened(tmp_path / f"after-{len(offsets)}", offsets=offsets)
        after.connect(after.producer)
        for copy in (sent, *(asked.as_sent() for asked in before.asked)):
            assert after.commit(copy).code == ResponseCode.SYSTEM_ERROR
        after.through(*range(T0 + 2 * ROUND, T0 + 9 * ROUND, ROUND))
        assert (after.delivered(), after.asked) == ([b"x"], [])
        after.close()
    before.close()


def test_an_open_copy_is_found_again_by_a_decision_about_the_first(tmp_path: Path) -> None:
    before = TransactionStory(tmp_path / "before")
    before.connect(before.producer)
    sent = before.half(b"x")
    before.through(T0, T0 + ROUND, T0 + 2 * ROUND, T0 + 2 * ROUND + 100)
    assert before.progress()[0] == 2

    after = before.reopened(tmp_path / "after")
    assert after.commit(sent).code == ResponseCode.SUCCESS
    after.connect(after.producer)
    after.through(*range(T0 + 2 * ROUND, T0 + 9 * ROUND, ROUND))
    assert (after.delivered(), after.asked) == ([b"x"], [])
    before.close()
    after.close()


def test_check_count_continues_after_a_restart(tmp_path: Path) -> None:
    before = TransactionStory(tmp_path / "before")
    before.half(b"x")
    before.through(*range(T0, T0 + 10 * ROUND + 1, ROUND))
    after = before.reopened(tmp_path / "after")
    after.connect(after.producer)
    after.through(*range(T0 + 10 * ROUND, T0 + 20 * ROUND, ROUND))
    times = [properties.parse(asked.record.properties)["TRANSACTION_CHECK_TIMES"] for asked in after.asked]
    assert times == ["11", "12", "13", "14", "15"]
    assert len(after.messages(TRANS_CHECK_MAX_TIME_TOPIC, 0)) == 1
    before.close()
    after.close()


def test_offsets_are_saved_only_when_the_log_is_durable(tmp_path: Path) -> None:
    story = TransactionStory(tmp_path)
    story.commit(story.half(b"x"))
    sent = story.half(b"y")
    story.transactions.tick(T0)
    conn = FakeConnection()
    story.start_end(sent, COMMIT, conn)
    for _ in range(3):  # appended, not written
        story.transactions.tick(T0 + 100)
    assert story.progress() == (1, None) or story.progress() == (1, 0)
    group = story.store.write_out()
    assert group is not None
    story.store.confirm(group.end_offset)
    for _ in range(3):  # written, not synced
        story.transactions.tick(T0 + 200)
    assert story.progress()[0] == 1
    story.store.flush()
    story.transactions.tick(T0 + 300)
    assert story.progress()[0] == 2
    story.close()


def test_offsets_are_not_saved_over_a_write_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = TransactionStory(tmp_path)
    sent = story.half(b"x")
    story.at(T0)
    story.start_end(sent, COMMIT, FakeConnection())
    monkeypatch.setattr(type(story.store), "writable", property(lambda store: False))
    for now in range(T0, T0 + 10_000, 100):
        story.transactions.tick(now)
    assert story.progress()[0] in (None, 0)
    monkeypatch.undo()
    story.close()


def test_open_halves_are_recovered_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = TransactionStory(tmp_path / "before")
    before.connect(before.producer)
    sent = [before.half(b"%d" % number) for number in range(30)]
    before.through(T0, T0 + ROUND)
    monkeypatch.setattr(service, "RECOVER_AT_START", 5)
    monkeypatch.setattr(service, "RECOVER_PER_TICK", 10)
    after = before.reopened(tmp_path / "after")
    assert after.commit(sent[0]).code == ResponseCode.SYSTEM_BUSY
    new = after.half(b"new")
    assert after.commit(new).code == ResponseCode.SUCCESS
    after.at(T0 + ROUND + 100)
    assert after.commit(sent[0]).code == ResponseCode.SUCCESS
    assert after.delivered() == [b"new", b"0"]
    before.close()
    after.close()


def test_the_search_for_commits_is_short_even_if_a_half_stays_open_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SEARCH_LIMIT", 20_000)
    monkeypatch.setattr(recovery, "OVERLAP_MS", 0)
    before = TransactionStory(tmp_path / "before")
    before.half(b"open", CHECK_IMMUNITY_TIME_IN_SECONDS="7200")
    for number in range(300):
        before.kit.put(TOPIC, 0, b"x" * 500)
        before.at(T0 + number)
    assert set(before.ops()) == {b"-1,"}
    assert 5 < len(before.ops()) < 12

    started: list[int] = []

    def search(store: Any, start: int) -> Any:
        started.append(start)
        return committed_since(store, start)

    monkeypatch.setattr(recovery, "committed_since", search)
    after = before.reopened(tmp_path / "after")
    assert before.store.max_offset - started[0] < 25_000
    assert after.halves()[0].body == b"open"
    after.at(T0 + 1_000)
    assert after.progress()[1] == len(before.ops())
    before.close()
    after.close()


def test_commits_are_found_in_every_segment_and_behind_large_records(tmp_path: Path) -> None:
    story = TransactionStory(tmp_path)
    expected = []
    for number in range(4):
        story.kit.put(TOPIC, 0, b"x" * 700_000)  # more than half a segment each
        sent = story.half(b"%d" % number)
        story.commit(sent)
        expected.append(sent.log_offset)
        story.rollback(story.half(b"no"))
    assert [offset for offset, _ in committed_since(story.store, 0)] == expected
    story.close()


# Cut anywhere.


class Producers:
    """Expectations of the producers: every message is committed, rolled back, or never decided."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fates: dict[str, int] = {}  # body -> decision
        self.sent: list[Sent] = []

    def half(self, story: TransactionStory) -> None:
        body = f"m{len(self.fates)}"
        fate = self.fates[body] = self.random.choice([COMMIT, COMMIT, ROLLBACK])
        immunity = self.random.choice(["", "", "", "70"])
        more: dict[str, Any] = {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity} if immunity else {}
        sent = story.half(body.encode(), fate=str(fate), **more)
        if self.random.random() < 0.5:
            self.decide(story, sent, fate)
        else:
            self.sent.append(sent)

    def decide(self, story: TransactionStory, sent: Sent, fate: int, *, check: bool = False) -> None:
        for _ in range(self.random.choice([1, 1, 2])):
            story.end(sent, fate, check=check)

    def answer(self, story: TransactionStory, share: float = 1.0) -> None:
        """Answers the checks that have come, or some of them, and at times decides about an older copy."""
        for asked in story.asked:
            if self.random.random() < share:
                fate = int(properties.parse(asked.record.properties)["fate"])
                self.decide(story, asked.as_sent(), fate, check=True)
        story.kit.told.clear()
        if self.sent and self.random.random() < 0.5:
            sent = self.random.choice(self.sent)
            record = next((half for half in story.halves() if half.queue_offset == sent.queue_offset), None)
            if record is not None:
                self.decide(story, sent, int(properties.parse(record.properties)["fate"]))


def live(story: TransactionStory, producers: Producers, times: range, halves: bool) -> list[tuple[int, dict[str, Any]]]:
    """A while of ordinary life. Returns (durable log, saved offsets) as they were at every moment."""
    history: list[tuple[int, dict[str, Any]]] = [(0, {})]
    for now_ms in times:
        story.at(now_ms)
        producers.answer(story, 0.4)
        if halves:
            for _ in range(producers.random.randrange(3)):
                producers.half(story)
        history.append((story.store.flushed_offset, story.saved_offsets()))
    return history


@pytest.mark.parametrize("seed", range(3))
def test_decisions_hold_wherever_the_log_is_truncated(tmp_path: Path, seed: int) -> None:
    before = TransactionStory(tmp_path / "before", transaction_check_max=1_000)
    before.connect(before.producer)
    producers = Producers(seed)
    history = live(before, producers, range(T0, T0 + 6 * ROUND, 7_000), halves=True)
    boundaries = before.boundaries()
    choice = random.Random(seed)
    for number, cut in enumerate(sorted(choice.sample(boundaries[1:], 25))):
        known = [offsets for durable, offsets in history if durable <= cut]
        offsets = choice.choice([known[-1], choice.choice(known)])
        check(before, producers, tmp_path / f"cut-{number}", cut, offsets)
    before.close()


def check(before: TransactionStory, producers: Producers, root: Path, cut: int, offsets: dict[str, Any]) -> None:
    now_ms = before.kit.now
    after = before.reopened(root, cut=cut, offsets=offsets)
    after.connect(after.producer)
    stored = {record.body.decode() for record in after.halves()}
    if cut % 3 == 0:  # it crashes again after a while
        live(after, producers, range(now_ms, now_ms + 2 * ROUND, 10_000), halves=False)
        again = after.reopened(root / "again", now_ms=now_ms + 2 * ROUND)
        after.close()
        after, now_ms = again, now_ms + 2 * ROUND
        after.connect(after.producer)
    for moment in range(now_ms, now_ms + 8 * ROUND, 5_000):
        after.at(moment)
        producers.answer(after)
    wanted = {body: int(fate == COMMIT) for body, fate in producers.fates.items() if body in stored}
    delivered = Counter(record.body.decode() for record in after.messages(TOPIC, QUEUE))
    found = {body: delivered[body] for body in wanted}
    assert found == wanted, f"log cut at {cut}, offsets {offsets}"
    assert after.progress()[0] == after.store.queue(TRANS_HALF_TOPIC, 0).max_offset
    after.close()


# Directories of Apache's broker.


def apache(case: str, root: Path) -> TransactionStory:
    """On a directory that Apache RocketMQ 5.5.0 left behind, at the time it did."""
    known = manifest(case)
    unpack(case, root)
    return TransactionStory(
        root,
        offsets=known["config"]["consumerOffset.json"],
        now_ms=known["capturedAtMs"],
        transaction_check_interval=5_000,
        transaction_time_out=3_000,
    )


def test_what_apache_left_decided_stays_decided(tmp_path: Path) -> None:
    story = apache("a-clean", tmp_path)
    story.connect(story.producer, "FxTranGroup")
    count = len(story.halves())
    now = story.kit.now
    committed = [record for queue in range(4) for record in story.messages("FxTran", queue)]
    for record in story.halves():
        story.commit(Sent(record.queue_offset, record.physical_offset, "", "FxTranGroup"))
    story.through(*range(now, now + 100_000, 1_000))
    assert len(story.halves()) == count
    assert story.asked == []
    assert [record for queue in range(4) for record in story.messages("FxTran", queue)] == committed
    story.close()


@pytest.mark.parametrize("offsets", ["saved", "lost"])
def test_what_apache_left_open_is_asked_about_and_decided(tmp_path: Path, offsets: str) -> None:
    story = apache("b-crash", tmp_path)
    if offsets == "lost":  # everything is read again
        story.close()
        story = TransactionStory(tmp_path, now_ms=story.kit.now, transaction_check_interval=5_000, transaction_time_out=3_000)
    story.connect(story.producer, "FxTranPending")
    now = story.kit.now
    before = Counter(record.body for queue in range(4) for record in story.messages("FxTran", queue))
    assert story.store.queue(TRANS_OP_HALF_TOPIC, 0).max_offset == 2
    story.through(now, now + 5_000, now + 5_100)
    open_halves = [asked for asked in story.asked if asked.record.body.startswith(b"halfopen")]
    assert [asked.record.body[:9] for asked in open_halves] == [b"halfopen0", b"halfopen1"]
    assert [(asked.record.topic, asked.record.queue_id) for asked in open_halves] == [("FxTran", 3), ("FxTran", 0)]
    assert len(story.asked) == 2
    for asked, decision in zip(open_halves, (COMMIT, ROLLBACK), strict=True):
        assert story.end(asked.as_sent("FxTranPending"), decision, check=True).code == ResponseCode.SUCCESS
    story.through(*range(now + 6_000, now + 100_000, 1_000))
    after = Counter(record.body for queue in range(4) for record in story.messages("FxTran", queue))
    assert [body[:9] for body in (after - before)] == [b"halfopen0"]
    assert (after - before).total() == 1
    story.close()
