"""A Spark session with the settings that Python data sources want. Each is only set if nothing else was said."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Final

from firearrow.spark.errors import SparkOptionError

_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark looks at every field of a batch once more otherwise, which costs a sixth of a scan; it asks for nulls itself."""

SETTINGS: Final = {
    "spark.driver.defaultJavaOptions": _ARROW,
    "spark.executor.defaultJavaOptions": _ARROW,
    "spark.python.unix.domain.socket.enabled": "true",  # a task costs a third less than over TCP
    "spark.sql.python.filterPushdown.enabled": "true",  # what the option pushFilters needs
    "spark.ui.showConsoleProgress": "false",
}


def make_session(app_name: str, settings: Mapping[str, Any]) -> Any:
    check_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take the first python3 of PATH
    builder = SparkSession.builder.appName(app_name)
    for name, value in (SETTINGS | {_setting(name): value for name, value in settings.items()}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _setting(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def check_java() -> None:
    """SparkOptionError, which says what to install, if there is no Java to run Spark with."""
    home = os.environ.get("JAVA_HOME")
    if home:  # Spark looks nowhere else then
        if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
            raise SparkOptionError(
                f"JAVA_HOME is {home!r}, where there is no bin/java: set it to a Java 17 or later, or unset it"
            )
        return
    if shutil.which("java") is None:
        raise SparkOptionError(
            "Spark needs Java 17 or later, and there is none: install it (Debian: apt-get install default-jre-headless) "
            "or set JAVA_HOME"
        )
