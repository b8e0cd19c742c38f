from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from firearrow.aio import TransactionProducer
from firearrow.client.hooks import EndTransactionContext, SendContext
from firearrow.client.message import Message, ReceivedMessage
from firearrow.client.producer.transaction import LocalTransactionState as State
from tests.client.cluster import Servers, servers
from tests.client.fake_broker import FakeBroker
from tests.client.producer.test_producer import all_stored
from tests.support.waiting import run

QUICK = {"transaction_check_interval": 100, "transaction_time_out": 1}


def unasked(message: ReceivedMessage) -> State:
    raise AssertionError("nobody should ask")


async def until_stored(cluster: Servers, topic: str, count: int) -> list[ReceivedMessage]:
    while True:
        found = await all_stored(cluster.brokers[0], topic)
        if len(found) >= count:
            return found
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_commit_delivers_and_a_rollback_does_not(tmp_path: Path, kind: str) -> None:
    threads: list[str] = []

    def decide(message: Message, argument: Any) -> State:
        threads.append(threading.current_thread().name)
        return State.COMMIT if argument == "yes" else State.ROLLBACK

    async def decide_soon(message: Message, argument: Any) -> State:
        await asyncio.sleep(0)
        return decide(message, argument)

    async def story() -> None:
        execute: Any = decide if kind == "function" else decide_soon
        async with (
            servers(tmp_path) as cluster,
            TransactionProducer(cluster.name_server, group="money", execute=execute, check=unasked) as producer,
        ):
            no = await producer.send_in_transaction(Message("Orders", b"no"), "no")
            yes = await producer.send_in_transaction(Message("Orders", b"yes", tags="t"), "yes")
            assert (no.state, yes.state) == (State.ROLLBACK, State.COMMIT)
            [message] = await until_stored(cluster, "Orders", 1)
            assert (message.body, message.tags, message.msg_id) == (b"yes", "t", yes.msg_id)
            assert message.get("__transactionId__") == yes.transaction_id
            await producer.send(Message("Orders", b"plain"))
            assert len(await until_stored(cluster, "Orders", 2)) == 2

    run(story())
    assert all(name.startswith("firearrow-transaction") == (kind == "function") for name in threads)


def test_unknown_outcome_is_checked(tmp_path: Path) -> None:
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> State:
        asked.append(message)
        if len(asked) == 1:
            raise RuntimeError("the database is away")
        return State.COMMIT

    async def story() -> None:
        async with (
            servers(tmp_path, **QUICK) as cluster,
            TransactionProducer(
                cluster.name_server, group="money", execute=lambda message, argument: State.UNKNOWN, check=check
            ) as producer,
        ):
            result = await producer.send_in_transaction(Message("Orders", b"x", keys=["k"]))
            [message] = await until_stored(cluster, "Orders", 1)
            assert (message.body, message.msg_id) == (b"x", result.msg_id)
            assert len(asked) == 2
            assert (asked[0].topic, asked[0].body, asked[0].keys, asked[0].msg_id) == ("Orders", b"x", ("k",), result.msg_id)

    run(story())


def test_a_producer_that_has_sent_nothing_answers_for_its_group(tmp_path: Path) -> None:
    """As after a restart of the program that left a transaction open."""

    def unknown(message: Message, argument: Any) -> State:
        return State.UNKNOWN

    async def story() -> None:
        async with servers(tmp_path, **QUICK) as cluster:
            names = cluster.name_server
            async with TransactionProducer(names, group="money", execute=unknown, check=lambda message: State.UNKNOWN) as one:
                await one.send_in_transaction(Message("Orders", b"left open"))
            async with TransactionProducer(names, group="money", execute=unknown, check=lambda message: State.COMMIT):
                [message] = await until_stored(cluster, "Orders", 1)
            assert message.body == b"left open"

    run(story())


def test_without_a_name_server_a_producer_starts_and_closes_all_the_same() -> None:
    async def story() -> None:
        async with TransactionProducer("127.0.0.1:1", group="money", execute=lambda *_: State.UNKNOWN, check=unasked):
            pass

    run(story())


def test_what_the_local_transaction_raises_is_raised_and_its_outcome_asked_for(tmp_path: Path) -> None:
    def fail(message: Message, argument: Any) -> State:
        raise KeyError("no such account")

    async def story() -> None:
        async with (
            servers(tmp_path, **QUICK) as cluster,
            TransactionProducer(cluster.name_server, group="money", execute=fail, check=lambda message: State.COMMIT) as producer,
        ):
            with pytest.raises(KeyError, match="no such account"):
                await producer.send_in_transaction(Message("Orders", b"x"))
            assert [m.body for m in await until_stored(cluster, "Orders", 1)] == [b"x"]

    run(story())


def test_invalid_outcome_is_an_error(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path) as cluster,
            TransactionProducer(
                cluster.name_server,
                group="money",
                execute=lambda message, argument: None,  # type: ignore[arg-type,return-value]  # the mistake in question
                check=unasked,
            ) as producer,
        ):
            with pytest.raises(TypeError, match="execute returned None, expected a LocalTransactionState"):
                await producer.send_in_transaction(Message("Orders", b"x"))

    run(story())


def test_a_half_that_is_less_safe_than_it_should_be_is_rolled_back() -> None:
    executed: list[Message] = []

    def execute(message: Message, argument: Any) -> State:
        executed.append(message)
        return State.COMMIT

    class Notes:
        def __init__(self) -> None:
            self.ends: list[EndTransactionContext] = []

        def before_send(self, context: SendContext) -> None: ...

        def after_send(self, context: SendContext) -> None: ...

        def end_transaction(self, context: EndTransactionContext) -> None:
            self.ends.append(context)

    async def story() -> None:
        broker, notes = await FakeBroker().start(), Notes()
        broker.answers.append(10)
        async with TransactionProducer(broker.address, group="money", execute=execute, check=unasked, hooks=[notes]) as producer:
            result = await producer.send_in_transaction(Message("T", b"x"), check_after=7)
            assert result.state is State.ROLLBACK
            assert executed == []
            await broker.until(lambda: 37 in broker.codes)
            [half] = broker.sends
            assert half.ext["f"] == "4"
            assert "TRAN_MSG\x01true" in half.ext["i"]
            assert "PGROUP\x01money" in half.ext["i"]
            assert "CHECK_IMMUNITY_TIME_IN_SECONDS\x017" in half.ext["i"]
            [end] = [command for command in broker.seen if command.code == 37]
            assert end.is_oneway
            assert (end.ext["commitOrRollback"], end.ext["producerGroup"], end.ext["msgId"]) == ("12", "money", result.msg_id)
            assert [(e.state, e.from_check, e.msg_id) for e in notes.ends] == [("ROLLBACK_MESSAGE", False, result.msg_id)]
        await broker.stop()

    run(story())
