"""Timer messages as they come: which moment they ask for, whether that can be had, and where they wait. timer.py has the rest."""

from __future__ import annotations

import base64
from collections.abc import Callable

from firearrow.broker.deferred.records import parse_long, recalled, with_names
from firearrow.broker.deferred.router import PREPARED, TRANSACTION_BITS, DeferredTarget, IncomingMessage
from firearrow.broker.requests.refused import Refused
from firearrow.broker.settings import BrokerSettings
from firearrow.store.timer.wheel import TimerWheel
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.names import RETRY_PREFIX, TIMER_TOPIC
from firearrow.wire.properties import find

_STAMPS_BYTES = 128  # kept free in the properties for what is added at the delivery
_NO_LIMIT = (1 << 31) - 1
# Name, unit in ms, since when; None: since it is sent.
_ASKING: tuple[tuple[bytes, int, int | None], ...] = (
    (b"TIMER_DELAY_SEC", 1000, None),
    (b"TIMER_DELAY_MS", 1, None),
    (b"TIMER_DELIVER_MS", 1, 0),
)


class TimerAdmission:
    """`recall(identity, slot)` hears of every marker before it is stored."""

    def __init__(self, settings: BrokerSettings, wheel: TimerWheel, recall: Callable[[str, int], None]) -> None:
        self._settings = settings
        self._wheel = wheel
        self._recall = recall

    def place(self, arrival: IncomingMessage, now_ms: int) -> DeferredTarget | None:
        """Where a timer message waits; None if it is none, is half of a transaction, or its time has come already."""
        raw = arrival.properties
        if b"TIMER_DEL" not in raw or arrival.sys_flag & TRANSACTION_BITS == PREPARED:
            return None
        if b"TIMER_OUT_MS\x01" in raw and find(raw, b"TIMER_OUT_MS") is not None:
            return None  # it has been delivered by a timer once and is sent on as it was consumed
        key = find(raw, b"TIMER_DEL_UNIQKEY") if b"TIMER_DEL_" in raw else None
        try:
            deliver_ms = self._deliver_ms(raw, now_ms)
        except Refused:
            if arrival.inner and key is None:
                return None
            raise
        if deliver_ms is None:
            return None
        if deliver_ms <= now_ms:
            if key is None:
                return None
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message to be recalled is due at {deliver_ms}, now it is {now_ms}: too late to recall it",
            )
        out_ms = self._wheel.floor(deliver_ms - 1)
        if not arrival.inner:
            self._check_congestion(out_ms)
        stored = with_names(raw, {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": arrival.topic, "REAL_QID": str(arrival.queue_id)})
        if len(stored) > properties.MAX_BYTES - _STAMPS_BYTES:
            if arrival.inner and key is None:
                return None
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its properties take {len(stored)} bytes, the limit for a timer message is "
                f"{properties.MAX_BYTES - _STAMPS_BYTES}; send fewer or shorter ones",
            )
        if key is not None:
            self._recall(recalled(arrival.topic, key.decode("utf-8", "replace")), out_ms)
        return DeferredTarget(TIMER_TOPIC, 0, stored, tags_code_of(stored), arrival.sys_flag, self._reply(arrival, out_ms))

    def check(self, arrival: IncomingMessage, now_ms: int) -> bool:
        """Whether the message asks for a moment; Refused when that is none, or too far ahead."""
        raw = arrival.properties
        asks = b"TIMER_DEL" in raw and find(raw, b"TIMER_OUT_MS") is None
        return asks and self._deliver_ms(raw, now_ms) is not None

    def _deliver_ms(self, raw: bytes, now_ms: int) -> int | None:
        """When the message asks to be delivered; None if it does not ask."""
        deliver_ms = _asked_ms(raw, now_ms)
        if deliver_ms is None:
            return None
        if not self._settings.timer_wheel_enable:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false; set it to true"
            )
        longest_ms = self._settings.timer_max_delay_sec * 1000
        if deliver_ms - now_ms > longest_ms:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"timer message illegal, it is to be delivered at {deliver_ms}, in {deliver_ms - now_ms} ms, later than the max "
                f"delay {longest_ms} ms; send it for an earlier time, or raise timerMaxDelaySec",
            )
        return deliver_ms

    def _reply(self, arrival: IncomingMessage, out_ms: int) -> dict[str, str]:
        if arrival.topic.startswith(RETRY_PREFIX) or not arrival.unique_key:
            return {}
        return {"recallHandle": recall_handle(arrival.topic, self._settings.broker_name, out_ms + 1, arrival.unique_key)}

    def _check_congestion(self, out_ms: int) -> None:
        limit = self._settings.timer_congest_num_each_slot
        slot = self._wheel.get(out_ms) if limit < _NO_LIMIT else None
        if slot is not None and slot.waiting >= limit:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control: {slot.waiting} messages wait for the same moment, "
                f"timerCongestNumEachSlot is {limit}; send it for another time",
            )


def recall_handle(topic: str, broker_name: str, time_ms: int, unique_key: str) -> str:
    """What a producer needs to recall the message; recall.py reads it."""
    return base64.urlsafe_b64encode(f"v1 {topic} {broker_name} {time_ms} {unique_key}".encode()).decode()


def _asked_ms(raw: bytes, now_ms: int) -> int | None:
    """What the message asks for, whether it can be had or not; None if it does not ask."""
    for name, unit_ms, since_ms in _ASKING if b"TIMER_DELAY_" in raw else _ASKING[2:]:
        text = find(raw, name)
        if text is not None:
            number = parse_long(text)
            if number is None:
                value = text.decode("utf-8", "replace")[:64]
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"timer message illegal: {name.decode()} is {value!r}, expected a whole number",
                )
            return (now_ms if since_ms is None else since_ms) + number * unit_ms
    return None
