"""The exchange for a connection's settings: secrets are read here, and tokens asked for."""

from __future__ import annotations

from strandline.client.security.mechanisms import Exchange, OauthBearer, Plain, Scram
from strandline.client.security.settings import Sasl, Security
from strandline.client.security.tokens import token_of
from strandline.errors import InvalidSetting


def exchange_of(security: Security, sasl: Sasl) -> Exchange:
    """A new exchange. May wait for a token endpoint; raises as `tokens.token_of`."""
    match sasl.mechanism:
        case "PLAIN":
            return Plain(sasl.username, _password(sasl))
        case "SCRAM-SHA-256" | "SCRAM-SHA-512":
            return Scram(sasl, _password(sasl))
        case "OAUTHBEARER":
            return OauthBearer(token_of(sasl, security.tls), sasl.extensions)


def _password(sasl: Sasl) -> str:
    if sasl.password is None:
        raise InvalidSetting("sasl.mechanism", f"{sasl.mechanism} needs a password.")
    return sasl.password.reveal()
