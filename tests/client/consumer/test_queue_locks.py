"""Locking and unlocking queues at the brokers."""

from __future__ import annotations

from typing import Any

from firearrow.client.consumer.queue_locks import QueueLockClient
from firearrow.client.errors import ConnectionLost
from firearrow.client.message import MessageQueue
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command
from tests.support.waiting import run

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)


class Brokers:
    """Two brokers that grant all locks but those in `taken`. Records (way, address, code, body)."""

    client_id = "me"

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int, dict[str, Any]]] = []
        self.taken: set[int] = set()
        self.down: set[str] = set()
        self.response: bytes | None = None

    def broker_address(self, name: str) -> tuple[str, bool]:
        return {"a": "1:1", "b": "2:2"}[name], False

    async def check(self, address: str, code: int, body: bytes, *, timeout_ms: int) -> Command:
        request = self._record("call", address, code, body)
        granted = [queue for queue in request["mqSet"] if queue["queueId"] not in self.taken]
        return Command(0, body=fastjson.dumps({"lockOKMQSet": granted}) if self.response is None else self.response)

    async def oneway(self, address: str, code: int, body: bytes) -> None:
        self._record("oneway", address, code, body)

    def _record(self, way: str, address: str, code: int, body: bytes) -> dict[str, Any]:
        request: dict[str, Any] = fastjson.loads(body)
        self.requests.append((way, address, code, request))
        if address in self.down:
            raise ConnectionLost(f"{address} is down")
        return request


def test_each_broker_gets_one_request_for_all_its_queues() -> None:
    brokers: Any = Brokers()
    assert run(QueueLockClient(brokers, "g").lock([B0, A1, A0])) == ({A0, A1, B0}, set())
    (_, first, code, body), (_, second, _, _) = brokers.requests
    assert (first, second, code) == ("1:1", "2:2", RequestCode.LOCK_BATCH_MQ)
    assert (body["consumerGroup"], body["clientId"]) == ("g", "me")
    assert [queue["queueId"] for queue in body["mqSet"]] == [0, 1]


def test_queue_locked_by_another_member_is_neither_ours_nor_unknown() -> None:
    brokers: Any = Brokers()
    brokers.taken = {1}
    assert run(QueueLockClient(brokers, "g").lock([A0, A1])) == ({A0}, set())


def test_queues_of_an_unreachable_broker_are_unknown() -> None:
    brokers: Any = Brokers()
    brokers.down = {"1:1"}
    assert run(QueueLockClient(brokers, "g").lock([A0, A1, B0])) == ({B0}, {A0, A1})


def test_queues_of_a_broker_with_a_malformed_response_are_unknown() -> None:
    brokers: Any = Brokers()
    brokers.response = b"{"
    assert run(QueueLockClient(brokers, "g").lock([A0])) == (set(), {A0})


def test_unlock_waits_for_responses_only_if_asked() -> None:
    brokers: Any = Brokers()
    run(QueueLockClient(brokers, "g").unlock([A0]))
    run(QueueLockClient(brokers, "g").unlock([A0], confirmed=True))
    assert [(way, code) for way, _, code, _ in brokers.requests] == [
        ("oneway", RequestCode.UNLOCK_BATCH_MQ),
        ("call", RequestCode.UNLOCK_BATCH_MQ),
    ]


def test_unreachable_broker_does_not_prevent_unlocking_at_the_others() -> None:
    brokers: Any = Brokers()
    brokers.down = {"1:1"}
    run(QueueLockClient(brokers, "g").unlock([A0, B0], confirmed=True))
    assert [address for _, address, _, _ in brokers.requests] == ["1:1", "2:2"]
