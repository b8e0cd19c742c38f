"""Benchmarks of our broker, client and Spark source, alone or compared with Apache RocketMQ on the same machine.

`run.py` is the command. `loads.py` defines the loads and limits, `compare.py` runs them on two brokers, `alone.py` measures
one or two checkouts of ours. `start.py`, `queues.py`, `recovery.py`, `growth.py`, `client.py`, `ha.py`, `catchup.py`,
`metrics.py` and `spark.py` measure one aspect each. `attacks.py` measures a broker under the attacks of `attack_kinds.py`, which
use the connections of `attack_peer.py`. `targets.py`, `apache.py` and `firearrow.py` start brokers, `process.py` manages
processes, `load.py` builds and runs the load program (`load.c`), and `report.py` formats tables.
"""
