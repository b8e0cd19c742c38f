"""Acknowledgements of a SYNC_MASTER with slaves, without slaves, and with a silent one."""

from __future__ import annotations

import asyncio
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.server import Broker
from firearrow.wire.codes import ResponseCode
from tests.broker.running import bodies, client
from tests.ha.pairs import ha_of_master, ha_of_slave, in_step, log_bytes, master, name_server, slave
from tests.support.waiting import run, until

SYNC = {"broker_role": "SYNC_MASTER"}


class SilentSlave:
    """A slave that receives data and acknowledges only when the test says so."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def of(cls, broker: Broker, offset: int) -> SilentSlave:
        one = cls(*await asyncio.open_connection("127.0.0.1", ha_of_master(broker).port))
        one.confirm(offset)
        await until(lambda: any(link.feed.requested is not None for link in ha_of_master(broker).links))
        return one

    def confirm(self, offset: int) -> None:
        self.writer.write(struct.pack(">q", offset))

    async def next_end(self) -> int:
        """Return the end of the next bytes."""
        while True:
            offset, size = struct.unpack(">qi", await self._reader.readexactly(12))
            await self._reader.readexactly(size)
            if size:
                return int(offset + size)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_acknowledged_message_is_on_the_slave(tmp_path: Path, flush: str) -> None:
    async def scenario() -> None:
        store = {"flush_disk_type": flush}
        async with (
            name_server() as names,
            master(tmp_path / "m", names, store=store, **SYNC) as one,
            slave(tmp_path / "s", names, store=store) as other,
            client(one) as sender,
        ):
            await until(lambda: ha_of_slave(other).master_alive)
            for number in range(100):
                answer = await sender.send("T", b"%d" % number)
                assert answer.code == ResponseCode.SUCCESS
                assert other.context.store.max_offset == one.context.store.max_offset
                assert flush == "ASYNC_FLUSH" or other.context.store.flushed_offset == one.context.store.max_offset
            answers = await asyncio.gather(*(sender.send("T", b"%d" % number) for number in range(500)))
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
            await in_step(one, other)
            assert log_bytes(one) == log_bytes(other)

    run(scenario())


def test_without_slaves_messages_are_stored_with_slave_not_available(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names, master(tmp_path / "m", names, **SYNC) as one, client(one) as sender:
            answer = await sender.send("T", b"alone")
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert answer.ext["queueOffset"] == "0"
            assert bodies(await sender.pull("T", 0)) == [b"alone"]

    run(scenario())


def test_one_replica_suffices_if_configured(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server() as names,
            master(tmp_path / "m", names, in_sync_replicas=1, **SYNC) as one,
            client(one) as sender,
        ):
            assert (await sender.send("T", b"alone")).code == ResponseCode.SUCCESS

    run(scenario())


def test_slave_that_does_not_acknowledge_leads_to_flush_slave_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {"slave_timeout": 300, **SYNC}
        async with name_server() as names, master(tmp_path / "m", names, **settings) as one, client(one) as sender:
            mute = await SilentSlave.of(one, 0)
            began = time.monotonic()
            sending = asyncio.ensure_future(sender.send("T", b"waits"))
            await mute.next_end()
            assert bodies(await sender.pull("T", 0)) == []  # consumers do not see it yet
            assert (await sending).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert time.monotonic() - began >= 0.25
            assert bodies(await sender.pull("T", 0)) == [b"waits"]
            mute.writer.close()
            await until(lambda: not ha_of_master(one).links)
            assert (await sender.send("T", b"gone")).code == ResponseCode.SLAVE_NOT_AVAILABLE

    run(scenario())


def test_messages_are_released_by_acknowledgements_and_by_the_loss_of_the_last_slave(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {"slave_timeout": 120_000, **SYNC}
        async with name_server() as names, master(tmp_path / "m", names, **settings) as one, client(one) as sender:
            mute = await SilentSlave.of(one, 0)
            first = asyncio.ensure_future(sender.send("T", b"1"))
            end = await mute.next_end()
            second = asyncio.ensure_future(sender.send("T", b"2"))
            await mute.next_end()
            mute.confirm(end)
            assert (await first).code == ResponseCode.SUCCESS
            assert not second.done()
            assert bodies(await sender.pull("T", 0)) == [b"1"]
            mute.writer.close()
            assert (await second).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert bodies(await sender.pull("T", 0)) == [b"1", b"2"]

    run(scenario())


def test_three_replicas_require_two_slaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {"in_sync_replicas": 3, "slave_timeout": 120_000, **SYNC}
        async with name_server() as names, master(tmp_path / "m", names, **settings) as one, client(one) as sender:
            quick = await SilentSlave.of(one, 0)
            assert (await sender.send("T", b"0")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            slow = await SilentSlave.of(one, 0)
            await until(lambda: sum(link.feed.requested is not None for link in ha_of_master(one).links) == 2)
            sending = asyncio.ensure_future(sender.send("T", b"1"))
            await until(lambda: one.context.store.max_offset > one.context.store.confirm_offset)
            await until(lambda: all(link.feed.sent == one.context.store.max_offset for link in ha_of_master(one).links))
            quick.confirm(one.context.store.max_offset)
            await until(lambda: any(link.feed.confirmed == one.context.store.max_offset for link in ha_of_master(one).links))
            assert not sending.done()
            slow.confirm(one.context.store.max_offset)
            assert (await sending).code == ResponseCode.SUCCESS
            for each in (quick, slow):
                each.writer.close()

    run(scenario())


def test_silent_slave_is_disconnected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names, master(tmp_path / "m", names, ha_housekeeping_interval=100) as one:
            mute = await SilentSlave.of(one, 0)
            await until(lambda: not ha_of_master(one).links)
            mute.writer.close()

    run(scenario())
