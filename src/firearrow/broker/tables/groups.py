"""Consumer groups: `config/subscriptionGroup.json`, creation on first use, and topics forbidden to a group.

The configuration of a group says whether it may consume, and how often and where its messages are retried. An unknown group is
created with defaults on first use if `autoCreateSubscriptionGroup` is on. Eight groups for tools always exist.

`forbidden` holds, per group and topic, a bit mask; bit 0 set means that the group may not read the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from firearrow.broker.requests.responses import Refused
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.config_table import ConfigTable
from firearrow.broker.tables.persistence import EntryTexts, Save, Submit, run_at_once
from firearrow.wire.bodies.topic import DataVersion, SubscriptionGroupConfig
from firearrow.wire.codes import ResponseCode
from firearrow.wire.names import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX, check_group

READ_FORBIDDEN = 1


class GroupTable(ConfigTable[SubscriptionGroupConfig]):
    def __init__(self, settings: BrokerSettings, save: Save = lambda table: None, *, submit: Submit = run_at_once) -> None:
        super().__init__(save, submit)
        self._settings = settings
        self._forbidden: dict[str, dict[str, int]] = {}

    def find_or_create(self, group: str, now_ms: int = 0) -> SubscriptionGroupConfig | None:
        """Return the configuration; None for an unknown group that may not be created or has an invalid name."""
        config = self._table.get(group)
        if config is not None:
            return config
        if not (self._settings.auto_create_subscription_group or group.startswith(SYSTEM_GROUP_PREFIX)) or not _is_name(group):
            return None
        if len(self._table) >= self._settings.max_groups:
            return None
        config = SubscriptionGroupConfig(group_name=group)
        self._put(group, config, now_ms)
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
        if len(self._table) >= self._settings.max_groups:
            return f"subscription group [{group}] does not exist, and {self._full()}"
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
        self._load_version(table)
        configs = table.get("subscriptionGroupTable")
        for name, value in (configs if isinstance(configs, dict) else {}).items():
            self._keep(name, replace(SubscriptionGroupConfig.from_json(value), group_name=name))
        forbidden = table.get("forbiddenTable")
        for group, topics in (forbidden if isinstance(forbidden, dict) else {}).items():
            self._forbidden[group] = {topic: int(mask) for topic, mask in topics.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "dataVersion": self.data_version.to_json(),
            "forbiddenTable": {group: dict(topics) for group, topics in self._forbidden.items()},
            "subscriptionGroupTable": self.encoded(),
        }

    # Changing.

    def add_built_in_groups(self, now_ms: int) -> None:
        missing = [group for group in BUILT_IN_GROUPS if group not in self._table]
        for group in missing:
            self._keep(group, SubscriptionGroupConfig(group_name=group, consume_broadcast_enable=True))
        if missing:
            self.next_version(now_ms)
            self._file.now()

    def update(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Create or change a group for an operator."""
        self.update_all([config], now_ms)

    def update_all(self, configs: list[SubscriptionGroupConfig], now_ms: int) -> None:
        """Change several groups. All are validated before the first is changed."""
        for config in configs:
            _check(config)
        changed = [config for config in configs if self._table.get(config.group_name) != config]
        more = len({config.group_name for config in changed} - self._table.keys())
        if more and len(self._table) + more > self._settings.max_groups:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{more} groups cannot be created: {self._full()}")
        for config in changed:
            self._put(config.group_name, config, now_ms)
        if changed:
            self._file.now()

    def delete(self, group: str, now_ms: int) -> bool:
        """Delete a group. Return whether it existed."""
        was_forbidden = self._forbidden.pop(group, None) is not None
        if not self._drop(group) and not was_forbidden:
            return False
        self.next_version(now_ms)
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
        self.next_version(now_ms)
        self._file.now()

    def _full(self) -> str:
        return (
            f"the broker has {len(self._table)} groups, maxGroups is {self._settings.max_groups}. "
            "Delete groups that are not used, or raise maxGroups."
        )

    def file_form(self) -> dict[str, Any]:
        forbidden = {group: dict(topics) for group, topics in list(self._forbidden.items())}
        table = {"dataVersion": self.data_version.to_json(), "forbiddenTable": forbidden}
        return table | {"subscriptionGroupTable": self._texts.joined()}


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
