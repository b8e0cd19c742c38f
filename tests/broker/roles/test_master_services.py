"""Services of a master: deliveries, saved progress, and the change of the master."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.message import BrokerMessage
from firearrow.broker.roles.master_services import KEY_DEDUP_MS, MasterServices
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.send.replies import PendingReplies
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.broker.transaction.service import Transactions
from firearrow.wire import properties
from tests.broker.kit import HOST, T0, Kit
from tests.support.waiting import run

DELAY_FILE = "delayOffset.json"
ELECTED = {"enable_d_leger_commit_log": True, "d_leger_peers": "n0-h0:1;n1-h1:2;n2-h2:3", "d_leger_self_id": "n0"}


class Master:
    def __init__(self, root: Path, **settings: Any) -> None:
        self.kit = Kit(root, message_delay_level="1s 5s", **settings)
        self.kit.topic("Orders")
        context = self.kit.context
        transactions = Transactions(context, T0)
        self.sends = SendHandler(context, transactions, PendingReplies())
        self.config = ConfigFiles(self.kit.store.disk, str(root / "store" / "config"))
        self.services = MasterServices(context, transactions, self.sends, self.config, lambda: self.kit.now)

    def put_delayed(self, level: int = 1) -> None:
        raw = properties.encode({"DELAY": str(level)})
        self.kit.context.deferral.put(BrokerMessage("Orders", 0, b"x", raw, 0, 0, self.kit.now, HOST), self.kit.now)
        self.commit()

    def commit(self) -> None:
        self.kit.store.write_out()
        self.kit.store.confirm(self.kit.store.flush())

    def delivered(self) -> int:
        return self.kit.store.queue("Orders", 0).next_offset

    def work(self) -> list[float]:
        """Run the periodic work; return the delays of the timers that it sets."""
        delays: list[float] = []

        async def once() -> None:
            with pytest.MonkeyPatch.context() as patched:
                later = lambda delay, callback: delays.append(delay)  # noqa: E731
                patched.setattr(asyncio.get_running_loop(), "call_later", later)
                self.services.work()

        run(once())
        return delays


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Master]]:
    made: list[Master] = []

    def start(**settings: Any) -> Master:
        made.append(Master(tmp_path, **settings))
        return made[-1]

    yield start
    for one in made:
        one.kit.close()


def test_due_message_is_delivered(make: Callable[..., Master]) -> None:
    master = make()
    master.put_delayed()
    master.kit.now = T0 + 999
    master.work()
    assert master.delivered() == 0
    master.kit.now = T0 + 1_000
    master.work()
    assert master.delivered() == 1


def test_message_due_before_the_next_tick_gets_a_timer(make: Callable[..., Master]) -> None:
    master = make()
    master.put_delayed()
    master.work()
    assert master.services.next_due_ms(T0 + 10_000) == T0 + 1_000
    master.kit.now = T0 + 899
    assert master.work() == []
    master.kit.now = T0 + 960
    assert master.work() == [0.04]


def test_delay_offsets_are_saved_when_their_deliveries_are_durable(make: Callable[..., Master]) -> None:
    master = make()
    master.put_delayed()
    master.kit.now = T0 + 1_000
    master.work()
    master.services.save(master.kit.now)
    assert master.config.load(DELAY_FILE) == {}
    master.commit()
    master.services.save(master.kit.now)
    assert master.config.load(DELAY_FILE)["offsetTable"] == {"1": 1}


def test_new_master_recognises_keys_for_a_while(make: Callable[..., Master]) -> None:
    master = make()
    assert master.sends.dedup.keys is None
    master.services.activate(T0)
    assert master.sends.dedup.keys is not None
    master.services.save(T0 + KEY_DEDUP_MS - 1)
    assert master.sends.dedup.keys is not None
    master.services.save(T0 + KEY_DEDUP_MS)
    assert master.sends.dedup.keys is None


def test_deposed_master_forgets_unconfirmed_deliveries(make: Callable[..., Master]) -> None:
    master = make(**ELECTED)
    master.kit.context.role.change("SYNC_MASTER", 0)
    master.services.activate(T0)
    dedup = master.sends.dedup
    master.put_delayed()
    master.kit.now = T0 + 1_000
    master.work()
    assert master.kit.delay.offsets() == [1, 0]
    master.services.deactivate()
    assert master.kit.delay.offsets() == [0, 0]
    assert master.sends.dedup is not dedup
    assert master.sends.dedup.keys is None


def test_close_saves_the_progress(make: Callable[..., Master]) -> None:
    master = make()
    master.put_delayed()
    master.kit.now = T0 + 1_000
    master.work()
    master.commit()
    master.services.close(master.kit.now)
    assert master.config.load(DELAY_FILE)["offsetTable"] == {"1": 1}
