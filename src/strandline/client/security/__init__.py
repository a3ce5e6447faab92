"""How a client proves who it is, and knows whom it speaks to: TLS and SASL.

    settings         what is wanted, as values
    names            the same by Kafka's names of settings
    secret           passwords that are printed nowhere, and references to them
    stores           certificates and keys from PEM files, PEM texts and PKCS#12
    tls              contexts of Python's `ssl` for clients
    mechanisms       PLAIN, SCRAM and OAUTHBEARER as exchanges of messages
    authentication   the requests by which a connection authenticates, and when it must again
    tokens           where OAUTHBEARER's tokens come from

Only `tokens` and `stores` read files or the network. A connection's driver (`client.connection`,
`client.aio.connection`) carries the bytes.
"""
