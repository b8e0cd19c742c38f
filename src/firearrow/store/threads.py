"""The store's two threads.

Flusher: makes the commit log durable by group commit. Whoever wrote something asks for its end offset; one fdatasync answers
everybody who asked before it began. After an error it never tries again: the kernel may have dropped the dirty pages and
would report success the second time, for data that is gone.

Housekeeper: does what may take a while and nobody waits for, in the order it was asked: preparing the next segment, writing
and syncing derived files, the checkpoint, deleting expired files.

Before `start`, and in tests that want no threads, the Housekeeper runs a job at once in the caller's thread, and the Flusher
does nothing: the owner syncs by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue


class FlushFigures:
    """How often the log was flushed and how long that took. Written by the flusher's thread only."""

    __slots__ = ("count", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.longest_ns = 0

    def took(self, ns: int) -> None:
        self.count += 1
        self.total_ns += ns
        if ns > self.longest_ns:
            self.longest_ns = ns


@dataclass(slots=True)
class _Rewind:
    offset: int
    done: threading.Event = field(default_factory=threading.Event)


class Flusher:
    def __init__(
        self,
        sync: Callable[[int, int], None],
        on_flushed: Callable[[int], None],
        on_error: Callable[[OSError], None],
        flushed_offset: int = 0,
    ) -> None:
        self.flushed_offset = flushed_offset  # written by the flusher's thread only, once it runs
        self.figures = FlushFigures()
        self._sync = sync
        self._on_flushed = on_flushed
        self._on_error = on_error
        self._requests: SimpleQueue[int | _Rewind | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="firearrow-flusher", daemon=True)
        self._thread.start()

    def request(self, offset: int) -> None:
        """The log up to `offset` is written and should be made durable. Any thread."""
        if self._thread is not None:
            self._requests.put(offset)

    def rewind(self, offset: int) -> None:
        """The log is about to be cut at `offset`. Returns when no sync of what lies behind it is under way."""
        thread = self._thread
        if thread is None:
            self.flushed_offset = min(self.flushed_offset, offset)
            return
        rewind = _Rewind(offset)
        self._requests.put(rewind)
        while thread.is_alive() and not rewind.done.wait(0.1):
            pass

    def stop(self) -> None:
        """Ends the thread after what was requested so far."""
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        stopping = False
        while not stopping:
            target, stopping = self._collect()
            if target <= self.flushed_offset:
                continue
            began_ns = time.perf_counter_ns()
            try:
                self._sync(self.flushed_offset, target)
            except OSError as error:
                self._on_error(error)
                return
            self.figures.took(time.perf_counter_ns() - began_ns)
            self.flushed_offset = target
            self._on_flushed(target)

    def _collect(self) -> tuple[int, bool]:
        """Waits for a request, then takes all there are: the highest offset, and whether to stop afterwards."""
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
    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="firearrow-housekeeper", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            self._do(job)
        else:
            self._jobs.put(job)

    def drain(self) -> None:
        """Returns when the jobs submitted so far are done."""
        if self._thread is not None:
            done = threading.Event()
            self._jobs.put(done.set)
            done.wait()

    def stop(self) -> None:
        """Ends the thread after the jobs submitted so far."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:
            # A failed job must not end the thread: the others are still wanted. The owner decides what it means.
            self._on_error(error)
