"""Routing of internal messages to their holding topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.message import BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.wire import properties
from firearrow.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.broker.kit import HOST, T0, Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    yield made
    made.close()


def message(*, internal: bool = True, **names: str) -> BrokerMessage:
    return BrokerMessage("Orders", 2, b"x", properties.encode(names), 0, 0, T0, HOST, internal=internal)


@pytest.mark.parametrize(
    ("names", "topic", "queue_id"),
    [
        ({"KEYS": "k"}, "Orders", 2),
        ({"DELAY": "3"}, SCHEDULE_TOPIC, 2),
        ({"TIMER_DELAY_SEC": "5"}, TIMER_TOPIC, 0),
        ({"DELAY": "3", "TIMER_DELAY_SEC": "5"}, SCHEDULE_TOPIC, 2),
        ({"DELAY": "soon"}, "Orders", 2),
    ],
)
def test_put_stores_the_message_in_its_holding_topic(kit: Kit, names: dict[str, Any], topic: str, queue_id: int) -> None:
    stored = message(**names)
    kit.context.deferral.put(stored, T0)
    assert (stored.topic, stored.queue_id, stored.queue_offset) == (topic, queue_id, 0)


def test_deferred_message_keeps_its_destination(kit: Kit) -> None:
    deferred = message(DELAY="3")
    assert kit.context.deferral.defer(deferred, T0)
    assert (deferred.real_topic, deferred.real_queue_id) == ("Orders", 2)
    assert properties.parse(deferred.properties)["REAL_TOPIC"] == "Orders"


def test_check_rejects_a_delay_that_cannot_be_granted(kit: Kit) -> None:
    kit.context.deferral.check(message(internal=False, TIMER_DELAY_SEC="5"), T0)
    with pytest.raises(Refused):
        kit.context.deferral.check(message(internal=False, DELAY="soon"), T0)
    with pytest.raises(Refused):
        kit.context.deferral.check(message(internal=False, TIMER_DELAY_SEC="soon"), T0)
