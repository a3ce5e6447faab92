"""One module per API, holding its request and its response; imported when first needed.

Class and field names are Kafka's, fields in snake_case. Field order is wire order. A module says
only what is on the wire and since which version; what a broker does with it is the node's affair.
"""
