"""The flusher: one sync answers everybody who asked before it began, and an error is final. The housekeeper: in order."""

from __future__ import annotations

import threading

from firearrow.store.threads import Flusher, Housekeeper


class SlowSync:
    """A sync that waits to be let through, so that a test decides what piles up meanwhile."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.entered = threading.Semaphore(0)
        self.let_through = threading.Semaphore(0)

    def __call__(self, start: int, end: int) -> None:
        self.calls.append((start, end))
        self.entered.release()
        assert self.let_through.acquire(timeout=10)


def test_requests_that_come_during_a_sync_share_the_next_one() -> None:
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


def test_what_was_requested_before_the_stop_is_synced() -> None:
    calls: list[tuple[int, int]] = []
    flusher = Flusher(lambda start, end: calls.append((start, end)), lambda offset: None, lambda error: None, 50)
    flusher.start()
    flusher.request(40)  # durable already
    flusher.request(70)
    flusher.stop()
    assert calls == [(50, 70)]


def test_after_an_error_it_never_tries_again() -> None:
    calls = []
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


def test_a_failed_job_is_reported_and_the_next_one_done() -> None:
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
