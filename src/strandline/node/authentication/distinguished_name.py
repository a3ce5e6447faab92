"""The subject of a certificate as text, as Java's `X500Principal.getName()` has it (RFC 2253).

    CN=client,OU=Flights,O=Example,C=DE

The last part of the name stands first. Attributes that RFC 2253 names have a keyword; others have
their object identifier, and the hexadecimal digits of their encoded value behind `#`. The
certificate has been verified before.
"""

from __future__ import annotations

from typing import Final

from strandline.node.authentication.der import SUBJECT, element, elements, field_of

_SET = 0x31
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString
    0x16: "ascii",  # IA5String
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_ESCAPED: Final = frozenset(',=+"\\<>#;')


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises `ValueError` if it cannot be read."""
    content = field_of(certificate, SUBJECT)
    names = [_relative(content) for tag, content, _ in elements(content) if tag == _SET]
    return ",".join(reversed(names))


def _relative(content: bytes) -> str:
    pairs = []
    for _, pair, _ in elements(content):
        _, identifier, end = element(pair, 0)
        tag, value, _ = element(pair, end)
        pairs.append(_attribute(_dotted(identifier), tag, value, pair[end:]))
    return "+".join(pairs)


def _attribute(identifier: str, tag: int, value: bytes, encoded: bytes) -> str:
    keyword, encoding = _KEYWORDS.get(identifier), _ENCODINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{keyword or identifier}=#{encoded.hex()}"
    return f"{keyword}={_escaped(value.decode(encoding))}"


def _escaped(text: str) -> str:
    """As Java does: more characters than RFC 2253, 2.4 demands, and all spaces at both ends."""
    inner = text.strip(" ")
    shown = "".join(f"\\{each}" if each in _ESCAPED else each for each in inner)
    leading = len(text) - len(text.lstrip(" ")) if inner else len(text)
    trailing = len(text) - len(inner) - leading
    return "\\ " * leading + shown + "\\ " * trailing


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("The certificate has an attribute without a name.")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
