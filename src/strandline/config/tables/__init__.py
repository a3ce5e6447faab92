"""The rows of the two tables of settings, one file per part of a broker.

A row is: name, kind, default, importance, allowed values, service, then one line of meaning.
Facts are those of Apache Kafka 4.3.1 and are compared with it by a contract test.
"""
