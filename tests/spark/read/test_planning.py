from __future__ import annotations

from firearrow.spark.read.offsets import Queue
from firearrow.spark.read.planning import Range, limit_offsets, plan_tasks, ranges_between

A0, A1, B0 = Queue("T", "broker-a", 0), Queue("T", "broker-a", 1), Queue("T", "broker-b", 0)


def test_new_queue_has_no_range_yet() -> None:
    assert ranges_between({A0: 5, A1: 7}, {A0: 9, A1: 7, B0: 3}) == [Range(A0, 5, 9)]


def test_small_ranges_of_a_broker_share_a_task() -> None:
    wanted = [Range(A0, 0, 10), Range(A1, 0, 10), Range(B0, 0, 10)]

    assert plan_tasks(wanted, least=100, most=1000) == [[Range(A0, 0, 10), Range(A1, 0, 10)], [Range(B0, 0, 10)]]


def test_full_task_is_not_shared() -> None:
    wanted = [Range(A0, 0, 100), Range(A1, 0, 10)]

    assert plan_tasks(wanted, least=100, most=1000) == [[Range(A0, 0, 100)], [Range(A1, 0, 10)]]


def test_large_range_is_split_into_equal_parts_without_gap_or_overlap() -> None:
    made = plan_tasks([Range(A0, 7, 107)], least=1, most=30)

    assert [part for task in made for part in task] == [
        Range(A0, 7, 32),
        Range(A0, 32, 57),
        Range(A0, 57, 82),
        Range(A0, 82, 107),
    ]


def test_minimum_number_of_tasks_is_reached() -> None:
    made = plan_tasks([Range(A0, 0, 100), Range(B0, 0, 100)], least=10_000, most=1_000_000, min_tasks=8)

    assert len(made) == 8
    assert sum(part.size for task in made for part in task) == 200


def test_tasks_do_not_depend_on_the_order_of_ranges() -> None:
    wanted = [Range(B0, 0, 50), Range(A1, 3, 40), Range(A0, 0, 500)]

    assert plan_tasks(wanted, least=60, most=100) == plan_tasks(wanted[::-1], least=60, most=100)


def test_limit_is_divided_by_backlog_and_starves_no_queue() -> None:
    end = limit_offsets({A0: 0, A1: 0, B0: 100}, {A0: 9_000, A1: 3, B0: 1_100}, 100)

    assert end == {A0: 89, A1: 1, B0: 109}


def test_limit_above_the_backlog_has_no_effect() -> None:
    assert limit_offsets({A0: 0}, {A0: 10}, 10) == {A0: 10}
