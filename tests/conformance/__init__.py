"""Conformance tests with third-party clients and servers."""
