"""Found by Spark itself, which looks for installed modules named pyspark_*: makes the format `rocketmq` known to sessions."""

from firearrow.spark.read.datasource import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
