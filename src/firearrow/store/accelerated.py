"""Native implementations of the store's hot loops. Without them `native` has the value None (see firearrow/_native.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow._native import load

if TYPE_CHECKING:
    from typing import Protocol

    from firearrow.store.commitlog.log import IndexInput

    class Native(Protocol):
        """Functions of _native.c, which documents them."""

        def record(
            self, body: bytes, properties: bytes, topic: bytes, queue_id: int, flag: int, queue_offset: int, offset: int,
            tags_code: int, sys_flag: int, born_ms: int, born_host: bytes, store_ms: int, store_host: bytes,
            reconsume_times: int, prepared_offset: int, /,
        ) -> tuple[bytes, bytes]: ...  # fmt: skip

        def hash_keys(self, run: list[IndexInput], /) -> tuple[bytes, bytes, bytes]: ...

        def put_entries(
            self, slots: object, dirty_pages: object, hashes: object, offsets: object, times: object,
            start: int, end: int, number: int, first_begin_ms: int, begin_ms: int, /,
        ) -> tuple[bytes, int]: ...  # fmt: skip

        def batch_records(
            self, body: bytes, queue_id: int, queue_offset: int, offset: int, shared: bytes, topic: bytes, /
        ) -> tuple[bytes, bytes, list[int], list[bytes]] | None: ...

        def count_intact(self, records: bytes, entries: bytes, queue_id: int, queue_offset: int, topic: bytes, /) -> int: ...


native: Native | None = load("firearrow.store._native")
