"""A message broker and name server compatible with Apache RocketMQ, its Python client and its Spark tables."""

__version__ = "0.1.0"
