"""Optional packages required by the Spark tests, which are skipped with a reason without them."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

_HOW = "run scripts/spark, or pip install 'firearrow[spark]'"


def _missing(*packages: str) -> str:
    names = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"{' and '.join(names)} not installed: {_HOW}" if names else ""


arrow = pytest.mark.skipif(bool(_missing("pyarrow")), reason=_missing("pyarrow"))


def no_spark() -> str:
    """Return the reason why Spark cannot run here, or an empty text."""
    missing = _missing("pyarrow", "pyspark")
    if not missing and shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "no Java: install default-jre-headless, or set JAVA_HOME"
    return missing
