"""Ready-made jobs over topics: archive, transfer, replay, dedupe, audit, lag, trace and sql.

Each job is a function and a command, `firearrow spark JOB`. Jobs that move messages (archive, transfer, replay, dedupe) work in
increments: the driver records the plan of an increment before it starts and its completion when everything is stored
(`journal.py`, `job.py`). A job that was killed and is started again with the same arguments resumes there. Tasks receive ranges
of offsets and transfer the messages themselves, so no message passes through the JVM (`engine.py`) and small jobs need no Spark.

May import: firearrow.spark and everything it may import, except firearrow.spark.reports.
"""
