"""A master and its slaves have the same log, messages and tables; invalid peers are rejected."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path

import pytest

from firearrow.ha.metadata_sync import MetadataCopy
from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.broker.running import bodies, client
from tests.ha.pairs import fixed_ports, ha_of_master, ha_of_slave, in_step, log_bytes, master, name_server, slave
from tests.support.waiting import run, until


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_slave_copies_the_log_and_serves_its_messages(tmp_path: Path, flush: str) -> None:
    store = {"flush_disk_type": flush}

    async def scenario() -> None:
        rng = random.Random(7)
        async with name_server() as names, master(tmp_path / "m", names, store=store) as one, client(one) as sender:
            for number in range(40):  # before the slave exists
                await sender.send("T", rng.randbytes(40_000), queue_id=number % 4, TAGS="a", KEYS=f"k{number}")
            async with slave(tmp_path / "s", names, store=store) as other:
                for number in range(40, 80):
                    await sender.send("T", rng.randbytes(20_000), queue_id=number % 4, TAGS="b", KEYS=f"k{number}")
                await sender.send("T", b"the last", queue_id=0, KEYS="last")
                await in_step(one, other)
                assert log_bytes(one) == log_bytes(other)
                assert one.context.store.max_offset > 2 * one.store_settings.mapped_file_size_commit_log
                await ha_of_slave(other).copied.wait()
                for queue_id in range(4):
                    mine, theirs = (b.context.store.find_queue("T", queue_id) for b in (one, other))
                    assert mine is not None
                    assert theirs is not None
                    assert mine.entries(0, 100) == theirs.entries(0, 100) != b""
                found = other.context.store.query("T", "last", 10, 0, 1 << 62)
                assert len(found.records) == 1
                async with client(other) as reader:
                    answer = await reader.pull("T", 20)
                    assert bodies(answer)[-1:] == [b"the last"]
                    assert answer.ext["suggestWhichBrokerId"] == "0"

    run(scenario())


def test_restarted_slave_continues_at_the_end_of_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names, master(tmp_path / "m", names) as one, client(one) as sender:
            await sender.send("T", b"first")
            async with slave(tmp_path / "s", names) as other:
                await in_step(one, other)
            for number in range(500):
                await sender.send("T", b"%d" % number * 1000)
            async with slave(tmp_path / "s", names) as other:
                await in_step(one, other)
                assert log_bytes(one) == log_bytes(other)
                (link,) = ha_of_master(one).links
                assert link.feed.requested is not None
                assert link.feed.requested > 0

    run(scenario())


def test_restarted_master_is_followed_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names:
            ports = fixed_ports()
            async with master(tmp_path / "m", names, **ports) as one:
                async with client(one) as sender:
                    await sender.send("T", b"before")
                other_cm = slave(tmp_path / "s", names)
                other = await other_cm.__aenter__()
                await in_step(one, other)
            try:
                await until(lambda: not ha_of_slave(other).master_alive)
                async with master(tmp_path / "m", names, **ports) as one, client(one) as sender:
                    await sender.send("T", b"after")
                    await in_step(one, other)
                    assert log_bytes(one) == log_bytes(other)
            finally:
                await other_cm.__aexit__(None, None, None)

    run(scenario())


def test_topics_groups_and_offsets_are_copied(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server() as names,
            master(tmp_path / "m", names) as one,
            slave(tmp_path / "s", names) as other,
            client(one) as sender,
        ):
            await sender.send("Made", b"x")
            group = fastjson.dumps({"groupName": "Chosen", "retryMaxTimes": 3})
            await sender.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
            place = {"consumerGroup": "Chosen", "topic": "Made", "queueId": 0, "commitOffset": 1}
            assert (await sender.call(RequestCode.UPDATE_CONSUMER_OFFSET, place)).code == ResponseCode.SUCCESS
            parts = other.context
            await until(lambda: parts.topics.find("Made") is not None and parts.offsets.query("Chosen", "Made", 0) == 1)
            chosen = parts.groups.find("Chosen")
            assert chosen is not None
            assert chosen.retry_max_times == 3
            assert parts.topics.all() == one.context.topics.all()
            await sender.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Made"})
            await until(lambda: parts.topics.find("Made") is None and parts.store.find_queue("Made", 0) is None)

    run(scenario())


def test_new_topic_is_known_as_soon_as_its_messages_arrive(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server() as names,
            master(tmp_path / "m", names) as one,
            slave(tmp_path / "s", names, slave_sync_interval=3_600_000) as other,
            client(one) as sender,
        ):
            await ha_of_slave(other).copied.wait()
            await sender.send("Made", b"x")
            await until(lambda: other.context.topics.find("Made") is not None)
            assert other.context.topics.find("Made") == one.context.topics.find("Made")

    run(scenario())


def test_topic_of_a_failed_master_is_created_from_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: MetadataCopy, channel: Channel) -> None:
        raise OSError("the master is too busy to be asked")

    async def scenario() -> None:
        async with name_server() as names:
            ports = fixed_ports()
            async with master(tmp_path / "m", names, **ports) as one:
                other_cm = slave(tmp_path / "s", names)
                other = await other_cm.__aenter__()
                await ha_of_slave(other).copied.wait()
                monkeypatch.setattr(MetadataCopy, "copy", never)
                async with client(one) as sender:
                    await sender.send("Made", b"x")
                await in_step(one, other)
                assert other.context.topics.find("Made") is None
                made = one.context.topics.find("Made")
            try:
                await until(lambda: other.context.topics.find("Made") is not None)
                async with client(other) as reader:
                    assert bodies(await reader.pull("Made", 0)) == [b"x"]
                version = other.context.topics.data_version
                monkeypatch.undo()
                async with master(tmp_path / "m", names, **ports):
                    await until(lambda: other.context.topics.data_version != version)
                    assert other.context.topics.find("Made") == made
            finally:
                await other_cm.__aexit__(None, None, None)

    run(scenario())


def test_broker_that_became_master_stops_copying_metadata(tmp_path: Path) -> None:
    """A member of an elected group may be elected while it waits for a response of its old leader."""

    async def scenario() -> None:
        async with (
            name_server() as names,
            master(tmp_path / "m", names) as one,
            slave(tmp_path / "s", names) as other,
            client(one) as sender,
        ):
            await ha_of_slave(other).copied.wait()
            other.role.change("SYNC_MASTER", 0)
            await sender.send("Late", b"x")
            await ha_of_slave(other).copy_tables()
            assert other.context.topics.find("Late") is None
            other.role.change("SLAVE", 1)
            await ha_of_slave(other).copy_tables()
            assert other.context.topics.find("Late") is not None

    run(scenario())


def test_slave_rejects_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names, master(tmp_path / "m", names) as one, slave(tmp_path / "s", names) as other:
            async with client(one) as sender:
                await sender.send("T", b"x")
            await in_step(one, other)
            before = log_bytes(other)
            async with client(other) as asker:
                assert (await asker.send("T", b"y")).code == ResponseCode.SERVICE_NOT_AVAILABLE
                topic = {"topic": "N", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
                topic |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
                answer = await asker.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "master" in (answer.remark or "")
                ending = {"producerGroup": "P", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8}
                assert (await asker.call(RequestCode.END_TRANSACTION, ending)).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert log_bytes(other) == before

    run(scenario())


def test_name_server_keeps_the_slave_when_the_master_stops(tmp_path: Path) -> None:
    async def route(address: str) -> dict[str, str]:
        channel = await Channel.connect(address)
        answer = await channel.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, b"", timeout_ms=30_000)
        await channel.close()
        (broker,) = fastjson.loads(answer.body)["brokerDatas"]
        return dict(broker["brokerAddrs"])

    async def scenario() -> None:
        async with name_server() as names:
            async with master(tmp_path / "m", names) as one:
                async with client(one) as sender:
                    await sender.send("T", b"x")
                other_cm = slave(tmp_path / "s", names)
                other = await other_cm.__aenter__()
                await in_step(one, other)
                await ha_of_slave(other).copied.wait()
                assert await route(names.address) == {"0": one.advertised, "1": other.advertised}
            try:
                assert await route(names.address) == {"1": other.advertised}
                async with client(other) as reader:
                    assert bodies(await reader.pull("T", 0)) == [b"x"]
            finally:
                await other_cm.__aexit__(None, None, None)

    run(scenario())


def test_ha_status_of_master_and_slave(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server() as names,
            master(tmp_path / "m", names) as one,
            slave(tmp_path / "s", names) as other,
            client(one) as sender,
            client(other) as reader,
        ):
            await sender.send("T", b"x")
            await in_step(one, other)
            end = one.context.store.max_offset
            await until(lambda: all(link.feed.confirmed == end for link in ha_of_master(one).links))
            of_master = fastjson.loads((await sender.call(RequestCode.GET_BROKER_HA_STATUS)).body)
            assert of_master["master"]
            assert of_master["inSyncSlaveNums"] == 1
            assert of_master["masterCommitLogMaxOffset"] == end
            (connection,) = of_master["haConnectionInfo"]
            assert connection["slaveAckOffset"] == end
            assert connection["diff"] == 0
            assert connection["inSync"]
            of_slave = fastjson.loads((await reader.call(RequestCode.GET_BROKER_HA_STATUS)).body)
            assert not of_slave["master"]
            assert of_slave["haClientRuntimeInfo"]["activated"]
            assert of_slave["haClientRuntimeInfo"]["maxOffset"] == end

    run(scenario())


def test_log_of_another_master_is_not_continued(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The slave followed another master, and its log happens to end at a record boundary of ours."""

    async def scenario() -> None:
        async with name_server() as names:
            for name, text in (("m", b"ours"), ("s", b"them")):
                async with master(tmp_path / name, names) as one, client(one) as sender:
                    await sender.send("T", text)
            async with master(tmp_path / "m", names) as one, client(one) as sender:
                await sender.send("T", b"more")
                async with slave(tmp_path / "s", names) as other:
                    await until(lambda: ha_of_slave(other).broken is not None)
                    assert other.context.store.max_offset < one.context.store.max_offset
                    async with client(other) as reader:
                        assert bodies(await reader.pull("T", 0)) == [b"them"]

    run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "no longer follows its master" in line
    assert "another message" in line
    assert "move" in line


