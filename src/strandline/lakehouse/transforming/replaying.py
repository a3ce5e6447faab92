"""Dead letters read again, and carried through the table's transform, in a session of Spark's."""

from __future__ import annotations

from strandline.lakehouse.deadletters.listing import ALL, LetterFilter
from strandline.lakehouse.deadletters.replaying import ReplayResult, replay
from strandline.lakehouse.spark_options import SparkOptions, one_session
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.transforming.given import Transform, transform_of


def replay_through(
    store: TableStore,
    wanted: LetterFilter = ALL,
    spark: SparkOptions | None = None,
    transform: Transform | None = None,
) -> ReplayResult:
    """As `replay`, through `transform`, by default the one that the definition names.

    If Spark runs in this process already, its session is used and left as it is. Raises
    TransformFailed, NoJava, NoSpark, and InvalidSetting for a transform that cannot be found.
    """
    transform = transform or transform_of(store.spec)
    if transform is None:
        return replay(store, wanted)
    from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
    from strandline.lakehouse.transforming.utc_session import copy_in_utc
    from strandline.lakehouse.transforming.writing import Passage

    with one_session(f"table replay {store.spec.name}", spark or SparkOptions()) as session:
        store.carry_out_by(carrier_of(session))
        return replay(store, wanted, Passage(copy_in_utc(session), store.spec, transform).write)
