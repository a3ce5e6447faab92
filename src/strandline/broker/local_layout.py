"""Where brokers of one process keep their data, and where each of them listens.

    <dir>/metadata.journal, ...   the metadata of the whole cluster
    <dir>/broker-1/               log directory of broker 1
    <dir>/broker-2/               ...

A broker that is alone uses `<dir>` itself as its log directory, as Kafka does. A directory in
which one has done so stays that broker's when others join it; theirs are then `<dir>/brokers/<id>`,
a name that no partition can have. With several log directories each of them is laid out like this,
and the metadata is in the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from strandline.config.broker import BrokerConfig, SettingLayers
from strandline.config.listeners import Listener
from strandline.config.load import make_broker_config
from strandline.errors import InvalidSetting
from strandline.storage.files import Files, join
from strandline.storage.meta_properties import read_meta_properties
from strandline.types import BrokerId

REPLICAS_MAX: Final = 3
"""Topics get one replica per broker by default, but not more than this."""


def metadata_directory(config: BrokerConfig) -> str:
    """Where the metadata of the cluster is."""
    return config.log_dirs[0]


def broker_configs(
    config: BrokerConfig, count: int, files: Files, *, racks: Sequence[str] = ()
) -> list[BrokerConfig]:
    """The configurations of so many brokers, made from one.

    Ids count up from `node.id`, and ports from those of the listeners, unless they are 0. Racks
    are dealt out in turn. Raises `InvalidSetting`.
    """
    configs = [
        _broker_config(config, number, count, files, racks[number % len(racks)] if racks else None)
        for number in range(count)
    ]
    _check_ports(configs)
    return configs


def _broker_config(
    config: BrokerConfig, number: int, count: int, files: Files, rack: str | None
) -> BrokerConfig:
    """The configuration of one broker, as text like the one it is made from."""
    broker_id = BrokerId(config.node_id + number)
    directories = [
        log_directory(files, path, broker_id, is_alone=count == 1) for path in config.log_dirs
    ]
    settings = dict(config.layers.static)
    if "log.dir" not in settings or "log.dirs" in settings:
        settings["log.dirs"] = ",".join(directories)
    else:
        settings["log.dir"] = ",".join(directories)
    if rack is not None:
        settings["broker.rack"] = rack
    if count > 1:
        settings.pop("broker.id", None)
        settings["node.id"] = str(broker_id)
        settings.setdefault("default.replication.factor", str(min(count, REPLICAS_MAX)))
        settings["listeners"] = _counted_up(config.listeners, number)
        settings["advertised.listeners"] = _counted_up(config.advertised_listeners, number)
    return make_broker_config(SettingLayers(static=settings)).config


def log_directory(files: Files, path: str, broker_id: BrokerId, *, is_alone: bool) -> str:
    """Where the broker keeps its logs below the given log directory. Raises `StorageError`."""
    present = read_meta_properties(files, path)
    if present is not None and present.broker_id is not None:
        if present.broker_id == broker_id or is_alone:
            return path
        return join(join(path, "brokers"), str(broker_id))
    own = join(path, f"broker-{broker_id}")
    return path if is_alone and not files.is_directory(own) else own


def _counted_up(listeners: Sequence[Listener], number: int) -> str:
    return ",".join(
        str(replace(listener, port=listener.port + number) if listener.port else listener)
        for listener in listeners
    )


def _check_ports(configs: Sequence[BrokerConfig]) -> None:
    """Counting up must not run into the listener of another broker."""
    taken: dict[tuple[str, int], BrokerConfig] = {}
    for config in configs:
        for listener in config.listeners:
            other = taken.setdefault((listener.host, listener.port), config)
            if listener.port and other is not config:
                raise InvalidSetting(
                    "listeners",
                    f"listeners: brokers {other.node_id} and {config.node_id} would both listen on "
                    f"port {listener.port}. Ports count up from broker to broker: leave room, or "
                    "use port 0.",
                )
