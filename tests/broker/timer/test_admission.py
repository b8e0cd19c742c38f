"""Admission of timer messages: which are held, under which properties, and which are rejected."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.broker.message import PREPARED, BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.timer.admission import TimerAdmission
from firearrow.store.filesystem import RealDisk
from firearrow.store.timer.wheel import TimerWheel
from firearrow.wire import properties
from firearrow.wire.names import RETRY_PREFIX, TIMER_TOPIC
from tests.broker.timing import BORN, DAY, HOUR, SECOND, T0, Timing

Recalls = list[tuple[str, int]]


@pytest.fixture
def recalls() -> Recalls:
    return []


@pytest.fixture
def admission(tmp_path: Path, recalls: Recalls) -> TimerAdmission:
    wheel = TimerWheel(RealDisk(), str(tmp_path / "timerwheel"), SECOND)
    settings = BrokerSettings(broker_name="broker-a")
    return TimerAdmission(settings, wheel, lambda identity, slot_ms: recalls.append((identity, slot_ms)))


def a_message(topic: str = "Orders", key: bytes = b"", **names: str) -> BrokerMessage:
    raw = properties.encode(names)
    return BrokerMessage(topic, 2, b"x", raw, 0, 0, T0, BORN, unique_key=key, internal=False)


def test_message_is_redirected_to_the_slot_before_its_delivery_time(admission: TimerAdmission) -> None:
    message = a_message(TIMER_DELAY_MS="2500", KEYS="k")
    assert admission.defer(message, T0)
    assert (message.topic, message.queue_id, message.real_topic, message.real_queue_id) == (TIMER_TOPIC, 0, "Orders", 2)
    known = properties.parse(message.properties)
    assert (known["TIMER_OUT_MS"], known["REAL_TOPIC"], known["REAL_QID"]) == (str(T0 + 2_000), "Orders", "2")
    assert known["KEYS"] == "k"


def test_reply_has_a_recall_handle_with_topic_broker_time_and_key(admission: TimerAdmission) -> None:
    message = a_message(key=b"U1", TIMER_DELAY_SEC="5")
    admission.defer(message, T0)
    assert message.reply_fields is not None
    handle = base64.urlsafe_b64decode(message.reply_fields["recallHandle"])
    assert handle == f"v1 Orders broker-a {T0 + 4_001} U1".encode()


@pytest.mark.parametrize(("topic", "key"), [("Orders", b""), (RETRY_PREFIX + "G", b"U1")])
def test_reply_has_no_recall_handle_without_key_or_for_a_retry(admission: TimerAdmission, topic: str, key: bytes) -> None:
    message = a_message(topic, key, TIMER_DELAY_SEC="5")
    assert admission.defer(message, T0)
    assert message.reply_fields is None


def test_recall_marker_is_announced_with_its_slot(admission: TimerAdmission, recalls: Recalls) -> None:
    assert admission.defer(a_message(TIMER_DELIVER_MS=str(T0 + 5_000), TIMER_DEL_UNIQKEY="U1"), T0)
    assert recalls == [("Orders+U1", T0 + 4_000)]


def test_check_reports_a_delivery_time_without_redirecting(admission: TimerAdmission) -> None:
    message = a_message(TIMER_DELAY_SEC="5")
    assert admission.check(message, T0)
    assert message.topic == "Orders"
    assert not admission.check(a_message(TIMER_DELAY_SEC="5", TIMER_OUT_MS="1"), T0)
    assert not admission.check(a_message(KEYS="k"), T0)


def test_half_message_is_not_deferred(timing: Timing) -> None:
    raw = properties.encode({"TIMER_DELAY_SEC": "5"})
    assert not timing.timers.defer(BrokerMessage("T", 0, b"x", raw, 0, PREPARED, T0, BORN), T0)
    assert timing.timers.defer(BrokerMessage("T", 0, b"x", raw, 0, 0, T0, BORN), T0)


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        ({"TIMER_DELAY_SEC": "soon"}, 13, "TIMER_DELAY_SEC is 'soon', expected a whole number"),
        ({"TIMER_DELAY_MS": "1.5"}, 13, "TIMER_DELAY_MS"),
        ({"TIMER_DELAY_MS": " 1"}, 13, "TIMER_DELAY_MS"),
        ({"TIMER_DELAY_MS": "\u0661"}, 13, "TIMER_DELAY_MS"),
        ({"TIMER_DELIVER_MS": "9223372036854775808"}, 13, "TIMER_DELIVER_MS"),
        ({"TIMER_DELIVER_MS": "9" * 400}, 13, "TIMER_DELIVER_MS"),
        ({"TIMER_DELAY_SEC": "259201"}, 13, "later than the max delay 259200000 ms"),
        ({"TIMER_DELAY_SEC": "9223372036854775807"}, 13, "raise timerMaxDelaySec"),
        ({"TIMER_DELIVER_MS": str(T0 + 259_200_001)}, 13, "in 259200001 ms"),
        ({"TIMER_DELIVER_MS": str(T0), "TIMER_DEL_UNIQKEY": "Orders+U"}, 13, "too late to recall"),
        ({"TIMER_DELAY_SEC": "5", "k": "v" * 32_600}, 13, "its properties take"),
    ],
)
def test_invalid_request_is_rejected_and_stores_nothing(timing: Timing, names: dict[str, Any], code: int, words: str) -> None:
    with pytest.raises(Refused) as refused:
        timing.put(b"x", **names)
    assert (refused.value.code, words in refused.value.remark) == (code, True), refused.value.remark
    assert timing.store.appended_offset == 0


def test_disabled_timer_wheel_is_reported(make: Callable[..., Timing]) -> None:
    timing = make(timer_wheel_enable=False)
    with pytest.raises(Refused, match="timerWheelEnable is false") as refused:
        timing.put(b"x", TIMER_DELAY_SEC="5")
    assert refused.value.code == 1
    timing.put(b"plain")
    assert timing.at(T0 + HOUR) == [b"plain"]


def test_full_slot_is_rejected_with_flow_control(make: Callable[..., Timing]) -> None:
    timing = make(timer_congest_num_each_slot=2)
    for _ in range(2):
        timing.put(b"x", TIMER_DELAY_SEC="5")
        timing.at(T0)
    with pytest.raises(Refused, match="flow control: 2 messages are due at the same time") as refused:
        timing.put(b"x", TIMER_DELAY_SEC="5")
    assert refused.value.code == 1
    timing.put(b"x", TIMER_DELAY_SEC="6")


NAMES = ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "REAL_TOPIC", "DELAY"]


values = st.one_of(
    st.integers(-(2**70), 2**70).map(str), st.integers(0, 10**6).map(str), st.text("0123456789-+.eE x", min_size=1)
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), values))
def test_any_delay_is_deferred_rejected_or_ignored(names: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as root:
        timing = Timing(root)
        message = BrokerMessage("Orders", 2, b"x", properties.encode(names), 0, 0, T0, BORN, internal=False)
        code, deferred = 0, False
        try:
            deferred = timing.timers.defer(message, T0)
        except Refused as refused:
            code = refused.code
        assert code in (0, 13)
        if deferred:
            known = properties.parse(message.properties)
            assert T0 - SECOND <= int(known["TIMER_OUT_MS"]) < T0 + 3 * DAY
            assert known.keys() >= {"REAL_TOPIC", "REAL_QID"}
        timing.store.close()


@pytest.mark.parametrize(
    "names",
    [{"TIMER_DELAY_SEC": "soon"}, {"TIMER_DELAY_SEC": "259201"}, {"TIMER_DELAY_SEC": "5", "k": "v" * 32_600}],
)
def test_internal_message_is_never_rejected(timing: Timing, names: dict[str, str]) -> None:
    """A transaction that was committed cannot be taken back: a time that cannot be is no time."""
    message = BrokerMessage("Orders", 2, b"committed", properties.encode(names), 0, 0, T0, BORN)
    timing.deferral.put(message, T0)
    timing.end_round()
    assert timing.at(T0) == [b"committed"]
