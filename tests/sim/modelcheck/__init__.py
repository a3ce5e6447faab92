"""Exhaustive search of the small core: every interleaving of a few replicas, records and epochs.

    values       the state of a cluster with one partition, as hashable tuples
    rules        what is searched: bounds, policies, rules that are switched off
    leading      the leader's decisions, made by the real `replication.leader`
    following    the follower's decisions, made by the real `replication.follower` and `truncation`
    controlling  the controller's decisions, made by the real `cluster.controller`
    steps        what one or two replicas do
    changes      from one state of the world to another, and what that may break
    moves        everything that can happen next in a state
    invariants   what must hold in every state
    symmetry     one state for all that differ in the names of the brokers only
    search       breadth first, until everything is seen or something is broken
    showing      states in words
    mutants      the same with rules switched off, one at a time: each must be noticed

The method and the sizes are those of the TLA+ models of Kafka's replication (three replicas, three
records, three epochs); what decides here is the code of the broker, not a model of it. Modelled are
the log (a list of epochs), the network (requests are handled at any later time, or never), the
metadata store (a broker hears of a change at any later time) and failures.
"""
