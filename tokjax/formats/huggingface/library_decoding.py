"""Decoding of ids with the `tokenizers` library, and what the decoder of a `tokenizer.json` determines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core.token_byte_lengths import BYTE_PIECE
from tokjax.errors import InvalidArgumentError
from tokjax.formats.huggingface.decoders import make_finality_test
from tokjax.formats.huggingface.definition import get_steps
from tokjax.formats.huggingface.loaded_definition import raise_as
from tokjax.pretokenize.bytes_to_unicode import map_unicode_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tokjax.core.vocabulary import Vocabulary
    from tokjax.formats.huggingface.loaded_definition import LoadedDefinition


@dataclass(frozen=True)
class LibraryDecoder:
    """Decodes ids: with a table of bytes if the decoder is byte-level, and otherwise with the library.

    Attributes:
        loaded: definition of the tokenizer.
        vocabulary: token ids and token bytes.
    """

    loaded: LoadedDefinition
    vocabulary: Vocabulary

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> bytes:
        """Returns the text of valid ids, in UTF-8.

        Args:
            ids: ids of the vocabulary.
            skip_special_tokens: whether to leave out special tokens.

        Raises:
            InvalidArgumentError: the library can't decode the ids.
        """
        id_bytes = self._decoded_bytes
        if id_bytes is not None:
            skipped = self._skipped_ids if skip_special_tokens else ()
            return b"".join([id_bytes[id_] for id_ in ids if id_ not in skipped])
        with raise_as(InvalidArgumentError, "the tokenizers library can't decode these ids"):
            text: str = self.loaded.library_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text.encode("utf-8")

    def find_context(
        self, ids: NDArray[np.int32], *, skip_special_tokens: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Finds the pending ids, as `find_decode_context`: those after the last token that makes text final.

        The context are the ids after an earlier such token, as few as have text. The spaces that decoders
        remove at the start of a text, or add between tokens, do not depend on more than that.
        """
        if self._decoded_bytes is not None:
            return ids[:0], ids[:0]
        is_final = self._finality_test
        if is_final is None:
            return ids[:0], ids
        skipped = self._skipped_ids if skip_special_tokens else ()
        get_form = self.loaded.library_tokenizer.id_to_token
        visible = [(i, id_) for i, id_ in enumerate(ids.tolist(), 1) if id_ not in skipped]
        stops = [0, *(i for i, id_ in visible if is_final(get_form(id_)))]
        context: list[int] = []
        for start in reversed(stops[:-1]):
            context = [id_ for i, id_ in visible if start < i <= stops[-1]]
            if self.decode(context, skip_special_tokens=False):
                break
        first_pending = next((i - 1 for i, _ in visible if i > stops[-1]), len(ids))
        return np.array(context, np.int32), ids[first_pending:]

    def find_text_lengths(
        self, measure_lengths: Callable[[], NDArray[np.integer[Any]]]
    ) -> NDArray[np.integer[Any]]:
        """Returns the number of bytes that each id adds to a decoded text, integers, shape `(vocab_size,)`.

        Args:
            measure_lengths: function that decodes each id between others, for decoders that are not known.
        """
        lengths = np.zeros(self.vocabulary.size, np.int64)
        if self._decoded_bytes is not None:
            lengths[list(self._decoded_bytes)] = [*map(len, self._decoded_bytes.values())]
            return lengths
        lengths[:] = measure_lengths()
        if any(step.get("type") == "ByteFallback" for step in get_steps(self.loaded.pipeline, "decoder")):
            # The library decodes a part of a character to U+FFFD, which is longer.
            tokens = self.vocabulary.bytes_by_id
            lengths[[id_ for id_, token in tokens.items() if BYTE_PIECE.fullmatch(token)]] = 1
        return lengths

    @cached_property
    def _decoded_bytes(self) -> Mapping[int, bytes] | None:
        """Id to bytes, as a byte-level decoder decodes them; `None` if the definition has another decoder.

        The decoder reads each token as `bytes_to_unicode` writes bytes, including added tokens. So an added
        token `é` is decoded to one byte.
        """
        decoder = self.loaded.pipeline.get("decoder")
        if decoder is None or decoder.get("type") != "ByteLevel":
            return None
        library = self.loaded.library_tokenizer
        added_ids = {*library.get_added_tokens_decoder(), *self.vocabulary.special.values()}
        forms = {id_: library.id_to_token(id_) for id_ in added_ids}
        added_bytes = {id_: map_unicode_to_bytes(form) or form.encode("utf-8") for id_, form in forms.items()}
        return {**self.vocabulary.bytes_by_id, **added_bytes}

    @cached_property
    def _finality_test(self) -> Callable[[str], bool] | None:
        """Test of tokens: whether the text up to a token is final; `None` if no text is before the end."""
        return make_finality_test(get_steps(self.loaded.pipeline, "decoder"))

    @cached_property
    def _skipped_ids(self) -> frozenset[int]:
        """Ids that the library leaves out with `skip_special_tokens`."""
        library = self.loaded.library_tokenizer
        added_tokens: dict[int, Any] = library.get_added_tokens_decoder()
        special = {token.content for token in added_tokens.values() if token.special}
        return frozenset(id_ for id_ in added_tokens if library.id_to_token(id_) in special)
