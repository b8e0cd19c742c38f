"""Pulls: authorization and read, subscriptions and filters, long polling."""
