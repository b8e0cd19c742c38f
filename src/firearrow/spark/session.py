"""Creation of a Spark session with recommended settings, each of which the caller may override."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Final

from firearrow.spark.errors import SparkOptionError

_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Disables bounds and null checks of every field, which cost a sixth of a scan; Spark checks for nulls itself."""

SETTINGS: Final = {
    "spark.driver.defaultJavaOptions": _ARROW,
    "spark.executor.defaultJavaOptions": _ARROW,
    "spark.python.unix.domain.socket.enabled": "true",  # a task takes a third less time than over TCP
    "spark.sql.python.filterPushdown.enabled": "true",  # required by the option pushFilters
    "spark.ui.showConsoleProgress": "false",
}


def make_session(app_name: str, settings: Mapping[str, Any]) -> Any:
    check_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers use the first python3 in PATH
    builder = SparkSession.builder.appName(app_name)
    for name, value in (SETTINGS | {_setting(name): value for name, value in settings.items()}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _setting(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def check_java() -> None:
    """Raise SparkOptionError, with what to install, if no Java runtime is found."""
    home = os.environ.get("JAVA_HOME")
    if home:  # then Spark looks nowhere else
        if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
            raise SparkOptionError(
                f"JAVA_HOME is {home!r}, but bin/java is missing there: set it to Java 17 or later, or unset it"
            )
        return
    if shutil.which("java") is None:
        raise SparkOptionError(
            "Spark needs Java 17 or later, which was not found: install it (Debian: apt-get install default-jre-headless) "
            "or set JAVA_HOME"
        )
