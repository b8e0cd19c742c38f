"""The examples of docs/testing.md run as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_documentation_examples_run(tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 8
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    wanted = sum(example.count("def test_") for example in examples)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{wanted} passed" in done.stdout
