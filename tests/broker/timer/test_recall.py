"""Recalling timer messages: which come, which do not, and what is refused."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.timer import recall
from firearrow.broker.timer.admission import recall_handle
from firearrow.broker.timer.recall import RecallHandle
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.names import TIMER_TOPIC
from firearrow.wire.record import decode_all
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import T0, Kit, decode
from tests.broker.running import bodies, broker, client
from tests.broker.timing import DAY, HOUR, SECOND, Timing, names_of
from tests.support.waiting import run

OUT = T0 + 4_000  # the slot of a message that is sent at T0 for T0 + 5 s


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    made.topic("Orders")
    made.handlers |= recall.handlers(made.context)
    yield made
    made.close()


def ask(kit: Kit, *, topic: str = "Orders", handle: str | None = None) -> Command:
    """The answer to a recall, which is kept until the marker is stored."""
    conn = FakeConnection(50001)
    wanted = recall_handle("Orders", "broker-a", OUT + 1, "U") if handle is None else handle
    early = kit.start(370, conn=conn, topic=topic, recallHandle=wanted, producerGroup="P")
    return decode(early if early is not None else conn.written[0])


def test_recall_stores_a_marker_for_the_same_slot(kit: Kit) -> None:
    answer = ask(kit)
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"msgId": "U", "MSG_REGION": "DefaultRegion"})
    kit.store.write_out()
    kit.store.confirm(kit.store.max_offset)
    result = kit.store.get_messages(kit.store.queue(TIMER_TOPIC, 0), 0, 32)
    (marker,) = decode_all(result.body)
    assert marker.body == b"0"
    assert properties.parse(marker.properties) == {
        "TAGS": "_RECALL_TAG_",
        "UNIQ_KEY": "U",
        "TIMER_DEL_UNIQKEY": "U",
        "TIMER_DELIVER_MS": str(OUT + 1),
        "BORN_TIMESTAMP": str(T0),
        "PGROUP": "P",
        "TIMER_OUT_MS": str(OUT),
        "REAL_TOPIC": "Orders",
        "REAL_QID": "0",
    }


def encoded(text: str | bytes) -> str:
    return base64.urlsafe_b64encode(text.encode() if isinstance(text, str) else text).decode()


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "Unknown"}, 17, "the topic[Unknown] not exist"),
        ({"handle": "!"}, 604, "not URL-safe Base64"),
        ({"handle": ""}, 604, "does not hold"),
        ({"handle": encoded(b"\xff\xfe")}, 604, "not URL-safe Base64 text"),
        ({"handle": encoded("v2 Orders broker-a 1 U")}, 604, "does not hold 'v1 topic broker time key'"),
        ({"handle": encoded("v1 Orders broker-a 1")}, 604, "does not hold"),
        ({"handle": encoded("v1 Orders broker-a soon U")}, 604, "does not hold"),
        ({"handle": encoded(f"v1 Orders broker-a {OUT} ")}, 604, "does not hold"),
        ({"handle": encoded(f"v1 Orders broker-a {OUT} U\x02x")}, 604, "contains an invalid key"),
        ({"handle": "A" * 5000}, 604, "5000 characters"),
        ({"handle": recall_handle("Other", "broker-a", OUT, "U")}, 604, "topic not match"),
        ({"handle": recall_handle("Orders", "broker-b", OUT, "U")}, 604, "is on broker broker-b, this is broker-a"),
        ({"handle": recall_handle("Orders", "broker-a", T0, "U")}, 604, "was due at"),
        ({"handle": recall_handle("Orders", "broker-a", -5, "U")}, 604, "was due at"),
        ({"handle": recall_handle("Orders", "broker-a", T0 + 259_200_000, "U")}, 604, "further ahead"),
    ],
)
def test_invalid_request_is_rejected_and_stores_nothing(kit: Kit, fields: dict[str, Any], code: int, words: str) -> None:
    answer = ask(kit, **fields)
    assert (answer.code, words in (answer.remark or "")) == (code, True), answer.remark
    assert answer.ext == {"MSG_REGION": "DefaultRegion"}  # Java clients trace failed recalls too
    assert kit.store.appended_offset == 0


def test_recall_can_be_disabled(kit: Kit) -> None:
    kit.settings.recall_message_enable = False
    answer = ask(kit)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "recallMessageEnable" in (answer.remark or "")


@pytest.mark.parametrize(
    ("text", "key", "time_ms"),
    [
        (
            "djEgV0RlbGF5XzU1IGJyb2tlci1hIDE3OTQ3ODU3NjMwMDEgRkQwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDI3NDg0MzA5NDZFMDk0RDI5NkVFODAwMDE=",
            "FD000000000000000000000000000002748430946E094D296EE80001",
            1_794_785_763_001,
        ),
        (
            "djEgV0RlbGF5XzU1IGJyb2tlci1hIDE3OTQ3ODU3NjQwMDEgRkQwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDI3NDg0MzA5NDZFMDk0RDI5NkYwNzAwMDI=",
            "FD000000000000000000000000000002748430946E094D296F070002",
            1_794_785_764_001,
        ),
    ],
)
def test_handles_equal_apaches(text: str, key: str, time_ms: int) -> None:
    """Both were sent by Apache RocketMQ 5.5.0."""
    handle = RecallHandle.parse(text)
    assert handle == ("WDelay_55", "broker-a", time_ms, key)
    assert recall_handle(*handle) == text
    assert RecallHandle.parse(text.rstrip("=")) == handle


# Which messages come.


@pytest.fixture
def timing(tmp_path: Path) -> Iterator[Timing]:
    told = Timing(tmp_path / "store")
    yield told
    told.store.close()


def mark(timing: Timing, key: str, out_ms: int, *, topic: str = "Orders", named: str = "{key}") -> None:
    named = named.format(topic=topic, key=key)
    timing.put(b"0", topic=topic, TIMER_DELIVER_MS=str(out_ms + 1), TIMER_DEL_UNIQKEY=named, UNIQ_KEY=key)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("entered", [False, True])
def test_only_the_recalled_message_is_not_delivered(timing: Timing, entered: bool, restarted: bool) -> None:
    for key in ("A", "B", "C"):
        timing.put(key.encode(), TIMER_DELIVER_MS=str(T0 + 5_000), UNIQ_KEY=key)
    if entered:
        timing.go(T0)
    mark(timing, "B", OUT)
    if restarted:
        timing.restart()
    assert timing.at(T0 + HOUR) == [b"A", b"C"]


@pytest.mark.parametrize("recalled_at_ms", [OUT - 1, OUT])
def test_recall_just_before_delivery_takes_effect(timing: Timing, recalled_at_ms: int) -> None:
    """It is accepted, and its message due, while its marker is still on the way to the disk."""
    timing.put(b"A", TIMER_DELIVER_MS=str(OUT + 1), UNIQ_KEY="A")
    timing.put(b"B", TIMER_DELIVER_MS=str(OUT + 1), UNIQ_KEY="B")
    timing.go(recalled_at_ms)
    timing.append(b"0", TIMER_DELIVER_MS=str(OUT + 1), TIMER_DEL_UNIQKEY="A", UNIQ_KEY="A")
    for now_ms in (OUT, OUT + 1, OUT + 2):
        timing.timers.tick(now_ms)
    timing.end_round()
    assert timing.at(T0 + HOUR) == [b"B"]


def test_late_message_and_marker_cancel_each_other(timing: Timing) -> None:
    timing.put(b"A", TIMER_DELAY_SEC="5", UNIQ_KEY="A")
    for number in range(2_500):
        timing.append(b"%d" % number, TIMER_DELAY_SEC="5")
    mark(timing, "A", OUT)
    delivered = timing.at(T0 + HOUR)  # all of it at once, long after it was due
    assert len(delivered) == 2_500
    assert b"A" not in delivered


def test_partly_delivered_slot_keeps_its_recalls(timing: Timing) -> None:
    for number in range(5):
        timing.put(b"%d" % number, TIMER_DELIVER_MS=str(OUT + 100 + number * 100), UNIQ_KEY=f"K{number}")
    mark(timing, "K3", OUT)
    assert timing.at(OUT + 250) == [b"0", b"1"]
    timing.restart()
    timing.restart()
    assert timing.at(T0 + HOUR) == [b"0", b"1", b"2", b"4"]


@pytest.mark.parametrize("named", ["{key}", "{topic}+{key}"])
def test_both_forms_of_a_key_are_accepted(timing: Timing, named: str) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5", UNIQ_KEY="A")
    mark(timing, "A", OUT, named=named)
    assert timing.at(T0 + HOUR) == []


@pytest.mark.parametrize("named", ["{key}", "{topic}+{key}", "Orders+{key}"])
def test_only_messages_of_the_same_topic_can_be_recalled(timing: Timing, named: str) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="5", UNIQ_KEY="A")
    mark(timing, "A", OUT, topic="Others", named=named)
    assert timing.at(T0 + HOUR) == [b"x"]


@pytest.mark.parametrize("after_ms", [0, HOUR, DAY - HOUR, DAY + HOUR, 2 * DAY, 216_000_000 - 2 * SECOND])
def test_a_message_that_rolls_is_recalled_at_any_time(timing: Timing, after_ms: int) -> None:
    timing.put(b"x", TIMER_DELAY_SEC="216000", UNIQ_KEY="A")
    timing.put(b"y", TIMER_DELAY_SEC="216000", UNIQ_KEY="B")
    out_ms = int(names_of(timing.waiting()[0])["TIMER_OUT_MS"])
    timing.go(T0)
    for hours in range(after_ms // HOUR + 1):
        timing.go(T0 + hours * HOUR)
    timing.go(T0 + after_ms)
    mark(timing, "A", out_ms)
    for hours in range(after_ms // HOUR, 100):
        timing.go(T0 + hours * HOUR)
    assert [record.body for record in timing.delivered()] == [b"y"]


def test_recall_over_the_wire(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, flush="SYNC_FLUSH", timer_precision_ms=100) as running, client(running) as c:
            kept = await c.send("Orders", b"kept", TIMER_DELAY_MS="3000", UNIQ_KEY="A")
            gone = await c.send("Orders", b"gone", TIMER_DELAY_MS="3000", UNIQ_KEY="B")
            assert "recallHandle" in kept.ext
            answer = await c.call(370, {"topic": "Orders", "recallHandle": gone.ext["recallHandle"]})
            assert (answer.code, answer.ext["msgId"]) == (ResponseCode.SUCCESS, "B")
            pulled = await c.pull("Orders", 0, flags=6, hold_ms=15_000)
            assert bodies(pulled) == [b"kept"]
            await asyncio.sleep(0.2)
            assert bodies(await c.pull("Orders", 0)) == [b"kept"]
            late = await c.call(370, {"topic": "Orders", "recallHandle": kept.ext["recallHandle"]})
            assert late.code == ResponseCode.ILLEGAL_OPERATION

    run(story())


def test_only_timer_messages_have_a_handle(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            kinds: list[dict[str, Any]] = [{}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "0"}, {"DELAY": "1", "TIMER_DELAY_MS": "900"}]
            for names in kinds:
                sent = await c.send("Orders", b"x", **names)
                assert (sent.code, "recallHandle" in sent.ext) == (0, False)
            refused = await c.send("Orders", b"x", TIMER_DELAY_SEC="259201")
            assert refused.code == ResponseCode.MESSAGE_ILLEGAL

    run(story())
