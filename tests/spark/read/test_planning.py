from __future__ import annotations

from firearrow.spark.read.offsets import Queue
from firearrow.spark.read.planning import Range, limit_offsets, plan_tasks, ranges_between

A0, A1, B0 = Queue("T", "broker-a", 0), Queue("T", "broker-a", 1), Queue("T", "broker-b", 0)


def test_ranges_lie_between_two_offsets_and_a_queue_that_is_new_has_none_yet() -> None:
    assert ranges_between({A0: 5, A1: 7}, {A0: 9, A1: 7, B0: 3}) == [Range(A0, 5, 9)]


def test_small_ranges_of_a_broker_share_a_task() -> None:
    wanted = [Range(A0, 0, 10), Range(A1, 0, 10), Range(B0, 0, 10)]

    assert plan_tasks(wanted, least=100, most=1000) == [[Range(A0, 0, 10), Range(A1, 0, 10)], [Range(B0, 0, 10)]]


def test_a_task_that_has_enough_takes_no_more() -> None:
    wanted = [Range(A0, 0, 100), Range(A1, 0, 10)]

    assert plan_tasks(wanted, least=100, most=1000) == [[Range(A0, 0, 100)], [Range(A1, 0, 10)]]


def test_a_large_range_is_split_into_equal_parts_without_gap_or_overlap() -> None:
    made = plan_tasks([Range(A0, 7, 107)], least=1, most=30)

    assert [part for task in made for part in task] == [
        Range(A0, 7, 32),
        Range(A0, 32, 57),
        Range(A0, 57, 82),
        Range(A0, 82, 107),
    ]


def test_as_many_tasks_as_wanted_if_there_are_messages_for_them() -> None:
    made = plan_tasks([Range(A0, 0, 100), Range(B0, 0, 100)], least=10_000, most=1_000_000, min_tasks=8)

    assert len(made) == 8
    assert sum(part.size for task in made for part in task) == 200


def test_the_same_input_gives_the_same_tasks_whatever_its_order() -> None:
    wanted = [Range(B0, 0, 50), Range(A1, 3, 40), Range(A0, 0, 500)]

    assert plan_tasks(wanted, least=60, most=100) == plan_tasks(wanted[::-1], least=60, most=100)


def test_a_limit_is_shared_by_what_queues_hold_and_starves_none() -> None:
    end = limit_offsets({A0: 0, A1: 0, B0: 100}, {A0: 9_000, A1: 3, B0: 1_100}, 100)

    assert end == {A0: 89, A1: 1, B0: 109}


def test_a_limit_above_what_is_there_limits_nothing() -> None:
    assert limit_offsets({A0: 0}, {A0: 10}, 10) == {A0: 10}
