"""Offsets in the form of Spark's checkpoints: `{"Orders":{"broker-a":{"0":120}}}`, the next offset to read of every queue.

Spark compares offsets as JSON text, so equal offsets must yield equal text. `to_dict` sorts topics, brokers and queues; all
offsets given to Spark come from it. A queue is identified by the name of its broker, not by an address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firearrow.client.message import MessageQueue
from firearrow.spark.errors import SparkOptionError

EARLIEST = -2
LATEST = -1


class Queue(MessageQueue):
    """A queue of a topic on a broker, with a text for error messages."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} on {self.broker_name}"


Offsets = dict[Queue, int]


def to_dict(offsets: Mapping[Queue, int]) -> dict[str, Any]:
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    # Sorted as text, because Spark's JSON library may keep or sort the order of keys.
    return {
        topic: {broker: dict(sorted(queues.items())) for broker, queues in sorted(brokers.items())}
        for topic, brokers in sorted(nested.items())
    }


def from_dict(found: Mapping[str, Any], what: str = "the offsets", lowest: int = 0) -> Offsets:
    """Parse offsets. `what` names their origin, a user's option or a checkpoint, in the text of a SparkOptionError."""
    if "_v" in found:
        raise SparkOptionError(f"{what} have version {found['_v']!r}, which this release does not support")
    offsets: Offsets = {}
    for topic, brokers in found.items():
        for broker_name, queues in _object(brokers, what, f'"{topic}"').items():
            for number, offset in _object(queues, what, f'"{broker_name}" of {topic}').items():
                if not str(number).isdecimal():
                    raise SparkOptionError(f"{what} name the queue {number!r} of {topic} on {broker_name}, expected a number")
                queue = Queue(topic, broker_name, int(number))
                if not isinstance(offset, int) or isinstance(offset, bool) or offset < lowest:
                    help_ = ", -2 for earliest or -1 for latest" if lowest < 0 else ""
                    raise SparkOptionError(f"{what} say {offset!r} for {queue}, expected a whole number{help_}")
                offsets[queue] = offset
    return offsets


def parse_assigned(found: Mapping[str, Any]) -> list[Queue]:
    """Parse the option `assign`: `{"Orders":{"broker-a":[0,1]}}`."""
    queues = []
    for topic, brokers in found.items():
        for broker_name, numbers in _object(brokers, "assign", f'"{topic}"').items():
            if not isinstance(numbers, list) or not all(isinstance(number, int) and number >= 0 for number in numbers):
                raise SparkOptionError(f"assign says {numbers!r} for {topic} on {broker_name}, expected a list of queue numbers")
            queues += [Queue(topic, broker_name, number) for number in numbers]
    if not queues:
        raise SparkOptionError('assign names no queue, expected queues such as {"Orders":{"broker-a":[0,1]}}')
    return sorted(set(queues))


def _object(value: Any, what: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SparkOptionError(f"{what} have {value!r} for {where}, expected a JSON object")
    return value
