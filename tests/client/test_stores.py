"""Certificates and keys in the forms that clients are given, and what is told of others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from strandline.client.security.names import security_of
from strandline.client.security.tls import context_of
from strandline.errors import InvalidSetting
from tests.certificates import Authority


def test_certificates_in_every_form(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("client")
    pem = authority.path.read_text()
    tls = {"security.protocol": "SSL"}
    forms: list[dict[str, str]] = [
        {},
        {"ssl.truststore.location": str(authority.path), "ssl.keystore.location": str(own.both())},
        {"ssl.truststore.certificates": pem.replace("\n", "\\n")},
        {"ssl.keystore.certificate.chain": own.chain_pem, "ssl.keystore.key": own.key_pem()},
        {
            "ssl.truststore.location": str(own.pkcs12("p")),
            "ssl.truststore.password": "p",
            "ssl.keystore.location": str(own.pkcs12("p")),
            "ssl.keystore.password": "p",
        },
        {
            "ssl.certificate.location": str(own.chain()),
            "ssl.key.location": str(own.key("p")),
            "ssl.key.password": "p",
        },
    ]
    for form in forms:
        wanted = security_of(tls | form).tls
        assert wanted is not None
        context = context_of(wanted)
        assert context.check_hostname
        if any("trust" in name for name in form):
            assert len(context.get_ca_certs()) == 1


def test_stores_that_need_a_package_say_so_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Authority(tmp_path).issue("client").pkcs12("p")
    java = tmp_path / "store.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    for name in list(sys.modules):
        if name.partition(".")[0] == "cryptography":
            monkeypatch.setitem(sys.modules, name, None)
    for store in ("truststore", "keystore"):
        for path, said in ((java, "keytool -importkeystore"), (own, r"strandline\[pkcs12\]")):
            wanted = security_of(
                {"security.protocol": "SSL", f"ssl.{store}.location": str(path)}
            ).tls
            assert wanted is not None
            with pytest.raises(InvalidSetting, match=said):
                context_of(wanted)


def test_comments_beside_certificates_may_be_in_any_language(tmp_path: Path) -> None:
    """As bundles of authorities have them, with the names of their owners."""
    authority = Authority(tmp_path)
    own = authority.issue("client")
    comment = "# Autorit\u00e9 de Certification \u8ba4\u8bc1\n"
    trusted, both = tmp_path / "bundle.pem", tmp_path / "both.pem"
    trusted.write_bytes(comment.encode() + authority.path.read_bytes() + comment.encode("utf-16"))
    both.write_text(comment + own.key_pem() + comment + own.chain_pem, encoding="utf-8")
    for form in (
        {"ssl.truststore.location": str(trusted), "ssl.keystore.location": str(both)},
        {
            "ssl.truststore.certificates": comment + authority.path.read_text(),
            "ssl.certificate.location": str(both),
            "ssl.key.location": str(both),
        },
    ):
        wanted = security_of({"security.protocol": "SSL"} | form).tls
        assert wanted is not None
        assert len(context_of(wanted).get_ca_certs()) == 1


def test_what_is_no_certificate_is_a_sentence(tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("client")
    java = tmp_path / "store.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    noise = tmp_path / "noise"
    noise.write_bytes(b"\x00\x01\x02")
    tls = {"security.protocol": "SSL"}
    for form, said in (
        ({"ssl.truststore.location": str(tmp_path / "none")}, "cannot be read"),
        ({"ssl.truststore.location": str(java)}, "keytool -importkeystore"),
        ({"ssl.truststore.location": str(noise)}, "PKCS#12"),
        ({"ssl.truststore.certificates": "-----BEGIN nothing"}, "no certificates"),
        ({"ssl.keystore.location": str(own.chain())}, "without its private key"),
        (
            {"ssl.certificate.location": str(own.chain()), "ssl.key.location": str(own.key("p"))},
            "password",
        ),
        ({"ssl.keystore.location": str(own.pkcs12("p"))}, "password"),
    ):
        wanted = security_of(tls | form).tls
        assert wanted is not None
        with pytest.raises(InvalidSetting, match=said):
            context_of(wanted)
