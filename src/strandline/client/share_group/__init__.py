"""The share consumer without socket, thread or clock (KIP-932): a member of a group, what it
acquires and acknowledges, and its share sessions. Drivers are `share_thread`,
`aio.share_consumer` and `sim.clients.share_member`."""
