"""What can be wrong with a Spark job of ours, each in one line."""

from __future__ import annotations


class SparkOptionError(ValueError):
    """An option, column or schema that cannot be used; found while the query is planned."""


class DataLossError(RuntimeError):
    """Messages that were to be read are not there any more. Names the topic, the broker, the queue and the range of offsets."""


class StoreFileError(RuntimeError):
    """A store directory that cannot be read as one: names the file and the place in it."""
