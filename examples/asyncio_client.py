"""Send a thousand messages with many in flight, and consume them, on one event loop."""

import asyncio
import os

import firearrow as fa

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
COUNT = 1000


async def main() -> None:
    remaining = COUNT
    done = asyncio.Event()

    async def handle(message: fa.ReceivedMessage) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            done.set()

    async with fa.aio.Producer(NAME_SERVER, group="sensors") as producer:
        sends = []
        for number in range(COUNT):
            await producer.wait_for_capacity()
            sends.append(producer.send_nowait(fa.Message("ExampleReadings", b"%d" % number)))
        results = await asyncio.gather(*sends)
    print("sent", len(results), "messages")

    async with fa.aio.PushConsumer(
        NAME_SERVER, group="averages", subscribe={"ExampleReadings": "*"}, listener=handle, start_from="earliest"
    ):
        async with asyncio.timeout(30):
            await done.wait()
    print("consumed", COUNT, "messages")


if __name__ == "__main__":
    asyncio.run(main())
