"""A simple model of the key index, entry by entry: the expected files and query results of `KeyIndex`."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from firearrow.wire.java_hash import hash_code


@dataclass
class Message:
    offset: int
    store_ms: int
    topic: str
    properties: bytes


def parse_properties(block: bytes) -> dict[bytes, bytes]:
    values = {}
    for segment in block.split(b"\x02"):
        name, mark, value = segment.partition(b"\x01")
        if name and mark and value:
            values[name] = value
    return values


def entry_texts(message: Message) -> list[str]:
    values = {name: value.decode("utf-8", "replace") for name, value in parse_properties(message.properties).items()}
    keys = [values.get(b"UNIQ_KEY", ""), *values.get(b"KEYS", "").split(" ")]
    texts = [f"{message.topic}#{key}" for key in keys if key]
    if b"TAGS" in values:
        texts.append(f"{message.topic}#T#{values[b'TAGS']}")
    return texts


def key_hash(text: str) -> int:
    value = abs(hash_code(text))
    return 0 if value == 1 << 31 else value


@dataclass
class ModelFile:
    slot_count: int
    entry_limit: int
    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slots_in_use: int = 0
    slots: dict[int, int] = field(default_factory=dict)
    entries: list[tuple[int, int, int, int]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.entries) + 1 >= self.entry_limit

    def put(self, hashed: int, offset: int, store_ms: int) -> None:
        slot = hashed % self.slot_count
        diff = min(max((store_ms - self.begin_ms) // 1000, 0), 0x7FFFFFFF) if self.begin_ms > 0 else 0
        self.slots_in_use += slot not in self.slots
        self.entries.append((hashed, offset, diff, self.slots.get(slot, 0)))
        self.slots[slot] = len(self.entries)
        if len(self.entries) == 1:
            self.begin_ms, self.begin_offset = store_ms, offset
        self.end_ms, self.end_offset = store_ms, offset

    def encode(self) -> bytes:
        header = struct.pack(
            ">qqqqii",
            self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.slots_in_use, len(self.entries) + 1,
        )  # fmt: skip
        slots = b"".join(struct.pack(">i", self.slots.get(slot, 0)) for slot in range(self.slot_count))
        entries = b"".join(struct.pack(">iqii", *entry) for entry in self.entries)
        return header + slots + bytes(20) + entries + bytes(20 * (self.entry_limit - 1 - len(self.entries)))


@dataclass
class ModelIndex:
    slot_count: int
    entry_limit: int
    files: list[ModelFile] = field(default_factory=list)

    def add(self, message: Message) -> None:
        for text in entry_texts(message):
            if not self.files or self.files[-1].full:
                file = ModelFile(self.slot_count, self.entry_limit)
                if self.files:
                    before = self.files[-1]
                    file.begin_ms = file.end_ms = before.end_ms
                    file.begin_offset = file.end_offset = before.end_offset
                self.files.append(file)
            self.files[-1].put(key_hash(text), message.offset, message.store_ms)

    def query(self, text: str, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        """Find keys by reading every entry of every file, without slots and chains."""
        hashed = key_hash(text)
        found: dict[int, None] = {}
        for file in reversed(self.files):
            if file.begin_ms <= end_ms and file.end_ms >= begin_ms:
                for entry_hash, offset, diff, _ in reversed(file.entries):
                    if entry_hash % self.slot_count != hashed % self.slot_count or len(found) >= max_num:
                        continue
                    time_ms = file.begin_ms + 1000 * diff
                    if entry_hash == hashed and begin_ms <= time_ms <= end_ms:
                        found[offset] = None
                    if time_ms < begin_ms:
                        break
            if file.begin_ms < begin_ms:
                break
        return list(found)
