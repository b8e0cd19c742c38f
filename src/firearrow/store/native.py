"""The C part of the store, for the few loops where the interpreter costs more than everything else (_native.c).

It is built when the package is installed, if there is a C compiler; whatever it does is there in Python too, and does the same.
Set FIREARROW_PURE=1 to go without it.

Why it is there: one core did the work of a broker that fills two, and on a machine whose cores were slow for a while batches fell
below Apache's rate, transactions and delayed messages to it. Measured side by side with Python alone, by the load program:
batches 2.1 times the rate, single messages and transactions 1.1 times.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Protocol

    from firearrow.store.append_group import IndexInput

    class Native(Protocol):
        """What _native.c offers; its head says what for."""

        def hash_keys(self, run: list[IndexInput], /) -> tuple[bytes, bytes, bytes]: ...

        def put_entries(
            self, slots: object, dirty_pages: object, hashes: bytes, offsets: bytes, times: bytes,
            start: int, end: int, number: int, first_begin_ms: int, begin_ms: int, /,
        ) -> tuple[bytes, int]: ...  # fmt: skip

        def batch_records(
            self, body: bytes, queue_id: int, queue_offset: int, offset: int, same: bytes, topic: bytes, /
        ) -> tuple[bytes, bytes, list[int], list[bytes]] | None: ...


def _load() -> Native | None:
    if os.environ.get("FIREARROW_PURE") == "1":
        return None
    try:
        module: ModuleType = importlib.import_module("firearrow.store._native")
    except ImportError:
        return None
    return cast("Native", module)


native = _load()  # None: Python alone
