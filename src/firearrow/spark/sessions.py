"""Spark sessions with recommended settings, each of which the caller may override, and with the data sources."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from firearrow.spark.errors import SparkOptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Disables bounds and null checks of every field, which cost a sixth of a scan; Spark checks for nulls itself."""

SETTINGS: Final = {
    "spark.driver.defaultJavaOptions": _ARROW,
    "spark.executor.defaultJavaOptions": _ARROW,
    "spark.python.unix.domain.socket.enabled": "true",  # a task takes a third less time than over TCP
    "spark.sql.python.filterPushdown.enabled": "true",  # required by the option pushFilters
    "spark.ui.showConsoleProgress": "false",
}


def register(spark: SparkSession) -> None:
    """Register the formats `rocketmq` and `rocketmq_admin` with a session."""
    from firearrow.spark.read.admin_datasource import RocketMQAdminDataSource
    from firearrow.spark.read.datasource import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
    spark.dataSource.register(RocketMQAdminDataSource)


def session(app_name: str = "firearrow", **settings: Any) -> SparkSession:
    """Return a Spark session. `settings` are Spark's own, with `_` for `.`: `session(spark_master="local[2]")`."""
    _check_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers use the first python3 in PATH
    builder = SparkSession.builder.appName(app_name)
    given = {name if "." in name else name.replace("_", "."): value for name, value in settings.items()}
    spark = builder.config(map=SETTINGS | given).getOrCreate()
    register(spark)
    return spark


def _check_java() -> None:
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
