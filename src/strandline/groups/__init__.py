"""The group coordinator: groups of the classic and the consumer protocol, and committed offsets.

Knows: members, generations, rebalances, epochs, assignments, committed offsets, the protocol's
messages about them, and the bytes of `__consumer_offsets`. Must not know: logs, sockets, clocks.
Requests come in with a token; responses and records to append go out, in the order in which they
must be carried out.
"""
