"""Keep the messages of each order in sequence: a sharding key selects the queue, an orderly consumer preserves its order."""

import os
import threading

import firearrow as fa

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
STEPS = ["created", "paid", "shipped"]
seen: dict[str, list[str]] = {}
done = threading.Event()


def handle(message: fa.ReceivedMessage) -> None:
    seen.setdefault(message.keys[0], []).append(message.body.decode())
    if len(seen) == 5 and all(len(steps) == len(STEPS) for steps in seen.values()):
        done.set()


def main() -> None:
    with fa.Producer(NAME_SERVER, group="orders") as producer:
        for step in STEPS:
            for order in range(5):
                key = f"order-{order}"
                producer.send(fa.Message("ExampleSteps", step.encode(), keys=[key]), sharding_key=key)
    with fa.PushConsumer(
        NAME_SERVER, group="tracking", subscribe={"ExampleSteps": "*"}, listener=handle, orderly=True, start_from="earliest"
    ):
        assert done.wait(30), f"incomplete after 30 seconds: {seen}"
    for key, steps in sorted(seen.items()):
        assert steps == STEPS, (key, steps)
        print(key, " -> ".join(steps))


if __name__ == "__main__":
    main()
