"""Values as they are: one binary column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.lakehouse.values.decoding import Decoded


class RawDecoder:
    """Reads nothing: the column `value` holds the bytes, null for a tombstone."""

    name = "raw"

    def decode(self, values: pa.Array) -> Decoded:
        """As `Decoder.decode`, without a fault."""
        columns = pa.RecordBatch.from_arrays([values.cast(pa.binary())], names=["value"])
        return Decoded(columns, pa.array(np.arange(len(values)), pa.int64()), [])
