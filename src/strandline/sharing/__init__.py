"""Share groups (KIP-932) without a log, a socket or a clock: records in flight, and what is kept.

`partition` is what the leader of a partition decides for one share group: who has which records.
`coordinator` keeps such states as records of `__share_group_state`. Neither knows the other.
"""
