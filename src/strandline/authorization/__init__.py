"""Who may do what: ACLs as values, and the decision about one operation.

Pure functions and plain data. This room knows principals, hosts, resources and operations, in
Kafka's words (`org.apache.kafka.common.acl`). It must not know requests, the store, or sockets.
"""
