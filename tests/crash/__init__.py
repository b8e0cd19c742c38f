"""A real broker process that is killed repeatedly while clients send to it."""
