"""Worker threads and tasks: concurrency, settling, stopping."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from firearrow.client.consumer.worker_pool import TaskWorkers, ThreadWorkers
from tests.support.waiting import run, until


def workers(kind: str, count: int, call: Callable[[int], int], settle: Callable[[list[Any]], None]) -> Any:
    if kind != "tasks":
        return ThreadWorkers(count, call, settle, patient=kind == "patient threads")

    async def awaited(job: int) -> int:
        return call(job)

    return TaskWorkers(count, awaited, settle)


@pytest.mark.parametrize("kind", ["threads", "patient threads", "tasks"])
def test_every_job_is_settled_once_many_at_a_time(kind: str) -> None:
    async def story() -> None:
        settled: list[tuple[int, int]] = []
        turns = 0

        def settle(finished: list[tuple[int, int, float]]) -> None:
            nonlocal turns
            turns += 1
            assert all(spent_s >= 0 for _, _, spent_s in finished)
            settled.extend((job, result) for job, result, _ in finished)

        pool = workers(kind, 8, lambda job: job * 2, settle)
        for start in range(0, 10_000, 100):
            pool.put(range(start, start + 100))
            if start % 3_000 == 0:
                await asyncio.sleep(0.01)
        await until(lambda: len(settled) == 10_000)
        assert sorted(settled) == [(job, job * 2) for job in range(10_000)]
        assert turns < 5_000, "they are handed back in portions"
        assert pool.running() == []
        assert await pool.stop(1)

    run(story())


@pytest.mark.parametrize("patient", [False, True])
def test_blocked_threads_are_joined_by_others(patient: bool) -> None:
    async def story() -> None:
        gate = threading.Barrier(5)
        done: list[Any] = []
        pool: ThreadWorkers[int, int] = ThreadWorkers(5, lambda job: gate.wait(60), done.extend, patient=patient)
        pool.put(range(5))  # nobody passes before five are there
        await until(lambda: len(done) == 5)
        assert await pool.stop(1)

    run(story())


def test_tasks_that_wait_are_joined_by_others_up_to_their_number() -> None:
    async def story() -> None:
        inside, most, go = 0, 0, asyncio.Event()
        done: list[Any] = []

        async def call(job: int) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await go.wait()
            inside -= 1

        pool = TaskWorkers(5, call, done.extend)
        pool.put(range(12))
        await until(lambda: inside == 5)
        await asyncio.sleep(0.01)
        assert [job for job, _ in pool.running()] == [0, 1, 2, 3, 4]
        go.set()
        await until(lambda: len(done) == 12)
        assert most == 5
        assert await pool.stop(1)

    run(story())


@pytest.mark.parametrize("patient", [False, True])
def test_job_finished_after_the_last_check_is_settled(patient: bool) -> None:
    async def story() -> None:
        release = threading.Event()
        done: list[Any] = []
        pool: ThreadWorkers[int, bool] = ThreadWorkers(1, lambda job: release.wait(60), done.extend, patient=patient)
        for number in range(1, 4):
            pool.put([number])
            await asyncio.sleep(0.02)  # ten looks
            release.set()
            await until(lambda number=number: len(done) == number)  # type: ignore[misc]  # mypy does not infer the default
            release.clear()
        assert await pool.stop(1)

    run(story())


def test_fast_listener_uses_few_threads() -> None:
    async def story() -> None:
        names: set[str] = set()
        done: list[Any] = []
        pool: ThreadWorkers[int, None] = ThreadWorkers(20, lambda job: names.add(threading.current_thread().name), done.extend)
        pool.put(range(50))
        await until(lambda: len(done) == 50)
        assert len(names) < 20
        assert await pool.stop(1)

    run(story())


def test_coroutines_that_never_wait_leave_the_loop_its_turn() -> None:
    async def story() -> None:
        done: list[Any] = []

        async def busy(job: int) -> None:
            ends = time.perf_counter() + 0.002
            while time.perf_counter() < ends:
                pass

        pool = TaskWorkers(2, busy, done.extend)
        pool.put(range(100))
        turns = 0
        while len(done) < 100:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10
        assert await pool.stop(1)

    run(story())


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_stop_waits_for_running_jobs_and_starts_none(kind: str) -> None:
    async def story() -> None:
        begun: list[int] = []
        done: list[Any] = []
        release, let_go = threading.Event(), asyncio.Event()

        def block(job: int) -> None:
            begun.append(job)
            release.wait(60)

        async def rest(job: int) -> None:
            begun.append(job)
            await let_go.wait()

        pool: Any = ThreadWorkers(2, block, done.extend) if kind == "threads" else TaskWorkers(2, rest, done.extend)
        pool.put(range(10))
        await until(lambda: len(begun) == 2)
        stopping = asyncio.get_running_loop().create_task(pool.stop(10))
        await asyncio.sleep(0.02)
        assert not stopping.done()
        release.set()
        let_go.set()
        assert await stopping
        assert [job for job, _, _ in sorted(done)] == sorted(begun) == [0, 1]
        pool.put([11])
        await asyncio.sleep(0.01)
        assert len(begun) == 2

    run(story())


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_stop_returns_after_the_timeout(kind: str) -> None:
    async def story() -> None:
        begun, release = threading.Event(), threading.Event()

        def block(job: int) -> None:
            begun.set()
            release.wait(60)

        async def rest(job: int) -> None:
            begun.set()
            await asyncio.sleep(30)

        pool: Any = ThreadWorkers(1, block, lambda done: None) if kind == "threads" else TaskWorkers(1, rest, lambda done: None)
        pool.put([1])
        await until(begun.is_set)
        assert not await pool.stop(0.05)
        release.set()

    run(story())


def test_threads_end_when_they_are_stopped() -> None:
    async def story() -> None:
        before = threading.active_count()
        gate = threading.Barrier(6)
        done: list[Any] = []
        pool: ThreadWorkers[int, int] = ThreadWorkers(6, lambda job: gate.wait(60), done.extend)
        pool.put(range(6))
        await until(lambda: len(done) == 6)
        assert threading.active_count() == before + 6
        assert await pool.stop(1)
        await until(lambda: threading.active_count() == before)

    run(story())
