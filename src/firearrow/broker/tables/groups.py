"""Consumer groups: `config/subscriptionGroup.json`, creation on first use, and topics forbidden to a group.

The configuration of a group says whether it may consume, and how often and where its messages are retried. An unknown group is
created with defaults on first use if `autoCreateSubscriptionGroup` is on. Eight groups for tools always exist.

`forbidden` holds, per group and topic, a bit mask; bit 0 set means that the group may not read the topic.

Every change has its own data version. Values in the table are replaced, never modified. An operator's change is on disk when the
method returns; a group created on first use is saved soon after (and would be created again).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from firearrow.broker.requests.responses import Refused
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.persistence import EntryTexts, Save, Submit, TableFile, run_at_once
from firearrow.wire.bodies.topic import DataVersion, SubscriptionGroupConfig
from firearrow.wire.codes import ResponseCode
from firearrow.wire.names import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX, check_group

READ_FORBIDDEN = 1


Listener = Callable[[str, SubscriptionGroupConfig | None], None]


class GroupTable:
    """The consumer groups. Listeners receive (group, new config), or (group, None) after a deletion."""

    def __init__(self, settings: BrokerSettings, save: Save = lambda table: None, *, submit: Submit = run_at_once) -> None:
        self.data_version = DataVersion(counter=0, state_version=0, timestamp=0)
        self._listeners: list[Listener] = []
        self._settings = settings
        self._table: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._texts = EntryTexts()
        self._file = TableFile(save, self._file_form, submit)

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(group, config)` for every change from now on; after a deletion `config` = None."""
        self._listeners.append(listener)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        return self._table.get(group)

    def find_or_create(self, group: str, now_ms: int = 0) -> SubscriptionGroupConfig | None:
        """Return the configuration; None for an unknown group that may not be created or has an invalid name."""
        config = self._table.get(group)
        if config is not None:
            return config
        if not (self._settings.auto_create_subscription_group or group.startswith(SYSTEM_GROUP_PREFIX)) or not _is_name(group):
            return None
        config = SubscriptionGroupConfig(group_name=group)
        self._put(config, now_ms)
        self._file.soon()
        return config

    def must_find(self, group: str, now_ms: int) -> SubscriptionGroupConfig:
        """Return the configuration, or reject the request with 26 and the reason."""
        config = self.find_or_create(group, now_ms)
        if config is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, self.why_not_created(group))
        return config

    def why_not_created(self, group: str) -> str:
        if not _is_name(group):
            return f"subscription group [{group[:64]}] does not exist, and is no name for a group: letters, digits, _ - % | only"
        return (
            f"subscription group [{group}] does not exist, and autoCreateSubscriptionGroup is false. Create it with: "
            f"mqadmin updateSubGroup -n <name server> -c {self._settings.broker_cluster_name} -g {group}"
        )

    def all(self) -> Mapping[str, SubscriptionGroupConfig]:
        return self._table

    def forbidden(self, group: str, topic: str) -> bool:
        """Return whether the group is forbidden to read the topic."""
        topics = self._forbidden.get(group)
        return topics is not None and bool(topics.get(topic, 0) & READ_FORBIDDEN)

    # File form.

    def load(self, table: Mapping[str, Any]) -> None:
        """Load the contents of subscriptionGroup.json, before `add_built_in_groups`."""
        version = table.get("dataVersion")
        if isinstance(version, dict):
            self.data_version = DataVersion.from_json(version)
        configs = table.get("subscriptionGroupTable")
        for name, value in (configs if isinstance(configs, dict) else {}).items():
            self._keep(replace(SubscriptionGroupConfig.from_json(value), group_name=name))
        forbidden = table.get("forbiddenTable")
        for group, topics in (forbidden if isinstance(forbidden, dict) else {}).items():
            self._forbidden[group] = {topic: int(mask) for topic, mask in topics.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "dataVersion": self.data_version.to_json(),
            "forbiddenTable": {group: dict(topics) for group, topics in self._forbidden.items()},
            "subscriptionGroupTable": {name: config.to_json() for name, config in self._table.items()},
        }

    # Changing.

    def add_built_in_groups(self, now_ms: int) -> None:
        missing = [group for group in BUILT_IN_GROUPS if group not in self._table]
        for group in missing:
            self._keep(SubscriptionGroupConfig(group_name=group, consume_broadcast_enable=True))
        if missing:
            self._next_version(now_ms)
            self._file.now()

    def update(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Creates or changes a group by an operator's wish."""
        self.update_all([config], now_ms)

    def update_all(self, configs: list[SubscriptionGroupConfig], now_ms: int) -> None:
        """Change several groups. All are validated before the first is changed."""
        for config in configs:
            _check(config)
        changed = [config for config in configs if self._table.get(config.group_name) != config]
        for config in changed:
            self._put(config, now_ms)
        if changed:
            self._file.now()

    def delete(self, group: str, now_ms: int) -> bool:
        """Delete a group. Return whether it existed."""
        was_forbidden = self._forbidden.pop(group, None)
        if self._table.pop(group, None) is None and was_forbidden is None:
            return False
        self._texts.pop(group)
        self._next_version(now_ms)
        self._file.now()
        self._tell(group, None)
        return True

    def take_over(self, theirs: Mapping[str, Any]) -> None:
        """Replace the table with the master's on a slave. `theirs` has the format of the file."""
        version = theirs.get("dataVersion")
        if isinstance(version, dict) and DataVersion.from_json(version) == self.data_version:
            return
        before = self._table
        self._table, self._forbidden, self._texts = {}, {}, EntryTexts()
        self.load(theirs)
        self._file.now()
        for group in before.keys() | self._table.keys():
            if before.get(group) != self._table.get(group):
                self._tell(group, self._table.get(group))

    def restore(self, group: str, config: SubscriptionGroupConfig | None) -> None:
        """Apply the previous master's configuration of a group."""
        if self._table.get(group) == config:
            return
        if config is not None:
            self._keep(config)
        else:
            del self._table[group]
            self._texts.pop(group)
        self._tell(group, config)

    def begin_term(self, term: int, now_ms: int) -> None:
        """Start a term as elected master, with a new data version."""
        self.data_version = replace(self.data_version, state_version=term)
        self._next_version(now_ms)
        self._file.soon()

    def set_readable(self, group: str, topic: str, readable: bool, now_ms: int) -> None:
        if self.forbidden(group, topic) != readable:
            return
        topics = self._forbidden.setdefault(group, {})
        mask = topics.get(topic, 0) & ~READ_FORBIDDEN if readable else topics.get(topic, 0) | READ_FORBIDDEN
        if mask:
            topics[topic] = mask
        else:
            del topics[topic]
            if not topics:
                del self._forbidden[group]
        self._next_version(now_ms)
        self._file.now()

    def _put(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        self._keep(config)
        self._next_version(now_ms)
        self._tell(config.group_name, config)

    def _keep(self, config: SubscriptionGroupConfig) -> None:
        self._table[config.group_name] = config
        self._texts.put(config.group_name, config.to_json())

    def _file_form(self) -> dict[str, Any]:
        forbidden = {group: dict(topics) for group, topics in list(self._forbidden.items())}
        table = {"dataVersion": self.data_version.to_json(), "forbiddenTable": forbidden}
        return table | {"subscriptionGroupTable": self._texts.joined()}

    def _next_version(self, now_ms: int) -> None:
        version = self.data_version
        self.data_version = DataVersion(
            counter=version.counter + 1, state_version=version.state_version, timestamp=max(now_ms, version.timestamp)
        )

    def _tell(self, group: str, config: SubscriptionGroupConfig | None) -> None:
        for listener in self._listeners:
            listener(group, config)


def _is_name(group: str) -> bool:
    try:
        check_group(group)
    except ValueError:
        return False
    return True


def _check(config: SubscriptionGroupConfig) -> None:
    try:
        check_group(config.group_name)
    except ValueError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
    if not 0 <= config.retry_queue_nums <= 1_024:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"retryQueueNums is {config.retry_queue_nums}; expected 0 to 1024")
