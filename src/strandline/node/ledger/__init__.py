"""The truncation ledger of a node: what replicas removed, kept aside for a while."""
