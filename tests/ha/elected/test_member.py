"""Elected groups of processes: killed leaders lose no acknowledged message."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import struct
import time
from pathlib import Path

import pytest

from firearrow.ha.raft.messages import Codec, RequestVote
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.ha.elected.groups import Group, Producer, check, group
from tests.ha.processes import QUEUES
from tests.support.waiting import run

KILLS = int(os.environ.get("FIREARROW_RAFT_KILLS", "3"))


async def producing(members: Group) -> list[Producer]:
    await members.leader()
    producers = [Producer(members, lane) for lane in range(QUEUES)]
    await asyncio.gather(*(producer.sent(20) for producer in producers))
    return producers


def test_killed_leaders_lose_no_acknowledged_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as members:
            producers = await producing(members)
            pauses = []
            for _ in range(KILLS):
                leader = await members.leader()
                leader.signal(signal.SIGKILL)
                began = time.monotonic()
                await asyncio.gather(*(producer.sent(1) for producer in producers))
                pauses.append(time.monotonic() - began)
                await asyncio.gather(*(producer.sent(30) for producer in producers))
                await leader.start()
            await check(members, producers)
            print(f"{KILLS} leaders killed; acknowledged again after {', '.join(f'{pause:.2f}' for pause in pauses)} s")

    run(scenario(), 90 + 30 * KILLS)


def test_next_leader_delivers_deferred_messages_once(tmp_path: Path) -> None:
    """A delayed message, a timer message and a half message survive their leader and are delivered once."""

    async def scenario() -> None:
        async with group(tmp_path, timerPrecisionMs="100") as members:
            leader = await members.leader()
            await members.send(leader, "T", 0, b"delayed", "DELAY\x012\x02")
            await members.send(leader, "T", 0, b"timed", "TIMER_DELAY_MS\x014000\x02")
            half = await members.send(leader, "T", 1, b"half", "TRAN_MSG\x01true\x02PGROUP\x01P\x02", h="4")
            await members.send(leader, "T", 2, b"delivered before", "DELAY\x011\x02")
            await members.until_bodies(leader, lambda bodies: bodies[2] == [b"delivered before"])
            leader.signal(signal.SIGKILL)
            other = await members.leader(besides=leader)
            ext: dict[str, object] = {
                "producerGroup": "P",
                "tranStateTableOffset": half["queueOffset"],
                "commitOrRollback": "8",
                "msgId": "x",
            }
            ext |= {
                "commitLogOffset": str(int(half["msgId"][16:], 16)),
                "fromTransactionCheck": "false",
                "transactionId": half["transactionId"],
            }
            code, _, _ = await other.call(RequestCode.END_TRANSACTION, ext)
            assert code == ResponseCode.SUCCESS
            await members.until_bodies(other, lambda bodies: len(bodies[0]) == 2 and bodies[1] == [b"half"])
            await asyncio.sleep(1)
            bodies = await other.bodies()
            assert sorted(bodies[0]) == [b"delayed", b"timed"]
            assert bodies[1:3] == [[b"half"], [b"delivered before"]]

    run(scenario())


def test_acknowledged_admin_changes_survive_the_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as members:
            leader = await members.leader()
            ext = {"topic": "Made", "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
            ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
            code, _, _ = await leader.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
            leader.signal(signal.SIGKILL)
            assert code == ResponseCode.SUCCESS
            other = await members.leader(besides=leader)
            code, _, body = await other.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "Made"})
            assert code == ResponseCode.SUCCESS
            assert fastjson.loads(body)["writeQueueNums"] == 3

    run(scenario())


@pytest.mark.slow
def test_stopped_leader_of_five_transfers_leadership(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path, 5) as members:
            producers = await producing(members)
            for _ in range(2):
                leader = await members.leader()
                leader.signal(signal.SIGTERM)
                assert "transfers the leadership" in members.text(leader)
                await asyncio.gather(*(producer.sent(20) for producer in producers))
                await leader.start()
            await check(members, producers)

    run(scenario(), 240)


@pytest.mark.slow
def test_followers_return_with_or_without_their_files(tmp_path: Path) -> None:
    """One is restarted after a kill, one with an empty directory: both catch up under load, over several segments."""

    async def scenario() -> None:
        async with group(tmp_path, mappedFileSizeCommitLog="65536", maxMessageSize="32768") as members:
            producers = await producing(members)
            leader = await members.leader()
            first, second = [node for node in members.nodes if node is not leader]
            first.signal(signal.SIGKILL)
            await asyncio.gather(*(producer.sent(100) for producer in producers))
            await first.start()
            await asyncio.gather(*(producer.sent(20) for producer in producers))
            second.signal(signal.SIGKILL)
            shutil.rmtree(second.store)
            await second.start()
            await asyncio.gather(*(producer.sent(20) for producer in producers))
            await check(members, producers)
            assert "does not vote until it has caught up" in members.text(second)
            assert "votes again" in members.text(second)
            assert len(list((second.store / "commitlog").iterdir())) > 1

    run(scenario(), 240)


def test_damaged_log_is_repaired_from_other_members(tmp_path: Path) -> None:
    """Bytes of a stopped follower's log change. It does not campaign with the rest, and nothing is deleted."""

    async def scenario() -> None:
        async with group(tmp_path) as members:
            producers = await producing(members)
            leader = await members.leader()
            follower = next(node for node in members.nodes if node is not leader)
            follower.signal(signal.SIGKILL)
            path = follower.store / "commitlog" / f"{0:020d}"
            data = bytearray(path.read_bytes())
            at = data.index(b"2-5")
            damaged = bytes(data[:at]) + b"2-X" + bytes(data[at + 3 :])
            path.write_bytes(damaged)
            await follower.start()
            await asyncio.gather(*(producer.sent(20) for producer in producers))
            await check(members, producers)
            assert "does not vote until it has caught up" in members.text(follower)
            kept = b"".join(one.read_bytes() for one in (follower.store / "commitlog_cut").iterdir())
            assert b"2-X" in kept

    run(scenario())


