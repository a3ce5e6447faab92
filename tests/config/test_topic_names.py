"""C-14: names of topic settings among those of a broker, which Kafka ignores."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.config.definition import BROKER_SETTINGS, TOPIC_SETTINGS
from strandline.config.load import load_broker_config
from strandline.errors import InvalidSetting

OF_TOPICS_ONLY = sorted(TOPIC_SETTINGS.keys() - BROKER_SETTINGS.keys())


def refusal(name: str, file: Path | None = None) -> str:
    with pytest.raises(InvalidSetting) as caught:
        load_broker_config(str(file)) if file else load_broker_config(None, [f"{name}=1"])
    assert caught.value.name == name
    return str(caught.value)


@pytest.mark.parametrize("name", OF_TOPICS_ONLY)
def test_a_topic_setting_is_refused_with_the_broker_setting_behind_it(name: str) -> None:
    told = refusal(name)
    assert told.startswith(f"{name} is a topic setting, not a broker setting")
    if synonyms := TOPIC_SETTINGS[name].synonyms:
        assert told.endswith(
            f"its default for all topics is the broker setting {synonyms[0].name}."
        )
    else:
        assert told.endswith("no broker setting gives its default; set it for single topics.")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Cleanup_Policy", "its default for all topics is the broker setting log.cleanup.policy."),
        ("Min.Insync.Replicas", "did you mean min.insync.replicas?"),
        (
            "message.timestamp.difference.max.ms",
            "any more: use log.message.timestamp.before.max.ms and "
            "log.message.timestamp.after.max.ms.",
        ),
    ],
)
def test_other_spellings_and_older_names(name: str, told: str) -> None:
    assert refusal(name).endswith(told)


def test_a_file_with_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=4\nretention.ms=60000\n")
    assert "the broker setting log.retention.ms" in refusal("retention.ms", file)


def test_a_name_that_both_have_is_one_of_the_broker() -> None:
    config = load_broker_config(overrides=["min.insync.replicas=2"]).config
    assert config.topic_defaults.min_insync_replicas == 2
