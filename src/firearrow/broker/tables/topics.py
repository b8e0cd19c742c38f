"""Topics: `config/topics.json`, system topics, creation on demand, attributes.

A topic is a name, a number of queues to write to and to read from, and a permission (4 read, 2 write, 1 inherit: may be the
template of new topics). The counts may differ. Reducing one deletes nothing: the queues beyond it stay in the store and reappear
when the count grows again. To drain the last queues of a topic, reduce the write count first, and the read count when they are
consumed.

Attributes are changed with text like `+message.type=FIFO,-reserve.time`: `+` sets, `-` removes. A new topic only accepts `+`.

| key            | values                                                  | changeable |
|----------------|---------------------------------------------------------|------------|
| message.type   | UNSPECIFIED NORMAL FIFO DELAY TRANSACTION MIXED         | yes        |
| queue.type     | SimpleCQ (BatchCQ is not supported)                     | no         |
| cleanup.policy | DELETE (COMPACTION is not supported)                    | no         |
| reserve.time   | -1, or hours to keep messages                           | yes        |

Every change has its own data version (config_table.py). Name servers ignore a registration with a known version, so of two
changes with one version the second would be lost.

A topic created by a send or a heartbeat is saved in the background. If the broker is killed in between, `load` finds it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from firearrow.broker.requests.responses import Refused
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.config_table import ConfigTable
from firearrow.broker.tables.persistence import Save, Submit, run_at_once
from firearrow.store.message_store import MessageStore
from firearrow.wire.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from firearrow.wire.codes import ResponseCode
from firearrow.wire.headers.client import SendMessageRequestHeader
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC as TEMPLATE_TOPIC
from firearrow.wire.names import (
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    NOT_SENDABLE_TOPICS,
    OFFSET_MOVED_EVENT,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    check_topic,
    is_system_topic,
)

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
PERM_READ_WRITE = PERM_READ | PERM_WRITE

MAX_QUEUES = 65_535  # the highest number of queues that maxQueuesPerTopic allows
DEFAULT_QUEUES_OF_A_CLIENT = 4  # what clients ask for by default, and what we assume when one asks for nothing
UNIT_SUBSCRIPTION = 2  # bit of topicSysFlag


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic with messages in the store."""

    name: str
    queues: int  # the highest queue number, plus one
    last_store_ms: int


def stored_topics(store: MessageStore) -> list[StoredTopic]:
    """Return the topics that have messages, with their highest queue and the time of their newest message."""
    found: dict[str, StoredTopic] = {}
    for queue in store.queues():
        if queue.max_offset > queue.min_offset:
            known = found.get(queue.topic) or StoredTopic(queue.topic, 0, 0)
            last = store.reader.store_time(queue, queue.max_offset - 1) or 0
            found[queue.topic] = StoredTopic(queue.topic, max(known.queues, queue.queue_id + 1), max(known.last_store_ms, last))
    return list(found.values())


