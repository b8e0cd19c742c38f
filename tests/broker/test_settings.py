"""The broker's settings: Apache's names and defaults, the ranges, what may change while running."""

from __future__ import annotations

import pytest

from firearrow.broker.settings import BrokerSettings
from firearrow.config.apache_keys import APACHE_KEYS
from firearrow.config.fields import SettingError, apply, as_properties, change, declared
from firearrow.store.settings import StoreSettings

OURS = [
    "maxConnections",
    "maxConnectionsPerAddress",
    "maxIncomingBytes",
    "maxOutgoingBytes",
    "frameTimeoutMillis",
    "handshakeTimeoutMillis",
    "writeTimeoutMillis",
    "slaveSyncInterval",
    "peerSecretFile",
    "peerUseTLS",
    "haAllowUnauthenticated",
    "allowUnauthenticatedPeers",
    "standInEnable",
    "maxTopics",
    "maxQueues",
    "maxQueuesPerTopic",
    "maxGroups",
    "maxQueueLocks",
    "idempotentProducerMaxNum",
    "idempotentProducerWindow",
    "deduplicateUniqKeyWindowMs",
    "deduplicateUniqKeyMaxNum",
    "logFile",
    "logFileMaxSize",
    "logFileMaxNum",
    "stayAwakeMicros",
    "maxParkedPullsPerQueue",
    "maxParkedPulls",
]


def test_setting_names_are_those_of_apache() -> None:
    in_tls_properties = {key for key in declared(BrokerSettings) if key.startswith("tls.")}  # a file of its own in Apache
    assert [key for key in declared(BrokerSettings) if key not in APACHE_KEYS and key not in in_tls_properties] == OURS


def test_old_names_of_file_sizes_are_reported() -> None:
    """Apache dropped it with 4.4. An operator who sets it expects files of another size."""
    assert apply([StoreSettings()], {"mapedFileSizeCommitLog": "1048576"}) == [
        "setting mapedFileSizeCommitLog is unknown and has no effect; did you mean mappedFileSizeCommitLog?"
    ]


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("brokerClusterName", "DefaultCluster"),
        ("brokerId", "0"),
        ("listenPort", "10911"),
        ("brokerPermission", "6"),
        ("registerNameServerPeriod", "30000"),
        ("autoCreateTopicEnable", "true"),
        ("autoCreateSubscriptionGroup", "true"),
        ("defaultTopicQueueNums", "8"),
        ("enablePropertyFilter", "true"),
        ("flushConsumerOffsetInterval", "5000"),
        ("waitTimeMillsInSendQueue", "200"),
        ("osPageCacheBusyTimeOutMills", "1000"),
        ("longPollingEnable", "true"),
        ("traceTopicEnable", "false"),
        ("regionId", "DefaultRegion"),
        ("useServerSideResetOffset", "true"),
    ],
)
def test_defaults(key: str, default: str) -> None:
    assert as_properties([BrokerSettings()])[key] == default


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("brokerName", "a.b"),
        ("brokerName", "../x"),
        ("brokerClusterName", ""),
        ("listenPort", "2"),
        ("listenPort", "65536"),
        ("brokerId", "1"),
        ("brokerRole", "SLAVE"),
        ("brokerRole", "MASTER"),
        ("messageDelayLevel", "1s soon"),
        ("messageDelayLevel", ""),
        ("defaultTopicQueueNums", "0"),
        ("brokerPermission", "9"),
    ],
)
def test_invalid_value_is_rejected_and_changes_nothing(key: str, value: str) -> None:
    settings = BrokerSettings()
    with pytest.raises(SettingError) as caught:
        apply([settings], {"regionId": "R", key: value})
    assert caught.value.key == key
    assert settings == BrokerSettings()


@pytest.mark.parametrize(
    "key", ["brokerName", "brokerIP1", "listenPort", "namesrvAddr", "brokerClusterName", "messageDelayLevel"]
)
def test_identity_and_addresses_cannot_change_at_runtime(key: str) -> None:
    with pytest.raises(SettingError, match="restart"):
        change([BrokerSettings()], {key: "x"})


def test_default_broker_name_is_a_valid_topic() -> None:
    BrokerSettings().check()


def test_delay_levels_are_counted() -> None:
    assert BrokerSettings().delay_level_count() == 18
    assert BrokerSettings(message_delay_level="1s 2m 3h").delay_level_count() == 3
