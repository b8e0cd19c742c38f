"""What can go wrong for a user of the client.

    FirearrowError
      ClientError              no answer that says yes or no
        NoRouteError           nobody serves the topic (or the name servers cannot be asked)
        RequestTimeout         no answer in time; whether the broker acted is unknown
        ConnectionLost         the connection ended before the answer, or there was none; whether the broker acted is unknown
      BrokerError              the broker answered, and the answer is no: `code`, `remark`, `address`
      InvalidMessageError      refused before it was sent; also a ValueError
      DecompressionError       a received body that cannot be inflated, or would become too large
      ClosedError              used before `start` or after `close`

Every text names what is wrong, with which value, what was expected, and what to do about it where that can be known.
"""

from __future__ import annotations

from firearrow.wire.codes import ResponseCode


class FirearrowError(Exception):
    """The base of all errors of the client."""


class ClientError(FirearrowError):
    """The request had no outcome that is known here."""


class NoRouteError(ClientError):
    """No broker is known for a topic. `asked` is False if no name server could be asked."""

    def __init__(self, topic: str, why: str = "", *, asked: bool = True) -> None:
        self.topic = topic
        self.asked = asked
        help_ = "create the topic, or let brokers create topics (autoCreateTopicEnable)" if asked else "are the addresses right?"
        super().__init__(f"no route to the topic {topic!r}{': ' if why else ''}{why}; {help_}")


class RequestTimeout(ClientError, TimeoutError):  # noqa: N818 (the name that users know from elsewhere)
    """No answer within the time given."""


class ConnectionLost(ClientError, ConnectionError):  # noqa: N818 (a state, told by its name)
    """There is no connection, or it ended before the answer came."""


class BrokerError(FirearrowError):
    """A broker or name server refused. `code` is one of `ResponseCode` unless the server is newer than we are."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        self.code = code
        self.remark = remark or ""
        self.address = address
        super().__init__(f"{address} refused with {code_name(code)}: {remark or 'it gave no reason'}")


class InvalidMessageError(FirearrowError, ValueError):
    """A message, name or argument that no broker would take, found before anything was sent."""


class DecompressionError(FirearrowError):
    """A body that says it is compressed and is not, or that would become larger than allowed."""


class ClosedError(FirearrowError):
    """The client was not started, or has been closed."""


def code_name(code: int) -> str:
    """`17 TOPIC_NOT_EXIST`; an unknown code is its number."""
    try:
        return f"{code} {ResponseCode(code).name}"
    except ValueError:
        return str(code)
