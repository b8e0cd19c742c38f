"""The JSON-lines log: one JSON object per line and event, in rotated files.

    {"time":"2026-01-31T12:00:00.000Z","level":"INFO","logger":"firearrow.broker","event":"topic_changed","topic":"Orders", ...,
     "message":"topic Orders changed: 4 read and 4 write queues, permission 6"}

`message` is the text of the ordinary log on standard error; the fields of an event come before it. An error has its traceback
under `error`. `logFile` names the file, relative to `storePathRootDir`. At `logFileMaxSize` bytes it is rotated to `.1`, `.2` and
so on up to `logFileMaxNum`.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import orjson

from firearrow.broker.context import BrokerContext
from firearrow.broker.settings import BrokerSettings
from firearrow.wire.bodies.topic import SubscriptionGroupConfig, TopicConfig

ROOT = logging.getLogger("firearrow")

log = logging.getLogger("firearrow.broker")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line |= fields
        line["message"] = record.getMessage()
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def log_event(event: str, message: str, **fields: Any) -> None:
    """Log an event with its structured fields."""
    log.info(message, extra={"fields": {"event": event, **fields}})


def subscribe_events(broker: BrokerContext) -> None:
    """Log changes of topics and groups as events."""

    def topic_changed(topic: str, config: TopicConfig | None) -> None:
        if config is None:
            log_event("topic_deleted", f"topic {topic} deleted", topic=topic)
            return
        read, write, perm = config.read_queue_nums, config.write_queue_nums, config.perm
        text = f"topic {topic} has {read} read and {write} write queues, permission {perm}"
        log_event("topic_changed", text, topic=topic, readQueueNums=read, writeQueueNums=write, perm=perm)

    def group_changed(group: str, config: SubscriptionGroupConfig | None) -> None:
        if config is None:
            log_event("group_deleted", f"group {group} deleted", group=group)
            return
        text = f"group {group} may consume: {config.consume_enable}, retries: {config.retry_max_times}"
        log_event("group_changed", text, group=group, consumeEnable=config.consume_enable, retryMaxTimes=config.retry_max_times)

    broker.topics.subscribe(topic_changed)
    broker.groups.subscribe(group_changed)


class EventLog:
    """The log file. Between `start` and `stop` everything logged under `firearrow` is written to it."""

    def __init__(self, settings: BrokerSettings, root: str) -> None:
        from logging.handlers import RotatingFileHandler  # imported only if a file is written

        self.path = os.path.join(root, settings.log_file)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        size, count = settings.log_file_max_size, settings.log_file_max_num
        self._handler = RotatingFileHandler(self.path, maxBytes=size, backupCount=count, encoding="utf-8", delay=True)
        self._handler.setFormatter(JsonLines())
        self._level = ROOT.level

    def start(self) -> None:
        ROOT.addHandler(self._handler)
        if ROOT.getEffectiveLevel() > logging.INFO:
            ROOT.setLevel(logging.INFO)

    def stop(self) -> None:
        ROOT.removeHandler(self._handler)
        ROOT.setLevel(self._level)
        self._handler.close()
