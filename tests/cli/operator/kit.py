"""Helpers for the tests of operator commands."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from firearrow.client.message import Message
from firearrow.testing.sync import Cluster

Firearrow = Callable[..., tuple[int, str, str]]


class Terminal(io.StringIO):
    """A standard input with a person behind it."""

    def isatty(self) -> bool:
        return True


def rows(text: str) -> list[dict[str, Any]]:
    value: list[dict[str, Any]] = json.loads(text)
    return value


def send(cluster: Cluster, topic: str, *bodies: bytes, **more: Any) -> list[str]:
    with cluster.producer(group="p") as producer:
        return [producer.send(Message(topic, body, **more)).msg_id for body in bodies]
