"""How cost grows with work: a curve of each, its exponent, and a picture of it.

    python -m bench.growth                       all curves, about a quarter of an hour
    python -m bench.growth --only connections    one kind of work
    python -m bench.growth --most 1000           no more than so much of it

Each kind of work is a module that yields its curves.
"""
