"""Our tables and parsers against Kafka's own classes; needs Java and STRANDLINE_KAFKA_JARS."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from strandline.config.definition import (
    BROKER_SECTIONS,
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
)
from strandline.config.properties import parse_properties
from strandline.config.resolve import read_value
from strandline.config.setting import Service, Setting, Update
from strandline.config.values import format_value
from strandline.errors import InvalidSetting

JARS = os.environ.get("STRANDLINE_KAFKA_JARS")
pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None, reason="set STRANDLINE_KAFKA_JARS and install Java"
)

DEVIATING_DEFAULTS = {
    "listeners",
    "log.dir",
    "node.id",
    "process.roles",
    "controller.listener.names",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}


def kafka(*arguments: str, text: str = "") -> list[list[str]]:
    source = Path(__file__).with_name("KafkaSettings.java")
    done = subprocess.run(
        ["java", "-cp", f"{JARS}/*", str(source), *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=400,
    )
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    return kafka("settings")


def facts(setting: Setting) -> tuple[str, ...]:
    default = format_value(setting.default)
    return (
        setting.kind.name,
        "<null>" if default is None else default,
        setting.importance.name,
        str(setting.internal).lower(),
    )


@pytest.mark.parametrize(
    ("table", "ours"), [("topic", TOPIC_SETTINGS), ("broker", BROKER_SETTINGS)]
)
def test_settings_are_kafkas(rows: list[list[str]], table: str, ours: dict[str, Setting]) -> None:
    theirs = {row[1]: row for row in rows if row[0] == table}
    known = {name for name, each in ours.items() if not each.dynamic_only}
    sections = ("Authorizer", "ZooKeeper", "Strandline's own")  # Kafka's authorizer has its own
    not_theirs = [each for section in sections for each in BROKER_SECTIONS[section]]
    assert theirs.keys() == known - {each.name for each in not_theirs}
    differing = set()
    for name, (_, _, kind, default, valid, importance, internal) in theirs.items():
        expected = (kind, default, importance, internal)
        if name in DEVIATING_DEFAULTS:
            differing.add(name)
            assert ours[name].deviation
            assert facts(ours[name])[1] != default
            expected = (kind, facts(ours[name])[1], importance, internal)
        # The map of protocols and sets of words have no order in Java.
        if name == "listener.security.protocol.map":
            assert sorted(default.split(",")) == sorted(str(ours[name].default).split(","))
        else:
            assert facts(ours[name]) == expected, name
        assert sorted(valid) == sorted(ours[name].allowed.text), name
    assert differing == (DEVIATING_DEFAULTS if table == "broker" else set())


def test_settings_of_groups(rows: list[list[str]]) -> None:
    served = ("consumer.", "share.")
    theirs = {row[1]: row for row in rows if row[0] == "group" and row[1].startswith(served)}
    theirs = {name: row for name, row in theirs.items() if ".assignor.offload." not in name}
    assert theirs.keys() == GROUP_SETTINGS.keys()
    for name, (_, _, kind, default, valid, importance, internal) in theirs.items():
        assert facts(GROUP_SETTINGS[name]) == (kind, default, importance, internal)
        assert GROUP_SETTINGS[name].allowed.text == valid
    behind = {row[1]: row[2] for row in rows if row[0] == "group-synonym"}
    for name, setting in GROUP_SETTINGS.items():
        behind_it = [behind[name]] if name in behind else []
        assert [synonym.name for synonym in setting.synonyms] == behind_it


def test_settings_that_are_dynamic_only(rows: list[list[str]]) -> None:
    theirs = {row[1]: row for row in rows if row[0] == "dynamic-only"}
    assert theirs.keys() == {n for n, each in BROKER_SETTINGS.items() if each.dynamic_only}
    for name, (_, _, kind, default, valid, importance, internal) in theirs.items():
        assert facts(BROKER_SETTINGS[name]) == (kind, default, importance, internal)
        assert BROKER_SETTINGS[name].allowed.text == valid


def test_update_modes(rows: list[list[str]]) -> None:
    theirs = {row[1]: row[2] for row in rows if row[0] == "update"}
    ours = {n: each.update.value for n, each in BROKER_SETTINGS.items() if each.is_dynamic}
    assert ours == theirs
    assert all(each.update is Update.READ_ONLY for each in TOPIC_SETTINGS.values())


def test_topic_settings_have_kafkas_broker_settings_behind_them(rows: list[list[str]]) -> None:
    theirs: dict[str, list[tuple[str, int]]] = {}
    for _, name, synonym, factor in (row for row in rows if row[0] == "synonym"):
        theirs.setdefault(name, []).append((synonym, int(factor)))
    ours = {n: [tuple(s) for s in each.synonyms] for n, each in TOPIC_SETTINGS.items()}
    assert {name: synonyms for name, synonyms in ours.items() if synonyms} == theirs


PROPERTIES = [
    "a=1\nb:2\nc 3\n d = 4 \n",
    "# no\n! no\n\n  # no\nname = one,\\\n    two,\\\n  three\nnext=1",
    "k\\=ey=v\\=alue\nk\\:y : v\nk\\ y v w\n",
    "tab=\\t|\\n|\\r|\\f|\\x|\\\\|\\u0041\\u00e9\\ud83d\\ude00\n",
    "empty=\nempty2\nempty3:\n=novalue\n",
    "a=1\r\nb=2\rc=3\n",
    "even=x\\\\\nodd=x\\\\\\\ny\n",
    "a==b\na2=:b\na3 = = b\na4\t:\tb\n",
    "last=end\\",
    "blank=one\\\n\\\n  \\\nrest\nafter=1",
    "comment=one\\\n#not a comment\nx=1",
    "dup=1\ndup=2",
    "trail=value  \nformfeed\f=\fx",
    "cont\\\ninued=1\n\\\n\nz=1\n",
    "   \\\n   a=1\n",
    "\\\n# is it\nq=2",
]


def test_properties_files_read_as_java_reads_them() -> None:
    files = "\n".join(base64.b64encode(text.encode()).decode() for text in PROPERTIES)
    theirs: list[dict[str, str]] = [{}]
    for row in kafka("properties", text=files):
        if row == [""]:
            theirs.append({})
        else:
            name, value = (base64.b64decode(cell).decode() for cell in row)
            theirs[-1][name] = value
    assert [parse_properties(text) for text in PROPERTIES] == theirs[:-1]


VALUES = [
    ("retention.ms", text)
    for text in ["-1", "0", "-2", " 7 ", "+5", "1_000", "", "9223372036854775807",
                 "9223372036854775808", "1.0", "0x10", "--1", "1 2"]
] + [
    ("max.message.bytes", text) for text in ["0", "2147483647", "2147483648", "-1", "abc"]
] + [
    ("cleanup.policy", text)
    for text in ["delete", "compact,delete", " compact , delete ", "", "delete,delete", "Delete",
                 "delete,", ",", "compact,,delete", "other"]
] + [
    ("preallocate", text) for text in ["true", "TRUE", " False ", "yes", "", "1"]
] + [
    ("min.cleanable.dirty.ratio", text)
    for text in ["0", "1", "0.5", ".5", "1.", "5e-1", "1.0001", "-0.1", "0.0001", "0.5d", "half",
                 "", "1e-10"]
] + [
    ("compression.gzip.level", text) for text in ["-1", "0", "1", "9", "10"]
] + [
    ("compression.zstd.level", text) for text in ["-131072", "-131073", "22", "23"]
] + [
    ("compression.type", text) for text in ["lz4", " lz4 ", "LZ4", "none", "uncompressed", ""]
] + [
    ("leader.replication.throttled.replicas", text)
    for text in ["*", "0:1,2:3", "", "0:1,*", "a:b", "0:1,", "1", "0:-1"]
]  # fmt: skip


def test_topic_values_are_accepted_and_refused_as_in_kafka() -> None:
    assert all(TOPIC_SETTINGS[name].service is not Service.REFUSED for name, _ in VALUES)
    answers = kafka("values", text="\n".join(f"{name}\t{text}" for name, text in VALUES))
    ours = []
    for name, text in VALUES:
        try:
            ours.append(["ok", format_value(read_value(TOPIC_SETTINGS[name], text)) or ""])
        except InvalidSetting:
            ours.append(["refused", ""])
    assert list(zip(VALUES, ours, strict=True)) == list(zip(VALUES, answers, strict=True))
