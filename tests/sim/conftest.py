"""Logging of simulated brokers, limited to errors: under a virtual clock the rest is noise."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("firearrow.broker")
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)
