"""A test with the in-process broker. Run with: pytest examples/test_orders.py"""

from firearrow import Message
from firearrow.testing import Cluster


def test_an_unpaid_order_is_closed_after_two_hours(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer() as producer:
        producer.send(Message("CloseOrder", b"42"), delay_level=18)
    assert firearrow_broker.messages("CloseOrder") == []

    firearrow_broker.clock.advance(hours=2)

    assert [message.body for message in firearrow_broker.messages("CloseOrder")] == [b"42"]
