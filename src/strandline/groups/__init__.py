"""The group coordinator: consumer groups (the classic protocol) and committed offsets.

Knows: members, generations, rebalances, committed offsets, and the bytes of `__consumer_offsets`.
Must not know: the wire protocol, logs, sockets, clocks. Requests come in as values with a token;
replies and records to append go out as values, in the order in which they must be carried out.
"""
