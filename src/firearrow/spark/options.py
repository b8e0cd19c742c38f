"""Options of the data source, checked while the query is planned.

Every option is declared once, in `OPTIONS`, with its default, its parser and a line of help; the table in docs/spark is generated
from it. Names are case-insensitive, as everywhere in Spark. An unknown name is an error that suggests the nearest one, because a
misspelt limit that is silently ignored is worse than a query that does not start.

Parsers take the text of an option, without surrounding blanks. Their ValueError says what was expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from firearrow.client.options import ClientOptions, Credentials, client_options, name_server_addresses
from firearrow.spark.errors import SparkOptionError, suggest

_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIMES: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_text(value: str) -> str:
    if not value:
        raise ValueError("a non-empty text")
    return value


def parse_flag(value: str) -> bool:
    return choice_parser("true", "false")(value) == "true"


def parse_positive(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ValueError("a whole number above 0")
    return int(value)


def parse_count(value: str) -> int:
    if not value.isdecimal():
        raise ValueError("a whole number")
    return int(value)


def parse_size(value: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([kmg]?)(i?b)?", value.lower())
    if found is None or int(found[1]) < 1:
        raise ValueError("a number of bytes such as 1048576, 512k, 4m or 1g")
    return int(found[1]) * _SIZES[found[2]]


def parse_duration_ms(value: str) -> int:
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)?", value.lower())
    if found is None:
        raise ValueError("a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _TIMES[found[2] or "ms"]


def parse_time_ms(value: str) -> int:
    if value.isdecimal():
        return int(value)
    try:
        return int(datetime.fromisoformat(value).astimezone().timestamp() * 1000)
    except ValueError:
        raise ValueError("milliseconds since 1970, or a time such as 2026-03-01T12:00:00+00:00") from None


def parse_names(value: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in value.split(",") if name.strip())
    if not found:
        raise ValueError("comma-separated names")
    return found


def parse_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return value


def parse_json_object(value: str) -> dict[str, Any]:
    try:
        loaded = json.loads(value)
    except ValueError as error:
        raise ValueError(f"a JSON object ({error})") from None
    if not isinstance(loaded, dict):
        raise ValueError("a JSON object")
    return loaded


def offsets_parser(*words: str) -> Callable[[str], str | dict[str, Any]]:
    def read(value: str) -> str | dict[str, Any]:
        if value.lower() in words:
            return value.lower()
        if not value.startswith("{"):
            raise ValueError(f'{", ".join(words)} or a JSON object such as {{"Orders":{{"broker-a":{{"0":120}}}}}}')
        return parse_json_object(value)

    return read


def choice_parser(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        for choice in choices:
            if choice.lower() == value.lower():
                return choice
        raise ValueError(" or ".join(choices))

    return read


def parse_times_by_queue(value: str) -> dict[str, Any]:
    """Parse `{"Orders":{"broker-a":{"0":1772366400000}}}`; times as for `parse_time_ms`."""
    found = parse_json_object(value)
    example = 'times by queue such as {"Orders":{"broker-a":{"0":1772366400000}}}'
    try:
        return {
            topic: {
                broker: {queue: parse_time_ms(str(at).strip()) for queue, at in queues.items()}
                for broker, queues in brokers.items()
            }
            for topic, brokers in found.items()
        }
    except AttributeError:
        raise ValueError(example) from None
    except ValueError as error:
        raise ValueError(f"{example}, each {error}") from None


def parse_address_map(value: str) -> tuple[tuple[str, str], ...]:
    """Parse `{"10.0.0.5:10911":"broker.example:30911"}` into pairs."""
    example = '{"10.0.0.5:10911":"broker.example:30911"}'
    pairs = tuple(sorted(parse_json_object(value).items()))
    for address in (one for pair in pairs for one in pair):
        if not isinstance(address, str) or not _is_address(address):
            raise ValueError(f"a JSON object of addresses such as {example}, not {address!r}")
    return pairs


def _is_address(text: str) -> bool:
    try:
        return len(name_server_addresses(text)) == 1
    except ValueError:
        return False


READ, WRITE = "read", "write"

_NO_ROUTE_REFRESH_S: Final = 1_000_000  # routes are requested when a query is planned, not periodically


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """Declaration of an option."""

    default: Any
    parse: Callable[[str], Any]
    help: str
    shown: str = ""  # the default in the documentation, if not the value itself
    sides: tuple[str, ...] = (READ,)


BOTH: Final = (READ, WRITE)
_WRITE: Final = (WRITE,)
OPTIONS: Final[dict[str, OptionSpec]] = {
    "nameServer": OptionSpec(
        None, parse_text, "`host:port;host:port` of the name servers", "required, unless `path`", sides=BOTH
    ),
    "path": OptionSpec(None, parse_text, "a store directory (Firearrow's or Apache's) to read instead of brokers"),
    "subscribe": OptionSpec(None, parse_names, "topics, comma-separated", "one of these three is required; with `path`: all"),
    "subscribePattern": OptionSpec(None, parse_pattern, "a regular expression that topic names must match completely"),
    "assign": OptionSpec(None, parse_json_object, 'queues: `{"Orders":{"broker-a":[0,1]}}`'),
    "subExpression": OptionSpec("*", parse_text, "tags `a || b`, or an SQL92 condition, evaluated by the broker"),
    "expressionType": OptionSpec("TAG", choice_parser("TAG", "SQL92"), "type of `subExpression`: `TAG` or `SQL92`"),
    "startingOffsets": OptionSpec(
        None,
        offsets_parser("earliest", "latest", "group"),
        "`earliest`, `latest`, `group` (committed offsets of `consumerGroup`) or JSON with -2 for earliest, -1 for latest",
        "batch earliest, stream latest",
    ),
    "endingOffsets": OptionSpec(
        "latest", offsets_parser("latest"), "batch: `latest` or offsets as JSON, exclusive; -1 is latest"
    ),
    "startingTimestamp": OptionSpec(
        None,
        parse_time_ms,
        "start with messages stored at or after this time (ms or ISO 8601); takes precedence over other starting options",
    ),
    "endingTimestamp": OptionSpec(
        None, parse_time_ms, "batch: messages stored before this time; takes precedence over other ending options"
    ),
    "startingOffsetsByTimestamp": OptionSpec(
        None,
        parse_times_by_queue,
        'a time for every queue: `{"Orders":{"broker-a":{"0":1772366400000}}}`; takes precedence over `startingOffsets`',
    ),
    "endingOffsetsByTimestamp": OptionSpec(
        None, parse_times_by_queue, "batch: an end time for every queue; takes precedence over `endingOffsets`"
    ),
    "startingOffsetsByTimestampStrategy": OptionSpec(
        "latest",
        choice_parser("latest", "error"),
        "for a queue without messages at or after its time: start at its end (`latest`), or fail (`error`)",
    ),
    "consumerGroup": OptionSpec(
        "TOOLS_CONSUMER", parse_text, "consumer group of the pull requests and of `startingOffsets` `group`; see `commitOffsets`"
    ),
    "commitOffsets": OptionSpec(
        "none",
        choice_parser("none", "progress"),
        "stream: `progress` commits processed offsets as those of `consumerGroup`, so that `consumerProgress` shows the stream; "
        "it still resumes from its checkpoint",
    ),
    "groupResetStrategy": OptionSpec(
        "earliest", choice_parser("earliest", "latest"), "starting position in queues for which the group has no offset"
    ),
    "failOnDataLoss": OptionSpec(
        True, parse_flag, "fail, with the exact range, if messages were deleted before they were read; `false`: continue"
    ),
    "maxOffsetsPerTrigger": OptionSpec(
        1_000_000, parse_positive, "stream: maximum messages per batch, divided among the queues in proportion to their backlog"
    ),
    "maxBytesPerTrigger": OptionSpec(
        512 << 20, parse_size, "stream: approximate maximum bytes per batch, estimated from the next messages", "512m"
    ),
    "minOffsetsPerTrigger": OptionSpec(
        None, parse_positive, "stream: minimum messages per batch, unless `maxTriggerDelay` passes"
    ),
    "maxTriggerDelay": OptionSpec(900_000, parse_duration_ms, "stream: maximum wait for `minOffsetsPerTrigger`", "15m"),
    "minRecordsPerPartition": OptionSpec(10_000, parse_positive, "queues with fewer messages share a task"),
    "maxRecordsPerPartition": OptionSpec(1_000_000, parse_positive, "a queue with more messages is split"),
    "minPartitions": OptionSpec(None, parse_positive, "minimum number of tasks; queues are split further to reach it"),
    "columns": OptionSpec(None, parse_names, "read only these columns; much faster than selecting them afterwards", "all"),
    "propertiesAs": OptionSpec("map", choice_parser("map", "string"), "`map`, or `string`: as stored, which is faster"),
    "decompress": OptionSpec(True, parse_flag, "decompress compressed bodies"),
    "latestOffsetMaxWaitMs": OptionSpec(200, parse_count, "stream: maximum wait for new messages before an empty trigger"),
    "metadataRefreshMs": OptionSpec(5_000, parse_count, "stream: interval of the check for new queues and brokers"),
    "pullBatchSize": OptionSpec(1_024, parse_positive, "messages per pull request; brokers may return fewer"),
    "pullMaxBytes": OptionSpec(4 << 20, parse_size, "approximate bytes per pull reply, estimated from previous messages", "4m"),
    "pullTimeoutMs": OptionSpec(3_000, parse_positive, "timeout of one pull request, which is retried"),
    "decodeRecords": OptionSpec(4_096, parse_positive, "messages decoded together"),
    "includeSystemTopics": OptionSpec(
        False, parse_flag, "`path`, `subscribePattern`: include the broker's own topics, such as half messages and pending delays"
    ),
    "includeTransactions": OptionSpec(False, parse_flag, "`path`: include prepared and rolled-back transactional messages"),
    "pushFilters": OptionSpec(
        False,
        parse_flag,
        "batch: use conditions on topic, queueId, queueOffset, storeTimestamp and tags to read less; needs the setting "
        "`spark.sql.python.filterPushdown.enabled`, which `firearrow.spark.session` sets",
    ),
    "maxSplitBytes": OptionSpec(256 << 20, parse_size, "`path`: commit-log bytes per task", "256m"),
    "brokerName": OptionSpec(
        None, parse_text, "`path`: value of the column brokerName, which store files do not contain", "null"
    ),
    "workerGcFreeze": OptionSpec(
        True, parse_flag, "exclude the modules of a Python worker from garbage collection; saves 20 ms per task"
    ),
    "brokerAddressMap": OptionSpec(
        (),
        parse_address_map,
        'reachable addresses of brokers behind NAT or port forwarding: `{"10.0.0.5:10911":"broker.example:30911"}`',
        "none",
        sides=BOTH,
    ),
    "accessKey": OptionSpec(
        None,
        parse_text,
        "signs requests, with `secretKey`; options are visible in query plans: prefer `credentialsFile`",
        sides=BOTH,
    ),
    "secretKey": OptionSpec(None, parse_text, "see `accessKey`", sides=BOTH),
    "credentialsFile": OptionSpec(
        None, parse_text, "a file with accessKey and secretKey (JSON or YAML), on the driver and every executor", sides=BOTH
    ),
    "tls": OptionSpec(False, parse_flag, "encrypt connections and verify the certificates of servers", sides=BOTH),
    "tlsCa": OptionSpec(
        None,
        parse_text,
        "PEM file with the CA certificates to trust instead of the system's, on the driver and every executor; implies `tls`",
        sides=BOTH,
    ),
    "tlsCert": OptionSpec(None, parse_text, "PEM file with the certificate to present; implies `tls`", sides=BOTH),
    "tlsKey": OptionSpec(None, parse_text, "PEM file with the private key of `tlsCert`", sides=BOTH),
    "tlsKeyPasswordFile": OptionSpec(None, parse_text, "file with the password of the private key", sides=BOTH),
    "tlsInsecure": OptionSpec(False, parse_flag, "encrypt connections, but accept any certificate", sides=BOTH),
    "topic": OptionSpec(
        None, parse_text, "write: target topic; default: the column `topic`. Read: same as `subscribe`", sides=BOTH
    ),
    "createTopic": OptionSpec(
        "auto",
        choice_parser("auto", "true", "false"),
        "write: create a missing topic; `auto`: if brokers create topics automatically (autoCreateTopicEnable)",
        sides=_WRITE,
    ),
    "queues": OptionSpec(8, parse_positive, "write: queues per broker of a created topic", sides=_WRITE),
    "sendBatchBytes": OptionSpec(1 << 20, parse_size, "write: maximum bytes per send request", "1m", sides=_WRITE),
    "maxInFlight": OptionSpec(
        16, parse_positive, "write: concurrent send requests per task, each to another queue", sides=_WRITE
    ),
    "sendTimeoutMs": OptionSpec(3_000, parse_positive, "write: timeout of one send request", sides=_WRITE),
    "retries": OptionSpec(5, parse_count, "write: retries after the first attempt", sides=_WRITE),
    "idempotent": OptionSpec(
        "auto",
        choice_parser("auto", "true", "false"),
        "write: send sequence numbers, with which Firearrow's brokers deduplicate; `true`: reject brokers that do not",
        sides=_WRITE,
    ),
    "writeId": OptionSpec(
        None, parse_text, "write: name of a batch job; a second run with the same name stores nothing twice", sides=_WRITE
    ),
}

_ALIASES: Final = {"namesrvaddr": "nameServer", "group": "consumerGroup"}
SECURITY_OPTIONS: Final = (
    "accessKey", "secretKey", "credentialsFile", "tls", "tlsCa", "tlsCert", "tlsKey", "tlsKeyPasswordFile", "tlsInsecure",
)  # fmt: skip
"""Credentials and TLS, common to all that connects to a cluster."""
_FOR_BROKERS: Final = frozenset((
    "subExpression", "expressionType", "assign", "startingOffsets", "endingOffsets", "groupResetStrategy", "consumerGroup",
    "pullBatchSize", "pullMaxBytes", "pullTimeoutMs", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "brokerAddressMap", "minPartitions", "minRecordsPerPartition",
    "maxRecordsPerPartition", *SECURITY_OPTIONS,
))  # fmt: skip
_SPARK_OWN: Final = frozenset(("checkpointlocation", "mergeschema", "queryname"))  # passed on by Spark, not for us
_FOR_FILES: Final = frozenset(("includeTransactions", "maxSplitBytes", "brokerName"))
_NOT_FOR_STREAMS: Final = frozenset(("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters"))
_ONLY_STREAMS: Final = frozenset((
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets",
    "latestOffsetMaxWaitMs", "metadataRefreshMs",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataSourceOptions:
    """Values of all options by name, and the names given explicitly. Plain data, sent to executors."""

    values: dict[str, Any]
    given: frozenset[str] = field(default_factory=frozenset)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def explicit(self, *names: str) -> dict[str, Any]:
        """Return those of the named options that were given, as JSON values."""
        values = {name: self[name] for name in names if name in self.given}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def client(self) -> ClientOptions:
        credentials, key_password = self._credentials(), self._key_password()
        try:
            return client_options(
                self["nameServer"],
                credentials=credentials,
                tls=self["tls"],
                tls_ca=self["tlsCa"],
                tls_cert=self["tlsCert"],
                tls_key=self["tlsKey"],
                tls_key_password=key_password,
                tls_insecure=self["tlsInsecure"],
                request_timeout=self["sendTimeoutMs" if "sendTimeoutMs" in self.given else "pullTimeoutMs"] / 1000,
                route_interval=_NO_ROUTE_REFRESH_S,
                broker_addresses=self["brokerAddressMap"],
            )
        except ValueError as error:
            what = "" if str(error).startswith("tls_") else f"option nameServer is {self['nameServer']!r}: "
            raise SparkOptionError(f"{what}{error}") from None

    def _key_password(self) -> str | None:
        path = self["tlsKeyPasswordFile"]
        if path is None:
            return None
        try:
            with open(path) as file:
                return file.read().rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise SparkOptionError(f"option tlsKeyPasswordFile is {path!r}, expected a text file: {error}") from None

    def _credentials(self) -> Credentials | None:
        access, secret, path = self["accessKey"], self["secretKey"], self["credentialsFile"]
        if path is not None:
            try:
                return Credentials.from_file(path)
            except ValueError as error:
                raise SparkOptionError(f"option credentialsFile: {error}") from None
        if (access is None) != (secret is None):
            raise SparkOptionError("accessKey and secretKey must be given together")
        return None if access is None else Credentials(access, secret)


def read_options(given: Mapping[str, str], *, stream: bool | None = None) -> DataSourceOptions:
    """Parse the options of a reading query; `stream` may be unknown (None). SparkOptionError for an invalid option."""
    options = _parse(given, READ)
    if "topic" in options.given:
        if options["subscribe"] is not None:
            raise SparkOptionError("topic and subscribe are synonyms: give one of them")
        options.values["subscribe"] = parse_names(options["topic"])
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options[name] is not None]
    if len(chosen) > 1:
        raise SparkOptionError(f"{' and '.join(chosen)} are mutually exclusive: give one of them")
    if options["path"] is not None:
        _check_path(options, stream)
        return options
    if options["nameServer"] is None:
        raise SparkOptionError("option nameServer is missing: host:port of a name server (or path, for a store directory)")
    if not chosen:
        raise SparkOptionError("nothing to read: give subscribe (topics), subscribePattern or assign")
    if stream is not None:
        wrong = _NOT_FOR_STREAMS if stream else _ONLY_STREAMS
        _reject(options, wrong, f"only for {'batch queries' if stream else 'streams'}")
    _reject(options, _FOR_FILES, "only for store files (path)")
    for name, value in (("startingOffsets", "group"), ("commitOffsets", "progress")):
        if options[name] == value and "consumerGroup" not in options.given:
            raise SparkOptionError(f"{name} is {value}: name the group with consumerGroup")
    options.client()
    return options


def write_options(given: Mapping[str, str]) -> DataSourceOptions:
    """Parse the options of a writing query. SparkOptionError for an invalid option."""
    options = _parse(given, WRITE)
    if options["nameServer"] is None:
        raise SparkOptionError("option nameServer is missing: host:port of a name server")
    if "queues" in options.given and options["createTopic"] == "false":
        raise SparkOptionError("option queues needs createTopic: createTopic is false")
    options.client()
    return options


def _check_path(options: DataSourceOptions, stream: bool | None) -> None:
    if stream:
        raise SparkOptionError("store files (path) can be read by batch queries only; streams need nameServer")
    if options["nameServer"] is not None:
        raise SparkOptionError("path and nameServer are mutually exclusive: give one of them")
    _reject(options, _FOR_BROKERS | _ONLY_STREAMS, "not for store files (path)")


def _reject(options: DataSourceOptions, names: Set[str], why: str) -> None:
    for name in sorted(options.given & names):
        raise SparkOptionError(f"option {name} is {why}")


def _parse(given: Mapping[str, str], side: str) -> DataSourceOptions:
    by_lower = {name.lower(): name for name, spec in OPTIONS.items() if side in spec.sides} | _ALIASES
    values = {name: spec.default for name, spec in OPTIONS.items()}
    seen: dict[str, str] = {}
    for key, text in given.items():
        if key.lower() in _SPARK_OWN:
            continue
        name = by_lower.get(key.lower())
        if name is None or side not in OPTIONS[name].sides:
            raise _unknown(key, side, by_lower.values())
        if name in seen:
            raise SparkOptionError(f"{seen[name]} and {key} are synonyms: give one of them")
        seen[name] = key
        try:
            values[name] = OPTIONS[name].parse(text.strip())
        except ValueError as error:
            raise SparkOptionError(f"option {name} is {text!r}, expected {error}") from None
    return DataSourceOptions(values, frozenset(seen))


def _unknown(key: str, side: str, known: Iterable[str]) -> SparkOptionError:
    for name in OPTIONS:
        if name.lower() == key.lower():
            return SparkOptionError(f"option {name} is not for a query that {side}s")
    return SparkOptionError(f"unknown option {key!r}; {suggest(key, known, 'docs/spark lists them all')}")
