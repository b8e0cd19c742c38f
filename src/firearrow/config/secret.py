"""Secret values of settings: passwords and keys.

The type marks them. Nothing that prints, compares or serializes a settings object shows the value; only `reveal` returns it.
"""

from __future__ import annotations

import hmac
from typing import Final

MASK: Final = "******"


class Secret:
    """Text that is never shown."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret is not serialized")
