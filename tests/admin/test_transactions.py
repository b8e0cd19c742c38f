from __future__ import annotations

import asyncio

import pytest

from firearrow.admin.errors import NotFoundError
from firearrow.client.message import Message, ReceivedMessage
from firearrow.client.producer.transaction import LocalTransactionState
from tests.admin.kit import running


def test_check_of_a_given_up_transaction_is_resumed() -> None:
    async def story() -> None:
        asked: list[str] = []

        def decide(message: ReceivedMessage) -> LocalTransactionState:
            asked.append(message.msg_id)
            return LocalTransactionState.UNKNOWN if len(asked) < 3 else LocalTransactionState.COMMIT

        properties = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000", "transactionCheckMax": "1"}
        async with running(properties=properties) as (cluster, admin):
            await admin.create_topic("T", queues=1)
            assert await admin.given_up_transactions() == []
            producer = cluster.transaction_producer(group="p", check=decide, execute=lambda *_: LocalTransactionState.UNKNOWN)
            async with producer:
                sent = await producer.send_in_transaction(Message("T", b"x"))
                with pytest.raises(NotFoundError):
                    await admin.resume_check(sent.msg_id)
                await cluster.advance(seconds=20)
                (half,) = await admin.given_up_transactions()
                assert (half.msg_id, half.body) == (sent.msg_id, b"x")
                before = len(asked)
                assert await admin.resume_check(sent.msg_id) == half.offset_msg_id
                await cluster.advance(seconds=5)
                assert len(asked) > before

    asyncio.run(story())
