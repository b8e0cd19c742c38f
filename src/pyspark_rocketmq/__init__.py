"""Registration of the format `rocketmq`: Spark loads installed modules named pyspark_* by itself."""

from firearrow.spark.read.datasource import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
