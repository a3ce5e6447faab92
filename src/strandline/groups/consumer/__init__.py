"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members reconcile.

Knows: members and their epochs, target assignments, and the records that hold them. A group is
changed by records alone (`image`), which are appended and applied at once; answers wait until they
are durable. Shares shard, offsets, timers and loading with the classic groups beside it.
"""
