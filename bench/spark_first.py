"""The first query of a new user, for bench/spark.py: python -m bench.spark_first NAME_SERVER TOPIC"""

from __future__ import annotations

import sys

import firearrow.spark


def main(name_server: str, topic: str) -> None:
    spark = firearrow.spark.session()
    orders = spark.read.format("rocketmq").option("nameServer", name_server).option("subscribe", topic).load()
    orders.select("queueId", "queueOffset", "keys", "tags").show(5)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
