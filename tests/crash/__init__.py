"""A real broker process is killed again and again while clients send to it."""
