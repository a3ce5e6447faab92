"""What dump readers take and yield: a file to read, items to print, problems to count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.errors import InvariantViolated
from strandline.storage.files import File, Files, name_of, parent_of
from strandline.storage.segment_names import parse_segment_name, segment_path


@dataclass(frozen=True, slots=True)
class Item:
    """Something that a file says."""

    kind: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that cannot be right; the sentence says where."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file and how thoroughly to read it."""

    files: Files
    path: str
    with_records: bool
    verify: bool

    @property
    def base_offset(self) -> int:
        """The offset in the name of a segment's file."""
        named = parse_segment_name(name_of(self.path))
        if named is None:
            raise InvariantViolated(f"{self.path} is not a segment's file.")
        return named.base_offset

    def open(self) -> File:
        """The file itself."""
        return self.files.open(self.path)

    def open_sibling(self, kind: str) -> File | None:
        """Another file of the same segment, or None if it is not there."""
        path = segment_path(parent_of(self.path), self.base_offset, kind)
        return self.files.open(path) if self.files.exists(path) else None
