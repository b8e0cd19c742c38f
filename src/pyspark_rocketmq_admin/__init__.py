"""Registration of the format `rocketmq_admin`: Spark loads installed modules named pyspark_* by itself."""

from firearrow.spark.read.admin_datasource import RocketMQAdminDataSource as DefaultSource

__all__ = ["DefaultSource"]
