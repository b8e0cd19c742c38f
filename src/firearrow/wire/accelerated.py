"""Native decoding of the request headers that a broker receives thousands of times a second.

`native` is the extension module, or None (firearrow/_native.py). A natively decoded command carries its `header`; for all other
commands the handler decodes `ext`. Unusual frames always take the Python path.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from firearrow._native import load

if TYPE_CHECKING:
    from typing import Protocol

    from firearrow.wire.header_schema import FieldSpec, Header

    class Native(Protocol):
        """The functions of _native.c; the head of that file describes them."""

        def command(self, cls: type, /) -> None: ...

        def quick(self, code: int, cls: type, fields: tuple[tuple[Any, ...], ...], /) -> None: ...

        def decode_run(self, data: bytes, pos: int, commands: list[Any], /) -> int: ...


native: Native | None = load("firearrow.wire._native")

_KINDS = {"str": 0, "int": 1, "Long": 2, "bool": 3}  # as _native.c numbers them


@cache
def enable_native_headers() -> None:
    """Decode the headers of send, pull and end-transaction requests natively in this process, if the extension was built."""
    if native is None:
        return
    # frame.py imports this module.
    from firearrow.wire.codes import RequestCode
    from firearrow.wire.frame import Command
    from firearrow.wire.headers.client import EndTransactionRequestHeader, PullMessageRequestHeader, SendMessageRequestHeader

    native.command(Command)
    _register(native, (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE), SendMessageRequestHeader, short=True)
    _register(native, (RequestCode.END_TRANSACTION,), EndTransactionRequestHeader)
    _register(native, (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), PullMessageRequestHeader)


def _register(module: Native, codes: tuple[int, ...], cls: type[Header], *, short: bool = False) -> None:
    fields = tuple(_field(spec, spec.short if short and spec.short else spec.key) for spec in cls.FIELDS)
    for code in codes:
        module.quick(code, cls, fields)


def _field(spec: FieldSpec, key: str) -> tuple[Any, ...]:
    assert spec.other is None, "a field with two keys is decoded in Python"
    described = (key, spec.name, _KINDS[spec.kind])
    return described if spec.required else (*described, spec.default)
