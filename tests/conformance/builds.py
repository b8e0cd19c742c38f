"""Builder of the programs for the conformance tests, in build/conformance (ignored by git).

Every product has a stamp computed from its source files, so it is rebuilt only when they change. Maven, go, npm and pip download
the packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OUT = ROOT / "build" / "conformance"

CLIENT_VERSIONS = ("4.9.8", "5.5.0")
SERVER_VERSION = "5.5.0"
# Maven Central has the 4.9.8 client, but 4.9.7 is its last 4.9 server.
OLD_SERVER_VERSION = "4.9.7"


def missing_tools(*names: str) -> str | None:
    """Return the reason to skip if a toolchain is missing, else None."""
    absent = [name for name in names if shutil.which(name) is None]
    return f"not installed here: {', '.join(absent)}" if absent else None


def java_agent(version: str) -> str:
    """The class path of the client agent for one client release."""
    target = OUT / f"agent-{version}"
    class_path = OUT / f"agent-{version}.classpath"
    sources = HERE / "java" / "client"

    def build() -> None:
        _run(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(sources / "pom.xml"),
                f"-Drocketmq.version={version}",
                f"-Dagent.build={target}",
                "compile",
                "dependency:build-classpath",
                f"-Dmdep.outputFile={class_path}",
            ]
        )

    _once(f"agent-{version}", [sources], build)
    return f"{target / 'classes'}{os.pathsep}{class_path.read_text().strip()}"


def java_server(version: str = SERVER_VERSION) -> str:
    """The class path of Apache's name server, broker and mqadmin."""
    class_path = OUT / f"server-{version}.classpath"
    sources = HERE / "java" / "server"

    def build() -> None:
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={class_path}"]
        _run(["mvn", "-q", "-B", "-f", str(sources / "pom.xml"), f"-Drocketmq.version={version}", *goal])

    _once(f"server-{version}", [sources], build)
    return class_path.read_text().strip()


def java_tools(version: str) -> str:
    """The class path of mqadmin. For the newest release it is that of the servers."""
    if version == SERVER_VERSION:
        return java_server()
    class_path = OUT / f"tools-{version}.classpath"
    sources = HERE / "java" / "tools"

    def build() -> None:
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={class_path}"]
        _run(["mvn", "-q", "-B", "-f", str(sources / "pom.xml"), f"-Drocketmq.version={version}", *goal])

    _once(f"tools-{version}", [sources], build)
    return class_path.read_text().strip()


def go_program() -> Path:
    program = OUT / "go-client"
    sources = HERE / "go"
    _once("go-client", [sources], lambda: _run(["go", "build", "-o", str(program), "."], cwd=sources))
    return program


def node_directory() -> Path:
    """A directory with node_modules and the test program."""
    directory = OUT / "node-client"
    sources = HERE / "node"

    def build() -> None:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(sources, directory)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=directory)

    _once("node-client", [sources], build)
    return directory


def cpp_python() -> Path:
    """The interpreter of a virtual environment with the package `rocketmq` (the C++ client)."""
    directory = OUT / "cpp-venv"
    requirements = HERE / "cpp" / "requirements.txt"

    def build() -> None:
        shutil.rmtree(directory, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(directory)])
        _run(
            [
                str(directory / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "-r",
                str(requirements),
            ]
        )

    _once("cpp-venv", [requirements], build)
    return directory / "bin" / "python"


def _once(name: str, sources: list[Path], build: Callable[[], None]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    stamp = OUT / f"{name}.stamp"
    wanted = _digest(sources)
    with (OUT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of the same run wait for the build
        if stamp.exists() and stamp.read_text() == wanted:
            return
        stamp.unlink(missing_ok=True)
        build()
        stamp.write_text(wanted)


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256(str(ROOT).encode())
    for source in sources:
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file():
                digest.update(str(file).encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()


def _run(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
