"""Tar archives of samples, as WebDataset writes them: one member per sample and kind of data.

    member          sample   record
    00/a.txt        00/a     {"txt": b"...", "text": b"...", "json": {"url": "x"}, "url": "x"}
    00/a.json       00/a
    00/b.seg.txt    00/b     {"seg.txt": b"..."}
    00/b.jpg        00/b     (not read)

The key of a sample is the path up to the first dot of the file name, and its members follow one another. An
archive is read once, from start to end, and nothing is written to disk. Links and devices are skipped, and
sizes are checked before anything is read.
"""

from __future__ import annotations

import codecs
import itertools
import json
import logging
import re
import tarfile
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import open_decompressed, report_damage
from tokjax.corpus.records import NAME_THE_FIELD, Choose, RowChunk, SizedRecords
from tokjax.errors import Hint, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Self

_log = logging.getLogger("tokjax")

_MEMBER = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)")
_MAX_SAMPLE_BYTES = 1 << 28
_EXTENDED_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_MAX_HEADER_BYTES = 1 << 14
"""Maximum size of an extended header, which holds a long name. The tarfile module reads it as a whole."""
_BLOCK = 1 << 16
_SORT_MEMBERS = "; if the members of a sample do not follow one another, pack them with tar --sort=name"
_SPARSE = "it has a sparse file; pack it again without --sparse"


class _ArchiveError(Exception):
    """Damage of an archive that the tarfile module would take for its end."""


