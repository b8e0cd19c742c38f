"""The pytest plugin of the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import firearrow as fa
from firearrow.testing import Cluster
from tests.testing.kit import bodies


def test_order_is_closed_after_two_hours(firearrow_broker):  # type: ignore[no-untyped-def]  # as a user writes it
    with firearrow_broker.producer() as p:
        p.send(fa.Message("CloseOrder", b"42"), delay_level=18)
    firearrow_broker.clock.advance(hours=2)
    assert [m.body for m in firearrow_broker.messages("CloseOrder")] == [b"42"]


def test_each_test_has_its_own_broker(firearrow_broker: Cluster) -> None:
    assert firearrow_broker.messages("CloseOrder") == []


def test_cluster_factory(firearrow_cluster: Callable[..., Cluster], firearrow_broker: Cluster) -> None:
    two, real = firearrow_cluster(brokers=2), firearrow_cluster(sockets=True)
    assert len({two.name_server, real.name_server, firearrow_broker.name_server}) == 3
    for cluster in (two, real, firearrow_broker):
        with cluster.producer() as producer:
            producer.send(fa.Message("Orders", cluster.name_server.encode()))
    for cluster in (two, real, firearrow_broker):
        assert bodies(cluster.messages("Orders")) == [cluster.name_server.encode()]


def test_plugin_is_found_and_loads_lazily(tmp_path: Path) -> None:
    assert [point.value for point in entry_points(group="pytest11", name="firearrow")] == ["firearrow.testing.plugin"]
    scenario = tmp_path / "test_user.py"
    scenario.write_text(
        "import sys\n"
        "def test_without(): assert not [m for m in sys.modules if m.startswith(('firearrow.broker', 'numpy', 'uvloop'))]\n"
        "def test_with(firearrow_broker): assert 'firearrow.broker.server' in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(scenario)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
