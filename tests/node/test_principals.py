"""Who a certificate is of: names as Java writes them, and what mapping rules make of those.

The names expected are those that Java 17 gives (`getSubjectX500Principal().getName()`).
"""

from __future__ import annotations

import datetime
import re

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from strandline.errors import InvalidSetting
from strandline.node.authentication.distinguished_name import subject_of
from strandline.node.authentication.principal_rules import PrincipalRules

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def certificate(*parts: list[x509.NameAttribute[str]]) -> bytes:
    """A certificate in DER whose subject has these relative names."""
    subject = x509.Name([x509.RelativeDistinguishedName(each) for each in parts])
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(KEY.public_key())
        .serial_number(2**150 + 1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.DER)


def attribute(
    oid: ObjectIdentifier, value: str, kind: _ASN1Type | None = None
) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value, kind)


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([], ""),
        ([[attribute(NameOID.COMMON_NAME, "alice")]], "CN=alice"),
        (
            [
                [attribute(NameOID.COUNTRY_NAME, "DE")],
                [attribute(NameOID.STATE_OR_PROVINCE_NAME, "Hamburg")],
                [attribute(NameOID.LOCALITY_NAME, "Hamburg")],
                [attribute(NameOID.ORGANIZATION_NAME, "Example")],
                [attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Flights")],
                [attribute(NameOID.COMMON_NAME, "client")],
            ],
            "CN=client,OU=Flights,O=Example,L=Hamburg,ST=Hamburg,C=DE",
        ),
        (
            [
                [attribute(NameOID.DOMAIN_COMPONENT, "org")],
                [attribute(NameOID.USER_ID, "u")],
                [attribute(NameOID.STREET_ADDRESS, "s")],
            ],
            "STREET=s,UID=u,DC=org",
        ),
        (
            [[attribute(NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h')]],
            'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h',
        ),
        ([[attribute(NameOID.COMMON_NAME, "a=b#c")]], "CN=a\\=b\\#c"),
        ([[attribute(NameOID.COMMON_NAME, "  a  b ")]], "CN=\\ \\ a  b\\ "),
        ([[attribute(NameOID.COMMON_NAME, " ")]], "CN=\\ "),
        ([[attribute(NameOID.COMMON_NAME, "žofie")]], "CN=žofie"),
        ([[attribute(NameOID.COMMON_NAME, "ü", _ASN1Type.BMPString)]], "CN=ü"),
        # Java has no keyword for these in RFC 2253: the value is DER, tag and length included.
        (
            [[attribute(NameOID.EMAIL_ADDRESS, "a@b")]],
            "1.2.840.113549.1.9.1=#1603614062",
        ),
        ([[attribute(NameOID.SERIAL_NUMBER, "7")]], "2.5.4.5=#130137"),
    ],
)
def test_a_subject_is_written_as_java_does(
    parts: list[list[x509.NameAttribute[str]]], shown: str
) -> None:
    assert subject_of(certificate(*parts)) == shown


def test_parts_of_one_name_are_joined() -> None:
    both = [attribute(NameOID.COMMON_NAME, "a"), attribute(NameOID.USER_ID, "b")]
    assert set(subject_of(certificate(both)).split("+")) == {"CN=a", "UID=b"}


def test_what_is_no_certificate_is_refused() -> None:
    whole = certificate([attribute(NameOID.COMMON_NAME, "alice")])
    for end in range(len(whole)):
        with pytest.raises(ValueError, match=r"The certificate|codec|unpack"):
            subject_of(whole[:end])


RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke", "DUKE"),
        ("OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
    ],
)
def test_the_first_rule_that_matches_decides(name: str, principal: str) -> None:
    assert PrincipalRules(RULES).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a", "CN=a"),
        ("", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/user-$1-$1/", "CN=a", "user-a-a"),
        ("RULE:^CN=a\\/b$/slash/", "CN=a/b", "slash"),
        ("RULE:^CN=(.*)$/\\1/", "CN=a", "\\1"),
        (" RULE:x/y/ , RULE:^CN=.*$/n/L ,DEFAULT ", "CN=a", "n"),
        ("  ", "CN=a", "CN=a"),
        ("RULE:^CN=b$/b/,DEFAULT", "CN=a\0\nb", "CN=a\0\nb"),
    ],
)
def test_rules_are_read_as_kafkas(rules: str, name: str, principal: str) -> None:
    assert PrincipalRules(rules).name_of(name) == principal


@pytest.mark.parametrize(
    "rules", ["RULE:^CN=b$/b/", "RULE:^CN=(.*?),OU=Clients$/$1/,RULE:^CN=.,OU=C.*$/c/L"]
)
def test_a_name_that_no_rule_matches_is_refused(rules: str) -> None:
    made = PrincipalRules(rules, "listener.name.x.ssl.principal.mapping.rules")
    sentence = (
        "No rule of listener.name.x.ssl.principal.mapping.rules matches the certificate's name "
        "'CN=eve,OU=Elsewhere'."
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        made.name_of("CN=eve,OU=Elsewhere")


@pytest.mark.parametrize(
    "rules", ["RULE:", "RULE:a/b", "RULE:(/x/", "RULE:a/$1/", "default", "X,DEFAULT"]
)
def test_rules_that_are_none_are_refused_by_name(rules: str) -> None:
    with pytest.raises(InvalidSetting, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)
