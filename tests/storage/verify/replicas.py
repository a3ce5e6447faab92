"""Log directories of three brokers, written by the project's own logs, for the audit's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from uuid import UUID

from strandline.config.topic import TopicConfig
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.codec import Codec
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.clean_shutdown import CleanShutdown, write_marker
from strandline.storage.compaction.bounds import cleanable_range
from strandline.storage.compaction.cleaning import carry_out
from strandline.storage.compaction.plan import CleanerSettings
from strandline.storage.compaction.planner import plan_cleaning
from strandline.storage.log import Log
from strandline.storage.log_directory import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS
from strandline.storage.meta_properties import claim_directory
from strandline.storage.partition_metadata import write_topic_id
from strandline.storage.real_files import RealFiles
from strandline.storage.verify.directories import find_log_directories, take_inventory
from strandline.storage.verify.findings import Finding, PartitionReport
from strandline.storage.verify.partition import audit_here
from strandline.types import (
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

NOW_MS = 1_700_000_000_000
BROKERS = (1, 2, 3)
ORDERS = TopicPartition("orders", 0)
ACCOUNTS = TopicPartition("accounts", 0)
SMALL = TopicConfig(segment_bytes=1500, index_interval_bytes=150, segment_index_bytes=4096)
COMPACT = TopicConfig(
    segment_bytes=1500,
    index_interval_bytes=150,
    segment_index_bytes=4096,
    cleanup_policies=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
FILES = RealFiles()


class Replicas:
    """The brokers' directories. `write` first, then `finish`, then `audit` as often as wanted."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs: dict[tuple[int, TopicPartition], Log] = {}
        self.cleaned: dict[tuple[int, TopicPartition], int] = {}
        for broker in BROKERS:
            self.home.joinpath(f"broker-{broker}").mkdir(parents=True)
            claim_directory(FILES, self.broker_directory(broker), BrokerId(broker), "cluster")

    def broker_directory(self, broker: int) -> str:
        return str(self.home / f"broker-{broker}")

    def directory(self, broker: int, at: TopicPartition = ORDERS) -> Path:
        return self.home / f"broker-{broker}" / str(at)

    def write(
        self,
        at: TopicPartition,
        batches: Iterable[bytes],
        brokers: Sequence[int] = BROKERS,
        config: TopicConfig = SMALL,
    ) -> None:
        """Append to the logs of these brokers."""
        for batch in batches:
            for broker in brokers:
                log = self.logs.get((broker, at))
                if log is None:
                    directory = str(self.directory(broker, at))
                    log = Log.create(
                        FILES, directory, at, config, now_ms=NOW_MS, random=Random(broker)
                    )
                    write_topic_id(FILES, directory, UUID(int=len(at.topic)))
                    self.logs[broker, at] = log
                log.appender.append_as_follower(batch, NOW_MS)

    def compact(self, broker: int, at: TopicPartition = ACCOUNTS) -> None:
        """Clean everything below the active segment."""
        log = self.logs[broker, at]
        log.advance_high_watermark_to(log.log_end_offset)
        now_ms = NOW_MS + 10_000_000
        range_ = cleanable_range(log, None, now_ms)
        plan = plan_cleaning(log, range_, CleanerSettings(), now_ms)
        assert plan is not None
        for result in carry_out(plan, FILES):
            assert log.swap.finish_cleaning(result, now_ms)
            if result.is_last:
                assert result.cleaned_to is not None
                self.cleaned[broker, at] = result.cleaned_to

    def finish(
        self,
        *,
        clean: bool = True,
        high_watermarks: dict[int, int] | None = None,
        log_starts: dict[int, int] | None = None,
        with_cleaner_offsets: bool = True,
    ) -> None:
        """Close everything and write the tables."""
        for broker in BROKERS:
            own = {at: log for (owner, at), log in self.logs.items() if owner == broker}
            ends = {at: log.log_end_offset for at, log in own.items()}
            for log in own.values():
                if clean:
                    log.close_clean()
                else:
                    self._leave(log)
            if high_watermarks and broker in high_watermarks:
                ends = dict.fromkeys(own, Offset(high_watermarks[broker]))
            path = self.broker_directory(broker)
            OffsetCheckpoint(FILES, f"{path}/{HIGH_WATERMARKS}").write(ends)
            starts = {at: log.log_start_offset for at, log in own.items()}
            if log_starts and broker in log_starts:
                starts = dict.fromkeys(own, Offset(log_starts[broker]))
            OffsetCheckpoint(FILES, f"{path}/{LOG_STARTS}").write(starts)
            cleaned = {
                at: Offset(to) for (owner, at), to in self.cleaned.items() if owner == broker
            }
            if with_cleaner_offsets:
                OffsetCheckpoint(FILES, f"{path}/{CLEANER_OFFSETS}").write(cleaned)
            if clean:
                write_marker(FILES, path, CleanShutdown(1))

    def _leave(self, log: Log) -> None:
        """As a killed process does: what only waits in memory to be written to an index is gone."""
        for segment in log.segments.all:
            with suppress(FileNotFoundError):
                segment.log.close()
        log.close()

    def audit(self, *directories: Path) -> list[Finding]:
        return [finding for report in self.reports(*directories) for finding in report.findings]

    def reports(self, *directories: Path) -> list[PartitionReport]:
        given = [str(each) for each in directories or (self.home,)]
        inventory = take_inventory(FILES, find_log_directories(FILES, given))
        assert not inventory.findings
        return audit_here(inventory, FILES)

    # -- Where to plant --------------------------------------------------------------------------

    def segments(self, broker: int, at: TopicPartition = ORDERS, kind: str = ".log") -> list[Path]:
        return sorted(self.directory(broker, at).glob(f"*{kind}"))

    def edit(self, path: Path, change: Callable[[bytearray], None]) -> None:
        data = bytearray(path.read_bytes())
        change(data)
        path.write_bytes(data)


