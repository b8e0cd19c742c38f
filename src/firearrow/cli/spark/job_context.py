"""The Spark session, engine and progress of a job, created when it needs them."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import click

from firearrow.cli.command import SUCCESS
from firearrow.cli.spark.commands import needs_spark
from firearrow.cli.terminal import Output, ProgressBar
from firearrow.escaping import escape_controls, escape_json
from firearrow.spark.pipelines.engine import LOCAL, SMALL_BYTES, SPARK, Engine, LocalEngine, SparkEngine


def print_json(value: Mapping[str, Any]) -> None:
    """Print an object as one line."""
    print(escape_json(json.dumps(value, ensure_ascii=False, default=str)), flush=True)


class JobContext:
    """The resources of a job."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._options = options
        self._spark: Any = None
        self._engine: Engine | None = None
        self._engine_name = getattr(options, "engine", "auto")
        self._bar = ProgressBar(options.job)
        self.out = Output(options.output)
        self._stop = threading.Event()
        self._replaced_handlers: dict[signal.Signals, Any] = {}

    @property
    def as_json(self) -> bool:
        return self.out.form == "json"

    @property
    def stopped(self) -> Callable[[], bool]:
        """Return a function that is true after Ctrl-C: the first ends the job after its increment, the second at once."""

        def on_signal(number: int, frame: object) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()
            print("stopping after this increment; press Ctrl-C again to stop now", file=sys.stderr)

        for number in (signal.SIGINT, signal.SIGTERM):
            replaced = signal.signal(number, on_signal)
            self._replaced_handlers.setdefault(number, replaced)
        return self._stop.is_set

    @property
    def spark(self) -> Any:
        if self._spark is None:
            from firearrow.spark import session

            if not self.as_json and sys.stderr.isatty():
                print("starting Spark ...", file=sys.stderr)
            settings = {"spark.log.level": "ERROR", "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
            settings |= dict(self._options.conf)
            if self._options.master:  # otherwise spark-submit or Spark's configuration decides
                settings["spark.master"] = self._options.master
            self._spark = session(f"firearrow {self._options.job}", **settings)
        return self._spark

    def engine(self, size: Callable[[], int]) -> Engine:
        """Return the engine. `size` returns about how many bytes there are; it is called only if that decides."""
        if self._engine is None:
            self._engine = SparkEngine(self.spark) if self._wanted(size) == SPARK else LocalEngine()
        return self._engine

    def _wanted(self, size: Callable[[], int]) -> str:
        if self._engine_name == LOCAL and needs_spark(self._options):
            raise click.UsageError("--engine local, but --master or --where needs Spark")
        if self._engine_name != "auto":
            return str(self._engine_name)
        return SPARK if needs_spark(self._options) or size() >= SMALL_BYTES else LOCAL

    def report(self, event: Mapping[str, Any]) -> None:
        if self.as_json:
            print_json(event)
        elif event["event"] == "increment":
            self._bar(event["done"], event["total"])

    def finish(self, sentence: str, **facts: Any) -> int:
        """Print the result and return the exit code of a success."""
        self._bar.close()
        if self.as_json:
            print_json({"job": self._options.job, "event": "done", **facts})
        else:
            print(escape_controls(sentence))
        return SUCCESS

    def close(self) -> None:
        self._bar.close()
        if self._engine is not None:
            self._engine.close()
        if self._spark is not None:
            self._spark.stop()
        for number, handler in self._replaced_handlers.items():
            signal.signal(number, handler)
