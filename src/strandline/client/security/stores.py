"""Certificates and keys in contexts of Python's `ssl`: of clients here, and of the broker.

They are PEM files, PEM texts, and PKCS#12 files where the package `cryptography` is installed.
Python's `ssl` takes one's own certificate from files only: a text is put into one that only this
user can read, for that moment. This file must not know connections.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.client.security.secret import Secret, read_text
from strandline.client.security.settings import Store, TlsVersion
from strandline.errors import InvalidSetting

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_PEM: Final = b"-----BEGIN"
_JKS: Final = b"\xfe\xed\xfe\xed"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_PKCS12_BYTES_MAX: Final = 1024 * 1024
VERSIONS: Final[dict[TlsVersion, ssl.TLSVersion]] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


def trust(context: ssl.SSLContext, store: Store) -> None:
    """Trust the authorities in there. Raises `InvalidSetting`."""
    pem = _certificates(store)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidSetting(
            store.setting, f"{_named(store)} holds no certificates in PEM form: {reason_of(error)}."
        ) from error


def identify(
    context: ssl.SSLContext, chain: Store, key: Store | None, password: Secret | None
) -> None:
    """Show this certificate, with those in between, to the other side. Raises `InvalidSetting`."""
    certificates, own_key = _own(chain)
    if key is not None:
        own_key = _pem_text(_text_of(key).encode())
    if own_key is None and "PRIVATE KEY-----" not in certificates:
        raise InvalidSetting(
            chain.setting,
            f"{_named(chain)} holds a certificate without its private key: name that with "
            "ssl.keystore.key or ssl.key.location.",
        )
    with _written(certificates + "\n" + (own_key or "")) as path:
        try:
            # A callback that has no password would ask at the terminal.
            context.load_cert_chain(path, password=password.reveal if password else lambda: "")
        except (ssl.SSLError, ValueError) as error:
            wrong = _wrong(error, own_key or certificates, password)
            raise InvalidSetting(chain.setting, f"{_named(chain)}: {wrong}.") from error


def _wrong(error: Exception, key: str, password: Secret | None) -> str:
    """Why OpenSSL takes no certificate with this key. Of most it says no more than "PEM lib"."""
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the private key is not that of the certificate"
    if "ENCRYPTED" in key:
        is_missing = "is missing" if password is None else "is wrong"
        return f"the private key is encrypted, and its password (ssl.key.password) {is_missing}"
    return f"the certificate or its private key cannot be read as PEM text ({reason_of(error)})"


def _named(store: Store) -> str:
    return store.setting if store.path is None else f"{store.setting} ({store.path})"


def own_certificate(store: Store) -> bytes:
    """One's own certificate, in DER. Raises `InvalidSetting`."""
    text, _ = _own(store)
    start = text.find(_BEGIN)
    end = text.find(_END, start)
    try:
        if start < 0 or end < 0:
            raise ValueError("there is none")  # noqa: TRY301 - answered below, like a bad one
        return ssl.PEM_cert_to_DER_cert(text[start : end + len(_END)])
    except ValueError as error:
        raise InvalidSetting(
            store.setting, f"{_named(store)} holds no certificate in PEM form."
        ) from error


def _certificates(store: Store) -> str:
    content = _bytes_of(store)
    if content.startswith(_PEM) or _PEM in content:
        return _pem_text(content)
    unpacked = _unpacked(store, content)
    return "".join(_pem_of(each.certificate) for each in unpacked.additional_certs)


def _pem_text(content: bytes) -> str:
    """PEM is ASCII, and Python takes nothing else; comments beside it may be in any language."""
    return content.decode("ascii", "ignore")


def _own(store: Store) -> tuple[str, str | None]:
    """The client's certificates, and its key if that is in a PKCS#12 file."""
    content = _bytes_of(store)
    if _PEM in content:
        return _pem_text(content), None
    unpacked = _unpacked(store, content)  # first: it says what is missing for these
    from cryptography.hazmat.primitives import serialization

    if unpacked.cert is None or unpacked.key is None:
        raise InvalidSetting(store.setting, f"{_named(store)} has no certificate with its key.")
    key = unpacked.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = [unpacked.cert, *unpacked.additional_certs]
    return "".join(_pem_of(each.certificate) for each in chain), key.decode()


def _pem_of(certificate: object) -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509 import Certificate

    assert isinstance(certificate, Certificate)
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _unpacked(store: Store, content: bytes) -> PKCS12KeyAndCertificates:
    if content.startswith(_JKS):
        raise InvalidSetting(
            store.setting,
            f"{_named(store)} is a Java keystore (JKS), which only Java reads. Convert it: keytool "
            f"-importkeystore -srckeystore {store.path} -destkeystore store.p12 -deststoretype "
            "PKCS12",
        )
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise InvalidSetting(
            store.setting,
            f"{_named(store)} holds no PEM text. A PKCS#12 file needs the package cryptography: "
            "pip install 'strandline[pkcs12]'",
        ) from error
    password = None if store.password is None else store.password.reveal().encode()
    try:
        return pkcs12.load_pkcs12(content, password)
    except ValueError as error:
        raise InvalidSetting(
            store.setting,
            f"{_named(store)} holds neither PEM text nor a PKCS#12 file of that password.",
        ) from error


def _bytes_of(store: Store) -> bytes:
    if store.path is None:
        return _text_of(store).encode()
    try:
        with Path(store.path).expanduser().open("rb") as file:
            return file.read(_PKCS12_BYTES_MAX)
    except OSError as error:
        raise InvalidSetting(
            store.setting,
            f"{store.setting}: the file {store.path} cannot be read: {error.strerror or error}.",
        ) from error


def _text_of(store: Store) -> str:
    if store.path is not None:
        return read_text(store.setting, store.path)
    # A setting is one line: Kafka takes PEM texts with `\n` as two characters as well.
    return "" if store.pem is None else store.pem.reveal().replace("\\n", "\n")


@contextmanager
def _written(pem: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600
        file.write(pem)
        file.flush()
        yield file.name


def reason_of(error: Exception) -> str:
    """What OpenSSL says of a failure, in words."""
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()
