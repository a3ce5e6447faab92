"""What every change of the metadata must respect: I-12, I-16, I-18, I-19, I-31, I-33.

The store's truth moves in single transactions, so each state of a partition is seen, and beside it
the one before: `MetadataWatch` finds the changes, `MetadataRules` judges them. Whether the replicas
that a state names really have what it says is `commitment`'s part; here states are compared with
each other and with the registrations of brokers, and a joining replica with its leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.node.settings import Settings
from strandline.sim.checkers.cluster import Cluster
from strandline.sim.checkers.commitment import Commitment
from strandline.sim.checkers.partition_model import PartitionModel, PartitionModels
from strandline.sim.checkers.scope import Scope
from strandline.sim.checkers.violations import Findings
from strandline.types import BrokerId, TopicPartition

SETTINGS_KNOWN_US: Final = 120_000_000
"""How long a controller may go on writing by the old value of a changed setting, in us: until it
hears of the change, or another controller is elected."""


class MetadataWatch:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        findings: Findings,
        partitions: PartitionModels,
        commitment: Commitment,
        scope: Scope,
        now_us: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._commitment = commitment
        self._now_us = now_us
        self._rules = MetadataRules(cluster, findings, scope)
        self._image = ClusterImage()
        self._settings: list[Settings] = []
        """Of each broker: their files may differ."""
        self._former_minimums: dict[str, list[tuple[int, int]]] = {}
        """Of topics whose minimum was changed: until when which one may still be followed."""
        self._minimums: dict[str, frozenset[int]] = {}
        """By which the brokers go, of each topic."""

    def follow(self, image: ClusterImage) -> None:
        """The store has moved on."""
        before, self._image = self._image, image
        self._rules.check_cluster(image)
        if image.configs is not before.configs or not self._settings:
            self._follow_settings(image)
        if image.topics is before.topics:
            return
        for name, topic in before.topics.items():
            present = image.topics.get(name)
            if present is None or present.topic_id != topic.topic_id:
                self._minimums.pop(name, None)
                self._former_minimums.pop(name, None)
                for number in topic.partitions:
                    self._partitions.of(TopicPartition(name, number), topic.topic_id).state = None
        for name, topic in image.topics.items():
            former = before.topics.get(name)
            if former is topic:
                continue
            if name not in self._minimums:
                self._note_minimum(name, image)
            is_same = former is not None and former.topic_id == topic.topic_id
            for number, state in topic.partitions.items():
                old = former.partitions.get(number) if former is not None and is_same else None
                if old is not state and old != state:
                    partition = self._partitions.of(TopicPartition(name, number), topic.topic_id)
                    self._changed(partition, old, state)

    def _changed(
        self, partition: PartitionModel, old: PartitionImage | None, state: PartitionImage
    ) -> None:
        partition.state = state
        partition.state_since_us = self._now_us()
        if state.has_eligible:
            partition.with_eligible.add(state.partition_epoch)
        self._rules.check_partition(partition, old, self._image, minimums=self._possible(partition))
        self._commitment.check_all_leaders(partition)

    # -- Settings ----------------------------------------------------------------------------

    def _follow_settings(self, image: ClusterImage) -> None:
        if not self._settings:
            self._settings = [Settings(each.config) for each in self._cluster.machines.values()]
        for broker_id, settings in zip(self._cluster.machines, self._settings, strict=True):
            settings.follow(image, broker_id)
        for name in image.topics:
            self._note_minimum(name, image)

    def _note_minimum(self, name: str, image: ClusterImage) -> None:
        if not self._settings:
            return
        minimums = frozenset(
            settings.of_topic(name, image).min_insync_replicas for settings in self._settings
        )
        until_us = self._now_us() + SETTINGS_KNOWN_US
        for known in sorted(self._minimums.get(name, minimums) - minimums):
            self._former_minimums.setdefault(name, []).append((until_us, known))
        self._minimums[name] = minimums

    def _possible(self, partition: PartitionModel) -> tuple[int, ...]:
        former = self._former_minimums.get(partition.at.topic, ())
        minimums = sorted(self._minimums.get(partition.at.topic, (1,)))
        minimums += [minimum for until_us, minimum in former if self._now_us() <= until_us]
        return tuple(self._limited(partition, minimum) for minimum in minimums)

    @staticmethod
    def _limited(partition: PartitionModel, minimum: int) -> int:
        replicas = 1 if partition.state is None else len(partition.state.replicas)
        return max(1, min(minimum, replicas))


class MetadataRules:
    """See the module."""

    def __init__(self, cluster: Cluster, findings: Findings, scope: Scope) -> None:
        self._cluster = cluster
        self._findings = findings
        self._scope = scope
        self._broker_epochs: dict[BrokerId, int] = {}
        self._controllers: dict[int, BrokerId] = {}
        self._controller_epoch = -1

    # -- The cluster -------------------------------------------------------------------------

    def check_cluster(self, image: ClusterImage) -> None:
        """I-18 for controllers and registrations."""
        if image.controller_epoch is not None:
            epoch = image.controller_epoch.value
            if epoch < self._controller_epoch:
                self._findings.add(
                    "I-18", f"The controller epoch fell from {self._controller_epoch} to {epoch}"
                )
            self._controller_epoch = epoch
            if image.controller is not None:
                holder = self._controllers.setdefault(epoch, image.controller)
                if holder != image.controller:
                    self._findings.add(
                        "I-18",
                        f"Brokers {holder} and {image.controller} are both the controller of "
                        f"epoch {epoch}",
                    )
        for broker_id, broker in image.brokers.items():
            known = self._broker_epochs.get(broker_id, -1)
            if broker.epoch < known:
                self._findings.add(
                    "I-18",
                    f"The broker epoch of broker {broker_id} fell from {known} to {broker.epoch}",
                )
            self._broker_epochs[broker_id] = broker.epoch

    # -- One partition -----------------------------------------------------------------------

    def check_partition(
        self,
        partition: PartitionModel,
        old: PartitionImage | None,
        image: ClusterImage,
        *,
        minimums: tuple[int, ...],
    ) -> None:
        """The partition has another state, `partition.state`. `minimums` are the effective minimums
        of in-sync replicas that the writer of it may have known."""
        new = partition.state
        if new is None or new.partition_epoch < 0:
            return
        self._check_sets(partition, new, minimums)
        if old is None or old.partition_epoch < 0:
            return
        self._check_epochs(partition, old, new, image)
        if new.leader_epoch != old.leader_epoch:
            self._check_election(partition, old, new)
        self._check_records(partition, old, new, image)

    def _check_sets(
        self, partition: PartitionModel, new: PartitionImage, minimums: tuple[int, ...]
    ) -> None:
        in_sync, elr, replicas = new.in_sync_replicas, new.elr, new.replicas
        problem = None
        if new.has_leader and new.leader not in in_sync:
            problem = f"the leader {new.leader} is not in sync: {in_sync}"
        elif not set(in_sync) <= set(replicas):
            problem = f"{in_sync} are in sync, but {replicas} are assigned"
        elif not in_sync and not elr and not new.last_known_elr:
            problem = "no replica is in sync or eligible"
        if problem is not None:
            self._findings.add("I-12", f"{partition.at}: {problem}", partition.at)
        if set(elr) & set(in_sync):
            problem = f"{elr} are eligible and {in_sync} in sync"
        elif not set(elr) <= set(replicas):
            problem = f"{elr} are eligible, but {replicas} are assigned"
        elif elr and all(len(in_sync) >= minimum for minimum in minimums):
            problem = f"{elr} are eligible although {in_sync} are in sync (minimum {minimums})"
        else:
            return
        self._findings.add("I-31", f"{partition.at}: {problem}", partition.at)

    def _check_epochs(
        self,
        partition: PartitionModel,
        old: PartitionImage,
        new: PartitionImage,
        image: ClusterImage,
    ) -> None:
        if new.leader_epoch < old.leader_epoch or new.partition_epoch < old.partition_epoch:
            self._findings.add(
                "I-18",
                f"{partition.at}: leader epoch {old.leader_epoch} became {new.leader_epoch}, "
                f"partition epoch {old.partition_epoch} became {new.partition_epoch}",
                partition.at,
            )
        if new.leader != old.leader and new.leader_epoch <= old.leader_epoch:
            self._findings.add(
                "I-18",
                f"{partition.at}: the leader changed from {old.leader} to {new.leader} within "
                f"leader epoch {new.leader_epoch}",
                partition.at,
            )
        if new.partition_epoch == old.partition_epoch or image.controller_epoch is None:
            return
        written_by = (
            image.topics[partition.at.topic].states[partition.at.partition].value.controller_epoch
        )
        if written_by != image.controller_epoch.value:
            self._findings.add(
                "I-18",
                f"{partition.at}: partition epoch {new.partition_epoch} was written in controller "
                f"epoch {written_by}, but {image.controller_epoch.value} has begun",
                partition.at,
            )

    def _check_election(
        self, partition: PartitionModel, old: PartitionImage, new: PartitionImage
    ) -> None:
        """I-19; and no election, of whatever kind, adds a replica to the in-sync set (I-16)."""
        complete = (*old.in_sync_replicas, *old.elr)
        is_only = new.in_sync_replicas == (new.leader,)
        if new.has_leader and new.leader not in complete:
            if new.is_recovering:
                self._note_unclean()
            elif new.leader not in old.last_known_elr:
                self._findings.add(
                    "I-19",
                    f"{partition.at}: broker {new.leader} was elected in leader epoch "
                    f"{new.leader_epoch}, but {old.in_sync_replicas} were in sync and {old.elr} "
                    f"eligible, and the election is not called unclean",
                    partition.at,
                )
        elif new.has_leader and new.is_recovering and is_only and len(complete) > 1:
            # One that restarted uncleanly was preferred to replicas that may come back complete.
            self._note_unclean()
        joined = [b for b in new.in_sync_replicas if b not in old.in_sync_replicas]
        if any(broker != new.leader for broker in joined):
            self._findings.add(
                "I-16",
                f"{partition.at}: {joined} came into the in-sync set by the election of broker "
                f"{new.leader} in leader epoch {new.leader_epoch}",
                partition.at,
            )

    def _note_unclean(self) -> None:
        self._scope.permit_loss()
        self._findings.counters["unclean elections"] += 1

    def _check_records(
        self,
        partition: PartitionModel,
        old: PartitionImage,
        new: PartitionImage,
        image: ClusterImage,
    ) -> None:
        """Under which registration each member is complete: I-16 for new ones, I-33 for others."""
        former = (*old.in_sync_replicas, *old.elr)
        is_election = new.leader_epoch != old.leader_epoch
        joined = () if is_election else [b for b in new.in_sync_replicas if b in old.elr]
        for broker in (*new.in_sync_replicas, *new.elr):
            recorded = new.in_sync_epochs.get(broker)
            before = old.in_sync_epochs.get(broker)
            if is_election and broker == new.leader:
                continue
            if broker in joined:
                self._check_joining(partition, new, broker, recorded)
            elif broker in former:
                if recorded != before and before is not None:
                    self._check_continuity(partition, broker, before, recorded, image)
            elif broker in new.elr:
                self._findings.add(
                    "I-33",
                    f"{partition.at}: broker {broker} became eligible, but was neither in sync nor "
                    f"eligible before: {former}",
                    partition.at,
                )
            elif not is_election:
                self._check_joining(partition, new, broker, recorded)

    def _check_continuity(
        self,
        partition: PartitionModel,
        broker: BrokerId,
        before: int,
        recorded: int | None,
        image: ClusterImage,
    ) -> None:
        registered = image.brokers.get(broker)
        if registered is None or registered.epoch != recorded:
            return  # it has gone since, and is judged when it is back
        if not registered.node.holds(before):
            self._findings.add(
                "I-33",
                f"{partition.at}: broker {broker} was complete under broker epoch {before}, has "
                f"restarted uncleanly (epoch {recorded}, unbroken since "
                f"{registered.previous_epoch}, lives {registered.node.lives}) and is still called "
                f"complete",
                partition.at,
            )

    def _check_joining(
        self, partition: PartitionModel, new: PartitionImage, broker: BrokerId, recorded: int | None
    ) -> None:
        """I-16: as far as both ends are there to be asked."""
        model = partition.models.get(new.leader)
        leader = None if model is None or not model.is_live else model.replica
        if model is None or leader is None or leader.leader is None:
            return
        if leader.leader.leader_epoch != new.leader_epoch:
            return
        progress = leader.leader.progress.get(broker)
        needed = max(model.log.high_watermark, leader.leader.start_offset)
        member = partition.models.get(broker)
        problem = None
        if progress is None or not progress.has_fetched:
            problem = "has not fetched in this leader epoch"
        elif recorded is not None and 0 <= progress.broker_epoch < recorded:
            problem = f"fetched under broker epoch {progress.broker_epoch}, not {recorded}"
        elif (
            member is not None
            and member.is_live
            and self._cluster.broker_epoch(broker) == recorded
            and member.log.log_end_offset < needed
        ):
            problem = f"its log ends at {member.log.log_end_offset}"
        if problem is not None:
            self._findings.add(
                "I-16",
                f"{partition.at}: broker {broker} joined the in-sync set of broker {new.leader}, "
                f"which has committed everything below {model.log.high_watermark} and leads since "
                f"{leader.leader.start_offset}, but {problem}",
                partition.at,
            )
        self._findings.counters["joins"] += 1
