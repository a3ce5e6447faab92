"""An authority and certificates for tests of TLS, as files in the forms that clients read."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12


class Authority:
    """Issues certificates, and writes them into a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self.path = directory / "authority.pem"
        self._authority.cert_pem.write_to_path(self.path)

    def issue(
        self,
        name: str,
        *hosts: str,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Certificate:
        """A certificate for hosts, or for a client without any."""
        issued = self._authority.issue_cert(
            *(hosts or ("client.example",)),
            common_name=name,
            not_before=not_before,
            not_after=not_after,
        )
        return Certificate(self._directory / name, issued, self._authority)


class Certificate:
    """A certificate with its key, in several forms."""

    def __init__(self, stem: Path, issued: trustme.LeafCert, authority: trustme.CA) -> None:
        self._stem = stem
        self._authority = authority
        self._key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        self.chain_pem = b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode()

    def key_pem(self, password: str | None = None) -> str:
        """The key as PKCS#8, which is what Java reads."""
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ).decode()

    def chain(self) -> Path:
        """The certificate alone."""
        return self._write(".chain.pem", self.chain_pem.encode())

    def key(self, password: str | None = None) -> Path:
        """The key alone."""
        return self._write(".key.pem", self.key_pem(password).encode())

    def both(self) -> Path:
        """Key and certificate in one file, as Kafka's `ssl.keystore.location` has them."""
        return self._write(".pem", (self.key_pem() + self.chain_pem).encode())

    def pkcs12(self, password: str) -> Path:
        """Key, certificate and authority."""
        from cryptography import x509

        key = self._key
        certificate = x509.load_pem_x509_certificate(self.chain_pem.encode())
        authority = x509.load_pem_x509_certificate(self._authority.cert_pem.bytes())
        packed = pkcs12.serialize_key_and_certificates(
            b"own",
            key,  # type: ignore[arg-type]  # of the kinds that trustme makes
            certificate,
            [authority],
            serialization.BestAvailableEncryption(password.encode()),
        )
        return self._write(".p12", packed)

    def _write(self, suffix: str, content: bytes) -> Path:
        path = self._stem.with_name(self._stem.name + suffix)
        path.write_bytes(content)
        return path


def contexts_in(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A broker's TLS context, without tickets, and that of a client that trusts it."""
    authority = Authority(directory)
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.load_cert_chain(authority.issue("broker", "localhost").both())
    broker.num_tickets = 0
    return broker, ssl.create_default_context(cafile=str(authority.path))
