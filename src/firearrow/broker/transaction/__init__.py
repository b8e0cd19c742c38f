"""Transactional messages: half messages, decisions, checks and recovery."""
