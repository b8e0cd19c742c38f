"""Transactions that a broker has stopped checking because they were not decided within the limits."""

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
    """Return the half messages of given-up transactions, oldest first, including those whose check was resumed."""
    try:
        return await messages_between(client, TRANS_CHECK_MAX_TIME_TOPIC, max_messages=max_messages)
    except (NoRouteError, NotFoundError):  # the broker creates the topic with the first one
        return []


async def resume_check(client: ClientInstance, msg_id: str) -> str:
    """Resume the check of a given-up transaction. `msg_id` is either id of its half message.

    Returns the offset id of the stored half message.
    """
    try:
        half = await find_message(client, TRANS_CHECK_MAX_TIME_TOPIC, msg_id)
    except NotFoundError:
        raise NotFoundError(f"no given-up transaction has the id {msg_id!r}") from None
    if half.topic != TRANS_CHECK_MAX_TIME_TOPIC:
        raise NotFoundError(f"{msg_id!r} is a message of topic {half.topic!r}, not a given-up transaction")
    header = ResumeCheckHalfMessageRequestHeader(topic=half.topic, msg_id=half.offset_msg_id)
    address = await master_address(client, half.queue)
    await client.check(address, header)
    return half.offset_msg_id
