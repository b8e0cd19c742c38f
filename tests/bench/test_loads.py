"""Definition and selection of loads."""

from __future__ import annotations

from bench.loads import ASYNC, SYNC, all_loads, select


def test_loads_cover_all_modes_and_sizes() -> None:
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


def test_loads_of_one_flush_mode_are_adjacent() -> None:
    flushes = [load.flush for load in all_loads()]
    assert flushes == sorted(flushes)


def test_pattern_selects_by_part_of_the_name() -> None:
    assert {load.name for load in select(all_loads(), ["pull", "sync batch 32x1KB"])} == {
        "pull 32x128B 16x1",
        "pull 32x1KB 16x1",
        "sync batch 32x1KB 16x1",
    }
    assert select(all_loads(), []) == all_loads()
