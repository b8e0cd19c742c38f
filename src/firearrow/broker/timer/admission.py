"""Admission of timer messages: validation of the delivery time and redirection to the timer topic."""

from __future__ import annotations

import base64
from collections.abc import Callable

from firearrow.broker.deferred.records import recall_key
from firearrow.broker.message import PREPARED, TRANSACTION_BITS, BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.broker.settings import BrokerSettings
from firearrow.store.timer.wheel import TimerWheel
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.names import RETRY_PREFIX, TIMER_TOPIC
from firearrow.wire.properties import find, parse_long, with_properties

_RESERVED_BYTES = 128  # of the properties, for those added at delivery
_NO_LIMIT = (1 << 31) - 1
# Property, unit in ms, base time (None: time of the send).
_TIME_PROPERTIES: tuple[tuple[bytes, int, int | None], ...] = (
    (b"TIMER_DELAY_SEC", 1000, None),
    (b"TIMER_DELAY_MS", 1, None),
    (b"TIMER_DELIVER_MS", 1, 0),
)


class TimerAdmission:
    """Decides which messages are held by the timer. `recall(identity, slot)` is called for each marker before it is stored."""

    def __init__(self, settings: BrokerSettings, wheel: TimerWheel, recall: Callable[[str, int], None]) -> None:
        self._settings = settings
        self._wheel = wheel
        self._recall = recall

    def defer(self, message: BrokerMessage, now_ms: int) -> bool:
        """Redirect a timer message to the timer topic; False if it has no delivery time, is a half message, or is due already."""
        raw = message.properties
        if b"TIMER_DEL" not in raw or message.sys_flag & TRANSACTION_BITS == PREPARED:
            return False
        if b"TIMER_OUT_MS\x01" in raw and find(raw, b"TIMER_OUT_MS") is not None:
            return False  # already delivered by a timer, and forwarded by its consumer with its properties
        key = find(raw, b"TIMER_DEL_UNIQKEY") if b"TIMER_DEL_" in raw else None
        try:
            deliver_ms = self._deliver_ms(raw, now_ms)
        except Refused:
            if message.internal and key is None:
                return False
            raise
        if deliver_ms is None:
            return False
        if deliver_ms <= now_ms:
            if key is None:
                return False
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message to be recalled was due at {deliver_ms}, it is {now_ms} now: too late to recall it",
            )
        out_ms = self._wheel.floor(deliver_ms - 1)
        if not message.internal:
            self._check_congestion(out_ms)
        stored = with_properties(
            raw, {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": message.topic, "REAL_QID": str(message.queue_id)}
        )
        if len(stored) > properties.MAX_BYTES - _RESERVED_BYTES:
            if message.internal and key is None:
                return False
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its properties take {len(stored)} bytes, the limit for a timer message is "
                f"{properties.MAX_BYTES - _RESERVED_BYTES}; send fewer or shorter ones",
            )
        if key is not None:
            self._recall(recall_key(message.topic, key.decode("utf-8", "replace")), out_ms)
        message.reply_fields = self._reply_fields(message, out_ms)
        message.hold_in(TIMER_TOPIC, 0, stored, tags_code_of(stored))
        return True

    def check(self, message: BrokerMessage, now_ms: int) -> bool:
        """Return whether the message asks for a delivery time. Raises Refused if that is not a number or too far ahead."""
        raw = message.properties
        asks = b"TIMER_DEL" in raw and find(raw, b"TIMER_OUT_MS") is None
        return asks and self._deliver_ms(raw, now_ms) is not None

    def _deliver_ms(self, raw: bytes, now_ms: int) -> int | None:
        """Return the requested delivery time; None if the message has none. Raises Refused if it cannot be granted."""
        deliver_ms = _requested_ms(raw, now_ms)
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
                f"timer message illegal, its delivery time is {deliver_ms}, in {deliver_ms - now_ms} ms, later than the max "
                f"delay {longest_ms} ms; send it for an earlier time, or raise timerMaxDelaySec",
            )
        return deliver_ms

    def _reply_fields(self, message: BrokerMessage, out_ms: int) -> dict[str, str] | None:
        if message.topic.startswith(RETRY_PREFIX) or not message.unique_key:
            return None
        unique_key = message.unique_key.decode()
        return {"recallHandle": recall_handle(message.topic, self._settings.broker_name, out_ms + 1, unique_key)}

    def _check_congestion(self, out_ms: int) -> None:
        limit = self._settings.timer_congest_num_each_slot
        slot = self._wheel.get(out_ms) if limit < _NO_LIMIT else None
        if slot is not None and slot.waiting >= limit:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control: {slot.waiting} messages are due at the same time, "
                f"timerCongestNumEachSlot is {limit}; send it for another time",
            )


def recall_handle(topic: str, broker_name: str, time_ms: int, unique_key: str) -> str:
    """Return the handle with which a producer can recall the message; recall.py parses it."""
    return base64.urlsafe_b64encode(f"v1 {topic} {broker_name} {time_ms} {unique_key}".encode()).decode()


def _requested_ms(raw: bytes, now_ms: int) -> int | None:
    """Parse the requested delivery time; None if the message has none."""
    for name, unit_ms, base_ms in _TIME_PROPERTIES if b"TIMER_DELAY_" in raw else _TIME_PROPERTIES[2:]:
        text = find(raw, name)
        if text is not None:
            number = parse_long(text)
            if number is None:
                value = text.decode("utf-8", "replace")[:64]
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"timer message illegal: {name.decode()} is {value!r}, expected a whole number",
                )
            return (now_ms if base_ms is None else base_ms) + number * unit_ms
    return None
