from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .kit import Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path)
    yield kit
    kit.close()
