"""Errors of the client.

    FirearrowError
      ClientError              the outcome of a request is not known
        NoRouteError           the topic has no broker, or no name server can be reached
        RequestTimeout         no response in time; the broker may have acted
        ConnectionLost         the connection failed or ended before the response; the broker may have acted
      BrokerError              the broker rejected the request: `code`, `remark`, `address`
      InvalidMessageError      rejected before it was sent; also a ValueError
      DecompressionError       a received body that cannot be decompressed, or would become too large
      ClosedError              use before `start` or after `close`

Messages name the problem, the value, the expectation, and a remedy if one is known.
"""

from __future__ import annotations

from firearrow.wire.codes import ResponseCode


class FirearrowError(Exception):
    """Base class of all errors of the client."""


class ClientError(FirearrowError):
    """The outcome of a request is not known."""


class NoRouteError(ClientError):
    """A topic has no broker. `asked` is False if no name server could be reached."""

    def __init__(self, topic: str, why: str = "", *, asked: bool = True) -> None:
        self.topic = topic
        self.asked = asked
        help_ = (
            "create the topic, or let brokers create topics (autoCreateTopicEnable)"
            if asked
            else "check the addresses of the name servers"
        )
        super().__init__(f"no route to the topic {topic!r}{': ' if why else ''}{why}; {help_}")


class RequestTimeout(ClientError, TimeoutError):  # noqa: N818 (a common name in other libraries)
    """No response within the timeout."""


class ConnectionLost(ClientError, ConnectionError):  # noqa: N818 (the name describes the event)
    """The connection could not be opened, or ended before the response."""


class BrokerError(FirearrowError):
    """A broker or name server rejected a request. `code` is a `ResponseCode`, or a number unknown to this version."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        self.code = code
        self.remark = remark or ""
        self.address = address
        super().__init__(f"{address} refused with {code_name(code)}: {remark or 'no reason given'}")


class InvalidMessageError(FirearrowError, ValueError):
    """A message, name or argument that brokers would reject, detected before sending."""


class DecompressionError(FirearrowError):
    """A body that cannot be decompressed, or would exceed the limit."""


class ClosedError(FirearrowError):
    """The client was not started or has been closed."""


def code_name(code: int) -> str:
    """Return `17 TOPIC_NOT_EXIST`, or the number of an unknown code."""
    try:
        return f"{code} {ResponseCode(code).name}"
    except ValueError:
        return str(code)
