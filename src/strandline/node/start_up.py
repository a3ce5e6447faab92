"""The start of one broker up to its node: what it reads, writes and waits for, in the right order.

    what is missing of the cluster's tree ── claim the log directories ── load the logs
    ── adopt what only the disk knows ── wait until the broker's id is free ── the node

Linear code, because a start is a sequence, but without waiting: `steps` hands every write and every
wait to its driver and goes on with the outcome. The asyncio broker and the simulator drive the same
steps, so that a simulated crash in the middle of a start is one of the broker's own start. This
file decides nothing about the log; what ends a start is raised to the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from strandline.cluster.assignment import Replicas
from strandline.cluster.controller import adopt_partitions, bootstrap, catch_up, has_no_room, strays
from strandline.cluster.features import SUPPORTED
from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.cluster.store import (
    Changes,
    Create,
    MalformedNode,
    MultiRefused,
    NodeCreated,
    Operation,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    StoreView,
)
from strandline.cluster.znodes import (
    BrokerNode,
    Endpoint,
    FormatNode,
    adoption_path,
    state_path,
)
from strandline.config.broker import BrokerConfig
from strandline.config.topic import TopicConfig
from strandline.errors import CannotBeHad
from strandline.node.authentication.authentication import no_tokens
from strandline.node.log_directories import UNKNOWN_EPOCH, LogDirectories
from strandline.node.metadata import tell_unreadable
from strandline.node.node import Node
from strandline.node.settings import Settings
from strandline.storage.files import Files
from strandline.types import BrokerId, Instant, Lives, TopicPartition

if TYPE_CHECKING:
    from strandline.node.authentication.first_users import FirstUser
    from strandline.node.authentication.sasl_listeners import Tokens

log = logging.getLogger(__name__)

_WRITE_ROUNDS_MAX: Final = 20
_ID_GRACE_MS: Final = 2_000


@dataclass(slots=True, eq=False)
class Write:
    """Apply all operations to the metadata store or none; `error` says why it went wrong."""

    operations: Sequence[Operation]
    error: StoreError | None = None


@dataclass(slots=True, eq=False)
class Wait:
    """Wait until the condition holds or the time is over; `is_met` says which it was."""

    condition: Callable[[], bool]
    timeout_ms: int
    is_met: bool = False


Step: TypeAlias = Write | Wait
"""What a driver has to do; it sets the outcome and goes on."""


class StartUp:
    """The start of one broker. `directories` must be released by a caller that gives up."""

    def __init__(
        self,
        config: BrokerConfig,
        files: Files,
        random: Random,
        *,
        clock: Callable[[], Instant],
        is_alone: bool,
        users: Sequence[FirstUser] = (),
    ) -> None:
        """A broker that is alone in its cluster adopts logs that the metadata does not know.

        `users` are made unless they are there.
        """
        self._users = users
        self.directories = LogDirectories(files, config.log_dirs, random)
        self.image = ClusterImage()
        """The metadata as heard so far. Once there is a node, that keeps its own."""
        self._config = config
        self._broker_id = BrokerId(config.node_id)
        self._files = files
        self._random = random
        self._clock = clock
        self._is_alone = is_alone
        self._paths: set[str] = set()

    def changed(self, changes: Changes) -> None:
        """The metadata changed while there is no node yet."""
        self.image, delta = self.image.apply(changes)
        tell_unreadable(self.image, delta.unreadable_changed)
        self._paths.update(
            change.path for change in changes.changes if isinstance(change, NodeCreated)
        )

    def steps(self, view: StoreView) -> Generator[Step, None, None]:
        """Everything up to the moment at which the node can be made, from what the store has now.

        Raises `CannotBeHad` if the id is taken, `UnknownFormat` before anything is changed,
        `StorageError` and `StoreError`: `MalformedNode` for a node that must be readable.
        """
        for node in view.nodes:
            if node.path == FormatNode.path:
                FormatNode.check(node.data)
        self.image = ClusterImage.from_view(view)
        _check_readable(self.image)
        self._paths = {node.path for node in view.nodes}
        yield from self._write(self._missing)
        self._paths = set()
        yield from self._write(self._missing_users)
        self.directories.open(self._broker_id, self.image.cluster_id or "")
        self._load_logs()
        yield from self._adopt()
        yield from self._wait_for_id()

    def make_node(self, endpoints: Sequence[Endpoint], tokens: Tokens = no_tokens) -> Node:
        """The node, which registers itself when it is started. Raises `InvalidSetting`.

        Topics may have been deleted, and made again under their names, while this broker waited
        for its id: their logs must be out of the way before they are taken for the new ones.
        """
        self.directories.set_aside(strays(self.image, self.directories.found(), self._broker_id))
        previous_epoch = self._previous_epoch()
        registration = BrokerNode(
            self._broker_id,
            tuple(endpoints),
            self._config.broker_rack,
            self._clock().wall_ms,
            previous_epoch=previous_epoch,
            lives=None if previous_epoch == UNKNOWN_EPOCH else self._lives(),
            features=SUPPORTED,
        )
        return Node(
            self._config,
            self.image,
            self.directories.all,
            files=self._files,
            random=self._random,
            registration=registration,
            tokens=tokens,
        )

    def _previous_epoch(self) -> int:
        """Under which registration nothing was lost; unknown if a log is gone that must be here, or
        a part of one.

        A marker of a clean end speaks of the logs that lay beside it then. With one that was
        removed go committed records of which this broker is believed to have a copy. One that it
        did not have yet, of a topic of which it had not heard, had nothing that it could lose.
        """
        present = {each.partition for each in self.directories.found()}
        present -= self.directories.promoted
        held = self.directories.held
        gone = [
            at
            for name, topic in self.image.topics.items()
            for number, state in topic.partitions.items()
            if (at := TopicPartition(name, number)) not in present
            and (held is None or (topic.topic_id, number) in held)
            and self._broker_id in _counted(self.image, at, state)
        ]
        previous_epoch = self.directories.previous_epoch
        lost = self.directories.lost
        if not (gone or lost) or previous_epoch == UNKNOWN_EPOCH:
            return previous_epoch
        if gone:
            what = f"The log of {gone[0]} is gone"
            others = f", and {len(gone) - 1} others are" if len(gone) > 1 else ""
        else:
            at, end = next(iter(lost.items()))
            what = f"The log of {at} has lost its end and ends at {end}"
            others = f", and {len(lost) - 1} others have" if len(lost) > 1 else ""
        notice = (
            f"{what}{others}, although the broker had ended cleanly: it starts as after a crash."
        )
        log.warning("%s", notice)
        self.directories.notices.append(notice)
        return UNKNOWN_EPOCH

    def _lives(self) -> Lives | None:
        """Of which processes nothing is lost: also of the last one, if it was registered without
        having heard of it."""
        lives, unheard_ms = self.directories.lives, self.directories.unheard_ms
        remembered = self.image.registrations.get(self._broker_id)
        if lives is None or remembered is None or remembered.process_ms != unheard_ms:
            return lives
        return (*lives, (remembered.zxid, remembered.zxid))

    def id_in_use(self, image: ClusterImage) -> CannotBeHad:
        """What to say when another process has this broker's id."""
        other = image.brokers[self._broker_id]
        return CannotBeHad(
            "node.id",
            f"A broker with the id {self._broker_id} is running in this cluster, at "
            f"{other.endpoints[0]}: every broker needs an id of its own.",
        )

    # -- the steps ---------------------------------------------------------------------------

    def _missing(self) -> Sequence[Operation]:
        # Metadata that others share and that are not there are those of the wrong cluster: giving
        # them the id of the logs would make all of these strays.
        known = self.directories.known_cluster_id() if self._is_alone else None
        operations = bootstrap(
            self._paths,
            random=self._random,
            cluster_id=known or uuid_text(random_uuid(self._random)),
        )
        if not self._is_alone and self._broker_id not in self.image.adopted_by:
            # Logs that others deleted must never be taken for logs to adopt, also not by a later
            # start of this broker alone.
            operations += (Create(adoption_path(self._broker_id)),)
        return operations

    def _missing_users(self) -> Sequence[Operation]:
        if not self._users:
            return ()
        from strandline.node.authentication.first_users import first_users

        return first_users(self.image, self._users)

    def _load_logs(self) -> None:
        settings = Settings(self._config)
        settings.follow(self.image, self._broker_id)

        def config_of(partition: TopicPartition) -> TopicConfig:
            return settings.of_topic(partition.topic, self.image)

        self.directories.load(
            config_of,
            now_ms=self._clock().wall_ms,
            producer_expiration_ms=self._config.producer_id_expiration_ms,
        )

    def _adopt(self) -> Generator[Step, None, None]:
        """Take in what only the disk knows, the first time; later such logs are strays."""
        found = self.directories.found()
        is_first = self._broker_id not in self.image.adopted_by
        kept = None
        if is_first or (self._is_alone and has_no_room(self.image)):
            kept = self.directories.settings_of_kafka(is_first=is_first)
        adoption = adopt_partitions(
            self.image,
            found,
            self._broker_id,
            self._config,
            random=self._random,
            kept=kept,
        )
        self.directories.notices += adoption.notices()
        # Also when nothing was found: what lies here from now on is no reason to adopt again.
        if adoption.operations:
            yield from self._write_once(adoption.operations)
        if self._is_alone:
            caught_up = catch_up(
                self.image,
                found,
                self._broker_id,
                self.directories.next_producer_id(),
                None if kept is None else kept.next_producer_id,
            )
            if caught_up:
                yield from self._write_once(caught_up)
        self.directories.set_aside(adoption.stray)
        self.directories.settle_futures()

    def _write_once(self, operations: Sequence[Operation]) -> Generator[Step, None, None]:
        write = Write(operations)
        yield write
        if write.error is not None:
            raise write.error

    def _wait_for_id(self) -> Generator[Step, None, None]:
        """A registration under this broker's id ends with its session, if its process is gone."""

        def is_free() -> bool:
            return self._broker_id not in self.image.brokers

        if is_free():
            return
        log.info("Broker %d is still registered; its session may have to end", self._broker_id)
        wait = Wait(is_free, 2 * self._config.zookeeper_session_timeout_ms + _ID_GRACE_MS)
        yield wait
        if not wait.is_met:
            raise self.id_in_use(self.image)

    def _write(self, decide: Callable[[], Sequence[Operation]]) -> Generator[Step, None, None]:
        """Make a decision true; it is made again if another broker was faster."""
        for _ in range(_WRITE_ROUNDS_MAX):
            operations = decide()
            if not operations:
                return
            write = Write(operations)
            yield write
            if write.error is None:
                return
            if not isinstance(write.error, MultiRefused | OutcomeUnknown):
                raise write.error
            log.info("Writing the first metadata again: %s", write.error)
        raise StoreUnavailable("The metadata keeps changing while this broker starts.")


def _check_readable(image: ClusterImage) -> None:
    """Tell of nodes that cannot be read. Raises `MalformedNode` for one that must be: without
    assignments logs would be taken for strays, without settings of brokers records for too old,
    and without ACLs what is denied for allowed."""
    tell_unreadable(image, sorted(image.unreadable))
    for path, what in sorted(image.unreadable.items()):
        match path.split("/")[1:]:
            case ["brokers", "topics", _, "partitions", _, "state"] | ["brokers", "ids", _]:
                pass
            case ["config", "topics" | "groups" | "users" | "clients" | "ips", *_]:
                pass
            case ["delegation_token", *_]:
                pass
            case _:
                raise MalformedNode(path, f"{what}; no broker can start before it is set right")


def _counted(image: ClusterImage, at: TopicPartition, state: PartitionImage) -> Replicas:
    """The replicas that may be counted on, for all that this broker can read."""
    if state_path(at) in image.unreadable:
        return state.replicas
    return (*state.in_sync_replicas, *state.elr)
