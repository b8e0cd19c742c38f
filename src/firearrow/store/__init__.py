"""Storage: a commit log with consume queues, a key index and timer files, in Apache RocketMQ's formats.

- `message_store.MessageStore` is the entry point: append, write, confirm, read, query, tick.
- `settings.StoreSettings` are its settings, `errors` its exceptions.
- `consume_queue.ConsumeQueue` is one queue of a topic.
- `commitlog.reader.StoreReader` reads messages, `commitlog.replica.ReplicaLog` copies the log of another broker.
- `commitlog.scan` reads records into columns, for recovery, replicas and Spark.
- `timer.files.TimerFiles` are the files of timer messages.
- `atomic_file` saves small files, `filesystem.Disk` is the seam for simulated disks.

Imports: `config`, `wire`, `clock` and `_native`.
"""
