"""The blocking clients.

Each class is derived from its async class (derive.py), with the same constructor and methods; coroutines become blocking methods.
The clients of a process share one event loop in a background thread (loop_thread.py). Each may be used by many threads at once.

Listeners and the functions of a transaction producer run in worker threads, where they may block and use blocking clients. Hooks
and queue selectors run on the background loop: they must return quickly and must not use blocking clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from firearrow.client.consumer import pull_consumer, push_consumer
from firearrow.client.message import ReceivedMessage
from firearrow.client.options import Duration
from firearrow.client.producer import producer, transaction
from firearrow.client.sync.derive import SyncClient, as_future, blocking, on_loop, same_constructor
from firearrow.client.sync.signals import return_on_sigterm


class Producer(SyncClient[producer.Producer]):
    """Blocking producer of messages.

        with Producer("127.0.0.1:9876", group="orders") as producer:
            producer.send(Message("Orders", b"hello"))

    After a fork the same object works in the child, with its own connections.
    """

    @same_constructor(producer.Producer)
    def __init__(self, make: Callable[[], producer.Producer]) -> None:
        super().__init__(make)

    send = blocking(producer.Producer.send)
    send_nowait = as_future(producer.Producer.send_nowait)
    send_oneway = blocking(producer.Producer.send_oneway)
    send_batch = blocking(producer.Producer.send_batch)
    request = blocking(producer.Producer.request)
    reply = blocking(producer.Producer.reply)
    recall = blocking(producer.Producer.recall)
    queues = blocking(producer.Producer.queues)


class TransactionProducer(Producer):
    """A producer that can also send in transactions; `execute` and `check` run in worker threads.

    with TransactionProducer("127.0.0.1:9876", group="orders", execute=place_order, check=is_placed) as producer:
        producer.send_in_transaction(Message("Orders", b"hello"), order)
    """

    @same_constructor(transaction.TransactionProducer)
    def __init__(self, make: Callable[[], transaction.TransactionProducer]) -> None:
        SyncClient.__init__(self, make)

    send_in_transaction = blocking(transaction.TransactionProducer.send_in_transaction)


class PushConsumer(SyncClient[push_consumer.PushConsumer]):
    """Consumer that calls a listener with every message of its subscriptions.

        with PushConsumer("127.0.0.1:9876", group="billing", subscribe={"Orders": "new || paid"}, listener=handle) as consumer:
            consumer.run()

    A started consumer consumes in its own threads; `run` only waits.
    """

    remade_after_fork = False

    @same_constructor(push_consumer.PushConsumer)
    def __init__(self, make: Callable[[], push_consumer.PushConsumer]) -> None:
        super().__init__(make)

    _run = blocking(push_consumer.PushConsumer.run)
    pause = on_loop(push_consumer.PushConsumer.pause)
    resume = on_loop(push_consumer.PushConsumer.resume)
    subscribe = blocking(push_consumer.PushConsumer.subscribe)
    unsubscribe = blocking(push_consumer.PushConsumer.unsubscribe)
    assignment = on_loop(push_consumer.PushConsumer.assignment)
    commit = blocking(push_consumer.PushConsumer.commit)

    def run(self, timeout: Duration | None = None) -> None:
        """Wait while messages are consumed: until the consumer is closed, the timeout expires, or SIGTERM arrives.

        SIGTERM is handled in the main thread, unless the program has a handler of its own. The `with` statement around the call
        then closes the consumer: calls of the listener finish and offsets are committed.
        """
        with return_on_sigterm():
            self._run(timeout)


class PullConsumer(SyncClient[pull_consumer.PullConsumer]):
    """Consumer that returns messages on request, by `poll` or by iteration.

    with PullConsumer("127.0.0.1:9876", group="audit", topics=["Orders"]) as consumer:
        for message in consumer:
            ...
    """

    remade_after_fork = False

    @same_constructor(pull_consumer.PullConsumer)
    def __init__(self, make: Callable[[], pull_consumer.PullConsumer]) -> None:
        super().__init__(make)

    poll = blocking(pull_consumer.PullConsumer.poll)
    subscribe = blocking(pull_consumer.PullConsumer.subscribe)
    unsubscribe = blocking(pull_consumer.PullConsumer.unsubscribe)
    assign = blocking(pull_consumer.PullConsumer.assign)
    queues = blocking(pull_consumer.PullConsumer.queues)
    assignment = on_loop(pull_consumer.PullConsumer.assignment)
    pause = on_loop(pull_consumer.PullConsumer.pause)
    resume = on_loop(pull_consumer.PullConsumer.resume)
    seek = blocking(pull_consumer.PullConsumer.seek)
    seek_all = blocking(pull_consumer.PullConsumer.seek_all)
    position = on_loop(pull_consumer.PullConsumer.position)
    offset_at = blocking(pull_consumer.PullConsumer.offset_at)
    commit = blocking(pull_consumer.PullConsumer.commit)
    committed = blocking(pull_consumer.PullConsumer.committed)
    lag = blocking(pull_consumer.PullConsumer.lag)
    _next = blocking(pull_consumer.PullConsumer.__anext__)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Wait for the next message. Buffered messages are returned without a call to the loop."""
        message = self._here().next_buffered()
        if message is not None:
            return message
        try:
            return self._next()
        except StopAsyncIteration:
            raise StopIteration from None
