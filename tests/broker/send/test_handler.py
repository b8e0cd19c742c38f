"""Sends over sockets: stored messages and replies."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from pathlib import Path
from typing import Any, cast

import pytest

from firearrow.broker.send.handler import SendHandler
from firearrow.broker.send.replies import PendingReplies
from firearrow.broker.transaction.service import Transactions
from firearrow.net.connection import Connection
from firearrow.wire import batch, properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, FrameDecoder
from firearrow.wire.message_ids import host_bytes, offset_msg_id
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import Kit
from tests.broker.running import bodies, broker, client, records, send_header
from tests.broker.send.test_group_commit import Replicated
from tests.support.waiting import run

CONSUMED: dict[str, Any] = {
    "WAIT": "true", "DELAY": "0", "KEYS": "k", "TAGS": "t", "UNIQ_KEY": "U", "PGROUP": "P", "TRAN_MSG": "false",
    "__transactionId__": "U", "TRANSACTION_CHECK_TIMES": "3", "TRAN_PREPARED_QUEUE_OFFSET": "7", "REAL_TOPIC": "Other",
    "REAL_QID": "3", "RETRY_TOPIC": "Other", "ORIGIN_MESSAGE_ID": "O", "RECONSUME_TIME": "2", "MAX_RECONSUME_TIMES": "16",
    "MIN_OFFSET": "0", "MAX_OFFSET": "9", "CONSUME_START_TIME": "1", "DLQ_ORIGIN_TOPIC": "Other",
    "DLQ_ORIGIN_MESSAGE_ID": "U", "CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me", "TTL": "3000", "PUSH_REPLY_TIME": "1",
    "MSG_TYPE": "reply", "ARRIVE_TIME": "2", "TIMER_OUT_MS": "1", "TIMER_ENQUEUE_MS": "1", "TIMER_DEQUEUE_MS": "1",
    "TIMER_ROLL_TIMES": "1", "BUYER_ID": "b", "TRANSFER_FLAG": "f", "INNER_MULTI_DISPATCH": "%LMQ%x",
    "INNER_MULTI_QUEUE_OFFSET": "0", "1ST_POP_TIME": "1", "__SHARDINGKEY": "s", "__BORNHOST": "10.0.0.1",
    "BORN_TIMESTAMP": "1", "__STARTDELIVERTIME": "1", "INSTANCE_ID": "i",
}  # fmt: skip


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_message_is_delivered_as_sent_with_the_properties_of_the_broker(tmp_path: Path, flush: str) -> None:
    async def story() -> None:
        async with broker(tmp_path, flush=flush) as running, client(running) as c:
            sent = await c.send("Orders", b"hello", queue_id=2, TAGS="new", KEYS="A1 A2", UNIQ_KEY="7F00000100010002")
            assert sent.code == ResponseCode.SUCCESS
            assert (sent.ext["queueId"], sent.ext["queueOffset"]) == ("2", "0")
            assert sent.ext["transactionId"] == "7F00000100010002"

            pulled = await c.pull("Orders", 0, queue_id=2)
            (record,) = records(pulled)
            assert pulled.code == ResponseCode.SUCCESS
            assert (pulled.ext["nextBeginOffset"], pulled.ext["minOffset"], pulled.ext["maxOffset"]) == ("1", "0", "1")
            assert (record.topic, record.queue_id, record.queue_offset, record.body, record.flag) == ("Orders", 2, 0, b"hello", 7)
            assert record.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF
            assert record.born_timestamp == 1_700_000_000_000
            ip, port = running.advertised.split(":")
            assert sent.ext["msgId"] == offset_msg_id(host_bytes(ip, int(port)), record.physical_offset)
            assert properties.parse(record.properties) == {
                "TAGS": "new", "KEYS": "A1 A2", "UNIQ_KEY": "7F00000100010002",
                "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
            }  # fmt: skip

    run(story())


def test_message_without_unique_key_gets_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            sent = await c.send("Orders", b"x")
            (record,) = records(await c.pull("Orders", 0))
            assert properties.parse(record.properties)["UNIQ_KEY"] == sent.ext["transactionId"]
            assert len(sent.ext["transactionId"]) == 32

    run(story())


def test_properties_of_an_earlier_broker_are_replaced(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, broker_cluster_name="Here") as running, client(running) as c:
            await c.send("Orders", b"x", UNIQ_KEY="K", MSG_REGION="there", TRACE_ON="false", CLUSTER="There")
            (record,) = records(await c.pull("Orders", 0))
            assert record.properties.count(b"CLUSTER\x01") == 1
            stamped = properties.parse(record.properties)
            assert (stamped["CLUSTER"], stamped["MSG_REGION"], stamped["TRACE_ON"]) == ("Here", "DefaultRegion", "true")

    run(story())


def test_batch_gets_consecutive_offsets_and_one_reply(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            await c.send("Orders", b"before")
            messages = [
                (number, b"%d" % number, properties.encode({"TAGS": "even" if number % 2 == 0 else "odd"}))
                for number in range(40)
            ]
            sent = await c.send_batch("Orders", messages)
            assert sent.ext["queueOffset"] == "1"
            ids = sent.ext["msgId"].split(",")
            first = await c.pull("Orders", 1)
            second = await c.pull("Orders", int(first.ext["nextBeginOffset"]))
            stored = records(first) + records(second)
            assert [record.body for record in stored] == [b"%d" % number for number in range(40)]
            assert [record.queue_offset for record in stored] == list(range(1, 41))
            assert [int(msg_id[16:], 16) for msg_id in ids] == [record.physical_offset for record in stored]
            # Messages of a batch keep the properties they came with, and no more.
            assert [record.properties for record in stored] == [raw for _, _, raw in messages]
            assert bodies(await c.pull("Orders", 0, expression="odd"))[:2] == [b"1", b"3"]

    run(story())


def test_large_batches_leave_nothing_in_memory(tmp_path: Path) -> None:
    """Every batch has another size: a template of ids per size would hold 4.6 MB after these."""

    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            await c.send_batch("Orders", [(0, b"", b"")] * 9_000)
            tracemalloc.start()
            try:
                for extra in range(20):
                    answer = await c.send_batch("Orders", [(0, b"", b"")] * (10_000 + extra))
                    assert answer.ext["msgId"].count(",") == 9_999 + extra
                del answer
                kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/broker/send/handler.py")])
            finally:
                tracemalloc.stop()
            assert sum(trace.size for trace in kept.traces) < 1_000_000

    run(story())


def test_pop_receipt_is_removed(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            await c.send("Orders", b"x", POP_CK="0 1 2 3 0 b 0 0", TAGS="a")
            (record,) = records(await c.pull("Orders", 0))
            kept = properties.parse(record.properties)
            assert (kept.get("TAGS"), kept.get("POP_CK")) == ("a", None)

    run(story())


def test_message_larger_than_a_log_file_is_rejected(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, store={"max_message_size": 16 * 1024 * 1024}) as running, client(running) as c:
            large = await c.send("Orders", bytes(8 * 1024 * 1024))
            assert (large.code, "mappedFileSizeCommitLog" in (large.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
            assert (await c.send("Orders", b"x")).ext["queueOffset"] == "0"

    run(story())


@pytest.mark.parametrize("window_ms", [0, 60_000])  # what looks for repeats takes another way
def test_empty_delayed_or_transactional_batch_is_rejected(tmp_path: Path, window_ms: int) -> None:
    async def story() -> None:
        async with broker(tmp_path, deduplicate_uniq_key_window_ms=window_ms) as running, client(running) as c:
            two = batch.join([(0, b"1", b""), (0, b"2", b"")])
            refused = [
                (send_header("Orders", 0, "", batch="true"), b""),
                (send_header("Orders", 0, "DELAY\x013\x02", batch="true"), two),
                (send_header("Orders", 0, "TRAN_MSG\x01true\x02PGROUP\x01P\x02", batch="true"), two),
                (send_header("Orders", 0, "", batch="true", f="4"), two),
                (send_header("Orders", 0, "", batch="true", f="8"), two),
            ]
            for header, body in refused:
                answer = await c.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL, (header, answer.remark)
            sent = await c.call(RequestCode.SEND_BATCH_MESSAGE, send_header("Orders", 0, "DELAY\x010\x02", batch="true"), two)
            assert (sent.code, sent.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0")  # nothing was stored before

    run(story())


def test_one_way_send_is_stored_without_reply(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            c.channel.oneway(RequestCode.SEND_MESSAGE_V2, send_header("Orders", 0, ""), b"gone")
            c.channel.oneway(RequestCode.SEND_MESSAGE_V2, send_header("Orders", 99, ""), b"refused")
            await c.send("Orders", b"answered")
            assert bodies(await c.pull("Orders", 0)) == [b"gone", b"answered"]

    run(story())


def test_both_header_versions_of_a_send_are_accepted(tmp_path: Path) -> None:
    long_names = {
        "producerGroup": "P", "topic": "Orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 1, "sysFlag": 0,
        "bornTimestamp": 5, "flag": 0, "properties": "TAGS\x01a", "reconsumeTimes": 0, "unitMode": False, "batch": False,
    }  # fmt: skip

    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            sent = await c.call(RequestCode.SEND_MESSAGE, long_names, b"x")
            assert (sent.code, sent.ext["queueId"]) == (ResponseCode.SUCCESS, "1")
            assert bodies(await c.pull("Orders", 0, queue_id=1, expression="a || b")) == [b"x"]

    run(story())


@pytest.mark.parametrize(
    ("change", "body", "code", "says"),
    [
        ({"b": "../../x"}, b"x", ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"b": "T" * 128}, b"x", ResponseCode.INVALID_PARAMETER, "127"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, b"x", ResponseCode.NO_PERMISSION, "broker's own"),
        ({"b": "ReadOnly"}, b"x", ResponseCode.NO_PERMISSION, "permission 4"),
        ({"e": "8"}, b"x", ResponseCode.INVALID_PARAMETER, "0..3"),
        ({"e": "many"}, b"x", ResponseCode.INVALID_PARAMETER, "many"),
        ({}, b"", ResponseCode.MESSAGE_ILLEGAL, "no body"),
        ({}, b"x" * 70_000, ResponseCode.MESSAGE_ILLEGAL, "maxMessageSize is 65536"),
        ({"i": "a\x01" + "v" * 32_767 + "\x02"}, b"x", ResponseCode.MESSAGE_ILLEGAL, "32767"),
        ({"i": "DELAY\x011\x02a\x01" + "v" * 32_630}, b"x", ResponseCode.MESSAGE_ILLEGAL, "32767"),
        ({"m": "true"}, b"not a batch", ResponseCode.MESSAGE_ILLEGAL, ""),
        ({"b": "%RETRY%nobody", "m": "true"}, b"", ResponseCode.MESSAGE_ILLEGAL, "retry topic"),
        ({"f": "128"}, b"x", ResponseCode.MESSAGE_ILLEGAL, "inner batch"),
        ({"f": "192", "i": "INNER_NUM\x012"}, b"x", ResponseCode.MESSAGE_ILLEGAL, "inner batch"),
        ({"f": "128", "m": "true"}, batch.join([(0, b"x", b"")]), ResponseCode.MESSAGE_ILLEGAL, "inner batch"),
        ({"i": "INNER_NUM\x012"}, b"x", ResponseCode.MESSAGE_ILLEGAL, "INNER_NUM"),
        ({"i": "a\x01b\x02INNER_BASE\x017\x02"}, b"x", ResponseCode.MESSAGE_ILLEGAL, "INNER_BASE"),
        ({"i": "TIMER_DEL_UNIQKEY\x01Orders+U\x02"}, b"x", ResponseCode.MESSAGE_ILLEGAL, "RECALL_MESSAGE"),
        ({"i": "__PRODUCER_ID\x01p\x02"}, b"x", ResponseCode.MESSAGE_ILLEGAL, "__PRODUCER_SEQ"),
    ],
)
def test_invalid_send_is_rejected(tmp_path: Path, change: dict[str, str], body: bytes, code: int, says: str) -> None:
    async def story() -> None:
        async with broker(tmp_path, store={"max_message_size": 65_536}) as running, client(running) as c:
            create = {"topic": "ReadOnly", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 4}
            create |= {"topicFilterType": "SINGLE_TAG", "order": False}
            assert (await c.call(RequestCode.UPDATE_AND_CREATE_TOPIC, create)).code == ResponseCode.SUCCESS
            await c.send("Orders", b"0")
            end = running.context.store.max_offset
            answer = await c.call(RequestCode.SEND_MESSAGE_V2, send_header("Orders", 0, "") | change, body)
            assert answer.code == code
            assert says in (answer.remark or "")
            assert running.context.store.max_offset == end
            assert (await c.send("Orders", b"1")).code == ResponseCode.SUCCESS  # the connection stays open

    run(story())


def test_consumed_message_may_be_forwarded_with_all_its_properties(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            assert (await c.send("Orders", b"x", **CONSUMED)).code == ResponseCode.SUCCESS
            (record,) = records(await c.pull("Orders", 0))
            assert properties.parse(record.properties).items() >= CONSUMED.items()

    run(story())


@pytest.mark.parametrize(
    ("said", "stored"), [(0x4, 0), (0xC, 0), (0x70B, 0x70B), (0x8, 0x8), (0x70, 0), (0x41, 1), (2**31 - 1 - 0x80, 0x703)]
)
def test_reserved_flags_are_removed(tmp_path: Path, said: int, stored: int) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            header = send_header("Orders", 0, "") | {"f": str(said)}
            assert (await c.call(RequestCode.SEND_MESSAGE_V2, header, b"x")).code == ResponseCode.SUCCESS
            header |= {"m": "true", "f": str(said & ~0xC)}  # a batch is never part of a transaction
            assert (
                await c.call(RequestCode.SEND_BATCH_MESSAGE, header, batch.join([(0, b"y", b"")]))
            ).code == ResponseCode.SUCCESS
            assert [record.sys_flag for record in records(await c.pull("Orders", 0))] == [stored, stored & ~0xC]

    run(story())


@pytest.mark.parametrize(
    ("names", "waits"), [({}, True), ({"WAIT": "true"}, True), ({"WAIT": "false"}, False), ({"MUST_WAIT": "false"}, True)]
)
def test_wait_false_is_acknowledged_before_the_flush(tmp_path: Path, names: dict[str, Any], waits: bool) -> None:
    async def story() -> None:
        async with broker(tmp_path, flush="SYNC_FLUSH") as running, client(running) as c:
            policy = Replicated()  # as slow as can be
            running.commit.set_policy(policy)
            raw = properties.encode(names)
            calls = [c.send("Orders", b"x", **names)]
            header = send_header("Orders", 0, raw.decode(), batch="true")
            calls.append(c.call(RequestCode.SEND_BATCH_MESSAGE, header, batch.join([(0, b"y", b"")])))
            answers = [asyncio.ensure_future(call) for call in calls]
            await c.pull("Orders", 0)  # answered when the sends are served
            await c.pull("Orders", 0)  # and this one when they are written
            assert [answer.done() for answer in answers] == [not waits, not waits]
            running.commit.release(running.context.store.max_offset)
            assert [answer.code for answer in await asyncio.gather(*answers)] == [ResponseCode.SUCCESS] * 2

    run(story())


def test_unknown_topic_is_rejected_with_setting_and_command(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, auto_create_topic_enable=False) as running, client(running) as c:
            answer = await c.send("Orders", b"x")
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert "autoCreateTopicEnable" in (answer.remark or "")
            assert "mqadmin updateTopic" in (answer.remark or "")

    run(story())


def test_concurrent_sends_of_many_connections_get_dense_offsets(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, flush="SYNC_FLUSH") as running, client(running) as a, client(running) as b:
            answers = await asyncio.gather(*(c.send("Orders", b"%d" % n) for n in range(200) for c in (a, b)))
            assert sorted(int(answer.ext["queueOffset"]) for answer in answers) == list(range(400))
            assert all(conn.state.in_flight == 0 for conn in running.ports.connections)

    run(story())


def test_same_seed_chooses_the_same_queues(tmp_path: Path) -> None:
    def chosen(directory: Path) -> list[str]:
        kit = Kit(directory)
        kit.topic("Orders", queues=8)
        replies = PendingReplies()
        sends = SendHandler(kit.context, Transactions(kit.context, kit.now), replies)
        for _ in range(20):
            request = Command(RequestCode.SEND_MESSAGE_V2, ext=send_header("Orders", -1, ""), body=b"x")
            sends.send(cast(Connection, FakeConnection()), request, kit.now)
        answers = [FrameDecoder().feed(reply.data)[0] for reply in replies.take()[0]]
        kit.close()
        return [str(answer.ext["queueId"]) for answer in answers]

    first = chosen(tmp_path / "a")
    assert chosen(tmp_path / "b") == first
    assert len(set(first)) > 1
