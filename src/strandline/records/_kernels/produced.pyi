from strandline.records.batch import Buffer
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
