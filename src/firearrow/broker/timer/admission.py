"""Timer messages as they come: which moment they ask for, whether that can be had, and where they wait. timer.py has the rest."""

from __future__ import annotations

import base64
from collections.abc import Callable

from firearrow.broker.deferred.records import parse_long, recalled, with_names
from firearrow.broker.message import PREPARED, TRANSACTION_BITS, BrokerMessage
from firearrow.broker.requests.responses import Refused
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

    def defer(self, message: BrokerMessage, now_ms: int) -> bool:
        """Redirect a timer message to the timer topic; False if it is none, is a half message, or is due already."""
        raw = message.properties
        if b"TIMER_DEL" not in raw or message.sys_flag & TRANSACTION_BITS == PREPARED:
            return False
        if b"TIMER_OUT_MS\x01" in raw and find(raw, b"TIMER_OUT_MS") is not None:
            return False  # it has been delivered by a timer once and is sent on as it was consumed
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
                f"the message to be recalled is due at {deliver_ms}, now it is {now_ms}: too late to recall it",
            )
        out_ms = self._wheel.floor(deliver_ms - 1)
        if not message.internal:
            self._check_congestion(out_ms)
        stored = with_names(raw, {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": message.topic, "REAL_QID": str(message.queue_id)})
        if len(stored) > properties.MAX_BYTES - _STAMPS_BYTES:
            if message.internal and key is None:
                return False
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its properties take {len(stored)} bytes, the limit for a timer message is "
                f"{properties.MAX_BYTES - _STAMPS_BYTES}; send fewer or shorter ones",
            )
        if key is not None:
            self._recall(recalled(message.topic, key.decode("utf-8", "replace")), out_ms)
        message.reply_fields = self._reply_fields(message, out_ms)
        message.hold_in(TIMER_TOPIC, 0, stored, tags_code_of(stored))
        return True

    def check(self, message: BrokerMessage, now_ms: int) -> bool:
        """Return whether the message asks for a delivery time. Raises Refused if that is not a number or too far ahead."""
        raw = message.properties
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
