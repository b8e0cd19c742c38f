"""Apache's Java client 5.5.0 as programs: its own benchmark producer and consumer (Maven artifact rocketmq-example), SyncSend.

Maven fetches them into bench/cache/, javac compiles SyncSend there. The heap is that of Apache's script for its benchmarks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bench.apache import HERE, VERSION
from bench.process import BenchError

SOURCES = HERE / "apache" / "client"
LIBRARY = HERE / "cache" / f"apache-client-{VERSION}"
HEAP = ("-Xms1g", "-Xmx1g", "-Xmn256m")


def prepare() -> None:
    if not (LIBRARY / "complete").exists():
        shutil.rmtree(LIBRARY, ignore_errors=True)
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={LIBRARY / 'lib'}"]
        _run(["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *copy], f"fetch Apache's clients {VERSION}")
        (LIBRARY / "complete").touch()
    source, compiled = SOURCES / "SyncSend.java", LIBRARY / "classes" / "SyncSend.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        compile_it = ["javac", "-proc:none", "-cp", _class_path(), "-d", str(compiled.parent), str(source)]
        _run(compile_it, f"compile {source}")


def producer(name_server: str, topic: str, size: int, threads: int, home: Path) -> list[str]:
    options = ["-n", name_server, "-t", topic, "-s", str(size), "-w", str(threads)]
    return [*_java(home), "org.apache.rocketmq.example.benchmark.Producer", *options]


def consumer(name_server: str, topic: str, group: str, home: Path) -> list[str]:
    """Return the command of the consumer, which uses its default of 20 threads."""
    options = ["-n", name_server, "-t", topic, "-g", group, "-p", "false"]
    return [*_java(home), "org.apache.rocketmq.example.benchmark.Consumer", *options]


def sync_send(name_server: str, topic: str, size: int, warm_s: float, seconds: float, home: Path) -> list[str]:
    return [*_java(home), "SyncSend", name_server, topic, str(size), str(warm_s), str(seconds)]


def _java(home: Path) -> list[str]:
    return ["java", "-server", *HEAP, f"-Duser.home={home}", "-cp", _class_path()]  # it logs below its home


def _class_path() -> str:
    return f"{LIBRARY / 'classes'}{os.pathsep}{LIBRARY / 'lib'}/*"


def _run(command: list[str], what: str) -> None:
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise BenchError(f"{command[0]} could not {what}:\n{(ended.stdout + ended.stderr)[-3000:]}")
