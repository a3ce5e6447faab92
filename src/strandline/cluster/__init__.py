"""What the cluster is and how it changes: metadata store, image, controller.

    store  tree        operations on a tree of versioned nodes, and that tree itself
    znodes             the content of every node, in Kafka's JSON
    image              the whole metadata as one immutable value, advanced by changes
    controller         decisions: (image, request) -> results and store operations

Nothing here knows the wire, logs, sockets, clocks or threads.
"""
