"""What a topic demands of the batches that are appended to it, as one value.

This file knows how the rules follow from a topic's settings. What they mean for a batch is in
`validation.py`, what they mean for a single record in `record_checks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.config.topic import TopicConfig
from strandline.records.batch import TimestampType
from strandline.records.codec import CODEC_BY_SETTING, Codec
from strandline.records.compression import DECOMPRESSED_BYTES_MAX

PRODUCED_BYTES_MAX: Final = 32 * 1024 * 1024
"""What a produced batch may decompress to, on topics with an ordinary `max.message.bytes`. All else
that the broker does waits while a batch is opened, for a tenth of a second at this size."""
_TIMES_MESSAGE_BYTES: Final = 4
"""Where batches may be large, they may decompress to this multiple of that, at most to
`DECOMPRESSED_BYTES_MAX`, the most that readers here accept."""
_INT64_MAX: Final = 2**63 - 1
UNLIMITED_MS: Final = _INT64_MAX
"""The default of `message.timestamp.before.max.ms`: records may be as old as they like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """The rules in force for one topic. The defaults are Kafka's; times are in milliseconds."""

    compacted: bool = False
    """Every record must have a key."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    before_max_ms: int = UNLIMITED_MS
    """How far in the past a record's CreateTime may lie."""
    after_max_ms: int = 3_600_000
    """How far in the future a record's CreateTime may lie."""
    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    codec: Codec | None = None
    """The codec that all batches are stored with; None keeps the producer's."""
    level: int | None = None
    """Compression level for batches that are packed anew; None is the codec's default."""
    allow_control: bool = False
    """A coordinator's own append: offsets, record count and control bit are not checked."""
    max_decompressed_bytes: int = PRODUCED_BYTES_MAX
    """What one batch may decompress to."""

    @property
    def keeps_batches(self) -> bool:
        """Whether every batch that breaks no rule is appended as it came."""
        return self.timestamp_type is TimestampType.CREATE_TIME and self.codec is None

    def timestamp_limits(self, now_ms: int) -> tuple[int, int]:
        """The earliest and the latest timestamp that a record may have from its producer."""
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return -_INT64_MAX - 1, _INT64_MAX
        return now_ms - self.before_max_ms, min(now_ms + self.after_max_ms, _INT64_MAX)

    @classmethod
    def for_topic(cls, config: TopicConfig, *, allow_control: bool = False) -> AppendRules:
        """The rules that follow from a topic's settings."""
        codec = CODEC_BY_SETTING.get(config.compression_type)
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        by_append = config.message_timestamp_type == "LogAppendTime"
        return cls(
            compacted=config.is_compacted,
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME if by_append else TimestampType.CREATE_TIME
            ),
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            max_message_bytes=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
            codec=codec,
            level=None if codec is None else levels.get(codec),
            allow_control=allow_control,
            max_decompressed_bytes=min(
                max(PRODUCED_BYTES_MAX, _TIMES_MESSAGE_BYTES * config.max_message_bytes),
                DECOMPRESSED_BYTES_MAX,
            ),
        )
