"""Network errors; each message names the peer.

They derive from built-in exceptions: a caller that only needs to know that the peer could not be reached catches `OSError`, of
which `ConnectionError` and `TimeoutError` are subclasses.
"""

from __future__ import annotations


class ConnectError(ConnectionError):
    """The connection could not be established."""


class ConnectionLostError(ConnectionError):
    """The connection ended before the response arrived. The peer may or may not have processed the request."""


class RequestTimeoutError(TimeoutError):
    """No response arrived in time. The peer may or may not have processed the request."""
