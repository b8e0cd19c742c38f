"""Fixtures of the timer tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.timing import Timing


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Timing]]:
    made: list[Timing] = []

    def start(**settings: Any) -> Timing:
        made.append(Timing(tmp_path / "store", **settings))
        return made[-1]

    yield start
    for one in made:
        one.store.close()


@pytest.fixture
def timing(make: Callable[..., Timing]) -> Timing:
    return make()
