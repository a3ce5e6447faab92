"""A synchronous Kafka client over the project's own codecs, for any Kafka-compatible cluster.

    cluster.ClusterClient   connections, metadata, routing, retries
    producer.Producer       records in, offsets out; idempotent
    consumer.Consumer       records of assigned partitions
    admin.Admin             topics, groups, settings, the cluster

The command line, Spark executors and replica fetchers use it. It must not know the node: all that
it learns of a broker comes over the wire.
"""
