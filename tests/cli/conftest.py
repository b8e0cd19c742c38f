from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import Start, Started


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Started] = []

    def starter(*words: str, **env: str) -> Started:
        running.append(Started(list(words), tmp_path, **env))
        return running[-1]

    yield starter
    for process in running:
        process.end()
