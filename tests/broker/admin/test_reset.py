"""Moving a group."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker import captures
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import T0, Kit, body_of


@pytest.fixture
def ready(kit: Kit) -> Kit:
    """Topic WAdm with two queues, four messages each, a second apart; group WAdmG_55 at their end."""
    kit.topic("WAdm", 2)
    kit.context.groups.find_or_create("WAdmG_55", kit.now)
    for _ in range(4):
        for queue_id in range(2):
            kit.put("WAdm", queue_id, b"x")
        kit.now += 1000
    for queue_id in range(2):
        kit.context.offsets.commit("WAdmG_55", "WAdm", queue_id, 4)
    return kit


def reset(kit: Kit, **ext: Any) -> dict[int, int]:
    wish: dict[str, Any] = {"topic": "WAdm", "group": "WAdmG_55", "timestamp": 0, "isForce": "true", "queueId": -1, "offset": -1}
    return {mq["queueId"]: offset for mq, offset in body_of(kit.ask(222, **wish | ext))["offsetTable"]}


def offsets(kit: Kit) -> list[int | None]:
    return [kit.context.offsets.query("WAdmG_55", "WAdm", queue_id) for queue_id in range(2)]


def test_a_captured_reset_of_mqadmin(ready: Kit) -> None:
    (line,) = captures.requests("mqadmin-5.5.0-resetOffsetByTime", 222)
    recorded = captures.json_body(captures.answer("mqadmin-5.5.0-resetOffsetByTime", "INVOKE_BROKER_TO_RESET_OFFSET"))
    ready.beat(FakeConnection(), "c", "WAdmG_55", "WAdm")
    ready.told.clear()
    answer = ready.ask(222, **captures.ext(line))
    assert captures.shape(body_of(answer)) == captures.shape(recorded)
    assert offsets(ready) == [0, 0]
    assert ready.woken == [("WAdm", 0), ("WAdm", 1)], "pulls that are held are answered at once"
    assert ready.told == [], "no member is notified: the parked pulls are answered"
    assert not ready.context.offsets.commit("WAdmG_55", "WAdm", 0, 4), "from before the reset"
    assert ready.context.offsets.take_reset("WAdmG_55", "WAdm", 0) == 0


def test_a_group_that_is_not_connected_simply_starts_there(ready: Kit) -> None:
    assert reset(ready) == {0: 0, 1: 0}
    assert offsets(ready) == [0, 0]
    assert ready.context.offsets.take_reset("WAdmG_55", "WAdm", 0) is None, "there is nobody to be sent elsewhere"
    assert ready.context.offsets.commit("WAdmG_55", "WAdm", 0, 3)


def test_to_a_time_to_the_end_to_an_offset_and_one_queue_only(ready: Kit) -> None:
    assert reset(ready, timestamp=T0 + 1500) == {0: 2, 1: 2}
    assert reset(ready, timestamp=T0 + 2000) == {0: 2, 1: 2}
    assert reset(ready, timestamp=-1) == {0: 4, 1: 4}
    assert reset(ready, queueId=1, offset=1) == {1: 1}
    assert reset(ready, queueId=1, timestamp=T0) == {1: 0}
    assert offsets(ready) == [4, 0]


@pytest.mark.parametrize(
    ("ext", "code"),
    [
        ({"topic": "Nope"}, 17),
        ({"group": "Nope"}, 26),
        ({"queueId": 0, "offset": 6}, 1),
        ({"queueId": 0, "offset": -2}, 1),
        ({"queueId": 9}, 29),
        ({"timestamp": "yesterday"}, 29),
    ],
)
def test_resets_that_are_refused_change_nothing(ready: Kit, ext: dict[str, Any], code: int) -> None:
    wish: dict[str, Any] = {"topic": "WAdm", "group": "WAdmG_55", "timestamp": 0, "isForce": "true", "queueId": -1, "offset": -1}
    assert ready.ask(222, **wish | ext).code == code
    assert offsets(ready) == [4, 4]
    assert ready.woken == []


def test_at_the_consumers_they_are_told_and_the_broker_keeps_its_offsets(ready: Kit) -> None:
    ready.settings.use_server_side_reset_offset = False
    wish: dict[str, Any] = {
        "topic": "WAdm",
        "group": "WAdmG_55",
        "timestamp": T0,
        "isForce": "false",
        "queueId": -1,
        "offset": -1,
    }
    assert ready.ask(222, **wish).code == 206
    conn = FakeConnection()
    ready.beat(conn, "a", "WAdmG_55", "WAdm")
    ready.told.clear()
    assert reset(ready, timestamp=T0 + 1000, isForce="false") == {0: 1, 1: 1}
    ((told, code, ext, body),) = ready.told
    assert (told, code, ext["topic"], ext["group"]) == (conn, 220, "WAdm", "WAdmG_55")
    assert body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"WAdm"}:1,{"brokerName":"broker-a","queueId":1,"topic":"WAdm"}:1}}'
    )
    assert offsets(ready) == [4, 4]
    ready.context.offsets.commit("WAdmG_55", "WAdm", 0, 0)
    assert reset(ready, timestamp=T0 + 1000, isForce="false") == {0: 0, 1: 1}, "without force it only goes back"


def test_a_requester_in_c_gets_the_consumers_a_list(ready: Kit) -> None:
    ready.settings.use_server_side_reset_offset = False
    ready.beat(FakeConnection(), "a", "WAdmG_55", "WAdm")
    ready.told.clear()
    ready.ask(222, topic="WAdm", group="WAdmG_55", timestamp=T0, isForce="true", language="CPP")
    assert ready.told[0][3] == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"WAdm"},'
        b'{"brokerName":"broker-a","offset":0,"queueId":1,"topic":"WAdm"}]}'
    )
