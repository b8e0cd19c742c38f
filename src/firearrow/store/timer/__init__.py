"""Files of timer messages: timer log, wheel and checkpoint. Delivery is in broker/timer.

Imports: `store.atomic_file`, `store.commitlog.segment` and `store.filesystem`.
"""
