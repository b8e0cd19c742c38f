"""Settings of the broker, with the names and defaults of Apache RocketMQ's broker.properties.

Four defaults differ: messages are flushed before they are acknowledged (`flushDiskType`, in store/settings.py), a SYNC_MASTER
waits for one slave (`inSyncReplicas`, with Apache's default for none), SQL92 filters are on (`enablePropertyFilter`), and timer
messages can be recalled (`recallMessageEnable`). Settings marked `runtime` may be changed while the broker runs (request 25,
mqadmin updateBrokerConfig); identity, addresses and paths may not. The broker does not write its settings: its role, its id and
the port it listens on are in `BrokerContext`.

Keys that only size thread pools or tune mapped files are accepted and ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from firearrow.auth.settings import AuthSettings
from firearrow.broker.roles.group_members import Peers, parse_peers
from firearrow.broker.roles.peer_security import check_exposure
from firearrow.config.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from firearrow.config.fields import SettingError, setting
from firearrow.config.secret import Secret
from firearrow.net.address import host_name
from firearrow.net.tls import check_outgoing_tls

_DAY_MS = 86_400_000
_NAME = re.compile(r"[A-Za-z0-9_%|-]{1,127}")


def _host_name() -> str:
    """Return this machine's name in the characters of topic names: the broker's name is also a topic."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", host_name())[:64]
    return name or "DEFAULT_BROKER"


