"""The Python examples of README.md, executed as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow.testing import Cluster

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_client_example_prints_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(clock=None) as cluster:
        exec(BLOCKS[0].replace("127.0.0.1:9876", cluster.name_server), {"__name__": "example"})
    assert capsys.readouterr().out == "b'hello'\n"


def test_the_pytest_example_passes(tmp_path: Path) -> None:
    program = tmp_path / "test_readme_example.py"
    program.write_text(BLOCKS[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
