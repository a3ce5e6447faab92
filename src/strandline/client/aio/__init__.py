"""The client on an event loop: sockets of its own there, no thread.

    connection    one connection to one broker
    cluster       connections, metadata, and operations that are tried again
    operations    what the blocking client's functions ask, asked without blocking
    group_consumer                a member of a group, whose task is `group_task`
    producer, consumer, admin     `strandline.AsyncProducer`, `AsyncConsumer` and `AsyncAdmin`

It drives the same parts as the blocking client: `channel`, `versions`, `router`, `accumulator`,
`produce_queues`, `fetch_positions`, `group_member`.
"""
