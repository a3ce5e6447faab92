"""The client side of a simulation: producers, readers, groups, operators and vandals.

All of them speak real wire bytes, draw from streams of their own, and write into the history what
they did and what they were told. `Crew` is all of one run; `make_client` makes a single one.
"""
