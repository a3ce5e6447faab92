"""The shared form: record batches, whose bytes are the same on the wire and on disk.

`batch` reads and patches headers, `record` reads what is inside, `builder` writes, `compression`
packs within limits, `validation` decides what a leader takes. Nothing here knows topics, files or
sockets.
"""
