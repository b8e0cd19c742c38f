"""Dispatch of requests, responses, calls to clients and flow control."""
