"""Which requests are decoded with their header at once, where that is done in C: those of which a broker gets thousands a second.

A command that came this way has its `header`; whoever serves it takes that, or decodes `ext` if there is none. All that is
unusual about a frame goes the long way as ever.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from firearrow.wire.accelerated import native
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import FieldSpec, Header
from firearrow.wire.headers.client import EndTransactionRequestHeader, PullMessageRequestHeader, SendMessageRequestHeader

_KINDS = {"str": 0, "int": 1, "Long": 2, "bool": 3}  # as _native.c numbers them


def _field(spec: FieldSpec, key: str) -> tuple[Any, ...]:
    assert spec.other is None, "a field under two keys is for the long way"
    said = (key, spec.name, _KINDS[spec.kind])
    return said if spec.required else (*said, spec.default)


def _quick(codes: tuple[int, ...], cls: type[Header], *, short: bool = False) -> None:
    assert native is not None, "asked before"
    fields = tuple(_field(spec, spec.short if short and spec.short else spec.key) for spec in cls.FIELDS)
    for code in codes:
        native.quick(code, cls, fields)


@cache
def decode_at_once() -> None:
    """From now on, in this process, if it was built. Once is enough."""
    if native is None:
        return
    native.command(Command)
    _quick((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE), SendMessageRequestHeader, short=True)
    _quick((RequestCode.END_TRANSACTION,), EndTransactionRequestHeader)
    _quick((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), PullMessageRequestHeader)
