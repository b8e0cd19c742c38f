"""Tables of the broker: topics, groups, consumer offsets, clients, queue locks and their persistence."""
