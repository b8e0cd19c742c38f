"""Half messages that were sent a moment ago, as they were sent.

Most transactions are committed within milliseconds. What such a commit stores is then known from the send, and nothing has to be
read from the log, taken apart and searched for it, which is most of the work of a commit.

A ring: the half with the queue offset n has the place n modulo `PLACES`, until it is decided or a later one takes the place. At
most 32 MB, when producers leave everything open. Nothing depends on it: what is not here is read from the log.

Only what needs no second look is kept: no large messages, none that may be delayed when it is committed, none that says how long
it does not want to be asked about.
"""

from __future__ import annotations

from firearrow.broker.message import BrokerMessage

PLACES = 8192
LARGEST_KEPT = 4096  # bytes of body and properties

_BOUND_FOR = b"\x02REAL_TOPIC\x01"  # the last properties of a half that was just sent are this and the queue


class HalfMessageCache:
    def __init__(self) -> None:
        self._ring: list[BrokerMessage | None] = [None] * PLACES

    def keep(self, half: BrokerMessage) -> None:
        if len(half.body) + len(half.properties) <= LARGEST_KEPT:
            self._ring[half.queue_offset % PLACES] = half

    def find(self, queue_offset: int) -> BrokerMessage | None:
        half = self._ring[queue_offset % PLACES]
        return half if half is not None and half.queue_offset == queue_offset else None

    def forget(self, queue_offset: int) -> None:
        """It is decided."""
        self._ring[queue_offset % PLACES] = None


def properties_when_committed(raw: bytes) -> bytes:
    """Of a half that was just sent: without where it is bound for. (It has none of the others that a commit takes off.)"""
    return raw[: raw.rindex(_BOUND_FOR) + 1]
