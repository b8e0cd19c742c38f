"""Recognition of repeated sends, by producer sequence number or unique key."""
