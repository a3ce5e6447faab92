"""Settings under Kafka's own names: what exists, what a value may be, and what is in force.

    setting      what a setting is: name, kind, default, allowed values, what becomes of it here
    definition   all settings of Kafka 4.3, put together from tables/
    topic        `TopicConfig`: the values in force for one topic
    broker       `BrokerConfig`: the values in force for one broker
    load         from a properties file and `name=value` overrides to the two above
    describe     what DescribeConfigs answers
    alter        what AlterConfigs and IncrementalAlterConfigs do to stored overrides
    document     writes docs/configuration.md

Nothing here knows a log, a socket or a request. Importing this package imports none of its
modules: take what is needed from where it lives.
"""
