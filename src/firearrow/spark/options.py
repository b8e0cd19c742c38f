"""The options of the data source, checked while the query is planned.

Every option is declared once, in `DECLARED`, with its default, the reading of its text and a line of help; the table of
docs/spark is made of these. Names do not care about capitals, as everywhere in Spark. An unknown name is an error that names the
nearest one: a misspelt limit that is silently ignored is worse than a query that does not start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from firearrow.client.options import ClientOptions, Credentials, client_options
from firearrow.spark import option_values as kinds
from firearrow.spark.errors import SparkOptionError

READ, WRITE = "read", "write"

_ROUTES_NEVER_MS: Final = 1_000_000_000  # routes are asked for when a query is planned, not by a clock


@dataclass(frozen=True, slots=True)
class Declared:
    default: Any
    read: Callable[[str], Any]
    help: str
    shown: str = ""  # the default as the documentation shows it
    side: tuple[str, ...] = (READ,)


BOTH: Final = (READ, WRITE)
DECLARED: Final[dict[str, Declared]] = {
    "nameServer": Declared(None, kinds.text, "`host:port;host:port` of the name servers", "required, unless `path`", BOTH),
    "path": Declared(None, kinds.text, "a store directory (ours or Apache's) that is read instead of brokers", "none"),
    "subscribe": Declared(
        None, kinds.names, "topics, with commas between them", "one of these three is required; with `path`: all"
    ),
    "subscribePattern": Declared(None, kinds.pattern, "a regular expression that the whole name of a topic must match", "none"),
    "assign": Declared(None, kinds.json_object, 'queues: `{"Orders":{"broker-a":[0,1]}}`', "none"),
    "subExpression": Declared("*", kinds.text, "tags `a || b`, or an SQL92 condition; the broker sends only what it is true for"),
    "expressionType": Declared("TAG", kinds.choice("TAG", "SQL92"), "what `subExpression` is: `TAG` or `SQL92`"),
    "startingOffsets": Declared(
        None,
        kinds.offsets("earliest", "latest", "group"),
        "`earliest`, `latest`, `group` (where `consumerGroup` is) or JSON with -2 for earliest, -1 for latest",
        "batch earliest, stream latest",
    ),
    "endingOffsets": Declared("latest", kinds.offsets("latest"), "batch: `latest` or offsets as JSON, exclusive; -1 is latest"),
    "startingTimestamp": Declared(
        None,
        kinds.moment_ms,
        "begin with what was stored at or after this time (ms or ISO 8601); goes before all others",
        "none",
    ),
    "endingTimestamp": Declared(None, kinds.moment_ms, "batch: what was stored before this time; goes before all others", "none"),
    "startingOffsetsByTimestamp": Declared(
        None,
        kinds.moments_by_queue,
        'a moment for every queue: `{"Orders":{"broker-a":{"0":1772366400000}}}`; goes before `startingOffsets`',
        "none",
    ),
    "endingOffsetsByTimestamp": Declared(
        None, kinds.moments_by_queue, "batch: the same for the end; goes before `endingOffsets`", "none"
    ),
    "startingOffsetsByTimestampStrategy": Declared(
        "latest",
        kinds.choice("latest", "error"),
        "for a queue that holds nothing as young as its moment: begin at its end, or `error`",
    ),
    "consumerGroup": Declared(
        "TOOLS_CONSUMER",
        kinds.text,
        "the group that pulls are made for, and whose offsets `group` means; see `commitOffsets`",
    ),
    "commitOffsets": Declared(
        "none",
        kinds.choice("none", "progress"),
        "stream: `progress` reports to the brokers, as the offsets of `consumerGroup`, what was processed, so that "
        "`consumerProgress` shows the stream; it still goes on by its checkpoint",
    ),
    "groupResetStrategy": Declared(
        "earliest", kinds.choice("earliest", "latest"), "where to start in a queue of which the group has no offset"
    ),
    "failOnDataLoss": Declared(
        True, kinds.flag, "fail, with the exact range, when messages were deleted before they were read; `false`: go on", "true"
    ),
    "maxOffsetsPerTrigger": Declared(
        1_000_000, kinds.count, "stream: at most so many messages a batch, shared among the queues by what they hold", "1000000"
    ),
    "maxBytesPerTrigger": Declared(
        512 << 20, kinds.size, "stream: about so many bytes a batch, by the size of the next messages", "512m"
    ),
    "minOffsetsPerTrigger": Declared(None, kinds.count, "stream: wait for so many messages, at most `maxTriggerDelay`", "none"),
    "maxTriggerDelay": Declared(900_000, kinds.span_ms, "stream: how long `minOffsetsPerTrigger` may wait", "15m"),
    "minRecordsPerPartition": Declared(10_000, kinds.count, "queues with fewer messages share a task"),
    "maxRecordsPerPartition": Declared(1_000_000, kinds.count, "a queue with more messages is split"),
    "minPartitions": Declared(None, kinds.count, "split further until there are so many tasks", "none"),
    "columns": Declared(None, kinds.names, "only these columns, which is much faster than selecting them afterwards", "all"),
    "propertiesAs": Declared("map", kinds.choice("map", "string"), "`map`, or `string`: as they are stored, which is faster"),
    "decompress": Declared(True, kinds.flag, "inflate bodies that are compressed", "true"),
    "latestOffsetMaxWaitMs": Declared(
        200, kinds.count_from_0, "stream: how long to wait for messages before telling Spark that there are none"
    ),
    "metadataRefreshMs": Declared(5_000, kinds.count_from_0, "stream: how often to look for new queues and brokers"),
    "pullBatchSize": Declared(1_024, kinds.count, "messages asked for at once; brokers give fewer"),
    "pullMaxBytes": Declared(4 << 20, kinds.size, "about so many bytes an answer, by what messages weighed so far", "4m"),
    "pullTimeoutMs": Declared(3_000, kinds.count, "for one answer of a broker; there are several attempts"),
    "decodeRecords": Declared(4_096, kinds.count, "messages decoded together"),
    "includeSystemTopics": Declared(
        False, kinds.flag, "`path`, `subscribePattern`: half messages, waiting delays and other topics of the broker", "false"
    ),
    "includeTransactions": Declared(
        False,
        kinds.flag,
        "`path`: records that are no messages yet or never will be: prepared and rolled back transactions",
        "false",
    ),
    "pushFilters": Declared(
        False,
        kinds.flag,
        "batch: conditions on topic, queueId, queueOffset, storeTimestamp and tags limit what is read; needs the setting "
        "`spark.sql.python.filterPushdown.enabled`, which `firearrow.spark.session` sets",
        "false",
    ),
    "maxSplitBytes": Declared(256 << 20, kinds.size, "`path`: commit-log bytes per task", "256m"),
    "brokerName": Declared(
        None, kinds.text, "`path`: what to say in the column brokerName, which store files do not know", "null"
    ),
    "workerGcFreeze": Declared(
        True, kinds.flag, "take what a Python worker has loaded out of garbage collection once: 20 ms less a task", "true"
    ),
    "brokerAddressMap": Declared(
        (),
        kinds.addresses,
        'where to reach brokers whose addresses do not work from here: `{"10.0.0.5:10911":"broker.example:30911"}`',
        "none",
        BOTH,
    ),
    "accessKey": Declared(
        None, kinds.text, "signs requests, with `secretKey`; options are seen in plans: prefer `credentialsFile`", "none", BOTH
    ),
    "secretKey": Declared(None, kinds.text, "see `accessKey`", "none", BOTH),
    "credentialsFile": Declared(
        None, kinds.text, "a JSON file with accessKey and secretKey, on the driver and every executor", "none", BOTH
    ),
    "tls": Declared(False, kinds.flag, "encrypt connections", "false", BOTH),
    "topic": Declared(
        None, kinds.text, "write: where to; without it the column `topic` says. Read: the same as `subscribe`", "none", BOTH
    ),
    "createTopic": Declared(
        "auto",
        kinds.choice("auto", "true", "false"),
        "write: create a topic that does not exist; `auto`: if brokers create topics automatically (autoCreateTopicEnable)",
        "auto",
        (WRITE,),
    ),
    "queues": Declared(8, kinds.count, "write: queues of a created topic on each broker", "8", (WRITE,)),
    "sendBatchBytes": Declared(1 << 20, kinds.size, "write: bytes sent at once to a queue", "1m", (WRITE,)),
    "maxInFlight": Declared(16, kinds.count, "write: requests of a task under way, each to another queue", "16", (WRITE,)),
    "sendTimeoutMs": Declared(3_000, kinds.count, "write: for one answer of a broker", "3000", (WRITE,)),
    "retries": Declared(5, kinds.count_from_0, "write: attempts after the first", "5", (WRITE,)),
    "idempotent": Declared(
        "auto",
        kinds.choice("auto", "true", "false"),
        "write: give each message a number, by which our broker stores a repeated one once; `true`: refuse brokers that do not",
        "auto",
        (WRITE,),
    ),
    "writeId": Declared(
        None, kinds.text, "write: names a batch job; run again under the same name it stores nothing twice", "none", (WRITE,)
    ),
}

_ALIASES: Final = {
    "namesrvaddr": "nameServer",
    "group": "consumerGroup",
}
_FOR_BROKERS: Final = frozenset((
    "subExpression", "expressionType", "assign", "startingOffsets", "endingOffsets", "groupResetStrategy", "consumerGroup",
    "pullBatchSize", "pullMaxBytes", "pullTimeoutMs", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "brokerAddressMap", "accessKey", "secretKey", "credentialsFile", "tls", "minPartitions",
    "minRecordsPerPartition", "maxRecordsPerPartition",
))  # fmt: skip
_SPARKS_OWN: Final = frozenset(("checkpointlocation", "mergeschema", "queryname"))  # what Spark hands on, for itself
_FOR_FILES: Final = frozenset(("includeTransactions", "maxSplitBytes", "brokerName"))
_NOT_FOR_STREAMS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters")
_ONLY_STREAMS: Final = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets",
    "latestOffsetMaxWaitMs", "metadataRefreshMs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """Values by option name, those that were not given with their defaults. Plain data: it travels to executors."""

    values: dict[str, Any]
    given: frozenset[str] = field(default_factory=frozenset)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def client(self) -> ClientOptions:
        credentials = self._credentials()
        try:
            return client_options(
                self["nameServer"],
                credentials=credentials,
                tls=self["tls"],
                request_timeout_ms=self["sendTimeoutMs"] if "sendTimeoutMs" in self.given else self["pullTimeoutMs"],
                route_interval_ms=_ROUTES_NEVER_MS,
                broker_addresses=self["brokerAddressMap"],
            )
        except ValueError as error:
            raise SparkOptionError(f"option nameServer is {self['nameServer']!r}: {error}") from None

    def _credentials(self) -> Credentials | None:
        access, secret, path = self["accessKey"], self["secretKey"], self["credentialsFile"]
        if path is not None:
            try:
                with open(path) as file:
                    found = json.load(file)
                access, secret = found["accessKey"], found["secretKey"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise SparkOptionError(
                    f'option credentialsFile is {path!r}, expected a JSON file {{"accessKey": ..., "secretKey": ...}}: {error}'
                ) from None
        if (access is None) != (secret is None):
            raise SparkOptionError("accessKey and secretKey belong together: one of them is missing")
        return None if access is None else Credentials(access, secret)


def read_options(given: Mapping[str, str], *, stream: bool | None = None) -> Options:
    """The options of a query that reads, `stream` or not if that is known. SparkOptionError, in one line, if any is wrong."""
    options = _parse(given, READ)
    if "topic" in options.given:
        if options["subscribe"] is not None:
            raise SparkOptionError("topic and subscribe mean the same: give one of them")
        options.values["subscribe"] = kinds.names(options["topic"])
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options[name] is not None]
    if len(chosen) > 1:
        raise SparkOptionError(f"{' and '.join(chosen)} each say what to read: give one of them")
    if options["path"] is not None:
        _check_path(options, stream)
        return options
    if options["nameServer"] is None:
        raise SparkOptionError("option nameServer is missing: host:port of a name server (or path, for a store directory)")
    if not chosen:
        raise SparkOptionError("nothing to read: give subscribe (topics), subscribePattern or assign")
    if stream is not None:
        wrong = sorted(options.given & set(_NOT_FOR_STREAMS if stream else _ONLY_STREAMS))
        if wrong:
            raise SparkOptionError(f"option {wrong[0]} is only for {'batch queries' if stream else 'streams'}")
    wrong = sorted(options.given & _FOR_FILES)
    if wrong:
        raise SparkOptionError(f"option {wrong[0]} is only for store files (path)")
    for name, value in (("startingOffsets", "group"), ("commitOffsets", "progress")):
        if options[name] == value and "consumerGroup" not in options.given:
            raise SparkOptionError(f"{name} is {value}: name the group with consumerGroup")
    options.client()
    return options


def write_options(given: Mapping[str, str]) -> Options:
    """The same for a query that writes."""
    options = _parse(given, WRITE)
    if options["nameServer"] is None:
        raise SparkOptionError("option nameServer is missing: host:port of a name server")
    if "queues" in options.given and options["createTopic"] == "false":
        raise SparkOptionError("option queues is for topics that are created, but createTopic is false: give one of them")
    options.client()
    return options


def _check_path(options: Options, stream: bool | None) -> None:
    if stream:
        raise SparkOptionError("store files (path) can be read by batch queries only; streams need nameServer")
    if options["nameServer"] is not None:
        raise SparkOptionError("path and nameServer each say where to read: give one of them")
    wrong = sorted(options.given & (_FOR_BROKERS | set(_ONLY_STREAMS)))
    if wrong:
        raise SparkOptionError(f"option {wrong[0]} is not for store files (path)")


def _parse(given: Mapping[str, str], side: str) -> Options:
    by_lower = {name.lower(): name for name, declared in DECLARED.items() if side in declared.side} | _ALIASES
    values = {name: declared.default for name, declared in DECLARED.items()}
    seen: dict[str, str] = {}
    for key, text in given.items():
        if key.lower() in _SPARKS_OWN:
            continue
        name = by_lower.get(key.lower())
        if name is None or side not in DECLARED[name].side:
            raise SparkOptionError(_unknown(key, side, by_lower))
        if name in seen:
            raise SparkOptionError(f"{seen[name]} and {key} mean the same: give one of them")
        seen[name] = key
        try:
            values[name] = DECLARED[name].read(text)
        except ValueError as error:
            raise SparkOptionError(f"option {name} is {text!r}, expected {error}") from None
    return Options(values, frozenset(seen))


def _unknown(key: str, side: str, by_lower: Mapping[str, str]) -> str:
    elsewhere = {name.lower(): name for name in DECLARED}.get(key.lower())
    if elsewhere is not None:
        return f"option {elsewhere} is not for a query that {side}s"
    near = get_close_matches(key.lower(), by_lower, 1, 0.6)
    return f"unknown option {key!r}" + (f"; did you mean {by_lower[near[0]]}?" if near else "; docs/spark lists them all")
