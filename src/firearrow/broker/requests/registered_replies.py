"""Replies to requests that create or change a topic, held back until the name servers know it.

A client that has the reply may ask a name server for the route at once: mqadmin does so after `updateTopic`, an operator after a
consumer's start, a consumer after the first send to a topic. The wait is bounded (`Registration.when_registered`), and the
request itself is carried out before it: later requests of the connection are not delayed.

A change of a topic always replaces the data version of the table. So an ordinary heartbeat costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from firearrow.broker.context import BrokerContext, Handler
from firearrow.net.server import Connection
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command

_CHANGING = (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)

WhenRegistered = Callable[[Callable[[], None]], None]


class RegisteredReplies:
    """A connection whose replies leave once the topics changed so far are registered.

    It stands for `conn` in the reply to one request; everything but `write` is the connection's own.
    """

    def __init__(self, conn: Connection, when_registered: WhenRegistered) -> None:
        self._conn = conn
        self._held: list[bytes] | None = []
        when_registered(self._registered)

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._conn.write(data)
        else:
            self._held.append(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    def _registered(self) -> None:
        held, self._held = self._held, None
        if held:
            self._conn.write(b"".join(held))


def hold_replies(broker: BrokerContext, conn: Connection) -> Connection:
    """Return a connection for the reply to a request that has changed a topic."""
    return cast(Connection, RegisteredReplies(conn, broker.when_registered))


def answering_when_registered(broker: BrokerContext, handlers: dict[int, Handler]) -> dict[int, Handler]:
    """Wrap the handlers that may create or change a topic.

    Sends hold their replies back themselves. So does the change log of an elected group (tables/change_log.py) for the requests
    of operators, whose replies also wait for replication.
    """
    creating = (RequestCode.HEART_BEAT,) if broker.settings.enable_d_leger_commit_log else (RequestCode.HEART_BEAT, *_CHANGING)

    def wrapped(handler: Handler) -> Handler:
        def answer_when_registered(conn: Connection, request: Command, now_ms: int) -> bytes | None:
            before = broker.topics.data_version
            response = handler(conn, request, now_ms)
            if response is None or broker.topics.data_version is before:
                return response
            if not request.flag & 2:
                hold_replies(broker, conn).write(response)
            return None

        return answer_when_registered

    return {int(code): wrapped(handlers[code]) for code in creating}
