"""The body of a broker's registration (103), plain or compressed.

Plain: one JSON object. Brokers older than 3.0.11 send only its inner part, the topic table.
Compressed: one zlib stream of

    4 n, n       data version as JSON
    4 topics, and for each  4 n, n  the text `topic readQueues writeQueues perm filterType attributes`, separated by one space;
                 the attributes are JSON without spaces and may be absent
    4 n, n       filter servers as a JSON list
    4 mappings, and for each  4 n, n  a queue mapping as JSON        (only from 5.0.0 on)
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

from firearrow.wire import fastjson
from firearrow.wire.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from firearrow.wire.codes import VERSION, VERSION_3_0_11, VERSION_5_0_0
from firearrow.wire.errors import ProtocolError, shown

MAX_INFLATED: Final = 32 * 1024 * 1024  # more than a hundred thousand topics; zlib needs the same again while inflating
_I32: Final = struct.Struct(">i")


@dataclass(slots=True)
class RegisterBrokerBody:
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    filter_server_list: list[str] = field(default_factory=list)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def decode(cls, body: bytes, *, compressed: bool = False, version: int = VERSION) -> RegisterBrokerBody:
        """Decode a registration as a broker of `version` writes it. An empty body means a broker without topics."""
        if not body:
            return cls()
        if version < VERSION_3_0_11:
            return cls._around(fastjson.loads(body), [])
        return _inflate(body, version) if compressed else cls.from_json(fastjson.loads(body))

    @classmethod
    def from_json(cls, value: Any) -> RegisterBrokerBody:
        if not isinstance(value, dict):
            raise ProtocolError(f"RegisterBrokerBody is {shown(value)}, expected an object")
        servers = value.get("filterServerList") or []
        if not isinstance(servers, list) or not all(isinstance(server, str) for server in servers):
            raise ProtocolError(f"RegisterBrokerBody: filterServerList is {shown(servers)}, expected a list of addresses")
        return cls._around(value.get("topicConfigSerializeWrapper") or {}, servers)

    def to_json(self) -> dict[str, Any]:
        wrapper = TopicConfigSerializeWrapper(
            self.topic_config_table, self.data_version, self.mapping_data_version,
            self.topic_queue_mapping_detail_map, self.topic_queue_mapping_info_map,
        )  # fmt: skip
        return {"filterServerList": self.filter_server_list, "topicConfigSerializeWrapper": wrapper.to_json()}

    def encode(self, *, compressed: bool = False) -> bytes:
        return _deflate(self) if compressed else fastjson.dumps(self.to_json())

    @classmethod
    def _around(cls, wrapper: Any, servers: list[str]) -> RegisterBrokerBody:
        inner = TopicConfigSerializeWrapper.from_json(wrapper)
        return cls(
            inner.topic_config_table, inner.data_version, servers, inner.mapping_data_version,
            inner.topic_queue_mapping_detail_map, inner.topic_queue_mapping_info_map,
        )  # fmt: skip


def _inflate(body: bytes, version: int) -> RegisterBrokerBody:
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(body, MAX_INFLATED)
    except zlib.error as error:
        raise ProtocolError(f"a compressed registration that zlib cannot read: {error}") from None
    if not inflater.eof:
        raise ProtocolError(f"a compressed registration that is cut off or larger than {MAX_INFLATED} bytes")
    parts = _Parts(raw)
    registration = RegisterBrokerBody(data_version=DataVersion.from_json(fastjson.loads(parts.sized())))
    for _ in range(parts.count()):
        config = _topic_config(parts.sized())
        registration.topic_config_table[config.topic_name] = config
    servers = fastjson.loads(parts.sized())
    registration.filter_server_list = RegisterBrokerBody.from_json({"filterServerList": servers}).filter_server_list
    if version >= VERSION_5_0_0:
        for _ in range(parts.count()):
            mapping = fastjson.loads_object(parts.sized())
            registration.topic_queue_mapping_info_map[str(mapping.get("topic", ""))] = mapping
    return registration


def _deflate(registration: RegisterBrokerBody) -> bytes:
    out = [_sized(fastjson.dumps(registration.data_version.to_json())), _I32.pack(len(registration.topic_config_table))]
    for config in registration.topic_config_table.values():
        numbers = f"{config.read_queue_nums} {config.write_queue_nums} {config.perm} {config.topic_filter_type}"
        attributes = fastjson.dumps(config.attributes)
        out.append(_sized(f"{config.topic_name} {numbers} ".encode() + attributes))
    out += (_sized(fastjson.dumps(registration.filter_server_list)), _I32.pack(len(registration.topic_queue_mapping_info_map)))
    out += [_sized(fastjson.dumps(mapping)) for mapping in registration.topic_queue_mapping_info_map.values()]
    return zlib.compress(b"".join(out))


def _sized(text: bytes) -> bytes:
    return _I32.pack(len(text)) + text


def _topic_config(text: bytes) -> TopicConfig:
    try:
        parts = text.decode().split(" ", 5)
    except UnicodeDecodeError:
        raise ProtocolError(f"a topic in a compressed registration that is not UTF-8: {shown(text)}") from None
    if len(parts) < 5 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts[1:4]):
        raise ProtocolError(f"a topic in a compressed registration: {shown(text)}, expected `topic read write perm filterType`")
    attributes = fastjson.loads_object(parts[5]) if len(parts) > 5 else {}
    keys = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    return TopicConfig.from_json({**dict(zip(keys, parts, strict=False)), "attributes": attributes})


class _Parts:
    """Sequential reader of counts and length-prefixed texts."""

    __slots__ = ("_at", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def count(self) -> int:
        if len(self._raw) - self._at < 4:
            raise ProtocolError(f"a compressed registration that ends at byte {len(self._raw)} before it is complete")
        (number,) = _I32.unpack_from(self._raw, self._at)
        self._at += 4
        left = len(self._raw) - self._at
        if not 0 <= number <= left:
            raise ProtocolError(f"a compressed registration with the length {number}, with {left} bytes left")
        return int(number)

    def sized(self) -> bytes:
        length = self.count()
        start = self._at
        self._at += length
        return self._raw[start : self._at]
