"""A started cluster of brokers in a thread of its own: what `Cluster` and `AsyncCluster` drive."""

from __future__ import annotations

import weakref
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from strandline.client.admin import Admin
from strandline.client.admin_topics import BROKER_DEFAULT
from strandline.client.cluster import ClusterClient
from strandline.client.security.names import security_of
from strandline.client.settings import ClientSettings
from strandline.testing.control import ClusterError, Control, Options
from strandline.testing.loop_thread import LoopThread
from strandline.testing.sightings import CLUSTERS
from strandline.types import BrokerId

T = TypeVar("T")

_SIGHT_S: Final = 5.0
NOT_RUNNING: Final = "The cluster is not running: use it in a `with` block."


class RunningCluster:
    """A started cluster and its thread: everything that must be given back."""

    def __init__(self, options: Options) -> None:
        self._brokers = options.brokers
        self._control = Control(options)
        self._thread = LoopThread("strandline-cluster")
        # For a test that forgets to close it: at least files and ports go when the process ends.
        self._release = weakref.finalize(self, _release, self._control, self._thread)
        self._is_open = True

    def __repr__(self) -> str:
        where = f" at {self.bootstrap_servers}" if self._is_open else ", not running"
        return f"<Cluster of {self._brokers} brokers{where}>"

    @property
    def control(self) -> Control:
        """What the facades call; its coroutines are for `run`. Raises `ClusterError` at the end."""
        if not self._is_open:
            raise ClusterError(NOT_RUNNING)
        return self._control

    def start(self) -> None:
        """Start all brokers and wait until they are ready."""
        self.run(self._control.start_all())
        CLUSTERS.has_started(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `control` in the brokers' thread."""
        return self._thread.run(coroutine)

    def sight(self) -> str:
        """The state of the cluster in words, or why it cannot be told. Raises nothing.

        A thread that hangs is given a few seconds: a test that failed must be reported.
        """
        try:
            return str(self._thread.submit(self._control.status()).result(_SIGHT_S))
        except TimeoutError:
            return f"not to be told: the brokers' thread did not answer within {_SIGHT_S:g} s"
        except Exception as error:  # noqa: BLE001 -- the failure itself must be reported
            return f"not to be told: {error}"

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of all brokers."""
        return ",".join(self.control.addresses.values())

    def client_config(self, user: str | None) -> dict[str, str]:
        """See `Cluster.client_config`."""
        security = self.control.security.client_config(user)
        return {"bootstrap.servers": self.bootstrap_servers, **security}

    def java_client_config(self, user: str | None) -> dict[str, str]:
        """See `Cluster.java_client_config`."""
        security = self.control.security.java_config(user)
        return {"bootstrap.servers": self.bootstrap_servers, **security}

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None,
        assignment: Mapping[int, Sequence[int]] | None,
        configs: Mapping[str, object],
    ) -> None:
        """See `Cluster.create_topic`."""
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        security = security_of(self.control.security.client_config())
        own = ClientSettings(client_id="strandline-test", security=security)
        client = ClusterClient(self.bootstrap_servers, own)
        with client:
            Admin(client).topics.create(
                name,
                partitions=partitions,
                replication_factor=replication_factor or BROKER_DEFAULT,
                configs=settings,
                assignment={
                    number: [BrokerId(each) for each in brokers]
                    for number, brokers in (assignment or {}).items()
                },
            )
        self.run(self.control.wait_for_topic(name))

    def close(self) -> None:
        """Stop the brokers and give everything back; nothing in a process that was forked."""
        self._is_open = False
        if self._thread.is_inherited:
            return
        try:
            CLUSTERS.is_ending(self)
            self._thread.run(self._control.end())
        finally:
            self._thread.close()
            self._release()


def _release(control: Control, thread: LoopThread) -> None:
    """Give back what a cluster has; a process that was forked from its own has nothing of it."""
    if not thread.is_inherited:
        control.release()


def given(broker_ids: Sequence[int | None]) -> list[int]:
    """The ids, each once. `leader_of` may give None where there is no leader to do it to."""
    if None in broker_ids:
        raise ClusterError("There is no such broker at the moment: its id is None.")
    return [each for each in dict.fromkeys(broker_ids) if each is not None]
