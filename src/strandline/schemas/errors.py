"""What can be wrong with a value or with its schema.

    StrandlineError
    ├── Unreadable          the bytes do not follow the schema, or go beyond a limit
    │   └── UnknownSchema   which schema the bytes follow is not known here
    ├── BadSchema           the text of a schema cannot be used
    └── RegistryDown        a schema registry does not answer, or answers that it cannot

All but the last are definite, and none of these goes away by itself; `UnknownSchema` may, once the
schema is registered.
"""

from __future__ import annotations

from strandline.errors import StrandlineError


class Unreadable(StrandlineError):
    """A value that cannot be decoded; the sentence says why."""


class UnknownSchema(Unreadable):
    """The schema of a value is not known; the sentence says where it was looked for."""


class BadSchema(StrandlineError):
    """A text that is no schema, or one beyond the limits; the sentence says which."""


class RegistryDown(StrandlineError):
    """A registry did not say whether it knows a schema; asking again later may help."""