class TopicTable(ConfigTable[TopicConfig]):
    """`group_exists` is asked before a send creates the retry topic of a group. `stored` returns the topics that have messages in
    the store."""

    def __init__(
        self,
        settings: BrokerSettings,
        save: Save = lambda table: None,
        *,
        group_exists: Callable[[str], bool] = lambda group: True,
        stored: Callable[[], Iterable[StoredTopic]] = tuple,
        submit: Submit = run_at_once,
    ) -> None:
        super().__init__(save, submit)
        self._group_exists = group_exists
        self._stored = stored
        self._settings = settings
        self._system: frozenset[str] = frozenset()
        self._queues = 0  # of all topics

    def must_find(self, topic: str) -> TopicConfig:
        """Return the topic, or reject the request with 17."""
        config = self._table.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def system_topics(self) -> frozenset[str]:
        """Return the system topics, which clients may not change or delete."""
        return self._system

    # File form.

    def load(self, table: Mapping[str, Any]) -> None:
        """Load the contents of topics.json, and add the topics it lacks (`add_stored`). Call it before `add_system_topics`."""
        self._load_version(table)
        configs = table.get("topicConfigTable")
        for name, value in (configs if isinstance(configs, dict) else {}).items():
            self._keep(name, replace(TopicConfig.from_json(value), topic_name=name))
        self.add_stored()

    def add_stored(self, now_ms: int = 0) -> None:
        """Create the topics that have messages and are not in the table, with as many queues as are in the store.

        Such a topic was either created after the table was last saved or copied, or deleted before. It was created if its newest
        message is newer than the table.
        """
        saved_ms = self.data_version.timestamp
        for topic in self._stored():
            if topic.name in self._table or is_system_topic(topic.name) or topic.last_store_ms < saved_ms:
                continue
            usual = 1 if topic.name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else DEFAULT_QUEUES_OF_A_CLIENT
            self.ensure(topic.name, max(topic.queues, usual), PERM_READ_WRITE, max(topic.last_store_ms, now_ms))

    def file_form(self) -> dict[str, Any]:
        return {"dataVersion": self.data_version.to_json(), "topicConfigTable": self._texts.joined()}

    # Changing.

    def add_system_topics(self, now_ms: int) -> None:
        """Add the system topics according to the settings. Saves once if anything changed."""
        declared = {config.topic_name: config for config in system_topic_configs(self._settings)}
        self._system = frozenset(declared) | {TEMPLATE_TOPIC}
        changed = {name: config for name, config in declared.items() if self._table.get(name) != config}
        stale = TEMPLATE_TOPIC not in declared and self._drop(TEMPLATE_TOPIC)
        if changed or stale:
            for name, config in changed.items():
                self._keep(name, config)
            self.next_version(now_ms)
            self._file.now()

    def for_send(self, header: SendMessageRequestHeader, now_ms: int) -> TopicConfig:
        """Return the topic of a send, created if necessary. Rejects (16) topics that only the broker writes."""
        topic = header.topic
        if topic in NOT_SENDABLE_TOPICS:
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden: only the broker does.")
        return self.create_in_send(
            topic, header.default_topic, header.default_topic_queue_nums, now_ms, unit_mode=bool(header.unit_mode)
        )

    def create_in_send(
        self, topic: str, default_topic: str, default_topic_queue_nums: int, now_ms: int, *, unit_mode: bool = False
    ) -> TopicConfig:
        """Return the topic of a message being sent, created if necessary from the template that the client names.

        The retry topic of a group needs no template, but the group must exist.
        """
        config = self._table.get(topic)
        if config is not None:
            return config
        check_new_name(topic)
        if topic.startswith(RETRY_PREFIX) and not self._group_exists(topic.removeprefix(RETRY_PREFIX)):
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {topic.removeprefix(RETRY_PREFIX)}: its retry topic is not made",
            )
        # Some clients send batches without a template.
        template = self._table.get(default_topic or TEMPLATE_TOPIC)
        wanted = default_topic_queue_nums if default_topic_queue_nums > 0 else DEFAULT_QUEUES_OF_A_CLIENT
        sys_flag = UNIT_SUBSCRIPTION if unit_mode else 0
        auto_create = self._settings.auto_create_topic_enable
        if template is not None and template.perm & PERM_INHERIT and (auto_create or template.topic_name != TEMPLATE_TOPIC):
            queues = min(wanted, template.write_queue_nums)
            self._admit(1, queues)
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=template.perm & ~PERM_INHERIT,
                topic_filter_type=template.topic_filter_type,
                topic_sys_flag=sys_flag,
            )
            self._put(topic, config, now_ms)
            self._file.soon()
            return config
        if topic.startswith(RETRY_PREFIX):
            return self.ensure(topic, 1, PERM_READ_WRITE, now_ms, sys_flag=sys_flag)
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, self._why_not_created(topic, default_topic))

    def ensure(self, topic: str, queues: int, perm: int, now_ms: int, *, sys_flag: int = 0) -> TopicConfig:
        """Return the topic, created with this many queues if it does not exist."""
        config = self._table.get(topic)
        if config is None:
            check_new_name(topic)
            config = TopicConfig(
                topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_sys_flag=sys_flag
            )
            self._put(topic, config, now_ms)
            self._file.soon()
        return config

    def update(self, wanted: TopicConfig, now_ms: int, *, alter: Mapping[str, str] | None = None) -> TopicConfig:
        """Create or change a topic for an operator, without a new version if nothing changes.

        `alter` holds signed attributes ("+key": value, "-key": "").
        """
        self._check(wanted)
        current = self._table.get(wanted.topic_name)
        attributes = alter_attributes(None if current is None else current.attributes, alter or {})
        wanted = replace(wanted, attributes=attributes)
        if current != wanted:
            self._admit(int(current is None), _queues(wanted) - _queues(current))
            self._put(wanted.topic_name, wanted, now_ms)
            self._file.now()
        return wanted

    def update_all(self, wanted: list[TopicConfig], now_ms: int) -> None:
        """Change several topics, with their attributes. All are validated before the first is changed."""
        for config in wanted:
            self._check(config)
            current = self._table.get(config.topic_name)
            alter = {f"+{key}": value for key, value in config.attributes.items()}
            alter_attributes(None if current is None else current.attributes, alter)
        changed = {config.topic_name: config for config in wanted}
        more = sum(_queues(config) - _queues(self._table.get(name)) for name, config in changed.items())
        self._admit(len(changed.keys() - self._table.keys()), more)
        for config in wanted:
            if self._table.get(config.topic_name) != config:
                self._put(config.topic_name, config, now_ms)
        self._file.now()

    def delete(self, topic: str, now_ms: int) -> bool:
        """Delete a topic from the table. Return whether it existed. Its messages stay in the store."""
        if not self._drop(topic):
            return False
        self.next_version(now_ms)
        self._file.now()
        self._tell(topic, None)
        return True

    def take_over(self, theirs: TopicConfigSerializeWrapper) -> list[str]:
        """Replace the table with the master's on a slave. Return the removed topics."""
        if theirs.data_version == self.data_version:
            return []
        gone = [topic for topic in self._table if topic not in theirs.topic_config_table and topic not in self._system]
        changed = [config for name, config in theirs.topic_config_table.items() if self._table.get(name) != config]
        for topic in gone:
            self._drop(topic)
        for config in changed:
            self._keep(config.topic_name, config)
        self.data_version = theirs.data_version
        self._file.now()
        for topic in gone:
            self._tell(topic, None)
        for config in changed:
            self._tell(config.topic_name, config)
        return gone

    def mark_ordered(self, topics: Iterable[str], now_ms: int) -> None:
        """Mark the topics named by the order configuration of the name server."""
        for topic in topics:
            config = self._table.get(topic)
            if config is not None and not config.order:
                self._put(topic, replace(config, order=True), now_ms)
                self._file.soon()

    def _keep(self, name: str, config: TopicConfig) -> None:
        self._queues += _queues(config) - _queues(self._table.get(name))
        super()._keep(name, config)

    def _drop(self, name: str) -> bool:
        self._queues -= _queues(self._table.get(name))
        return super()._drop(name)

    def _admit(self, topics: int, queues: int) -> None:
        """Reject a request of a client that would exceed the limits. Retry topics count, but are limited by their groups."""
        limits = self._settings
        if topics > 0 and len(self._table) + topics > limits.max_topics:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{topics} more topics would exceed maxTopics={limits.max_topics}: the broker has {len(self._table)}. "
                "Delete topics that are not used, or raise maxTopics.",
            )
        if queues > 0 and self._queues + queues > limits.max_queues:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{queues} more queues would exceed maxQueues={limits.max_queues}: the broker has {self._queues}. "
                "Delete topics that are not used, or raise maxQueues.",
            )

    def _check(self, wanted: TopicConfig) -> None:
        topic = wanted.topic_name
        current = self._table.get(topic)
        limit = self._settings.max_queues_per_topic
        check_new_name(topic)
        if topic in self._system or is_system_topic(topic):
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic. Choose another name."
            )
        for name, count in (("readQueueNums", wanted.read_queue_nums), ("writeQueueNums", wanted.write_queue_nums)):
            if not 0 <= count <= max(limit, _queues(current)):
                remark = f"{name} of topic {topic} is {count}; expected 0 to {limit} (maxQueuesPerTopic)"
                raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        if not 0 <= wanted.perm <= 7:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"perm of topic {topic} is {wanted.perm}; expected 2 (write), 4 (read) or 6"
            )

    def _why_not_created(self, topic: str, default_topic: str) -> str:
        template = default_topic or TEMPLATE_TOPIC
        if template == TEMPLATE_TOPIC and not self._settings.auto_create_topic_enable:
            why = "autoCreateTopicEnable is false"
        elif template not in self._table:
            why = f"its template {template} does not exist"
        else:
            why = f"its template {template} has no inherit permission"
        return (
            f"topic[{topic}] not exist, apply first please! It is not created by sending because {why}. "
            f"Create it with: mqadmin updateTopic -n <name server> -c {self._settings.broker_cluster_name} -t {topic}"
        )


