"""A node's side of share groups (KIP-932).

`coordinator_host` runs the share coordinator, `persister` asks those of all brokers, `leading` has
the share partitions of the partitions that are led here, `sessions` what members fetch from.
"""
