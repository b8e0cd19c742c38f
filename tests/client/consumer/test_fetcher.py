"""Fetching for a pull consumer, with a scripted puller and offsets in memory."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.client.consumer.fetcher import Fetcher
from firearrow.client.consumer.pull import PullResult
from firearrow.client.consumer.subscription import subscription
from firearrow.client.errors import BrokerError, ConnectionLost
from firearrow.client.message import MessageQueue
from firearrow.wire.codes import ResponseCode
from tests.client.consumer.scripted import ScriptedPuller, found
from tests.support.waiting import run, until

Q0, Q1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
ALL = subscription("T", "*", 1)


class Offsets:
    """Committed offsets of a group; reading fails for queues without one."""

    def __init__(self, stored: dict[MessageQueue, int]) -> None:
        self.stored = stored
        self.commits: list[tuple[MessageQueue, int]] = []

    async def read(self, queue: MessageQueue) -> int:
        if queue not in self.stored:
            raise ConnectionLost("gone")
        return self.stored[queue]

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        self.commits.append((queue, offset))

    def forget(self, queue: MessageQueue) -> None: ...


class Setup:
    """A fetcher whose queues have the committed offset 10."""

    def __init__(self, patch: pytest.MonkeyPatch, *outcomes: PullResult | Exception, auto_commit: bool = True) -> None:
        self.puller = ScriptedPuller(*outcomes)
        patch.setattr("firearrow.client.consumer.fetcher.Puller", lambda *args, **options: self.puller)
        self.offsets = Offsets({Q0: 10, Q1: 10})
        instance: Any = None
        offsets: Any = self.offsets
        self.fetcher = Fetcher(instance, "g", offsets, start_from="latest", auto_commit=auto_commit, batch=32)

    async def until_pulls(self, count: int) -> None:
        await until(lambda: len(self.puller.pulls) == count, f"{count} pulls")

    def hand_out(self, limit: int) -> list[int]:
        return [message.queue_offset for message in self.fetcher.hand_out(limit)]


def test_queue_starts_at_its_committed_offset_and_unknown_ones_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        setup = Setup(monkeypatch)
        del setup.offsets.stored[Q1]
        errors = await setup.fetcher.share(ALL, [Q0, Q1])
        assert [str(error) for error in errors] == ["gone"]
        assert setup.fetcher.queues() == [Q0]
        await setup.until_pulls(1)
        assert setup.puller.pulls == [(10, None)]
        await setup.fetcher.stop(consumed=False)

    run(story())


def test_queues_are_served_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        setup = Setup(monkeypatch, found(10, 11), found(20, 21))
        await setup.fetcher.share(ALL, [Q0, Q1])
        await setup.until_pulls(4)
        await setup.fetcher.wait_ready()
        assert [setup.hand_out(1) for _ in range(4)] == [[10], [20], [11], [21]]
        assert setup.hand_out(1) == []
        await setup.fetcher.stop(consumed=False)

    run(story())


def test_commit_covers_returned_messages_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        setup = Setup(monkeypatch, found(10, 11, 12))
        await setup.fetcher.share(ALL, [Q0])
        await setup.until_pulls(2)
        setup.hand_out(2)
        await setup.fetcher.commit(None)
        await setup.fetcher.commit(None)
        assert setup.offsets.commits == [(Q0, 12)]
        await setup.fetcher.stop(consumed=False)

    run(story())


@pytest.mark.parametrize("auto_commit", [True, False])
def test_dropped_queue_commits_consumed_messages_only_with_auto_commit(
    auto_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        setup = Setup(monkeypatch, found(10, 11), auto_commit=auto_commit)
        await setup.fetcher.share(ALL, [Q0])
        await setup.until_pulls(2)
        setup.hand_out(1)
        setup.fetcher.finish_in_progress()
        await setup.fetcher.share(ALL, [])
        assert setup.fetcher.queues() == []
        assert setup.offsets.commits == ([(Q0, 11)] if auto_commit else [])
        await setup.fetcher.stop(consumed=False)

    run(story())


def test_seek_drops_held_messages_and_fetches_at_the_new_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        setup = Setup(monkeypatch, found(10, 11))
        await setup.fetcher.share(ALL, [Q0])
        await setup.until_pulls(2)
        setup.fetcher.seek(Q0, 3)
        assert setup.hand_out(9) == []
        await setup.until_pulls(3)
        assert [offset for offset, _ in setup.puller.pulls] == [10, 12, 3]
        await setup.fetcher.stop(consumed=False)

    run(story())


def test_permanent_error_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        setup = Setup(monkeypatch, BrokerError(ResponseCode.NO_PERMISSION, "not readable", "1:1"))
        await setup.fetcher.share(ALL, [Q0])
        await setup.fetcher.wait_ready()
        with pytest.raises(BrokerError, match="not readable"):
            setup.hand_out(1)
        assert setup.hand_out(1) == []
        await setup.fetcher.stop(consumed=False)

    run(story())


def test_messages_of_a_paused_queue_are_returned_after_it_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        setup = Setup(monkeypatch, found(10))
        await setup.fetcher.share(ALL, [Q0])
        await setup.until_pulls(2)
        setup.fetcher.pause(None, True)
        assert setup.hand_out(1) == []
        setup.fetcher.pause([Q0], False)
        assert setup.hand_out(1) == [10]
        await setup.fetcher.stop(consumed=False)

    run(story())
