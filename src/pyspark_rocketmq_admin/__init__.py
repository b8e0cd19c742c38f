"""Found by Spark itself, which looks for installed modules named pyspark_*: makes the format `rocketmq_admin` known."""

from firearrow.spark.read.admin_datasource import RocketMQAdminDataSource as DefaultSource

__all__ = ["DefaultSource"]
