"""Client commands as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.cli.process import PATIENCE_S


def firearrow(name_server: str, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "firearrow.cli", *words, "-n", name_server],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
