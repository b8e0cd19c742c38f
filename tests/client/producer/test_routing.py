from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from firearrow.client.producer.fault_avoidance import FaultTable
from firearrow.client.producer.routing import RoundRobin, by_sharding_key


@dataclass(frozen=True)
class Queue:
    broker_name: str
    number: int


QUEUES = [Queue(broker, number) for broker in "ab" for number in range(3)]


def test_queues_take_turns() -> None:
    turns = RoundRobin()
    assert set(Counter(turns.choose(QUEUES) for _ in range(60)).values()) == {10}


def test_after_a_failure_another_broker_is_taken_if_there_is_one() -> None:
    turns = RoundRobin()
    assert {turns.choose(QUEUES, "a").broker_name for _ in range(20)} == {"b"}
    assert len({turns.choose(QUEUES, "a") for _ in range(20)}) == 3
    assert turns.choose(QUEUES[:1], "a") == QUEUES[0]


def test_brokers_that_are_to_be_left_alone_are() -> None:
    turns, faults = RoundRobin(), FaultTable()
    faults.failed("a", 1, now_ms=0, reachable=True)
    assert {turns.choose_available(QUEUES, faults, 1).broker_name for _ in range(20)} == {"b"}
    faults.failed("b", 1, now_ms=1, reachable=False)
    assert {turns.choose_available(QUEUES, faults, 2).broker_name for _ in range(20)} == {"a"}  # slow, but it can be reached
    assert {turns.choose_available(QUEUES, faults, 2, "a").broker_name for _ in range(20)} == {"b"}
    faults.failed("a", 1, now_ms=3, reachable=False)
    assert {turns.choose_available(QUEUES, faults, 4).broker_name for _ in range(20)} == {"b"}  # the one that is back earlier
    assert len({turns.choose_available(QUEUES, faults, 99_999).broker_name for _ in range(20)}) == 2


@pytest.mark.parametrize(("key", "index"), [("order-7", 0), ("", 0), ("a", 1), ("polygenelubricants", 0)])
def test_a_key_has_its_queue_as_in_java(key: str, index: int) -> None:
    # "order-7".hashCode() is -1207109572, "a".hashCode() 97, "polygenelubricants".hashCode() Integer.MIN_VALUE
    assert by_sharding_key(4, key) == index
