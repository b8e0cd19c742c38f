"""Sends: validation and append, group commit, acknowledgement policies, replies."""
