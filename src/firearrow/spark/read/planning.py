"""Which offsets a batch reads, and how they become tasks. Plain arithmetic: the same input always gives the same tasks, which a
replayed batch of a stream relies on.

A task costs tens of milliseconds whatever it reads, a message about two microseconds: small ranges share a task, large ones are
split. Ranges of one broker stay together, and the messages of a queue keep their order within a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from firearrow.spark.read.offsets import Offsets, Queue


class Range(NamedTuple):
    """Offsets `first` to `end` (exclusive) of a queue."""

    queue: Queue
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


def ranges(start: Mapping[Queue, int], end: Mapping[Queue, int]) -> list[Range]:
    """What lies between two offsets. A queue that is not in `start` was not known then: its first end says where it begins."""
    found = (Range(queue, start.get(queue, offset), offset) for queue, offset in sorted(end.items()))
    return [one for one in found if one.size > 0]


def tasks(wanted: Sequence[Range], *, least: int, most: int, min_tasks: int | None = None) -> list[list[Range]]:
    """`least`: small ranges share a task until it has so many messages. `most`: no task has more."""
    total = sum(one.size for one in wanted)
    if min_tasks is not None and total:
        most = max(1, min(most, -(-total // min_tasks)))
        least = min(least, most)
    made: list[list[Range]] = []
    held = 0
    for piece in _pieces(wanted, most):
        last = made[-1][-1].queue if made else None
        shares = last is not None and last.broker_name == piece.queue.broker_name and held < least and held + piece.size <= most
        if shares:
            made[-1].append(piece)
            held += piece.size
        else:
            made.append([piece])
            held = piece.size
    return made


def limited(start: Mapping[Queue, int], end: Mapping[Queue, int], most: int) -> Offsets:
    """The ends of a batch of about `most` messages, shared by what the queues hold; each that holds any gets at least one."""
    held = {queue: offset - start.get(queue, offset) for queue, offset in end.items()}
    total = sum(count for count in held.values() if count > 0)
    if total <= most:
        return dict(end)
    return {
        queue: offset if held[queue] <= 0 else start[queue] + min(held[queue], max(1, held[queue] * most // total))
        for queue, offset in end.items()
    }


def _pieces(wanted: Sequence[Range], most: int) -> list[Range]:
    """By broker, then topic and queue; what is larger than `most` in equal parts."""
    made = []
    for queue, first, end in sorted(wanted, key=lambda one: (one.queue.broker_name, one.queue.topic, one.queue.queue_id)):
        parts = -(-(end - first) // most)
        size = -(-(end - first) // parts)
        made += [Range(queue, begin, min(begin + size, end)) for begin in range(first, end, size)]
    return made
