"""Transactions that brokers gave up: asked about too often, or for too long, and never decided."""

from __future__ import annotations

from firearrow.admin.errors import NotFoundError
from firearrow.admin.messages import find_message, messages_between
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer.queue_offsets import master_address
from firearrow.client.errors import NoRouteError
from firearrow.client.message import ReceivedMessage
from firearrow.wire.headers.admin import ResumeCheckHalfMessageRequestHeader
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC


async def given_up_transactions(client: ClientInstance, *, max_messages: int = 100) -> list[ReceivedMessage]:
    """The half messages of transactions that were given up, oldest first. Those that were resumed stay among them."""
    try:
        return await messages_between(client, TRANS_CHECK_MAX_TIME_TOPIC, max_messages=max_messages)
    except (NoRouteError, NotFoundError):  # the topic is made with the first of them
        return []


async def resume_check(client: ClientInstance, msg_id: str) -> str:
    """Has the broker ask the producer again about a transaction that it gave up. `msg_id`: either id of its half message.

    Returns the id under which it was kept.
    """
    try:
        half = await find_message(client, TRANS_CHECK_MAX_TIME_TOPIC, msg_id)
    except NotFoundError:
        raise NotFoundError(f"no transaction that was given up has the id {msg_id!r}") from None
    if half.topic != TRANS_CHECK_MAX_TIME_TOPIC:
        raise NotFoundError(f"{msg_id!r} is a message of {half.topic!r}, not a transaction that was given up")
    header = ResumeCheckHalfMessageRequestHeader(topic=half.topic, msg_id=half.offset_msg_id)
    address = await master_address(client, half.queue)
    await client.check(address, header)
    return half.offset_msg_id