class _CheckedHeader(tarfile.TarInfo):
    """Header of a member, which is checked before the tarfile module uses it."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parses the 512 bytes of a header, and checks it as `_parse` does."""
        return cls._parse(super().frombuf, buf, encoding, errors)

    @classmethod
    def _frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str, **options: bool) -> Self:
        """Parses a header like `frombuf`, in whose place newer versions of Python call this method."""
        parse = super()._frombuf  # type: ignore[misc]
        return cls._parse(partial(parse, **options), buf, encoding, errors)

    @classmethod
    def _parse(cls, parse: Callable[..., Self], buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parses a header by a method of the base class.

        Raises:
            _ArchiveError: the header is damaged, or the archive ends without the block of zeros that marks
                its end.
        """
        try:
            header = parse(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):
                raise  # the end of the archive
            raise _ArchiveError(str(error) if buf else "the end of the archive is missing") from error
        if header.size < 0:
            raise _ArchiveError(f"the member {header.name!r:.200} has the size {header.size}")
        if header.type == tarfile.GNUTYPE_SPARSE:
            header._proc_gnusparse_10()
        if header.type in _EXTENDED_HEADERS and header.size > _MAX_HEADER_BYTES:
            raise _ArchiveError(
                f"an extended header has {header.size:,} bytes, and at most {_MAX_HEADER_BYTES:,} are read"
            )
        return header

    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        """Processes the blocks after a header.

        Raises:
            _ArchiveError: they are damaged, for example an extended header with a negative size.
        """
        try:
            member: Self = super()._proc_member(archive)  # type: ignore[misc]
        except tarfile.HeaderError as error:
            raise _ArchiveError(str(error)) from error
        return member

    def _proc_gnusparse_10(self, *_: object) -> NoReturn:
        """Rejects sparse files in pax format, of which the tarfile module would read a list of any length."""
        raise _ArchiveError(_SPARSE)


class _Member(NamedTuple):
    """Contents of a member.

    Attributes:
        key: the key of its sample.
        suffix: the part of its name after the key, in lower case.
        contents: its bytes.
    """

    key: str
    suffix: str
    contents: bytes


class ArchiveChunk(RowChunk):
    """The samples of an archive, which may be compressed, with members of text or JSON.

    Reading raises a `SourceError` if the archive is damaged, or a sample has more than 256 MiB of text and
    JSON.
    """

    __slots__ = ()
    missing_field_hint = Hint(NAME_THE_FIELD.python + _SORT_MEMBERS, NAME_THE_FIELD.shell + _SORT_MEMBERS)

    def iter_sized_records(self, _: Choose) -> SizedRecords:
        """Yields the samples with all their members.

        A record is an error if a member is not JSON, or if two members have the same suffix.
        """
        name = get_path_or_url(self.path)
        with open_decompressed(self.path) as (file, stream):
            reported = 0
            members = _iter_members(self.path, stream)
            for key, group in itertools.groupby(members, key=lambda member: member.key):
                location, contents = f"{name}, sample {key!r}", list(group)
                position = file.tell()
                nbytes = sum(len(member.contents) for member in contents)
                yield location, _make_record(location, contents), nbytes, position - reported
                reported = position


def _iter_members(path: Path, stream: BinaryIO) -> Iterator[_Member]:
    """Yields the members with text or JSON.

    Raises:
        SourceError: the archive is damaged, or has members, but none with text or JSON.
    """
    name = get_path_or_url(path)
    key, nbytes, skipped = None, 0, None
    num_links, link = 0, ""
    try:
        with report_damage(path), tarfile.open(fileobj=stream, mode="r|", tarinfo=_CheckedHeader) as archive:
            while (header := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # (else they are kept, for random access)
                match = _MEMBER.fullmatch(header.name)
                suffix = "" if match is None else match[2].lower()
                is_read = suffix.rsplit(".", 1)[-1] in ("txt", "json")
                if match is None or not is_read or not header.isreg():
                    skipped = skipped or (header.name if header.isreg() else None)
                    if is_read and (header.issym() or header.islnk()):
                        num_links, link = num_links + 1, link or header.name
                    continue
                if header.issparse():
                    raise _ArchiveError(_SPARSE)
                key, nbytes = match[1], header.size + (nbytes if match[1] == key else 0)
                if nbytes > _MAX_SAMPLE_BYTES:
                    raise SourceError(
                        f"{name}: up to {header.name!r:.200}, the sample has {nbytes:,} bytes, and at most "
                        f"{_MAX_SAMPLE_BYTES:,} are read"
                    )
                file = archive.extractfile(header)
                assert file is not None  # it is a regular file
                yield _Member(match[1], suffix, file.read())
            _check_end(archive)
        if num_links:
            _log.warning(
                "%s: members that are links, which are not read: %d, such as %.200r; pack their files with "
                "tar --dereference --hard-dereference",
                name,
                num_links,
                link,
            )
        if key is None and skipped is not None:
            raise SourceError(
                f"{name} has no members named .txt or .json, of which documents are read, but others such as "
                f"{skipped!r:.200}; unpack it with tar -xf, and pass the files"
            )
    except SourceError:
        raise
    except (tarfile.TarError, _ArchiveError, RecursionError, ValueError) as error:
        raise SourceError(f"{name}: truncated or damaged, or not a tar archive: {error}") from error


def _check_end(archive: tarfile.TarFile) -> None:
    """Checks that zeros follow the end of an archive.

    Raises:
        _ArchiveError: other data follow, which the tarfile module does not read.
    """
    assert archive.fileobj is not None  # it is open
    while block := archive.fileobj.read(_BLOCK):
        if any(block):
            raise _ArchiveError("data follow the end of the archive; are several archives concatenated?")


def _make_record(location: str, members: list[_Member]) -> dict[str, Any] | SourceError:
    """Returns the record of a sample: its members by suffix, and the keys of the object in `.json`."""
    record: dict[str, Any] = {}
    for member in members:
        if member.suffix in record:
            return SourceError(f"{location}: there are several members with the suffix {member.suffix!r}")
        if not member.suffix.endswith("json"):
            record[member.suffix] = member.contents.removeprefix(codecs.BOM_UTF8)
            continue
        try:
            record[member.suffix] = json.loads(member.contents)
        except (ValueError, RecursionError) as error:
            return SourceError(
                f"{location}: the member with the suffix {member.suffix!r} is not JSON: {error}"
            )
    if isinstance(record.get("json"), dict):
        record = record["json"] | record
    if "txt" in record:
        record["text"] = record["txt"]
    return record
