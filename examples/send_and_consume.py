"""Send three messages and consume those with the tag `paid`."""

import os
import threading

import firearrow as fa

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
received = threading.Event()


def handle(message: fa.ReceivedMessage) -> None:
    # If the listener returns, the message is acknowledged. If it raises, the message is redelivered later.
    print("received", message.body.decode(), message.tags, message.keys)
    received.set()


def main() -> None:
    with fa.Producer(NAME_SERVER, group="shop") as producer:
        for number, tag in enumerate(["new", "paid", "new"]):
            result = producer.send(fa.Message("ExampleOrders", f"order {number}".encode(), tags=tag, keys=[f"A{number}"]))
            print("sent", result.msg_id, "to queue", result.queue_id)
    with fa.PushConsumer(
        NAME_SERVER, group="billing", subscribe={"ExampleOrders": "paid"}, listener=handle, start_from="earliest"
    ):
        assert received.wait(30), "no message within 30 seconds"


if __name__ == "__main__":
    main()
