"""Programs that live beside Kafka: Connect, MirrorMaker 2, Spark Declarative Pipelines."""
