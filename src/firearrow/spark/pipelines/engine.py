"""Who does the work of an increment: Spark's executors, or processes of this machine.

Work is a function of a module, with plain data as its arguments, and what it returns is plain, too (JSON). Spark sees task
numbers go in and small texts come out; messages go from the broker to where they are to be without passing through it.
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

LOCAL, SPARK, AUTO = "local", "spark", "auto"
ENGINES: Final = (AUTO, SPARK, LOCAL)
SMALL_BYTES: Final = 2 << 30  # Spark has not yet started when so much is done


class Engine(Protocol):
    name: str
    parallelism: int

    def run(self, items: Sequence[T], work: Callable[[T], Result]) -> list[Result]:
        """What the work returns for each, in their order. The first error ends it."""

    def close(self) -> None: ...


class LocalEngine:
    """Processes on this machine."""

    name = LOCAL

    def __init__(self, processes: int | None = None) -> None:
        self.parallelism = processes or len(os.sched_getaffinity(0))
        self._pool: ProcessPoolExecutor | None = None

    def run(self, items: Sequence[T], work: Callable[[T], Result]) -> list[Result]:
        if len(items) <= 1:
            return [work(item) for item in items]
        if self._pool is None:  # spawned: a fork would have our connections and threads that are not there
            self._pool = ProcessPoolExecutor(self.parallelism, multiprocessing.get_context("spawn"), _belong_to_driver)
        return list(self._pool.map(work, items))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _belong_to_driver() -> None:
    """Ctrl-C, which a terminal sends to all of us, is for the driver to heed. When it is gone, however it went, so are we."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    driver = multiprocessing.parent_process()
    assert driver is not None

    def follow() -> None:
        driver.join()
        os._exit(1)

    threading.Thread(target=follow, name="follow the driver", daemon=True).start()


class SparkEngine:
    """The executors of a session, which stays the caller's."""

    name = SPARK

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        try:
            self._context: Any = spark.sparkContext
            self.parallelism = max(2, int(self._context.defaultParallelism))
        except Exception:  # Spark Connect has none; what it raises depends on the version
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
        except Exception as error:
            raise _plain(error) from None

    def _run_connected(self, items: Sequence[T], work: Callable[[T], Result]) -> list[Result]:
        """Spark Connect knows frames only; mapping them wants pandas, which its client has anyway."""

        def tasks(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = json.dumps(work(items[number]))
                    yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([result])], ["number", "result"])

        frame = self._spark.range(0, len(items), 1, len(items)).mapInArrow(tasks, "number bigint, result string")
        return [json.loads(row.result) for row in sorted(frame.collect(), key=lambda row: row.number)]

    def close(self) -> None:
        """Nothing: the session is the caller's."""


def _plain(error: Exception) -> Exception:
    """What went wrong in a task, without the pages that Spark puts around it."""
    said = task_error(str(error))
    if said is None:
        return error
    kind, text = said
    return SparkOptionError(text) if kind == "SparkOptionError" else RuntimeError(f"{kind}: {text}")


def task_error(text: str) -> tuple[str, str] | None:
    """(class, message) of the Python error in a text of Spark's; None if there is none."""
    found = re.findall(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception|Lost|Timeout)): (.*)$", text, re.MULTILINE)
    ours = [(kind, said) for kind, said in found if kind not in ("SparkException", "PythonException", "Py4JJavaError")]
    return ours[-1] if ours else None
