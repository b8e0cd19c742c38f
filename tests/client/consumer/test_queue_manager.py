"""Taking, dropping and moving queues, with a scripted instance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from firearrow.client.consumer.offset_store import BrokerOffsets
from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.consumer.pull import Puller
from firearrow.client.consumer.queue_locks import QueueLockClient
from firearrow.client.consumer.queue_manager import QueueManager
from firearrow.client.consumer.queue_offsets import StartFrom
from firearrow.client.consumer.subscription import subscription
from firearrow.client.errors import ConnectionLost, FirearrowError
from firearrow.client.message import MessageQueue
from firearrow.client.options import client_options
from firearrow.wire import fastjson
from firearrow.wire.codes import VERSION
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request, request_code, request_fields
from tests.support.waiting import run

Q0, Q1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
RETRY = MessageQueue("%RETRY%g", "a", 0)
MOMENT = datetime(2024, 5, 1, tzinfo=UTC)


class Instance:
    """Scripted responses; records requests; pulls never return."""

    client_id = "me"
    options = client_options("1:1")

    def __init__(self) -> None:
        self.asked: list[tuple[int, dict[str, Any]]] = []
        self.offsets: dict[int, int | None] = {}
        self.locked = [0, 1]
        self.trouble: dict[int, FirearrowError] = {}
        self.held = asyncio.Event()
        self.answers: dict[int, Callable[[dict[str, Any]], Command]] = {
            Code.QUERY_CONSUMER_OFFSET: lambda ext: self._offset(self.offsets.get(ext["queueId"])),
            Code.GET_MAX_OFFSET: lambda ext: self._offset(100),
            Code.GET_MIN_OFFSET: lambda ext: self._offset(7),
            Code.SEARCH_OFFSET_BY_TIMESTAMP: lambda ext: self._offset(ext["timestamp"] // 10**9),
            Code.UPDATE_CONSUMER_OFFSET: lambda ext: Command(0),
            Code.UNLOCK_BATCH_MQ: lambda ext: Command(0),
            Code.LOCK_BATCH_MQ: lambda ext: Command(0, body=self._locks()),
        }

    def broker_address(self, name: str, broker_id: int = 0, *, only_this: bool = False) -> tuple[str, bool]:
        return "1:1", False

    def broker_version(self, address: str) -> int:
        return VERSION

    async def call(self, address: str, request: Request, body: bytes = b"", **_: Any) -> Command:
        if request_code(request) == Code.PULL_MESSAGE:
            self._record(request, body)
            await asyncio.Event().wait()
        return await self.check(address, request, body)

    async def check(self, address: str, request: Request, body: bytes = b"", **_: Any) -> Command:
        code, ext = self._record(request, body)
        if code in self.trouble:
            raise self.trouble[code]
        return self.answers[code](ext)

    async def oneway(self, address: str, request: Request, body: bytes = b"") -> None:
        self._record(request, body)

    def _record(self, request: Request, body: bytes) -> tuple[int, dict[str, Any]]:
        fields = {name: int(value) if value.isdecimal() else value for name, value in request_fields(request).items()}
        self.asked.append((request_code(request), fields or fastjson.loads(body)))
        return request_code(request), fields

    def codes(self) -> list[int]:
        return [code for code, _ in self.asked]

    @staticmethod
    def _offset(offset: int | None) -> Command:
        return Command(22) if offset is None else Command(0, ext={"offset": str(offset)})

    def _locks(self) -> bytes:
        queues = [{"topic": "T", "brokerName": "a", "queueId": number} for number in self.locked]
        return fastjson.dumps({"lockOKMQSet": queues})


class Service:
    async def stop(self, timeout_s: float) -> bool:
        return True

    def put(self, held: ProcessQueue, messages: list[Any]) -> None: ...


def consuming(instance: Any, start_from: StartFrom = "latest", *, orderly: bool = False) -> tuple[QueueManager, BrokerOffsets]:
    offsets = BrokerOffsets(instance, "g")
    service: Any = Service()
    made = QueueManager(
        instance, Puller(instance, "g"), offsets, service, locks=QueueLockClient(instance, "g") if orderly else None,
        start_from=start_from, subscription=lambda topic: subscription(topic, "*", 1), full=lambda held: None,
        pulled=lambda topic, messages, seconds: None,
    )  # fmt: skip
    return made, offsets


async def pulls(instance: Instance, count: int) -> list[int]:
    while instance.codes().count(Code.PULL_MESSAGE) < count:
        await asyncio.sleep(0.001)
    return [ext["queueOffset"] for code, ext in instance.asked if code == Code.PULL_MESSAGE]


@pytest.mark.parametrize(
    ("start_from", "queue", "stored", "begins"),
    [
        ("latest", Q0, 42, 42),
        ("earliest", Q0, 42, 42),
        ("latest", Q0, None, 100),
        ("earliest", Q0, None, 7),
        (MOMENT, Q0, None, int(MOMENT.timestamp() * 1000) // 10**9),
        ("latest", RETRY, None, 0),
        (MOMENT, RETRY, None, 0),
        ("earliest", RETRY, None, 7),
    ],
)
def test_start_offset_of_a_queue(start_from: StartFrom, queue: MessageQueue, stored: int | None, begins: int) -> None:
    async def story() -> None:
        instance = Instance()
        instance.offsets[0] = stored
        queues, _ = consuming(instance, start_from)
        assert await queues.share(queue.topic, [queue])
        assert await pulls(instance, 1) == [begins]
        await queues.stop(1)

    run(story())


def test_queue_with_unknown_offset_is_taken_later() -> None:
    async def story() -> None:
        instance = Instance()
        instance.trouble[Code.QUERY_CONSUMER_OFFSET] = ConnectionLost("gone")
        queues, _ = consuming(instance)
        assert not await queues.share("T", [Q0, Q1])
        assert queues.queues == {}
        instance.trouble.clear()
        assert await queues.share("T", [Q0, Q1])
        assert sorted(queues.queues) == [Q0, Q1]
        await queues.stop(1)

    run(story())


def test_dropped_queue_commits_its_offset() -> None:
    async def story() -> None:
        instance = Instance()
        queues, offsets = consuming(instance)
        await queues.share("T", [Q0, Q1])
        held = queues.queues[Q0]
        offsets.note(Q0, 105)
        assert await queues.share("T", [Q1])
        assert held.dropped
        assert sorted(queues.queues) == [Q1]
        assert (Code.UPDATE_CONSUMER_OFFSET, 105) in [(code, ext.get("commitOffset")) for code, ext in instance.asked]
        assert offsets.noted(Q0) is None
        await queues.stop(1)

    run(story())


def test_an_orderly_queue_is_locked_first_and_unlocked_last() -> None:
    async def story() -> None:
        instance = Instance()
        instance.locked = [0]
        queues, offsets = consuming(instance, orderly=True)
        assert not await queues.share("T", [Q0, Q1]), "another member has the lock of the other"
        assert sorted(queues.queues) == [Q0]
        assert instance.codes()[0] == Code.LOCK_BATCH_MQ
        offsets.note(Q0, 5)
        assert await queues.share("T", [])
        assert instance.codes()[-2:] == [Code.UPDATE_CONSUMER_OFFSET, Code.UNLOCK_BATCH_MQ]
        await queues.stop(1)

    run(story())


def test_orderly_queue_is_kept_until_its_call_ends() -> None:
    async def story() -> None:
        instance = Instance()
        queues, _ = consuming(instance, orderly=True)
        await queues.share("T", [Q0])
        held = queues.queues[Q0]
        held.running = True
        assert not await queues.share("T", [])
        assert Code.UNLOCK_BATCH_MQ not in instance.codes()
        held.running = False
        assert await queues.share("T", [Q0]), "it came back: a fresh start from what is on record"
        assert queues.queues[Q0] is not held
        held = queues.queues[Q0]
        held.running = True
        held.dropped, held.dropped_ms = True, 1  # for longer than anybody waits
        assert await queues.share("T", [])
        await queues.stop(1)

    run(story())


def test_locks_are_renewed_and_lost() -> None:
    async def story() -> None:
        instance = Instance()
        queues, _ = consuming(instance, orderly=True)
        await queues.share("T", [Q0, Q1])
        for held in queues.queues.values():
            held.last_lock_ms = 1
        instance.locked = [1]
        await queues.renew_locks()
        assert [(held.locked, held.last_lock_ms > 1) for _, held in sorted(queues.queues.items())] == [
            (False, False),
            (True, True),
        ]
        instance.trouble[Code.LOCK_BATCH_MQ] = ConnectionLost("gone")
        await queues.renew_locks()
        assert queues.queues[Q1].locked, "not known is not lost; it grows old by itself"
        instance.trouble.clear()
        instance.locked = [0, 1]
        await queues.renew_locks()
        assert queues.queues[Q0].locked
        await queues.stop(1)

    run(story())


def test_moving_to_another_offset() -> None:
    async def story() -> None:
        instance = Instance()
        queues, offsets = consuming(instance)
        await queues.share("T", [Q0])
        before = queues.queues[Q0]
        await pulls(instance, 1)
        await queues.move({Q0: 3, Q1: 9})
        assert before.dropped
        assert await pulls(instance, 2) == [100, 3]
        assert offsets.noted(Q0) == 3
        assert offsets.noted(Q1) is None, "not ours"
        await queues.stop(1)

    run(story())


def test_nothing_is_pulled_while_paused() -> None:
    async def story() -> None:
        instance = Instance()
        queues, _ = consuming(instance)
        queues.pause(True)
        await queues.share("T", [Q0])
        await asyncio.sleep(0.05)
        assert Code.PULL_MESSAGE not in instance.codes()
        queues.pause(False)
        await pulls(instance, 1)
        await queues.stop(1)

    run(story())


def test_stop_commits_unlocks_and_leaves_no_task() -> None:
    async def story() -> None:
        instance = Instance()
        queues, offsets = consuming(instance, orderly=True)
        await queues.share("T", [Q0, Q1])
        await pulls(instance, 2)
        offsets.note(Q0, 1)
        offsets.note(Q1, 2)
        await queues.stop(1)
        assert instance.codes()[-3:] == [Code.UPDATE_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET, Code.UNLOCK_BATCH_MQ]
        assert len(asyncio.all_tasks()) <= 2, "this story and who bounds it"

    run(story())
