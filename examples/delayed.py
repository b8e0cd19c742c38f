"""Deliver a message after two seconds, and recall another before its delivery."""

import os

import firearrow as fa

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def main() -> None:
    with fa.Producer(NAME_SERVER, group="reminders") as producer:
        reminder = producer.send(fa.Message("ExampleReminders", b"recalled"), delay=60)
        producer.recall(reminder)
        producer.send(fa.Message("ExampleReminders", b"after two seconds"), delay=2)
    with fa.PullConsumer(NAME_SERVER, group="reminder-printer", topics=["ExampleReminders"], start_from="earliest") as consumer:
        print("delivered:", next(consumer).body.decode())


if __name__ == "__main__":
    main()
