"""Send and consume with the C++ client of the package `rocketmq`: client.py NAMESRV TOPIC GROUP COUNT.

Prints one JSON object {"sent": [...], "received": [...]}; exits with 1 if messages are missing after 60 seconds.
"""

import json
import os
import sys
import threading
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer


def main() -> None:
    namesrv, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    producer = Producer(f"{group}-producer")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    sent = []
    for i in range(count):
        message = Message(topic)
        message.set_keys(f"k{i}")
        message.set_tags("TagCpp")
        message.set_body(f"cpp-{i}")
        result = producer.send_sync(message)
        sent.append({"body": f"cpp-{i}", "status": int(result.status), "queueOffset": result.offset})
    producer.shutdown()

    received = []
    complete = threading.Event()
    lock = threading.Lock()

    def take(message: Any) -> None:
        with lock:
            received.append(
                {
                    "body": message.body.decode(),
                    "queueId": message.queue_id,
                    "queueOffset": message.queue_offset,
                    "tags": message.tags.decode(),
                    "keys": message.keys.decode(),
                }
            )
            if len(received) == count:
                complete.set()

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, take, expression="TagCpp")
    consumer.start()
    complete.wait(60)
    with lock:
        print(json.dumps({"sent": sent, "received": received}), flush=True)
    # The library's shutdown may be slow.
    os._exit(0 if len(received) >= count else 1)


main()
