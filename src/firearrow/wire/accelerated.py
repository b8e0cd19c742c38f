"""What the wire does in C, if it was built (firearrow/native.py says when, and why); `native` is None otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firearrow._native import load

if TYPE_CHECKING:
    from typing import Protocol

    class Native(Protocol):
        """What _native.c offers; its head says what for."""

        def command(self, cls: type, /) -> None: ...

        def quick(self, code: int, cls: type, fields: tuple[tuple[Any, ...], ...], /) -> None: ...

        def decode_run(self, data: bytes, pos: int, commands: list[Any], /) -> int: ...


native: Native | None = load("firearrow.wire._native")
