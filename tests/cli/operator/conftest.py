"""An in-process cluster and a runner for the commands of operators."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from firearrow.cli.main import run as run_command
from firearrow.testing.sync import Cluster
from tests.cli.operator.kit import Firearrow


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """A cluster for tests that use names of their own."""
    with Cluster(sockets=True, clock=None) as cluster:
        yield cluster


@pytest.fixture
def firearrow(shared: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firearrow:
    """Run a command line; return the exit code, standard output and standard error."""
    monkeypatch.setenv("NAMESRV_ADDR", shared.name_server)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_command(words)
        out, err = capsys.readouterr()
        return code, out, err

    return run
