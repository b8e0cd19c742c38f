"""The name server's settings, under Apache's names."""

from __future__ import annotations

from dataclasses import dataclass

from firearrow.auth.settings import AuthSettings
from firearrow.config.fields import setting
from firearrow.wire.bodies.registration import MAX_TOPICS


@dataclass
class NamesrvSettings(AuthSettings):
    bind_address: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 for every interface")
    listen_port: int = setting(9876, "port to listen on; 0 takes any free port", low=0, high=65535)
    server_channel_max_idle_time_seconds: int = setting(120, "idle time after which a connection is closed", low=1, high=86_400)
    kv_config_path: str = setting("", "file of the key-value configuration; empty keeps it in memory only")
    scan_not_active_broker_interval: int = setting(
        5_000, "ms between checks for brokers whose heartbeat timed out", low=10, high=600_000
    )
    order_message_enable: bool = setting(False, "put a topic's order configuration into its route", runtime=True)
    return_order_topic_config_to_broker: bool = setting(True, "answer registrations with the order configuration", runtime=True)
    enable_all_topic_list: bool = setting(True, "answer with the list of all topics", runtime=True)
    enable_topic_list: bool = setting(True, "answer with the topics of a cluster and the system topics", runtime=True)
    support_acting_master: bool = setting(False, "let a slave act as master in routes when the master is lost", runtime=True)
    notify_min_broker_id_changed: bool = setting(
        False, "notify the members of a group when its lowest broker id changes", runtime=True
    )
    delete_topic_with_broker_registration: bool = setting(
        False, "drop a broker's topics that its full registration no longer names", runtime=True
    )
    max_topics_per_registration: int = setting(
        MAX_TOPICS, "topics that one broker can register", low=1, high=10_000_000, runtime=True
    )
    max_routes: int = setting(
        250_000, "topics of all brokers together; a topic counts once for each broker", low=1, high=100_000_000, runtime=True
    )
    max_brokers: int = setting(10_000, "registered brokers", low=1, high=1_000_000, runtime=True)
    max_kv_config_size: int = setting(
        4_194_304, "characters of the key-value configuration", low=1, high=1_073_741_824, runtime=True
    )
    need_wait_for_service: bool = setting(False, "answer no routes until the brokers had time to register")
    wait_seconds_for_service: int = setting(45, "how long that wait is", low=0, high=3_600)
