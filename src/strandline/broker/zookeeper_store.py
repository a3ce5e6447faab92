"""Cluster metadata in a ZooKeeper ensemble: the `Store` of a broker that is a process of its own.

    cut off ──connected──▶ surveying ──everything told──▶ ready ──connection lost──▶ cut off

A survey begins with the recursive watch, catches up with the leader (`sync`) and reads the tree; it
follows every connection, since a connection's watches die with it and what happened without them
must be found. While `ready`, change events say what to read again (`zookeeper_mirror`). Writes are
taken only while `ready`, so that whoever decides a write has heard of everything before the gap.

Theory of the promise that a multi returns after its changes were told: a server sends the change
events of a transaction before it answers it, and refuses a multi only in the order of transactions,
so everything that must be told is known to be dirty when the answer arrives; the answer then waits
for the cut that covers it. After a lost answer the survey of the next connection is that cut: it is
behind the multi if that happened, because the same leader serves the `sync` after it, and a request
that was still on its way through another server is refused when its session has moved.

This file knows sessions and time; it knows no node's content.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import batched
from typing import Any, Final

from kazoo.hosts import collect_hosts

from strandline.broker.zookeeper_mirror import Mirror
from strandline.broker.zookeeper_requests import (
    REQUEST_BYTES_MAX,
    Multi,
    Read,
    ReadMany,
    Sync,
    WatchRecursively,
)
from strandline.broker.zookeeper_session import ZooKeeperSession, is_definite, sentence
from strandline.cluster.store import (
    NO_SESSION,
    Changes,
    Create,
    Delete,
    MultiResult,
    Operation,
    OutcomeUnknown,
    SessionId,
    StoreError,
    StoreUnavailable,
    StoreView,
    Zxid,
)