def test_other_segment_size_ends_the_replication(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with name_server() as names, master(tmp_path / "m", names) as one, client(one) as sender:
            for number in range(60):
                await sender.send("T", b"%d" % number * 10_000)
            async with slave(tmp_path / "s", names, store={"mapped_file_size_commit_log": 4 * 1024 * 1024}) as other:
                await until(lambda: ha_of_slave(other).broken is not None)

    run(scenario())
    assert any("mappedFileSizeCommitLog" in record.getMessage() for record in caplog.records)


def test_invalid_bytes_on_the_replication_port_end_only_their_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with name_server() as names, master(tmp_path / "m", names) as one, slave(tmp_path / "s", names) as other:
            await until(lambda: ha_of_slave(other).master_alive)
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(255, 200, -1)), b"\x7f" * 8):
                reader, writer = await asyncio.open_connection("127.0.0.1", ha_of_master(one).port)
                writer.write(garbage)
                assert await reader.read() == b""
                writer.close()
            async with client(one) as sender:
                await sender.send("T", b"x")
            await in_step(one, other)

    run(scenario())
    assert sum("rejected a connection" in record.getMessage() for record in caplog.records) == 3


def test_slave_that_dials_another_server_logs_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with name_server() as names, slave(tmp_path / "s", names, ha_master_address=f"127.0.0.1:{port}") as other:
            await until(lambda: ha_of_slave(other).broken is not None)
        server.close()

    run(scenario())
    assert any("haMasterAddress" in record.getMessage() for record in caplog.records)


def test_slave_started_first_finds_its_master(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server() as names, slave(tmp_path / "s", names) as other, master(tmp_path / "m", names):
            await until(lambda: ha_of_slave(other).master_alive)

    run(scenario())
