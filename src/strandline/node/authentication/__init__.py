"""Who a client is: names of certificates, SASL mechanisms, and the exchange that comes first.

distinguished_name   the name in a certificate, as Java writes it
principal_rules      what `ssl.principal.mapping.rules` makes of it
"""
