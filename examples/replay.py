"""Read a topic from its beginning, twice, with a pull consumer."""

import os

import firearrow as fa

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def main() -> None:
    with fa.Producer(NAME_SERVER, group="events") as producer:
        producer.send_batch([fa.Message("ExampleEvents", f"event {number}".encode()) for number in range(3)])
    for group in ("replay-1", "replay-2"):
        with fa.PullConsumer(NAME_SERVER, group=group, topics=["ExampleEvents"], start_from="earliest") as consumer:
            print(group, [next(consumer).body.decode() for _ in range(3)])


if __name__ == "__main__":
    main()
