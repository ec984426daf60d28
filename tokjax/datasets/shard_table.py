"""Compact table of a manifest's shards: about 200 bytes per shard, where a Python object takes 2,000.

A manifest is parsed in one pass. Each JSON object that describes a shard is appended to the table as soon as
it is parsed. A `_Row` with its index replaces it in the parsed JSON:

    {"shards": [{"name": "shard-00000", ...}, {...}]}   becomes   {"shards": [_Row(0), _Row(1)]}

A row of the table has a fixed head, one entry per file, and one number per bucket:

    counts     num_items | num_documents | num_bytes | ..., as in `TOTALS`          int64 each
    records    is_numbered | source_sha256 | number of files | number of buckets    `_HEAD`
               suffix index | sha256 | nbytes                                       `_FILE`, per file
               bucket_documents                                                     int64, per bucket

File names are stored as the shard's name plus an index into a list of distinct suffixes, such as
`.tokens.npy`. The shard's name itself is stored only if it is not the usual `shard-NNNNN`.

An object that differs from those that writers produce stays a dict, and `manifest_validation` checks it.
"""

from __future__ import annotations

import json
import re
import struct
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from tokjax.datasets.manifest import DROPPED, TOTALS, CompactShards, FileRecord, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEYS = {"name", "is_numbered", "bucket_documents", "source_sha256", "files", *TOTALS}
_SHA256 = re.compile("[0-9a-f]{64}")
_HEAD = struct.Struct("<?32sHi")  # is_numbered, source_sha256, number of files, number of buckets or -1
_FILE = struct.Struct("<I32sq")  # index of the name's suffix, SHA-256, size


class _Row(NamedTuple):
    """Position of a shard in the table."""

    number: int


class ShardTable(CompactShards):
    """Sequence of the shards of a manifest. A `Shard` is built each time one is read."""

    def __init__(self) -> None:
        self._counts = array("q")  # the counts in `TOTALS`, for each shard
        self._records = bytearray()
        self._ends = array("q", [0])
        self._names: dict[int, str] = {}  # names that differ from the default
        self._suffixes: dict[str, int] = {}
        self._suffix_list: list[str] = []

    def __len__(self) -> int:
        """Returns the number of shards."""
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> Shard: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Shard, ...]: ...

    def __getitem__(self, index: int | slice) -> Shard | tuple[Shard, ...]:
        """Returns a shard, or a tuple of shards for a slice."""
        if isinstance(index, slice):
            return tuple(map(self._get, range(*index.indices(len(self)))))
        return self._get(range(len(self))[index])

    def __iter__(self) -> Iterator[Shard]:
        """Iterates over the shards."""
        return map(self._get, range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Returns whether another sequence has equal shards."""
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(shard == other_shard for shard, other_shard in zip(self, other, strict=True))

    def __hash__(self) -> int:
        """Returns a hash that is the same for equal tables."""
        return hash((len(self), self._counts.tobytes()))

    def get_counts(self, name: str) -> Sequence[int]:
        """Returns one of the counts named in `TOTALS`, for each shard."""
        return self._counts[TOTALS.index(name) :: len(TOTALS)]

    def append(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Row:
        """Appends a JSON object if it describes a shard.

        Args:
            pairs: keys and values of the object, as `json.loads` passes them to `object_pairs_hook`.

        Returns:
            The `_Row` of the shard; for other objects a dict.
        """
        described = dict(pairs)
        if not _is_shard(described):
            return described
        self._append(described)
        return _Row(len(self) - 1)

    def _append(self, described: dict[str, Any]) -> None:
        name, files, buckets = described["name"], described["files"], described["bucket_documents"]
        if name != _get_default_name(len(self)):
            self._names[len(self)] = name
        self._counts.extend(described.get(total, 0) for total in TOTALS)
        source = bytes.fromhex(described["source_sha256"])
        num_buckets = -1 if buckets is None else len(buckets)
        self._records += _HEAD.pack(described["is_numbered"], source, len(files), num_buckets)
        for file, (nbytes, sha256) in files.items():
            suffix = file.removeprefix(name)
            if suffix not in self._suffixes:
                self._suffixes[suffix] = len(self._suffix_list)
                self._suffix_list.append(suffix)
            self._records += _FILE.pack(self._suffixes[suffix], bytes.fromhex(sha256), nbytes)
        self._records += array("q", buckets or ()).tobytes()
        self._ends.append(len(self._records))

    def _get(self, index: int) -> Shard:
        name = self._names.get(index) or _get_default_name(index)
        position = self._ends[index]
        is_numbered, source, num_files, num_buckets = _HEAD.unpack_from(self._records, position)
        position += _HEAD.size
        files = {}
        for start in range(position, position + num_files * _FILE.size, _FILE.size):
            suffix, sha256, nbytes = _FILE.unpack_from(self._records, start)
            files[name + self._suffix_list[suffix]] = FileRecord(nbytes, sha256.hex())
        position += num_files * _FILE.size
        buckets = None
        if num_buckets >= 0:
            buckets = tuple(array("q", bytes(self._records[position : self._ends[index + 1]])))
        counts = self._counts[index * len(TOTALS) : (index + 1) * len(TOTALS)]
        return Shard(
            name=name,
            **dict(zip(TOTALS, counts, strict=True)),
            is_numbered=is_numbered,
            bucket_documents=buckets,
            source_sha256=source.hex(),
            files=files,
        )


def parse_with_shards(data: bytes) -> Any:
    """Parses JSON with a list of shards under the key `"shards"`.

    Returns:
        The parsed JSON. The list is a `ShardTable` if all of its items describe shards.
    """
    table = ShardTable()
    contents = json.loads(data, object_pairs_hook=table.append)
    if isinstance(contents, dict) and isinstance(contents.get("shards"), list):
        parsed = contents["shards"]
        if parsed == list(map(_Row, range(len(table)))):
            contents["shards"] = table
        else:
            contents["shards"] = [table[row.number] if isinstance(row, _Row) else row for row in parsed]
    return contents


def _get_default_name(index: int) -> str:
    return f"shard-{index:05d}"


def _is_shard(described: dict[str, Any]) -> bool:
    """Returns whether an object describes a shard as writers do, with values of the right types."""
    if described.keys() | {DROPPED} != _KEYS:
        return False
    name, files, buckets = described["name"], described["files"], described["bucket_documents"]
    return (
        isinstance(name, str)
        and name != ""
        and all(_is_count(described.get(total, 0)) for total in TOTALS)
        and isinstance(described["is_numbered"], bool)
        and (buckets is None or (isinstance(buckets, list) and all(map(_is_count, buckets))))
        and _is_sha256(described["source_sha256"])
        and isinstance(files, dict)
        and len(files) < 1 << 16
        and all(file.startswith(name) and _is_record(record) for file, record in files.items())
    )


def _is_record(record: object) -> bool:
    return isinstance(record, list) and len(record) == 2 and _is_count(record[0]) and _is_sha256(record[1])


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None
