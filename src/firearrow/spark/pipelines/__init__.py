"""Ready-made jobs over topics: archive, transfer, replay, dedupe, audit, lag, trace, sql. Each is a function, and a command
`firearrow spark JOB`.

Jobs that move messages (archive, transfer, replay, dedupe) work in rounds. The driver writes down what a round reads before it
begins, and that it is done when everything is stored: a job that was killed is run again with the same words and goes on there
(`journal.py`, `rounds.py`). Tasks get ranges of offsets and do all the work themselves, so no message passes through the JVM
(`engine.py`); therefore small jobs need no Spark at all.
"""