def _queues(config: TopicConfig | None) -> int:
    return 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)


def system_topic_configs(settings: BrokerSettings) -> list[TopicConfig]:
    """Return the system topics."""
    cluster, broker_name = settings.broker_cluster_name, settings.broker_name
    plain = [
        (SELF_TEST_TOPIC, 1, 6),
        (BENCHMARK_TOPIC, 1024, 6),
        (cluster, 16, 7 if settings.cluster_topic_enable else 1),
        (broker_name, 1, 7 if settings.broker_topic_enable else 1),
        (OFFSET_MOVED_EVENT, 1, 6),
        (SCHEDULE_TOPIC, settings.delay_level_count(), 6),
        (f"{cluster}_REPLY_TOPIC", 1, 6),
        (f"rmq_sys_REVIVE_LOG_{cluster}", 8, 6),
        (f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}", 1, 1),
        (TRANS_HALF_TOPIC, 1, 6),
        (TRANS_OP_HALF_TOPIC, 1, 6),
        (TIMER_TOPIC, 1, 6),
    ]
    if settings.auto_create_topic_enable:
        plain.append((TEMPLATE_TOPIC, settings.default_topic_queue_nums, 7))
    if settings.trace_topic_enable:
        plain.append((settings.msg_trace_topic_name, 1, 6))
    return [
        TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm) for name, queues, perm in plain
    ]


