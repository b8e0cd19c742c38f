"""Timer messages: admission, the service around the timer wheel, metrics and recall."""
