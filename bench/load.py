"""The load program (load.c): built when its source is newer, run once per load; prints one line of JSON."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

from bench.process import BenchError
from bench.targets import Running

HERE = Path(__file__).parent
SOURCES = (HERE / "load.c", *sorted(HERE.glob("*.h")))
PROGRAM = HERE / "build" / "load"


@dataclass(frozen=True)
class LoadResult:
    """Results of one run; load.c documents the counts."""

    seconds: float
    msgs_per_s: float
    cpu_us_per_msg: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    msgs: int
    acknowledged: int
    failed: int
    unanswered: int
    stray: int
    gaps: int
    load_cores: float

    @property
    def fault(self) -> str | None:
        """Summary of rejected, lost or misplaced messages, if any."""
        counts = {"refused": self.failed, "unanswered": self.unanswered, "stray": self.stray, "offset gaps": self.gaps}
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or None


def build(compiler: str = "cc", program: Path = PROGRAM) -> Path:
    if program.exists() and all(program.stat().st_mtime >= source.stat().st_mtime for source in SOURCES):
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(SOURCES[0])]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise BenchError(f"{compiler} could not build {SOURCES[0]}:\n{built.stderr}")
    return program


def run_load(running: Running, mode: str, **options: str | float) -> LoadResult:
    """Run the load program against a broker; options as named in load.c."""
    result = call([mode, "--port", str(running.port), "--pid", str(running.broker.pid), *_words(options)])
    running.broker.check_alive()
    return result


def call(arguments: list[str], program: Path = PROGRAM) -> LoadResult:
    ended = subprocess.run([str(program), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        raise BenchError(f"the load program failed: {ended.stderr.strip()} (called with {' '.join(arguments)})")
    return parse(ended.stdout)


def parse(line: str) -> LoadResult:
    values = json.loads(line)
    # CPU time is missing if no process was observed or no message was counted.
    return LoadResult(**{field.name: values.get(field.name, 0.0) for field in fields(LoadResult)})


def _words(options: dict[str, str | float]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]