def batch(
    first: int,
    *,
    count: int = 3,
    epoch: int = 1,
    producer: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
    prefix: bytes = b"v",
    keys: Sequence[bytes | None] = (),
    values: Sequence[bytes | None] = (),
) -> bytes:
    records = [
        Record(
            timestamp=NOW_MS + 10 * (first + n),
            key=keys[n] if keys else b"k%d" % (first + n),
            value=values[n] if values else prefix + b"%08d" % (first + n) + b"." * 40,
        )
        for n in range(len(keys) or count)
    ]
    return build_batch(
        records,
        base_offset=Offset(first),
        leader_epoch=LeaderEpoch(epoch),
        codec=codec,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0 if producer >= 0 else -1),
        base_sequence=sequence,
        is_transactional=producer >= 0,
    )


def marker(offset: int, producer: int, kind: ControlType, epoch: int = 1) -> bytes:
    return build_control_batch(
        EndTransactionMarker(kind, 0),
        timestamp=NOW_MS + 10 * offset,
        base_offset=Offset(offset),
        leader_epoch=LeaderEpoch(epoch),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
    )


def orders() -> list[bytes]:
    """Some hundred records of three leaders, with two aborted transactions and a committed one."""
    batches = [batch(first) for first in range(0, 60, 3)]
    batches += [
        batch(60, producer=7, sequence=0),
        batch(63, producer=8, sequence=0),
        marker(66, 7, ControlType.ABORT),
        batch(67, producer=7, sequence=3),
        marker(70, 8, ControlType.ABORT),
        marker(71, 7, ControlType.COMMIT),
    ]
    batches += [batch(first, epoch=3) for first in range(72, 132, 3)]
    batches += [batch(first, epoch=4, codec=Codec.GZIP) for first in range(132, 180, 3)]
    return batches


def accounts(rounds: int = 30) -> list[bytes]:
    """The balances of five accounts, again and again; one account is closed at the end."""
    batches = [
        batch(
            5 * n, keys=[b"a%d" % m for m in range(5)], values=[b"%d" % (n * m) for m in range(5)]
        )
        for n in range(rounds)
    ]
    end = 5 * rounds
    batches.append(batch(end, keys=[b"a4"], values=[None]))
    batches += [batch(end + 1 + n, keys=[b"b%d" % n], values=[b"x" * 200]) for n in range(20)]
    return batches
