"""Side-by-side benchmarks: the same load on Apache RocketMQ's broker and on ours, on one machine, as ratios.

run.py is the command. loads.py names the loads and the bars, compare.py drives them, start.py, queues.py, recovery.py and
growth.py measure one thing each; report.py turns numbers into tables. targets.py, apache.py and firearrow.py start brokers,
process.py keeps the processes, load.py builds and calls the load program (load.c).
"""