def check_new_name(topic: str) -> None:
    """Reject an invalid topic name. It becomes the name of a directory."""
    try:
        check_topic(topic)
    except ValueError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None


_CHOICES: dict[str, frozenset[str]] = {
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}),
    "queue.type": frozenset({"SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
}
_NUMBER = "reserve.time"
_FIXED = frozenset({"queue.type", "cleanup.policy"})
_MAX_RESERVE_HOURS = 2**63 - 1


def parse_attribute_changes(text: str | None) -> dict[str, str]:
    """Parse `+k=v,-k2` to {"+k": "v", "-k2": ""}."""
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        key, equals, value = part.partition("=")
        sign = "+" if equals else "-"
        if len(key) < 2 or key[0] != sign or (equals and not value):
            raise _refused(f"attribute {part!r} is not of the form +key=value or -key")
        if key in changes:
            raise _refused(f"key duplication: attribute {key!r} is given twice")
        changes[key] = value
    return changes


def alter_attributes(current: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes after the changes. `current=None` means a new topic."""
    after = dict(current or {})
    for signed, value in changes.items():
        sign, key = signed[0], signed[1:]
        if key != _NUMBER and key not in _CHOICES:
            raise _refused(f"unsupported key: {key}")
        if sign == "-" and current is None:
            raise _refused(f"only add attribute is supported while creating topic. key: {key}")
        if current is not None and key in _FIXED and after.get(key) != (value if sign == "+" else None):
            raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            after.pop(key, None)
            continue
        _check_value(key, value)
        after[key] = value
    return after


def _check_value(key: str, value: str) -> None:
    if key == _NUMBER:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or not -1 <= int(value) <= _MAX_RESERVE_HOURS:
            raise _refused(f"value {value!r} of attribute {key} is not a number of hours, or -1")
    elif value not in _CHOICES[key]:
        raise _refused(f"value {value!r} of attribute {key} is not in set: {', '.join(sorted(_CHOICES[key]))}")


def _refused(remark: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, remark)
