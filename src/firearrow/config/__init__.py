"""Declared settings and Java `.properties` files.

Imports nothing else of Firearrow.
"""
