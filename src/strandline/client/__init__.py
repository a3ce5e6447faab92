"""A Kafka client over the project's own codecs, for any Kafka-compatible cluster.

    cluster.ClusterClient   connections, metadata, routing, retries
    producer.Producer       records in, offsets out; idempotent
    consumer.Consumer       records of assigned partitions
    group_consumer.GroupConsumer   records of what a consumer group gives
    admin.Admin             topics, groups, settings, the cluster
    aio                     the same on an event loop
    api                     what `import strandline` offers of it

The command line and Spark executors use the blocking one as it is. Its parts without sockets,
threads and clocks are shared: `channel`, the requests of one connection, with the links between
brokers and with the simulator's clients; `metadata`, `router`, which says whom to ask,
`produce_queues`, what becomes of a producer's batches, and `group_member` with the latter;
`fetch_positions` and `group_progress`, a reader's, by the blocking and the asyncio consumer. It
must not know the node: all that it learns of a broker comes over the wire.
"""
