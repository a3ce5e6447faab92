"""Who a broker is to ZooKeeper, and who may do what with the nodes that it makes.

With `zookeeper.set.acl` a node belongs to the login that made it; others may read it, unless there
are secrets below (credentials of users), as Kafka's `ZkData.defaultAcls` has it. A login is a user
and a password, or the name in the certificate that a broker shows. All brokers of a cluster log in
alike. Nodes that are there already keep what they have.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any, Final

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from strandline.client.security.secret import Secret
from strandline.client.security.settings import Store, Tls
from strandline.client.security.tls import context_of
from strandline.config.broker import BrokerConfig
from strandline.errors import InvalidSetting

_SETTING: Final = "strandline.zookeeper.digest"
_SENSITIVE: Final = ("/config/users", "/delegation_token")


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """See the module. Nothing given: no login, and nodes that are open to every client."""

    login: Secret | None = None
    """`user:password`."""
    sets_acls: bool = False
    tls: ssl.SSLContext | None = None
    """None: without TLS."""

    @classmethod
    def of(cls, config: BrokerConfig) -> ZooKeeperAccess:
        """What the settings say. Raises `InvalidSetting`."""
        text, sets_acls = config.strandline_zookeeper_digest, config.zookeeper_set_acl
        if not text:
            if sets_acls and not _shows_certificate(config):
                raise InvalidSetting(
                    "zookeeper.set.acl",
                    f"zookeeper.set.acl=true needs a login: set {_SETTING}=USER:PASSWORD, or "
                    "env:NAME or file:PATH where that is; or show a certificate "
                    "(zookeeper.ssl.client.enable, zookeeper.ssl.keystore.location).",
                )
            return cls(None, sets_acls, _tls(config))
        access = cls(Secret(_SETTING, text), sets_acls, _tls(config))
        access.auth_data()
        return access

    def auth_data(self) -> list[tuple[str, str]]:
        """The login as kazoo takes it. Raises `InvalidSetting`."""
        if self.login is None:
            return []
        revealed = self.login.reveal()
        user, colon, password = revealed.partition(":")
        if not user or not colon or not password:
            raise InvalidSetting(_SETTING, f"{_SETTING} is of the form USER:PASSWORD.")
        return [("digest", revealed)]

    def acls(self, path: str) -> list[Any]:
        """Those of a new node; the path without a chroot."""
        if not self.sets_acls:
            return list(OPEN_ACL_UNSAFE)
        if any(path == root or path.startswith(f"{root}/") for root in _SENSITIVE):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def _shows_certificate(config: BrokerConfig) -> bool:
    """Whether a broker has an identity at ZooKeeper without a login (its scheme `x509`)."""
    is_shown = config.zookeeper_ssl_keystore_location is not None
    return config.zookeeper_ssl_client_enable and is_shown


def _tls(config: BrokerConfig) -> ssl.SSLContext | None:
    if not config.zookeeper_ssl_client_enable:
        return None

    def store(kind: str, path: str | None, password: str | None) -> Store | None:
        name = f"zookeeper.ssl.{kind}store"
        if path is None:
            return None
        secret = None if password is None else Secret(f"{name}.password", password)
        return Store(setting=f"{name}.location", path=path, password=secret)

    trusted = config.zookeeper_ssl_truststore_location
    shown = config.zookeeper_ssl_keystore_location
    algorithm = config.zookeeper_ssl_endpoint_identification_algorithm
    return context_of(
        Tls(
            trust=store("trust", trusted, config.zookeeper_ssl_truststore_password),
            chain=store("key", shown, config.zookeeper_ssl_keystore_password),
            checks_name=algorithm.upper() == "HTTPS",
        )
    )


ANONYMOUS: Final = ZooKeeperAccess()
