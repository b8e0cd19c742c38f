"""Publish a message only if the local transaction succeeds."""

import os

import firearrow as fa

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
State = fa.LocalTransactionState
paid: set[str] = set()


def charge(message: fa.Message, amount: int) -> State:
    """Run the local transaction after the half message is stored."""
    if amount > 1000:
        return State.ROLLBACK
    paid.add(message.keys[0])
    return State.COMMIT


def check(message: fa.ReceivedMessage) -> State:
    """Answer the broker's check if the decision was lost."""
    return State.COMMIT if message.keys[0] in paid else State.ROLLBACK


def main() -> None:
    with fa.TransactionProducer(NAME_SERVER, group="payments", execute=charge, check=check) as producer:
        for key, amount in (("A1", 200), ("A2", 5000)):
            sent = producer.send_in_transaction(fa.Message("ExamplePayments", b"paid", keys=[key]), amount)
            print(key, sent.state.name)
    with fa.PullConsumer(NAME_SERVER, group="ledger", topics=["ExamplePayments"], start_from="earliest") as consumer:
        print("visible:", next(consumer).keys[0])


if __name__ == "__main__":
    main()
