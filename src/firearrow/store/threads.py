"""The two background threads of the store.

Flusher: makes the commit log durable with group commit. A writer requests a flush up to its end offset; one fdatasync serves
every request made before it began. After an error the flusher never tries again: the kernel may have dropped the dirty pages
and would report success for data that is lost.

Housekeeper: runs slow jobs that no client waits for, in the order of submission: preparing the next segment, writing and syncing
derived files, saving the checkpoint, deleting expired files.

Both also work without a thread, for tests and simulations. The housekeeper then runs a job in the caller's thread at once. The
flusher does nothing until it is started (the owner syncs by itself), or, started inline, syncs in the caller's thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue


@dataclass(slots=True)
class FlushStats:
    """Number and duration of log flushes. Written by the flusher only."""

    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.total_ns += ns
        self.longest_ns = max(self.longest_ns, ns)


@dataclass(slots=True)
class _Rewind:
    offset: int
    done: threading.Event = field(default_factory=threading.Event)


class Flusher:
    """Group commit of the log.

    `sync(start, end)` makes a range of the log durable. `on_flushed(offset)` and `on_error(error)` report the outcome, from the
    flusher's thread or, inline, from within `request`.
    """

    def __init__(
        self, sync: Callable[[int, int], None], on_flushed: Callable[[int], None], on_error: Callable[[OSError], None]
    ) -> None:
        self.flushed_offset = 0  # once started, written by the flusher only
        self.stats = FlushStats()
        self._sync = sync
        self._on_flushed = on_flushed
        self._on_error = on_error
        self._requests: SimpleQueue[int | _Rewind | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._inline = False

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="firearrow-flusher", daemon=True)
        self._thread.start()

    def start_inline(self) -> None:
        """Flush in the caller's thread from now on: each `request` syncs and reports before it returns.

        A writer that registers for the report after it has written schedules the callbacks on its event loop, as it does for
        those of the thread.
        """
        self._inline = True

    def request(self, offset: int) -> None:
        """Request that the log, written up to `offset`, becomes durable. Any thread."""
        if self._thread is not None:
            self._requests.put(offset)
        elif self._inline:
            self._inline = self._flush(offset)

    def rewind(self, offset: int) -> None:
        """Prepare for a truncation at `offset`. On return no sync of the log above it is in progress."""
        thread = self._thread
        if thread is None:
            self.flushed_offset = min(self.flushed_offset, offset)
            return
        rewind = _Rewind(offset)
        self._requests.put(rewind)
        while thread.is_alive() and not rewind.done.wait(0.1):
            pass

    def stop(self) -> None:
        """Stop after serving the requests made so far."""
        self._inline = False
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        stopping = False
        while not stopping:
            target, stopping = self._collect()
            if not self._flush(target):
                return

    def _flush(self, target: int) -> bool:
        """Sync up to `target` and report it. Return False after an error, which is final."""
        if target <= self.flushed_offset:
            return True
        started_ns = time.perf_counter_ns()
        try:
            self._sync(self.flushed_offset, target)
        except OSError as error:
            self._on_error(error)
            return False
        self.stats.add(time.perf_counter_ns() - started_ns)
        self.flushed_offset = target
        self._on_flushed(target)
        return True

    def _collect(self) -> tuple[int, bool]:
        """Wait for a request and take all queued ones. Return the highest offset and whether to stop afterwards."""
        offset = self._requests.get()
        target = 0
        try:
            while offset is not None:
                if isinstance(offset, _Rewind):
                    target = min(target, offset.offset)
                    self.flushed_offset = min(self.flushed_offset, offset.offset)
                    offset.done.set()
                else:
                    target = max(target, offset)
                offset = self._requests.get_nowait()
        except Empty:
            return target, False
        return target, True


class Housekeeper:
    """Runs jobs one after the other, in its thread or, before `start`, in the caller's."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="firearrow-housekeeper", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job that may block (a file to save), after those submitted before."""
        if self._thread is None:
            self._run_job(job)
        else:
            self._jobs.put(job)

    def drain(self) -> None:
        """Wait for the jobs submitted so far."""
        if self._thread is not None:
            done = threading.Event()
            self._jobs.put(done.set)
            done.wait()

    def stop(self) -> None:
        """Stop the thread after the jobs submitted so far."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._run_job(job)

    def _run_job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 (the owner decides)
            # A failed job must not end the thread, other jobs are still due. The owner decides what the error means.
            self._on_error(error)
