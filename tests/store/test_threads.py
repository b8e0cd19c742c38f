"""Flusher (group commit, final errors, inline mode) and Housekeeper (order, failed jobs)."""

from __future__ import annotations

import threading

from firearrow.store.threads import Flusher, Housekeeper


class SlowSync:
    """A sync that blocks until the test lets it through, so that requests pile up meanwhile."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.entered = threading.Semaphore(0)
        self.let_through = threading.Semaphore(0)

    def __call__(self, start: int, end: int) -> None:
        self.calls.append((start, end))
        self.entered.release()
        assert self.let_through.acquire(timeout=10)


def test_requests_made_during_a_sync_share_the_next_sync() -> None:
    sync = SlowSync()
    flushed: list[int] = []
    flusher = Flusher(sync, flushed.append, lambda error: None)
    flusher.start()
    flusher.request(100)
    assert sync.entered.acquire(timeout=10)
    for offset in (200, 250, 300):
        flusher.request(offset)
    sync.let_through.release()
    assert sync.entered.acquire(timeout=10)
    sync.let_through.release()
    flusher.stop()
    assert sync.calls == [(0, 100), (100, 300)]
    assert flushed == [100, 300]
    assert flusher.flushed_offset == 300


def test_stop_serves_the_requests_made_before_it() -> None:
    calls: list[tuple[int, int]] = []
    flusher = Flusher(lambda start, end: calls.append((start, end)), lambda offset: None, lambda error: None)
    flusher.flushed_offset = 50
    flusher.start()
    flusher.request(40)  # durable already
    flusher.request(70)
    flusher.stop()
    assert calls == [(50, 70)]


def test_flusher_never_retries_after_an_error() -> None:
    calls: list[int] = []
    errors: list[OSError] = []
    failed = threading.Event()

    def sync(start: int, end: int) -> None:
        calls.append(end)
        raise OSError(5, "I/O error")

    def on_error(error: OSError) -> None:
        errors.append(error)
        failed.set()

    flushed: list[int] = []
    flusher = Flusher(sync, flushed.append, on_error)
    flusher.start()
    flusher.request(10)
    assert failed.wait(10)
    flusher.request(20)
    flusher.stop()
    assert (calls, flushed, len(errors)) == ([10], [], 1)
    assert flusher.flushed_offset == 0


def test_inline_flusher_syncs_within_the_request() -> None:
    calls: list[tuple[int, int]] = []
    flushed: list[int] = []
    flusher = Flusher(lambda start, end: calls.append((start, end)), flushed.append, lambda error: None)
    flusher.request(5)  # not started: ignored
    flusher.start_inline()
    flusher.request(10)
    flusher.request(10)
    flusher.request(30)
    assert (calls, flushed) == ([(0, 10), (10, 30)], [10, 30])
    flusher.rewind(20)
    flusher.request(25)
    flusher.stop()
    flusher.request(40)
    assert (calls[2:], flushed[2:], flusher.stats.count) == ([(20, 25)], [25], 3)


def test_inline_flusher_never_retries_after_an_error() -> None:
    calls: list[int] = []
    errors: list[OSError] = []

    def sync(start: int, end: int) -> None:
        calls.append(end)
        raise OSError(5, "I/O error")

    flusher = Flusher(sync, lambda offset: None, errors.append)
    flusher.start_inline()
    flusher.request(10)
    flusher.request(20)
    assert (calls, len(errors), flusher.flushed_offset) == ([10], 1, 0)


def test_failed_job_is_reported_and_the_next_job_runs() -> None:
    errors: list[Exception] = []
    done: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    housekeeper = Housekeeper(errors.append)
    housekeeper.submit(lambda: done.append("before start, at once"))
    assert done == ["before start, at once"]
    housekeeper.start()
    housekeeper.submit(lambda: done.append("first"))
    housekeeper.submit(fail)
    housekeeper.submit(lambda: done.append("second"))
    housekeeper.stop()
    assert done[1:] == ["first", "second"]
    assert [str(error) for error in errors] == ["no"]
