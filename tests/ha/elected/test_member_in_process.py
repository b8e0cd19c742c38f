"""Elected groups in this process: failed disks, forwarding, slow followers, settings."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.send.ack_policy import DISK_STALL
from firearrow.broker.server import Broker
from firearrow.ha.elected.member import QuorumReplica
from firearrow.ha.raft.raft import Role
from firearrow.store.filesystem import Bytes, RealFile
from firearrow.wire.codes import ResponseCode
from tests.broker.running import client
from tests.ha.pairs import make, name_server
from tests.support.ports import reserve_addresses
from tests.support.waiting import run, until


def member_of(broker: Broker) -> QuorumReplica:
    assert isinstance(broker.replication, QuorumReplica)
    return broker.replication


def leader_of(brokers: list[Broker]) -> Broker | None:
    return next((broker for broker in brokers if not broker.role.is_slave), None)


def fail_writes(monkeypatch: pytest.MonkeyPatch, directory: Path, reason: str) -> None:
    """Let every write to the files of a directory fail."""
    pwrite = RealFile.pwrite

    def failing(self: RealFile, data: Bytes, offset: int) -> None:
        if directory in Path(self.path).parents:
            raise OSError(errno.EIO, reason)
        pwrite(self, data, offset)

    monkeypatch.setattr(RealFile, "pwrite", failing)


@contextlib.asynccontextmanager
async def group(directory: Path, flush: str = "SYNC_FLUSH", **settings: Any) -> AsyncIterator[list[Broker]]:
    async with name_server() as names:
        peers = ";".join(f"n{number}-{address}" for number, address in enumerate(reserve_addresses(3)))
        brokers = [
            make(
                directory / f"n{number}",
                names,
                store={"flush_disk_type": flush},
                enable_d_leger_commit_log=True,
                d_leger_peers=peers,
                d_leger_self_id=f"n{number}",
                **settings,
            )
            for number in range(3)
        ]
        try:
            for broker in brokers:
                await broker.start()
            await until(lambda: leader_of(brokers))
            yield brokers
        finally:
            for broker in brokers:
                await broker.stop()


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_leader_with_failed_disk_halts_and_another_is_elected(
    tmp_path: Path, flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with group(tmp_path, flush) as brokers:
            first = leader_of(brokers)
            assert first is not None
            others = [broker for broker in brokers if broker is not first]
            async with client(first) as sender:
                assert (await sender.send("T", b"before")).code == 0
                fail_writes(monkeypatch, Path(first.store_settings.store_path_root_dir) / "commitlog", "the plug was pulled")
                assert (await sender.send("T", b"refused")).code != 0
            await until(lambda: leader_of(others))
            assert member_of(first).raft.role is Role.HALTED
            assert "the plug was pulled" in member_of(first).raft.halt_reason
            assert first.role.is_slave
            second = leader_of(others)
            assert second is not None
            async with client(second) as sender:
                assert (await sender.send("T", b"after")).code == 0
                queue = second.context.store.find_queue("T", 0)
                assert queue is not None
                assert queue.max_offset == 2

    run(scenario())


def test_follower_serves_reads_and_forwards_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as brokers:
            leader = leader_of(brokers)
            follower = next(broker for broker in brokers if broker is not leader)
            async with client(follower) as sender:
                await until(lambda: member_of(follower).leader_address() is not None)
                assert (await sender.send("T", b"passed on")).code == 0
            await until(lambda: (queue := follower.context.store.find_queue("T", 0)) is not None and queue.max_offset == 1)
            assert leader is not None
            assert (leader.role.broker_id, leader.role.role) == (0, "SYNC_MASTER")
            assert follower.role.broker_id == int(member_of(follower).peers.me[1:]) + 1

    run(scenario())


def test_leader_with_slow_followers_reports_that_it_waits_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with group(tmp_path, os_page_cache_busy_time_out_mills=20) as brokers:
            leader = leader_of(brokers)
            assert leader is not None
            async with client(leader) as one, client(leader) as other:
                assert (await one.send("T", b"before")).code == ResponseCode.SUCCESS
                for follower in brokers:
                    if follower is not leader:  # it receives the log but never reports it as durable
                        monkeypatch.setattr(member_of(follower).node, "synced", lambda offset, cuts, now_ms: None)
                pending = asyncio.ensure_future(one.send("T", b"pending"))
                await until(lambda: leader.commit.pending and leader.commit.stall() != DISK_STALL)
                await asyncio.sleep(0.05)
                answer = await other.send("T", b"rejected")
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert "messages have waited for a majority of the group" in (answer.remark or "")
                assert "disk" not in (answer.remark or "")
                monkeypatch.undo()
                pending.cancel()

    run(scenario())