@dataclass(slots=True)
class BrokerSettings(AuthSettings):
    # Identity and addresses.
    broker_cluster_name: str = setting("DefaultCluster", "the cluster this broker belongs to")
    broker_name: str = setting(_host_name(), "the broker's name; unique in the cluster")
    broker_id: int = setting(0, "0 for a master, a different number for each of its slaves", low=0, high=2**31 - 1)
    broker_role: str = setting(
        "ASYNC_MASTER",
        "ASYNC_MASTER acknowledges by itself, SYNC_MASTER when slaves have confirmed, SLAVE copies its master",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    )
    broker_ip1: str | None = setting(None, "the address that clients connect to")
    broker_ip2: str | None = setting(None, "the address that replicas connect to; brokerIP1 if not given")
    bind_address: str = setting("127.0.0.1", "the local address to listen on; 0.0.0.0 for every interface")
    listen_port: int = setting(10911, "the port to listen on; the fast port is two below it", low=0, high=65_533)
    ha_listen_port: int = setting(0, "the replication port; 0 is listenPort + 1", low=0, high=65_535)
    ha_master_address: str | None = setting(
        None, "a slave's master, host:port of its replication port; taken from the name servers if not given"
    )
    namesrv_addr: str | None = setting(None, "name servers, host:port joined by ';'")
    region_id: str = setting("DefaultRegion", "written into every message as MSG_REGION")
    broker_permission: int = setting(
        6, "2 write, 4 read, 6 both: ANDed into the permission of every topic", low=0, high=7, runtime=True
    )

    # Connections that the broker opens.
    use_tls: bool = setting(False, "encrypt the connections that the broker opens to name servers and to its master")
    tls_client_trust_cert_path: str | None = setting(
        None,
        "file with the CA certificates (PEM) that sign the certificates of these servers; those of the system if not given",
        key="tls.client.trustCertPath",
    )
    tls_client_auth_server: bool = setting(
        True,
        "verify the certificates of these servers, and their host name or IP address; false accepts any certificate",
        key="tls.client.authServer",
    )
    tls_client_cert_path: str | None = setting(
        None, "file with the certificate (PEM) that the broker presents to these servers", key="tls.client.certPath"
    )
    tls_client_key_path: str | None = setting(
        None, "file with the private key of this certificate (PEM)", key="tls.client.keyPath"
    )
    tls_client_key_password: Secret | None = setting(
        None, "password of this private key, if it has one", key="tls.client.keyPassword"
    )

    # Replication.
    in_sync_replicas: int = setting(
        2, "brokers, with the master, that must have a message before a SYNC_MASTER acknowledges it", low=1, high=64, runtime=True
    )
    slave_timeout: int = setting(3_000, "ms that a SYNC_MASTER waits for slaves", low=1, high=600_000, runtime=True)
    ha_max_gap_not_in_sync: int = setting(
        268_435_456, "bytes that a slave may be behind and still count as one to wait for", low=1, high=2**62, runtime=True
    )
    ha_transfer_batch_size: int = setting(32_768, "bytes of the log in one piece to a slave", low=256, high=4_194_304)
    ha_send_heartbeat_interval: int = setting(5_000, "ms of silence before a heartbeat between replicas", low=10, high=600_000)
    ha_housekeeping_interval: int = setting(20_000, "ms of silence after which a connection is closed", low=50, high=600_000)
    slave_sync_interval: int = setting(
        10_000, "ms between copies of topics, groups and offsets to a slave", key="slaveSyncInterval", low=50, high=600_000
    )

    # Authentication of other brokers.
    peer_secret_file: str | None = setting(
        None,
        "file with the secret that the brokers of a group or pair share: they prove it to each other on the replication ports. "
        "One secret per line: the first is used, the others are accepted",
    )
    peer_use_tls: bool = setting(False, "encrypt the connections to the replication ports of other brokers", key="peerUseTLS")
    ha_allow_unauthenticated: bool = setting(
        False, "accept peers on the replication ports that do not authenticate, such as Apache's slaves"
    )
    allow_unauthenticated_peers: bool = setting(False, "listen for other brokers beyond loopback without authenticating them")

    # Elected groups.
    enable_d_leger_commit_log: bool = setting(
        False, "this broker is a member of a group that elects its master; brokerRole and brokerId must not be set"
    )
    d_leger_group: str | None = setting(None, "the name of the group; brokerName if not given")
    d_leger_peers: str | None = setting(None, "all members of the group, including this one: id-host:port joined by ';'")
    d_leger_self_id: str | None = setting(None, "the id of this member in dLegerPeers: a letter with a number, like n0")
    preferred_leader_id: str | None = setting(None, "the member that leads whenever it can")
    stand_in_enable: bool = setting(
        True,
        "followers accept messages as <brokerName>-standin-<id> and forward them: producers continue when the leader fails",
        key="standInEnable",
    )

    # Registration.
    register_name_server_period: int = setting(30_000, "ms between registrations", low=10_000, high=60_000)
    register_broker_timeout_mills: int = setting(24_000, "ms to wait for a name server's answer", low=100, high=600_000)

    # Connections and clients.
    server_channel_max_idle_time_seconds: int = setting(
        120, "s without traffic after which a connection is closed", low=1, high=86_400
    )
    channel_expired_timeout: int = setting(
        120_000, "ms without heartbeat after which a client is removed", low=1_000, high=_DAY_MS
    )
    notify_consumer_ids_changed_enable: bool = setting(True, "notify consumers when their group changes", runtime=True)
    enable_register_producer: bool = setting(True, "accept the producer groups of a heartbeat", runtime=True)

    # Topics and groups.
    auto_create_topic_enable: bool = setting(True, "sending to an unknown topic creates it", runtime=True)
    max_topics: int = setting(
        50_000, "topics that clients can create, with those that exist", low=1, high=10_000_000, runtime=True
    )
    max_queues: int = setting(500_000, "queues of all topics together", low=1, high=100_000_000, runtime=True)
    max_queues_per_topic: int = setting(
        1_024, "read or write queues of a topic; existing topics may have more", low=1, high=65_535, runtime=True
    )
    max_groups: int = setting(
        10_000, "consumer groups that clients can create, with those that exist", low=1, high=10_000_000, runtime=True
    )
    max_queue_locks: int = setting(100_000, "locks of orderly consumers", low=1, high=10_000_000, runtime=True)
    default_topic_queue_nums: int = setting(8, "queues of TBW102, the template of created topics", low=1, high=65_535)
    cluster_topic_enable: bool = setting(True, "the topic named as the cluster may be used")
    broker_topic_enable: bool = setting(True, "the topic named as the broker may be used")
    auto_create_subscription_group: bool = setting(
        True, "an unknown consumer group is created when it is first seen", runtime=True
    )
    trace_topic_enable: bool = setting(False, "create the trace topic even if autoCreateTopicEnable is false", runtime=True)
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", "the trace topic")
    trace_on: bool = setting(True, "written into every message as TRACE_ON")
    message_delay_level: str = setting(DEFAULT_DELAY_LEVELS, "the delay levels: numbers with s, m, h or d")
    default_message_request_mode: str = setting("PULL", "the answer to request 400 for groups without a mode", choices=("PULL",))

    # Timer messages.
    timer_wheel_enable: bool = setting(True, "accept and deliver timer messages")
    timer_precision_ms: int = setting(
        1_000, "ms between the slots of the timer wheel; a change takes effect when no message is pending", low=100, high=60_000
    )
    timer_roll_window_slot: int = setting(
        172_800, "slots that a message may be ahead; messages further ahead are stored again on the way", low=2, high=604_740
    )
    timer_max_delay_sec: int = setting(259_200, "maximum delay of a message, in s", low=1, high=315_360_000)
    timer_congest_num_each_slot: int = setting(
        2_147_483_647, "messages that may be due in the same slot", low=1, high=2_147_483_647, runtime=True
    )
    mapped_file_size_timer_log: int = setting(104_857_600, "bytes of a timer-log file", low=4_096, high=2_147_483_647)
    timer_flush_interval_ms: int = setting(
        1_000, "ms between writes of the wheel and its checkpoint", low=10, high=60_000, runtime=True
    )
    recall_message_enable: bool = setting(True, "pending timer messages may be recalled", runtime=True)

    # Transactions.
    reject_transaction_message: bool = setting(False, "reject half messages", runtime=True)
    transaction_time_out: int = setting(
        6_000, "ms after which the producer of an undecided half message is asked", low=1, high=_DAY_MS, runtime=True
    )
    transaction_check_interval: int = setting(30_000, "ms between checks of half messages", low=100, high=_DAY_MS, runtime=True)
    transaction_check_max: int = setting(
        15, "checks of a half message before it is discarded", low=1, high=1_000_000, runtime=True
    )
    transaction_op_batch_interval: int = setting(
        3_000, "ms after which decisions are written to the op topic", low=1, high=600_000, runtime=True
    )
    transaction_op_msg_max_size: int = setting(
        4_096, "bytes of decisions that are written at once", low=1, high=4_194_304, runtime=True
    )

    # Replies and repeated sends.
    store_reply_message_enable: bool = setting(True, "store replies in the reply topic", runtime=True)
    idempotent_producer_max_num: int = setting(
        10_000, "maximum number of remembered pairs of idempotent producer and queue", low=1, high=1_000_000
    )
    idempotent_producer_window: int = setting(256, "sequence numbers remembered per pair", low=1, high=65_536)
    deduplicate_uniq_key_window_ms: int = setting(
        0, "ms within which a repeated UNIQ_KEY of a topic is not stored again; 0 is off", low=0, high=_DAY_MS
    )
    deduplicate_uniq_key_max_num: int = setting(200_000, "maximum number of remembered keys", low=1, high=100_000_000)

    # Consuming.
    long_polling_enable: bool = setting(True, "park pulls that find nothing", runtime=True)
    short_polling_time_mills: int = setting(
        1_000, "ms to park them if longPollingEnable is false", low=1, high=60_000, runtime=True
    )
    enable_property_filter: bool = setting(True, "accept SQL92 subscriptions", runtime=True)
    slave_read_enable: bool = setting(False, "redirect consumers that lag far behind to a replica", runtime=True)
    flush_consumer_offset_interval: int = setting(
        5_000, "ms between writes of consumerOffset.json", low=100, high=600_000, runtime=True
    )
    consumer_offset_update_version_step: int = setting(500, "commits per data version of the offsets", low=1, high=1_000_000)
    use_server_side_reset_offset: bool = setting(
        True, "reset offsets at the broker instead of through the consumers", runtime=True
    )
    default_query_max_num: int = setting(32, "messages returned by a query by unique key", low=1, high=10_000, runtime=True)

    # Metrics.
    metrics_exporter_type: str = setting("DISABLE", "PROM serves Prometheus metrics", choices=("DISABLE", "PROM"))
    metrics_prom_exporter_host: str = setting("127.0.0.1", "the local address of the metrics; 0.0.0.0 for every interface")
    metrics_prom_exporter_port: int = setting(5557, "the port of the metrics; 0 takes any free port", low=0, high=65_535)
    metrics_label: str = setting("", "additional labels of every metric: name:value, joined by commas")

    # The event log.
    log_file: str = setting("", "a file below storePathRootDir for the log as JSON lines; empty for none")
    log_file_max_size: int = setting(67_108_864, "bytes after which a new file is started", low=4_096, high=2**40)
    log_file_max_num: int = setting(10, "older files to keep", low=1, high=1_000)

    # Busy-polling.
    stay_awake_micros: int = setting(
        100,
        "us to poll for the next request after a single reply before the event loop sleeps; 0 is off",
        key="stayAwakeMicros",
        high=1_000,
    )

    # Flow control.
    broker_fast_failure_enable: bool = setting(True, "reject requests that waited too long", runtime=True)
    wait_time_mills_in_send_queue: int = setting(
        200, "ms after which a waiting send is rejected", low=1, high=600_000, runtime=True
    )
    os_page_cache_busy_time_out_mills: int = setting(
        1_000, "ms without an acknowledgement after which sends are rejected", low=1, high=600_000, runtime=True
    )
    send_thread_pool_queue_capacity: int = setting(10_000, "unanswered sends of one connection", low=1, high=10_000_000)
    pull_thread_pool_queue_capacity: int = setting(10_000, "parked pulls of one connection", low=1, high=10_000_000)
    max_parked_pulls_per_queue: int = setting(10_000, "parked pulls of one queue", low=1, high=10_000_000, runtime=True)
    max_parked_pulls: int = setting(100_000, "parked pulls of all connections", low=1, high=10_000_000, runtime=True)

    def check(self) -> None:
        """Raise SettingError for settings that contradict each other."""
        AuthSettings.check(self)
        replicates = self.is_slave or self.enable_d_leger_commit_log
        if self.authentication_enabled and replicates and self.inner_client_authentication_credentials is None:
            raise SettingError(
                "innerClientAuthenticationCredentials",
                "",
                '{"accessKey":"...","secretKey":"..."}, equal on all brokers that replicate each other: they accept only signed'
                " requests",
            )
        for key, name in (("brokerName", self.broker_name), ("brokerClusterName", self.broker_cluster_name)):
            if not _NAME.fullmatch(name):
                raise SettingError(key, name, "1 to 127 of the characters a-z A-Z 0-9 _ - % |")
        if self.enable_d_leger_commit_log:
            if self.broker_role != "ASYNC_MASTER" or self.broker_id:
                raise SettingError(
                    "enableDLegerCommitLog", "true", "neither brokerRole nor brokerId with it: the group elects its master"
                )
            self.peers()
        elif self.is_slave and not self.broker_id:
            raise SettingError(
                "brokerRole", self.broker_role, "a brokerId of 1 or more with it, a different one for each slave of a master"
            )
        if self.broker_id and not self.is_slave:
            raise SettingError("brokerId", self.broker_id, f"0 with brokerRole {self.broker_role}; slaves have brokerRole SLAVE")
        if self.listen_port in (1, 2):
            raise SettingError("listenPort", self.listen_port, "3 or more (the fast port is two below it), or 0 for a free one")
        check_exposure(self)
        parse_delay_levels(self.message_delay_level)
        check_outgoing_tls(self)

    def peers(self) -> Peers:
        """Return the members of this broker's group."""
        return parse_peers(
            self.d_leger_group or self.broker_name, self.d_leger_peers, self.d_leger_self_id, self.preferred_leader_id
        )

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    def delay_level_count(self) -> int:
        return len(self.message_delay_level.split())
