"""Clients and servers other people wrote, driven against ours."""
