"""Errors of the Spark data source and its jobs."""

from __future__ import annotations


class SparkOptionError(ValueError):
    """An invalid option, column or schema, reported while the query is planned."""


class DataLossError(RuntimeError):
    """Messages were deleted before they were read. The text names the topic, broker, queue and range of offsets."""


class StoreFileError(RuntimeError):
    """An unreadable store directory. The text names the file and the position in it."""
