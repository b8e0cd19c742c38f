"""Helpers of these tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from firearrow.client.message import ReceivedMessage

T = TypeVar("T")
PATIENCE_S = 120


def bodies(messages: Iterable[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]
