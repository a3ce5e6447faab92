"""Quotas of clients: which limit is whose, and how long a client that is beyond it must wait.

Plain data and pure functions of time. This room must not know requests, connections or the store.
"""