def test_foreign_connections_are_rejected_without_effect_on_the_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path) as members:
            producers = await producing(members)
            leader = await members.leader()
            stranger = Codec("other", ["n0", "n1", "n2"], "n1").encode("n0", RequestVote(99, 99, 1 << 40))
            frame = struct.pack(">I", len(stranger)) + stranger
            old = bytearray(frame)
            old[6] = 9  # the format version
            for data in (frame, bytes(old), b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 1 << 31)):
                for address in members.raft_addresses:
                    host, port = address.rsplit(":", 1)
                    reader, writer = await asyncio.open_connection(host, int(port))
                    writer.write(data)
                    assert await reader.read() == b""
                    writer.close()
            await asyncio.gather(*(producer.sent(20) for producer in producers))
            assert await members.leader() is leader
            text = members.text(leader)
            assert "the sender belongs to another group" in text
            assert "format version 9, expected 2" in text
            assert "bytes is announced" in text
            await check(members, producers)

    run(scenario())


def test_preferred_leader_takes_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group(tmp_path, preferredLeaderId="n2") as members:
            for _ in range(1200):
                if await members.leader() is members.nodes[2]:
                    break
                await asyncio.sleep(0.05)
            assert await members.leader() is members.nodes[2]

    run(scenario())


def test_message_resent_after_a_leader_failure_is_stored_once(tmp_path: Path) -> None:
    """A client repeats it with the same unique key, possibly to another queue. In a later quiet term it is stored again."""

    async def scenario() -> None:
        async with group(tmp_path) as members:
            leader = await members.leader()
            first = await members.send(leader, "T", 1, b"once", "UNIQ_KEY\x01K1\x02")
            leader.signal(signal.SIGKILL)
            other = await members.leader(besides=leader)
            again = await members.send(other, "T", 2, b"once", "UNIQ_KEY\x01K1\x02")
            assert (again["queueId"], again["queueOffset"]) == (first["queueId"], first["queueOffset"])
            for _ in range(2):
                await members.send(other, "T", 3, b"twice", "UNIQ_KEY\x01K2\x02")
            assert (await other.bodies())[1:] == [[b"once"], [], [b"twice", b"twice"]]

    run(scenario())
