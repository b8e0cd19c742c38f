"""Execution of the tasks of a job, by Spark's executors or by processes of this machine.

A task is a module-level function with plain data as its argument and a JSON-compatible result. Spark transports only task numbers
and results; messages do not pass through it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from firearrow.spark.errors import SparkOptionError

T = TypeVar("T")
Result = dict[str, Any]

LOCAL, SPARK = "local", "spark"
SMALL_BYTES: Final = 2 << 30  # done locally before Spark would have started


class Engine(Protocol):
    """Executor of tasks."""

    name: str
    parallelism: int

    def run(self, items: Sequence[T], work: Callable[[T], Result]) -> list[Result]:
        """Run `work` for each item and return the results in order. The first error is raised."""

    def close(self) -> None: ...


class LocalEngine:
    """Tasks in processes of this machine."""

    name = LOCAL

    def __init__(self, processes: int | None = None) -> None:
        self.parallelism = processes or len(os.sched_getaffinity(0))
        self._pool: ProcessPoolExecutor | None = None

    def run(self, items: Sequence[T], work: Callable[[T], Result]) -> list[Result]:
        if len(items) <= 1:
            return [work(item) for item in items]
        if self._pool is None:  # spawned: a forked process would inherit connections without their threads
            self._pool = ProcessPoolExecutor(self.parallelism, multiprocessing.get_context("spawn"), _exit_with_driver)
        return list(self._pool.map(work, items))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _exit_with_driver() -> None:
    """Leave Ctrl-C to the driver, and exit when the driver ends for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    driver = multiprocessing.parent_process()
    assert driver is not None

    def watch() -> None:
        driver.join()
        os._exit(1)

    threading.Thread(target=watch, name="watch-driver", daemon=True).start()


class SparkEngine:
    """Tasks on the executors of a session, which the caller owns."""

    name = SPARK

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        try:
            self._context: Any = spark.sparkContext
            self.parallelism = max(2, int(self._context.defaultParallelism))
        except Exception:  # noqa: BLE001 (Spark Connect has no context; the error depends on its version)
            self._context, self.parallelism = None, 8

    def run(self, items: Sequence[T], work: Callable[[T], Result]) -> list[Result]:
        if not items:
            return []
        items = list(items)
        try:
            if self._context is None:
                return self._run_connected(items, work)
            numbers = self._context.parallelize(range(len(items)), len(items))
            return [json.loads(text) for text in numbers.map(lambda number: json.dumps(work(items[number]))).collect()]
        except Exception as error:  # noqa: BLE001 (Spark wraps the errors of tasks; the type depends on its version)
            raise _task_error_of(error) from None

    def _run_connected(self, items: Sequence[T], work: Callable[[T], Result]) -> list[Result]:
        """Run tasks through Spark Connect, which supports frames only."""

        def tasks(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = json.dumps(work(items[number]))
                    yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([result])], ["number", "result"])

        frame = self._spark.range(0, len(items), 1, len(items)).mapInArrow(tasks, "number bigint, result string")
        return [json.loads(row.result) for row in sorted(frame.collect(), key=lambda row: row.number)]

    def close(self) -> None:
        """Do nothing: the caller owns the session."""


def _task_error_of(error: Exception) -> Exception:
    """Extract the error of a task from the text that Spark puts around it."""
    found = task_error(str(error))
    if found is None:
        return error
    kind, text = found
    return SparkOptionError(text) if kind == "SparkOptionError" else RuntimeError(f"{kind}: {text}")


def task_error(text: str) -> tuple[str, str] | None:
    """Return class and message of the Python error in a text of Spark; None if it contains none."""
    found = re.findall(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception|Lost|Timeout)): (.*)$", text, re.MULTILINE)
    ours = [(kind, message) for kind, message in found if kind not in ("SparkException", "PythonException", "Py4JJavaError")]
    return ours[-1] if ours else None
