"""What can go wrong between two peers, as exceptions that name the peer.

They derive from the built-in kinds, so a caller that only cares "could not talk to it" catches `OSError` (`ConnectionError` and
`TimeoutError` are both that).
"""

from __future__ import annotations


class ConnectError(ConnectionError):
    """No connection could be made."""


class ConnectionLostError(ConnectionError):
    """The connection ended before the answer came; whether the peer acted on the request is unknown."""


class RequestTimeoutError(TimeoutError):
    """No answer within the time given; whether the peer acted on the request is unknown."""
