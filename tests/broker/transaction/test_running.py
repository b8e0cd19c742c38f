"""Transactions on a running broker, over sockets: waiting consumers, one-way decisions, checks that arrive, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.server import Broker
from firearrow.net.channel import Channel
from firearrow.wire import fastjson, properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.record import decode
from tests.broker.running import SUSPEND, WITH_EXPRESSION, Client, bodies, broker, client, records, send_header
from tests.support.waiting import run

TOPIC, GROUP = "Orders", "P"
SOON: dict[str, Any] = {"transaction_check_interval": 100, "transaction_time_out": 50, "transaction_op_batch_interval": 50}


class Producer(Client):
    """A client that can be asked."""

    def __init__(self) -> None:
        self.questions: asyncio.Queue[Command] = asyncio.Queue()

    async def half(self, body: bytes, **names: str) -> dict[str, Any]:
        """Sends half a transaction; what a decision about it has to say."""
        raw = properties.encode({"TRAN_MSG": "true", "PGROUP": GROUP} | names).decode()
        header = send_header(TOPIC, 0, raw, f="4", g=str(time.time_ns() // 1_000_000))
        sent = await self.call(RequestCode.SEND_MESSAGE_V2, header, body)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        return decision(sent.ext["queueOffset"], int(sent.ext["msgId"][16:], 16))

    async def question(self) -> Command:
        return await asyncio.wait_for(self.questions.get(), 60)


def decision(queue_offset: Any, log_offset: Any) -> dict[str, Any]:
    return {
        "producerGroup": GROUP, "tranStateTableOffset": str(queue_offset), "commitLogOffset": str(log_offset),
        "commitOrRollback": "8", "msgId": "", "fromTransactionCheck": "false",
    }  # fmt: skip


@contextlib.asynccontextmanager
async def producer(running: Broker) -> AsyncIterator[Producer]:
    one = Producer()
    one.channel = await Channel.connect(running.advertised, on_request=lambda _, request: one.questions.put_nowait(request))
    heartbeat = {"clientID": "c", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
    await one.call(RequestCode.HEART_BEAT, {}, fastjson.dumps(heartbeat))
    try:
        yield one
    finally:
        await one.channel.close()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_waiting_consumer_gets_the_message_when_it_is_committed(tmp_path: Path, flush: str) -> None:
    async def story() -> None:
        async with broker(tmp_path, flush=flush) as running, producer(running) as p, client(running) as c:
            await c.send(TOPIC, b"first")
            pull = asyncio.create_task(c.pull(TOPIC, 1, flags=WITH_EXPRESSION | SUSPEND, hold_ms=15_000))
            half = await p.half(b"half")
            await asyncio.sleep(0.1)
            assert not pull.done()
            p.channel.oneway(RequestCode.END_TRANSACTION, half)
            assert bodies(await asyncio.wait_for(pull, 10)) == [b"half"]

    run(story())


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_commit_that_wants_an_answer_is_answered_when_the_message_can_be_read(tmp_path: Path, flush: str) -> None:
    async def story() -> None:
        async with broker(tmp_path, flush=flush) as running, producer(running) as p:
            answers = await asyncio.gather(*[p.call(RequestCode.END_TRANSACTION, await p.half(b"%d" % n)) for n in range(5)])
            assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 5
            assert bodies(await p.pull(TOPIC, 0)) == [b"0", b"1", b"2", b"3", b"4"]

    run(story())


def test_a_producer_is_asked_and_its_answer_counts_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, **SOON) as running, producer(running) as p:
            await p.half(b"open", UNIQ_KEY="U")
            question = await p.question()
            assert (question.code, question.is_oneway) == (RequestCode.CHECK_TRANSACTION_STATE, True)
            assert question.ext["transactionId"] == "U"
            shown = decode(question.body)
            assert (shown.topic, shown.queue_id, shown.body) == (TOPIC, 0, b"open")
            answer = decision(question.ext["tranStateTableOffset"], question.ext["commitLogOffset"])
            again = await p.question()
            for _ in range(2):
                p.channel.oneway(RequestCode.END_TRANSACTION, answer | {"fromTransactionCheck": "true"})
            later = decision(again.ext["tranStateTableOffset"], again.ext["commitLogOffset"]) | {"fromTransactionCheck": "true"}
            assert (await p.call(RequestCode.END_TRANSACTION, later)).code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
            assert bodies(await p.pull(TOPIC, 0)) == [b"open"]

    run(story())


def test_open_and_decided_transactions_outlive_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, producer(running) as p:
            committed, rolled_back, open_half = [await p.half(body) for body in (b"committed", b"rolled back", b"open")]
            await p.call(RequestCode.END_TRANSACTION, committed)
            await p.call(RequestCode.END_TRANSACTION, rolled_back | {"commitOrRollback": "12"})
        async with broker(tmp_path, **SOON) as running, producer(running) as p:
            op = await p.pull("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
            assert bodies(op) == [b"0,1,"]
            question = await p.question()
            assert decode(question.body).body == b"open"
            for half in (committed, rolled_back):
                answer = await p.call(RequestCode.END_TRANSACTION, half)
                assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (await p.call(RequestCode.END_TRANSACTION, open_half)).code == ResponseCode.SUCCESS
            found = records(await p.pull(TOPIC, 0))
            assert [record.body for record in found] == [b"committed", b"open"]
            assert [record.sys_flag for record in found] == [8, 8]

    run(story())


def test_the_half_topics_cannot_be_sent_to(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"):
                assert (await c.send(topic, b"x")).code == ResponseCode.NO_PERMISSION

    run(story())
