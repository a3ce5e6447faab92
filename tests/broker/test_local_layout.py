"""Where the brokers of one process keep their data and listen."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.broker.local_layout import broker_configs, metadata_directory
from strandline.config.broker import BrokerConfig
from strandline.config.load import load_broker_config
from strandline.errors import InvalidSetting
from strandline.storage.meta_properties import claim_directory
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId

FILES = RealFiles()


def configs(
    directory: Path, count: int, *more: str, racks: tuple[str, ...] = ()
) -> list[BrokerConfig]:
    config = load_broker_config(None, [f"log.dirs={directory}", *more]).config
    assert metadata_directory(config) == str(directory)
    return broker_configs(config, count, FILES, racks=racks)


def test_brokers_have_directories_ports_racks_and_ids_of_their_own(tmp_path: Path) -> None:
    made = configs(
        tmp_path, 3, "listeners=PLAINTEXT://127.0.0.1:7000", "broker.id=5", racks=("a", "b")
    )
    assert [each.node_id for each in made] == [5, 6, 7]
    assert [each.listeners[0].port for each in made] == [7000, 7001, 7002]
    assert [each.advertised_listeners[0].port for each in made] == [7000, 7001, 7002]
    assert [each.log_dirs for each in made] == [(f"{tmp_path}/broker-{i}",) for i in (5, 6, 7)]
    assert [each.broker_rack for each in made] == ["a", "b", "a"]
    assert {each.default_replication_factor for each in made} == {3}


def test_what_was_set_stays(tmp_path: Path) -> None:
    made = configs(tmp_path, 5, "listeners=PLAINTEXT://:0", "default.replication.factor=2")
    assert {each.listeners[0].port for each in made} == {0}
    assert {each.default_replication_factor for each in made} == {2}
    (alone,) = configs(tmp_path, 1)
    assert alone.default_replication_factor == 1
    assert alone.log_dirs == (str(tmp_path),)


def test_a_directory_stays_that_of_the_broker_that_was_alone_in_it(tmp_path: Path) -> None:
    claim_directory(FILES, str(tmp_path), BrokerId(1), "some-cluster")
    grown = [each.log_dirs[0] for each in configs(tmp_path, 3)]
    assert grown == [str(tmp_path), f"{tmp_path}/brokers/2", f"{tmp_path}/brokers/3"]
    assert configs(tmp_path, 1)[0].log_dirs == (str(tmp_path),)


def test_a_broker_finds_its_directory_when_it_is_alone_again(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    assert configs(tmp_path, 1)[0].log_dirs == (f"{tmp_path}/broker-1",)


def test_several_log_directories_are_laid_out_alike(tmp_path: Path) -> None:
    config = load_broker_config(None, [f"log.dirs={tmp_path}/a,{tmp_path}/b"]).config
    made = broker_configs(config, 2, FILES)
    assert made[1].log_dirs == (f"{tmp_path}/a/broker-2", f"{tmp_path}/b/broker-2")


def test_ports_that_run_into_one_another_are_refused(tmp_path: Path) -> None:
    two = "listeners=PLAINTEXT://127.0.0.1:7000,SECOND://127.0.0.1:7001"
    names = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT"
    with pytest.raises(InvalidSetting, match="brokers 1 and 2 would both listen on port 7001"):
        configs(tmp_path, 2, two, names)
    with pytest.raises(InvalidSetting, match="65536"):
        configs(tmp_path, 2, "listeners=PLAINTEXT://127.0.0.1:65535")
