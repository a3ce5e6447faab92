"""What can stop a pipeline, by name. Errors of the table itself are `tables.errors`.

PipelineError
├── RecordsLost       the log no longer has records that the table lacks
├── LogReplaced       the log ends before, or parts from, what the table holds
├── TopicMissing      a topic of the table does not exist
├── TransformFailed   what the user put between topic and table raises, or loses records' places
└── PipelineFailed    Spark or the cluster failed, and trying again did not help
"""

from __future__ import annotations

from strandline.errors import StrandlineError


class PipelineError(StrandlineError):
    """A pipeline stopped; what it has committed stays as it is."""


class RecordsLost(PipelineError):
    """Retention, or an administrator, removed records before the table had them."""


class LogReplaced(PipelineError):
    """The log is not the one that the table's rows came from, as far as their offsets show."""


class TopicMissing(PipelineError):
    """There is nothing to read."""


class TransformFailed(PipelineError):
    """A table's select or transform cannot be carried out; nothing of the batch was committed."""


class PipelineFailed(PipelineError):
    """Repeated attempts ended in the same way."""
