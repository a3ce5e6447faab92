"""How the copies of one partition stay the same: the rules of leaders and followers, and no more.

Everything here is pure. It decides from offsets, epochs, sets of brokers and a time that it is
told; it must not know logs, wire messages, znodes or clocks. `node` owns the log and asks these
rules what to do with it; the scenarios and the simulator ask the very same rules.

    in_sync            the in-sync set and its changes in flight, as values
    progress           what a leader knows about one follower
    leader             one partition led in one leader epoch: high watermark, joining, leaving
    truncation         where two logs part, seen from either side
    follower           what a fetch answer means to a follower
    fetch_session      the follower's side of incremental fetch sessions
    throttle           replication bandwidth
    replica_selection  the nearest replica for a consumer
    policies           rules that may be exchanged, mostly to show what the old ones did
"""
