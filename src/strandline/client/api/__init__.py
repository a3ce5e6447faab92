"""The clients that programs use, as `import strandline` offers them.

    settings                       Kafka's names of settings, and what they mean here
    producer, consumer, admin      `Producer`, `Consumer` and `Admin`, over the blocking client

What is public of the package is named in `strandline.__all__`.
"""
