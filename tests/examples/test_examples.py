"""The programs in examples/, each run as a process against a cluster with real ports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.testing import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with Cluster(sockets=True, clock=None) as cluster:
        yield cluster.name_server


@pytest.mark.parametrize("program", PROGRAMS)
def test_example_runs(program: str, name_server: str) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if program.startswith("test_") else []
    done = subprocess.run(
        [sys.executable, *command, str(EXAMPLES / program)],
        env={**os.environ, "NAMESRV_ADDR": name_server},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_index_lists_every_example() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in PROGRAMS if f"({name})" not in index] == []
