from strandline.records.batch import Buffer
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
