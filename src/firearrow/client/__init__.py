"""The client: producers and consumers of any broker that speaks Apache RocketMQ's protocol. asyncio; sync.py derives the sync face."""
