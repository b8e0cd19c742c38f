"""Hostile bytes against a running broker and name server."""
