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

MAX_INFLATED: Final = 16 * 1024 * 1024  # zlib needs the same again while inflating
MAX_TOPICS: Final = 40_000  # decoding one costs about 2 us
_ELEMENTS_PER_TOPIC: Final = 16  # of JSON; a topic without attributes has 9
_TOPIC_FIELDS: Final = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag", "order")
_MAX_INT: Final = 1 << 31
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
    def decode(
        cls, body: bytes, *, compressed: bool = False, version: int = VERSION, max_topics: int = MAX_TOPICS
    ) -> RegisterBrokerBody:
        """Decode a registration as a broker of `version` writes it. An empty body means a broker without topics.

        A registration with more than `max_topics` is rejected before its topics are decoded.
        """
        if not body:
            return cls()
        if compressed and version >= VERSION_3_0_11:
            return _inflate(body, version, max_topics)
        elements = body.count(b",")
        if elements > _ELEMENTS_PER_TOPIC * (max_topics + 1):
            raise _too_many(f"{elements} elements of JSON", max_topics)
        value = fastjson.loads(body, max_tolerant_bytes=fastjson.MAX_TOLERANT_REQUEST)
        if version >= VERSION_3_0_11:
            return cls.from_json(value, max_topics)
        return cls._around(value, [], max_topics)

    @classmethod
    def from_json(cls, value: Any, max_topics: int = MAX_TOPICS) -> RegisterBrokerBody:
        if not isinstance(value, dict):
            raise ProtocolError(f"RegisterBrokerBody is {shown(value)}, expected an object")
        servers = value.get("filterServerList") or []
        if not isinstance(servers, list) or not all(isinstance(server, str) for server in servers):
            raise ProtocolError(f"RegisterBrokerBody: filterServerList is {shown(servers)}, expected a list of addresses")
        return cls._around(value.get("topicConfigSerializeWrapper") or {}, servers, max_topics)

    def to_json(self) -> dict[str, Any]:
        wrapper = TopicConfigSerializeWrapper(
            self.topic_config_table, self.data_version, self.mapping_data_version,
            self.topic_queue_mapping_detail_map, self.topic_queue_mapping_info_map,
        )  # fmt: skip
        return {"filterServerList": self.filter_server_list, "topicConfigSerializeWrapper": wrapper.to_json()}

    def encode(self, *, compressed: bool = False) -> bytes:
        return _deflate(self) if compressed else fastjson.dumps(self.to_json())

    @classmethod
    def _around(cls, wrapper: Any, servers: list[str], max_topics: int) -> RegisterBrokerBody:
        topics: dict[str, TopicConfig] = {}
        if isinstance(wrapper, dict) and isinstance(table := wrapper.get("topicConfigTable"), dict):
            if len(table) > max_topics:
                raise _too_many(f"{len(table)} topics", max_topics)
            topics = {
                name: _usual_topic(value) or TopicConfig.from_json(value) for name, value in table.items() if value is not None
            }
            wrapper = wrapper | {"topicConfigTable": {}}
        inner = TopicConfigSerializeWrapper.from_json(wrapper)
        return cls(
            topics or inner.topic_config_table, inner.data_version, servers, inner.mapping_data_version,
            inner.topic_queue_mapping_detail_map, inner.topic_queue_mapping_info_map,
        )  # fmt: skip


def _too_many(found: str, max_topics: int) -> ProtocolError:
    return ProtocolError(f"a registration with {found}, expected at most {max_topics} topics")


def _usual_topic(value: Any) -> TopicConfig | None:
    """Return a topic whose fields have their usual types; None for any other. Four times as fast as `TopicConfig.from_json`."""
    if value.__class__ is not dict or value.get("attributes"):
        return None
    name, read, write, perm, kind, flag, order = map(value.get, _TOPIC_FIELDS)
    if (
        name.__class__ is str
        and read.__class__ is write.__class__ is perm.__class__ is flag.__class__ is int
        and kind.__class__ is str
        and order.__class__ is bool
        and 0 <= read < _MAX_INT
        and 0 <= write < _MAX_INT
        and 0 <= perm < _MAX_INT
        and 0 <= flag < _MAX_INT
    ):
        return TopicConfig(name, read, write, perm, kind, flag, order)
    return None


def _inflate(body: bytes, version: int, max_topics: int) -> RegisterBrokerBody:
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(body, MAX_INFLATED)
    except zlib.error as error:
        raise ProtocolError(f"a compressed registration that zlib cannot read: {error}") from None
    if not inflater.eof:
        raise ProtocolError(f"a compressed registration that is cut off or larger than {MAX_INFLATED} bytes")
    parts = _Parts(raw)
    registration = RegisterBrokerBody(data_version=DataVersion.from_json(fastjson.loads(parts.sized())))
    for _ in range(parts.count(max_topics)):
        config = _topic_config(parts.sized())
        registration.topic_config_table[config.topic_name] = config
    servers = fastjson.loads(parts.sized())
    registration.filter_server_list = RegisterBrokerBody.from_json({"filterServerList": servers}).filter_server_list
    if version >= VERSION_5_0_0:
        for _ in range(parts.count(max_topics)):
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
    if len(parts) == 5 or parts[5] == "{}":
        return TopicConfig(parts[0], int(parts[1]), int(parts[2]), int(parts[3]), parts[4])
    attributes = fastjson.loads_object(parts[5])
    keys = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    return TopicConfig.from_json({**dict(zip(keys, parts, strict=False)), "attributes": attributes})


class _Parts:
    """Sequential reader of counts and length-prefixed texts."""

    __slots__ = ("_at", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def count(self, most: int | None = None) -> int:
        """Return the next number, a length or a count. Rejects a count of more than `most` topics."""
        if len(self._raw) - self._at < 4:
            raise ProtocolError(f"a compressed registration that ends at byte {len(self._raw)} before it is complete")
        (number,) = _I32.unpack_from(self._raw, self._at)
        self._at += 4
        left = len(self._raw) - self._at
        if not 0 <= number <= left:
            raise ProtocolError(f"a compressed registration with the length {number}, with {left} bytes left")
        if most is not None and number > most:
            raise _too_many(f"{number} topics", most)
        return int(number)

    def sized(self) -> bytes:
        length = self.count()
        start = self._at
        self._at += length
        return self._raw[start : self._at]
