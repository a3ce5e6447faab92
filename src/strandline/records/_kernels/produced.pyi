from strandline.records.batch import BatchHeader, Buffer
from strandline.records.plain_produce import PlainProduce
from strandline.records.produced_records import Findings

def newest_of(
    payload: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    wants_keys: bool,
) -> int | None: ...
def look_closely(
    payload: Buffer,
    count: int,
    base_timestamp: int,
    stamp: int | None,
    earliest: int,
    latest: int,
    wants_keys: bool,
    most: int,
) -> Findings: ...
def first_at_least(
    header: BatchHeader, payload: Buffer, timestamp: int, offset: int
) -> tuple[int, int] | None: ...
def plain_produce(
    frame: memoryview,
    constant: bytes,
    is_compact: bool,
    bytes_max: int,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    wants_keys: bool,
    flags: int,
) -> PlainProduce | None: ...
