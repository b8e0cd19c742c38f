"""Errors in the bytes of a peer.

`ProtocolError`: the bytes cannot be parsed. Raised by the frame decoder it means that the connection has lost its
framing and must be closed; raised by any other parser (record, batch, properties, body) the frame itself was valid and the
request is answered with an error.
`HeaderError`: the frame is valid, but a field of its custom header is missing or invalid.

Parsers of this package raise nothing else, whatever bytes they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firearrow.wire.frame import Command

_SHOWN_CHARS = 80


class ProtocolError(ValueError):
    """The bytes break the protocol. `commands` holds the frames that the same `feed` had decoded before the broken one."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.commands: list[Command] = []


class HeaderError(ProtocolError):
    """A custom header field is missing (no `value`) or invalid. The text is suitable as the remark of a response."""

    def __init__(self, header: str, field: str, value: Any, expected: str) -> None:
        problem = "is missing" if value is None else f"has the value {shown(value)}"
        super().__init__(f"{header}: the field {field} {problem}, expected {expected}")
        self.field = field
        self.value = value
        self.expected = expected


def shown(value: Any) -> str:
    """Return the value as quoted in an error message, never longer than a line."""
    if isinstance(value, (str, bytes)) and len(value) > _SHOWN_CHARS:
        return f"{value[:_SHOWN_CHARS]!r}... ({len(value)} long)"
    if isinstance(value, (dict, list)):
        return f"a {'map' if isinstance(value, dict) else 'list'} of {len(value)}"
    return repr(value)
