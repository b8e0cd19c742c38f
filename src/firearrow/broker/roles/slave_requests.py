"""What a slave does not do: everything that would put a message into its log, or change what it copies from its master.

a message to store     CONSUMER_SEND_MSG_BACK, replies, recalls      14  SERVICE_NOT_AVAILABLE, as its sends
END_TRANSACTION                                                      11  SLAVE_NOT_AVAILABLE
topics, groups, modes                                                1   SYSTEM_ERROR
"""

from __future__ import annotations

from firearrow.broker.context import Handler
from firearrow.broker.requests.refused import Refused
from firearrow.broker.roles.replication import PassOn
from firearrow.net.server import Connection
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command

NO_SENDS = "this broker is a slave and takes no messages; send to its master"
_STORING = (
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.RECALL_MESSAGE,
)
_CHANGING = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
)
# What a slave serves from its own tables; a follower is soon to be asked no more, and its leader's are newer.
_MASTERS = (
    RequestCode.END_TRANSACTION,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
)


def handlers() -> dict[int, Handler]:
    """To be put in the place of a master's handlers."""
    changing = "this broker is a slave: topics, groups and modes are changed at its master, it copies them from there"
    table = {int(code): _refusing(ResponseCode.SERVICE_NOT_AVAILABLE, NO_SENDS) for code in _STORING}
    table |= {int(code): _refusing(ResponseCode.SYSTEM_ERROR, changing) for code in _CHANGING}
    ended = "this broker is a slave and ends no transactions; ask its master"
    return table | {int(RequestCode.END_TRANSACTION): _refusing(ResponseCode.SLAVE_NOT_AVAILABLE, ended)}


def passed_on(pass_on: PassOn) -> dict[int, Handler]:
    """Of a follower in an elected group, which knows who can do it."""

    def handler(conn: Connection, request: Command, now_ms: int) -> None:
        pass_on(conn, request)

    return {int(code): handler for code in (*_STORING, *_CHANGING, *_MASTERS)}


def _refusing(code: ResponseCode, remark: str) -> Handler:
    def refuse(conn: Connection, request: Command, now_ms: int) -> bytes:
        raise Refused(code, remark)

    return refuse
