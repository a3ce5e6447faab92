"""The clients of a simulation: producers, readers, groups, operators, and senders of garbage.

All of them speak real wire bytes, draw from streams of their own, and write into the history what
they did and which answers they got. `Workload` is all of one run; `make_client` makes a single one.
"""

from strandline.sim.clients.client import Finding, SimClient
from strandline.sim.clients.make import ADMIN_VERBS, make_client, make_operation
from strandline.sim.clients.workload import Workload

__all__ = ["ADMIN_VERBS", "Workload", "Finding", "SimClient", "make_client", "make_operation"]
