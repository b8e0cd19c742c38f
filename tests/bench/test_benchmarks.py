"""Selection of loads, evaluation of the growth curve, and arguments of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import compare, run
from bench.firearrow import Firearrow
from bench.growth import Point, growth_table, is_flat
from bench.loads import ASYNC, SYNC, all_loads, select
from bench.process import BenchError, free_base_port
from bench.session import Session


def test_the_loads_are_those_that_were_promised() -> None:
    loads = all_loads()
    names = [load.name for load in loads]
    assert len(set(names)) == len(names)
    for flush in (ASYNC, SYNC):
        sends = {(load.size, load.connections, load.depth) for load in loads if load.flush == flush and load.mode == "send"}
        assert sends >= {(size, *shape) for size in (128, 1024) for shape in ((64, 1), (16, 16), (1, 1))}
        assert {load.size for load in loads if load.flush == flush and load.mode == "batch"} == {128, 1024}
        assert {load.mode for load in loads if load.flush == flush} >= {"delay", "transaction"}
    assert {load.size for load in loads if load.mode == "pull"} == {128, 1024}
    assert all(load.half_of in names for load in loads if load.half_of)
    assert any(load.half_of for load in loads)


def test_loads_of_one_flush_mode_stand_together() -> None:
    flushes = [load.flush for load in all_loads()]
    assert flushes == sorted(flushes)


def test_a_pattern_selects_by_part_of_the_name() -> None:
    assert {load.name for load in select(all_loads(), ["pull", "sync batch 32x1KB"])} == {
        "pull 32x128B 16x1",
        "pull 32x1KB 16x1",
        "sync batch 32x1KB 16x1",
    }
    assert select(all_loads(), []) == all_loads()


def test_a_curve_is_flat_when_no_size_costs_a_fifth_more_than_the_first() -> None:
    def point(stored: int, send_us: float, pull_us: float) -> Point:
        return Point("Firearrow", stored, send_us, 90_000, pull_us, 70)

    assert is_flat([point(10_000, 10, 1.5), point(10_000_000, 11.9, 1.7)])
    assert not is_flat([point(10_000, 10, 1.5), point(10_000_000, 12.1, 1.5)])
    assert not is_flat([point(10_000, 10, 1.5), point(10_000_000, 10, 1.9)])
    text = growth_table([[point(10_000, 10, 1.5), point(10_000_000, 12.1, 1.5)]])
    assert [line.split("|")[-2].strip() for line in text.splitlines()[2:]] == ["ok", "MISSED"]


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--seconds", "0"], ["--seconds", "x"], ["speed"], ["--ours", "other"]])
def test_the_command_refuses_what_it_cannot_do(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(arguments)
    assert ended.value.code == 2


def test_an_unknown_load_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    session = Session(Firearrow(), None, rounds=1, seconds=1, quick=True, only=["teleport"], work=tmp_path)
    with pytest.raises(BenchError, match=r"no load has teleport in its name.*send 128B 64x1"):
        compare.run(session)


def test_a_base_port_leaves_room_for_its_neighbours() -> None:
    assert free_base_port() % 10 == 0
