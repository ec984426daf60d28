"""Options of fsspec's HTTP client, so that a server decides neither about memory nor about waiting times.

fsspec reads answers with aiohttp, which unpacks compressed ones, reads them to their end, and gives up after
five minutes in total. Here an answer is never unpacked, reading stops after one byte more than was asked for
(the caller compares the length), and only silence is limited.
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

from tokjax._util.limits import exceeds_limit

SILENCE_SECONDS = 60
"""Maximum time between two reads of an answer."""
_CHUNK_BYTES = 1 << 16
_COMPRESSED = (".bz2", ".gz", ".tgz", ".xz", ".zst")
"""Ends of the names of files that servers declare to be compressed, but send as they are."""
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@functools.cache
def get_client_options() -> dict[str, Any]:
    """Returns the arguments of aiohttp's `ClientSession`."""
    aiohttp: Any = importlib.import_module("aiohttp")

    class Response(aiohttp.ClientResponse):  # type: ignore[misc]
        """Answer that is neither unpacked nor read further than the requested range."""

        async def start(self, connection: Any) -> Any:
            """Reads the headers."""
            response = await super().start(connection)
            encoding = self.headers.get("Content-Encoding", "identity")
            if self.ok and encoding != "identity" and not self.url.path.endswith(_COMPRESSED):
                raise aiohttp.ClientPayloadError(
                    f"the server sent the file with Content-Encoding: {encoding}, and not as it is"
                )
            return response

        async def read(self) -> bytes:
            """Reads the body, or its first bytes if it is longer than the requested range."""
            requested = _RANGE.fullmatch(self.request_info.headers.get("Range", ""))
            limit = int(requested[2]) - int(requested[1]) + 1 if requested else float("inf")
            data = bytearray()
            while len(data) <= limit and (block := await self.content.read(_CHUNK_BYTES)):
                data += block
                if exceeded := not requested and exceeds_limit("file_bytes", len(data)):
                    raise aiohttp.ClientPayloadError(
                        f"the answer has at least {len(data):,} bytes; {exceeded}"
                    )
            if len(data) > limit:
                self.close()  # the connection still carries the rest
            return bytes(data)

    return {
        "auto_decompress": False,
        "headers": {"Accept-Encoding": "identity"},
        "response_class": Response,
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_SECONDS, sock_read=SILENCE_SECONDS),
    }
