"""Finding messages and offsets: 12, 33, 29 to 32."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.wire import record
from firearrow.wire.frame import Command
from tests.broker import captures
from tests.broker.kit import Kit

FOREVER = 2**63 - 1


def bodies(answer: Command) -> list[bytes]:
    return [found.body for found in record.decode_all(answer.body)]


def by_key(kit: Kit, key: str, topic: str = "T", **ext: Any) -> Command:
    wish: dict[str, Any] = {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": FOREVER}
    return kit.ask(12, **wish | ext)


def test_message_is_found_by_each_key_and_by_its_unique_key(kit: Kit) -> None:
    offset = kit.put("T", 0, b"one", tags="TagA", keys="k1 k2", uniq="U1")
    kit.now += 10_000  # the index keeps whole seconds
    kit.put("T", 1, b"two", keys="k2", uniq="U2")
    assert bodies(by_key(kit, "k1")) == [b"one"]
    assert bodies(by_key(kit, "k2")) == [b"one", b"two"]
    assert bodies(by_key(kit, "U2", _UNIQUE_KEY_QUERY="true", indexType="U", maxNum=0)) == [b"two"]
    assert bodies(by_key(kit, "TagA", indexType="T")) == [b"one"]
    assert bodies(by_key(kit, "k2", beginTimestamp=kit.now)) == [b"two"]
    assert bodies(by_key(kit, "k2", endTimestamp=kit.now - 1)) == [b"one"]
    assert bodies(kit.ask(33, offset=offset, topic="T")) == [b"one"]


def test_response_carries_the_progress_of_the_index(kit: Kit) -> None:
    kit.put("T", 0, b"one", keys="k")
    offset = kit.put("T", 0, b"two", keys="k")
    answer = by_key(kit, "k")
    assert answer.ext == {"indexLastUpdatePhyoffset": str(offset), "indexLastUpdateTimestamp": str(kit.now)}
    assert answer.ext.keys() == captures.ext(captures.answer("java-5.5.0-query", "QUERY_MESSAGE")).keys()


def test_empty_result_is_answered_like_apache(kit: Kit) -> None:
    recorded = captures.answer("java-5.5.0-query", "QUERY_MESSAGE", code=22)
    kit.put("T", 0, b"one", keys="k")
    for answer in (by_key(kit, "nokey"), by_key(kit, "k", topic="Other"), by_key(kit, "k", endTimestamp=1)):
        assert (answer.code, answer.remark) == (22, recorded["header"]["remark"])
        assert answer.ext == captures.ext(recorded)


@pytest.mark.parametrize("offset", [-1, 1, 10_000, FOREVER])
def test_unknown_message_id_is_rejected(kit: Kit, offset: int) -> None:
    kit.put("T", 0, b"one")
    answer = kit.ask(33, offset=offset)
    assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")


@pytest.mark.parametrize("max_num", [0, -5, "x", 2**31])
def test_invalid_max_num_is_rejected(kit: Kit, max_num: object) -> None:
    assert by_key(kit, "k", maxNum=max_num).code == 29


def test_query_returns_at_most_max_num_messages(kit: Kit) -> None:
    for _ in range(70):
        kit.put("T", 0, b"x", keys="k")
    assert len(bodies(by_key(kit, "k", maxNum=1000))) == 64
    assert len(bodies(by_key(kit, "k", maxNum=3))) == 3


def test_offsets_by_time_and_at_the_ends(kit: Kit) -> None:
    times = []
    for _ in range(3):
        kit.put("T", 0, b"x")
        times.append(kit.now)
        kit.now += 100

    def search(timestamp: int, boundary: str | None = None) -> str:
        ext: dict[str, Any] = {"topic": "T", "queueId": 0, "timestamp": timestamp}
        answer = kit.ask(29, **ext | ({"boundaryType": boundary} if boundary else {}))
        offset: str = answer.ext["offset"]
        return offset

    assert kit.ask(30, topic="T", queueId=0, committed="true").ext == {"offset": "3"}
    assert kit.ask(31, topic="T", queueId=0).ext == {"offset": "0"}
    assert kit.ask(32, topic="T", queueId=0).ext == {"timestamp": str(times[0])}
    assert [search(time) for time in (0, times[0], times[0] + 1, times[1], times[2], times[2] + 1)] == [
        "0",
        "0",
        "1",
        "1",
        "2",
        "3",
    ]
    assert [search(time, "UPPER") for time in (0, times[0], times[1], times[1] + 50, FOREVER)] == ["0", "0", "1", "1", "2"]
    assert search(times[1], "lower") == "1"


def test_unknown_topic_is_empty(kit: Kit) -> None:
    for topic, queue_id in (("Nope", 0), ("T", 99), ("../../x", -1)):
        where: dict[str, Any] = {"topic": topic, "queueId": queue_id}
        assert kit.ask(29, timestamp=5, **where).ext == {"offset": "0"}
        assert kit.ask(30, **where).ext == {"offset": "0"}
        assert kit.ask(31, **where).ext == {"offset": "0"}
        assert kit.ask(32, **where).ext == {"timestamp": "-1"}
    assert kit.store.topics() == set()


def test_captured_requests_are_answered(kit: Kit) -> None:
    for session in ("java-5.5.0-pull", "java-4.9.8-pull"):
        for code in (29, 30, 31, 32):
            for line in captures.requests(session, code):
                answer = kit.ask(code, **captures.ext(line))
                assert answer.code == 0
                assert answer.ext.keys() == captures.ext(captures.answer(session, line["name"])).keys()
