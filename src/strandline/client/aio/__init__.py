"""The client on an event loop: sockets of its own there, no thread.

    connection    one connection to one broker
    cluster       connections, metadata, and operations that are tried again
    operations    what the blocking client's functions ask, asked without blocking
    producer, consumer, admin     `strandline.AsyncProducer`, `AsyncConsumer` and `AsyncAdmin`

It drives the same parts as the blocking client: `channel`, `versions`, `router`, `accumulator`,
`produce_queues`, `fetch_positions`.
"""
