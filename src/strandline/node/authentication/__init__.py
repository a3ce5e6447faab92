"""Who a client is: names of certificates, SASL mechanisms, and the exchange that comes first.

    distinguished_name   the name in a certificate, as Java writes it
    principal_rules      what `ssl.principal.mapping.rules` makes of it
    mechanisms           PLAIN, and what mechanisms have in common
    scram_server         SCRAM
    tokens               OAUTHBEARER
    sasl_listeners       the mechanisms of listeners, from settings
    gate                 what one client has to pass
    authentication       the parts together

Clients are of all kinds here: programs, people's tools, other brokers.
"""
