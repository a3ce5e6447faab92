"""The benchmark harness: Strandline, a real Apache Kafka and librdkafka's mock, side by side.

`python -m bench.run` is the way in; `docs/benchmarks.md` says how to run it and how to read it.
The harness knows brokers only from outside (a command, a port, a process id): nothing here imports
the package under test, so that it measures any build of it.
"""
