"""What a job of `firearrow spark` works with, made when it is needed: a session, an engine, a way to tell how far it is."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from firearrow.cli.arguments import UsageError
from firearrow.cli.asking import ProgressBar
from firearrow.cli.spark.arguments import needs_spark
from firearrow.cli.terminal import Output
from firearrow.spark.pipelines.engine import LOCAL, SMALL_BYTES, SPARK, Engine, LocalEngine, SparkEngine


class JobContext:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._spark: Any = None
        self._engine: Engine | None = None
        self._bar = ProgressBar(options.job)
        self.out = Output("json" if options.json else "table")
        self._stop = threading.Event()

    @property
    def stopped(self) -> Callable[[], bool]:
        """The first Ctrl-C lets a job end after its increment, the second at once."""

        def asked(number: int, frame: object) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()
            print("stopping after this increment; Ctrl-C once more: now", file=sys.stderr)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, asked)
        return self._stop.is_set

    @property
    def spark(self) -> Any:
        if self._spark is None:
            from firearrow.spark import session

            if not self._options.json and sys.stderr.isatty():
                print("starting Spark ...", file=sys.stderr)
            settings = {"spark.log.level": "ERROR", "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
            settings |= dict(self._options.conf)
            if self._options.master:  # else what spark-submit or Spark's own files say
                settings["spark.master"] = self._options.master
            self._spark = session(f"firearrow {self._options.job}", **settings)
        return self._spark

    def engine(self, size: Callable[[], int]) -> Engine:
        """`size`: about how many bytes there are; asked only where that decides."""
        if self._engine is None:
            self._engine = SparkEngine(self.spark) if self._wanted(size) == SPARK else LocalEngine()
        return self._engine

    def _wanted(self, size: Callable[[], int]) -> str:
        if self._options.engine == LOCAL and needs_spark(self._options):
            raise UsageError("--engine local, but --master or --where needs Spark")
        if self._options.engine != "auto":
            return str(self._options.engine)
        return SPARK if needs_spark(self._options) or size() >= SMALL_BYTES else LOCAL

    def report(self, event: Mapping[str, Any]) -> None:
        if self._options.json:
            print(json.dumps(event, ensure_ascii=False), flush=True)
        elif event["event"] == "increment":
            self._bar(event["done"], event["total"])

    def finish(self, sentence: str, **facts: Any) -> None:
        """The last line."""
        self._bar.clear()
        if self._options.json:
            print(json.dumps({"job": self._options.job, "event": "done", **facts}, ensure_ascii=False, default=str), flush=True)
        else:
            print(sentence)

    def close(self) -> None:
        self._bar.clear()
        if self._engine is not None:
            self._engine.close()
        if self._spark is not None:
            self._spark.stop()
