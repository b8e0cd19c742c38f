"""Let a listener fail until its message becomes a dead letter, then resend it."""

import os
import threading
import time

import firearrow as fa
from firearrow.admin.sync import Admin

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
database_is_up = threading.Event()
processed = threading.Event()


def handle(message: fa.ReceivedMessage) -> None:
    if not database_is_up.is_set():
        raise RuntimeError("the database is down")
    print("processed", message.body.decode())
    processed.set()


def main() -> None:
    with fa.Producer(NAME_SERVER, group="invoices") as producer:
        producer.send(fa.Message("ExampleInvoices", b"invoice 7"))
    with (
        Admin(NAME_SERVER) as admin,
        fa.PushConsumer(
            NAME_SERVER,
            group="accounting",
            subscribe={"ExampleInvoices": "*"},
            listener=handle,
            start_from="earliest",
            max_attempts=1,  # the first failure makes a dead letter
        ),
    ):
        while not admin.dead_letter_counts():
            time.sleep(0.2)
        letters = admin.dead_letters_of("accounting")
        print("dead letters:", len(letters))
        database_is_up.set()
        admin.resend_dead_letters(letters)
        assert processed.wait(60), "the message was not processed within a minute"


if __name__ == "__main__":
    main()
