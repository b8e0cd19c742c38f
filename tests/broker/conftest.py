from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.kit import Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path)
    yield kit
    kit.close()
