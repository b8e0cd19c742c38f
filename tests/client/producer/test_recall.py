"""Recall handles."""

from __future__ import annotations

import base64

import pytest

from firearrow.client.errors import InvalidMessageError
from firearrow.client.producer.recall import parse_recall_handle


def handle(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def test_handle_is_decoded() -> None:
    assert parse_recall_handle(handle("v1 Orders broker-a 1700000000000 ID")) == ("Orders", "broker-a", 1700000000000, "ID")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (handle("v2 Orders broker-a 1 ID"), "has version 'v2', expected v1"),
        (handle("v1 Orders broker-a soon ID"), "is not a recall handle"),
        (handle("v1 Orders"), "is not a recall handle"),
        ("!", "is not a recall handle"),
    ],
)
def test_invalid_handle_is_rejected(text: str, why: str) -> None:
    with pytest.raises(InvalidMessageError, match=why):
        parse_recall_handle(text)
