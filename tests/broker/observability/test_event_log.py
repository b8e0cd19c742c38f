"""The log for machines: every line an object, events with their fields, files that are rotated, nothing left behind."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from firearrow.broker.observability.event_log import JsonLines
from firearrow.wire.codes import RequestCode
from tests.broker.running import broker, client
from tests.support.waiting import run


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "logs" / "broker.log").read_text().splitlines()]


def test_events_are_lines_with_fields(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, log_file="logs/broker.log") as running, client(running) as c:
            await c.send("Orders", b"x")
            group = json.dumps({"groupName": "G", "retryMaxTimes": 3}).encode()
            assert (await c.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)).code == 0
            ext = {"topic": "Orders", "group": "G", "timestamp": -1, "isForce": "true"}
            assert (await c.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)).code == 0
            assert (await c.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=48\n")).code == 0
            assert (await c.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})).code == 0

    handlers = list(logging.getLogger("firearrow").handlers)
    run(story())
    found = {one["event"]: one for one in lines(tmp_path) if "event" in one}

    assert list(found) == [
        "broker_started", "topic_changed", "group_changed", "offsets_reset",
        "settings_changed", "topic_deleted", "broker_stopped",
    ]  # fmt: skip
    assert (found["topic_changed"]["topic"], found["topic_changed"]["perm"]) == ("Orders", 6)
    assert found["group_changed"]["retryMaxTimes"] == 3
    assert found["offsets_reset"]["offsets"]["0"] == 1
    assert found["settings_changed"]["settings"] == {"fileReservedTime": "48"}
    assert all(one["time"].endswith("Z") and one["level"] and one["message"] for one in found.values())
    assert logging.getLogger("firearrow").handlers == handlers


def test_files_are_rotated(tmp_path: Path) -> None:
    async def story() -> None:
        settings: dict[str, Any] = {"log_file": "broker.log", "log_file_max_size": 4_096, "log_file_max_num": 2}
        async with broker(tmp_path, **settings) as running, client(running) as c:
            for number in range(100):
                await c.send(f"Topic{number}", b"x")

    run(story())
    files = sorted(path.name for path in tmp_path.glob("broker.log*"))
    assert files == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all((tmp_path / name).stat().st_size <= 4_096 for name in files)
    assert "Topic99" in "".join((tmp_path / name).read_text() for name in files)


def test_an_error_has_its_traceback() -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        record = logging.LogRecord(
            "firearrow.x", logging.ERROR, "", 0, "request %d failed", (7,), (ValueError, error, error.__traceback__)
        )
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["message"]) == ("ERROR", "request 7 failed")
    assert line["error"].endswith("ValueError: why")


def test_without_the_setting_there_is_no_file(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path):
            pass

    run(story())
    assert list(tmp_path.rglob("*.log")) == []
