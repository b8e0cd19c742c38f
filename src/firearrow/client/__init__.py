"""The client: producers and consumers for brokers that speak Apache RocketMQ's protocol. asyncio; sync.py has the sync face."""
