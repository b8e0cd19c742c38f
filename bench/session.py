"""State shared by the benchmarks: options, a directory for stores, progress lines and the result file."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.targets import Running, Target

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Session:
    """One run of a benchmark."""

    ours: Target
    reference: Target | None
    rounds: int
    seconds: float
    quick: bool
    only: list[str]
    work: Path
    json: bool = False  # print results as JSON
    began: float = field(default_factory=time.monotonic)

    @property
    def targets(self) -> list[Target]:
        """The targets, reference first, because it determines the open-loop rate."""
        return [self.ours] if self.reference is None else [self.reference, self.ours]

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.0f} s] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def store(self) -> Iterator[Path]:
        """Create an empty directory on disk; remove it and sync afterwards."""
        self.work.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix="store-", dir=self.work))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.sync()

    @contextmanager
    def started(self, target: Target, store: Path, settings: Mapping[str, str]) -> Iterator[Running]:
        running = target.start(store, settings)
        try:
            yield running
        finally:
            running.stop()

    def save(self, name: str, results: Any) -> Path:
        directory = HERE / "results"
        directory.mkdir(exist_ok=True)
        path = directory / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}.json"
        options = {"rounds": self.rounds, "seconds": self.seconds, "quick": self.quick, "only": self.only}
        document = {"benchmark": name, "machine": machine(), "options": options, "results": results}
        path.write_text(json.dumps(document, indent=1) + "\n")
        self.say(f"results in {path}")
        return path


def machine() -> dict[str, str | int | float]:
    """Describe the machine."""
    model = next((line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    memory_kb = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": model,
        "cores": os.cpu_count() or 0,
        "memory_gib": round(memory_kb / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
