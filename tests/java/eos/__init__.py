"""Exactly once, as Kafka's own programs use it, over three brokers that are killed by turns.

These runs start several virtual machines and take minutes, so they are no part of `./check`:
`python -m tests.java.eos --help`.
"""
