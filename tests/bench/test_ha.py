"""Benchmarks of replicated groups: settings of the members, limits and evaluation of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import catchup, ha
from bench.catchup import Catching
from bench.firearrow import Firearrow
from bench.ha_groups import ASYNC_MASTER, DLEDGER, SYNC_MASTER, TOPOLOGIES, settings_of
from bench.load import LoadResult
from bench.process import BenchError, free_base_ports
from bench.session import Session

RESULT = LoadResult(5, 1000, 20, 1, 2, 3, 4, 5000, 5000, 0, 0, 0, 0, 0.5)


def session(tmp_path: Path, *only: str) -> Session:
    return Session(Firearrow(), None, rounds=1, seconds=1, quick=True, only=list(only), work=tmp_path)


def test_sync_master_waits_for_its_slave_on_both_brokers() -> None:
    master, slave = settings_of(SYNC_MASTER, [20000, 20010])
    assert (master["brokerRole"], master["inSyncReplicas"]) == ("SYNC_MASTER", "2")
    assert (slave["brokerRole"], slave["brokerId"]) == ("SLAVE", "1")
    assert settings_of(ASYNC_MASTER, [20000, 20010])[0]["brokerRole"] == "ASYNC_MASTER"


def test_members_of_an_elected_group_know_each_other() -> None:
    members = settings_of(DLEDGER, [20000, 20010, 20020])
    assert {member["dLegerPeers"] for member in members} == {"n0-127.0.0.1:20003;n1-127.0.0.1:20013;n2-127.0.0.1:20023"}
    assert [member["dLegerSelfId"] for member in members] == ["n0", "n1", "n2"]


def test_ports_for_a_group_do_not_overlap() -> None:
    ports = free_base_ports(3)
    assert len(set(ports)) == 3
    assert all(port % 10 == 0 for port in ports)


def test_limits_of_replicated_groups(tmp_path: Path) -> None:
    assert ha.BARS[SYNC_MASTER].rate_at_least == 1.3
    assert ha.BARS[DLEDGER].rate_at_least == 3.0
    assert set(ha.BARS) == set(TOPOLOGIES)
    results = {
        ("ours: Firearrow", f"{topology}: send 128B 64x1"): [replace(RESULT, msgs_per_s=rate)]
        for topology, rate in ((SYNC_MASTER, 6_900), (ASYNC_MASTER, 10_000))
    }
    (check,) = ha.double_write(session(tmp_path), results)
    assert check.missed
    results[("ours: Firearrow", f"{SYNC_MASTER}: send 128B 64x1")] = [replace(RESULT, msgs_per_s=7_100)]
    (check,) = ha.double_write(session(tmp_path), results)
    assert not check.missed


@pytest.mark.parametrize("run", [ha.run, catchup.run])
def test_unknown_group_is_an_error(run: object, tmp_path: Path) -> None:
    assert callable(run)
    with pytest.raises(BenchError, match="nothing has pigeons in its name"):
        run(session(tmp_path, "pigeons"))


def test_catch_up_is_limited_by_time_and_rejected_messages() -> None:
    good = Catching("Firearrow", DLEDGER, 1024, 1024.0, 1.0, 29.0, 20_000, [RESULT, RESULT])
    assert not any(check.missed for check in good.checks(30.0))
    assert any(check.missed for check in replace(good, seconds=31.0).checks(30.0))
    assert any(check.missed for check in replace(good, loads=[replace(RESULT, failed=1)]).checks(30.0))
    assert not any(check.missed for check in replace(good, seconds=31.0).checks(None))
