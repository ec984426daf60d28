"""Byte spans of the tokens that the `tokenizers` library finds in a text.

The library's offsets are in characters, can overlap, and leave out characters that the normalizer made one
of. Here they become byte offsets, overlaps are separated (`separate_spans`), and spans are extended over all
characters that were changed together (`cover_changed_characters`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokjax.core.token_byte_lengths import BYTE_PIECE
from tokjax.core.utf8 import find_character_starts, to_utf8
from tokjax.formats.huggingface.definition import get_steps
from tokjax.models.byte_spans import separate_spans
from tokjax.models.changed_characters import ChangeTest, cover_changed_characters
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.formats.huggingface.loaded_definition import LoadedDefinition


@dataclass(frozen=True)
class LibrarySpans:
    """Computes the byte spans of tokens from the offsets of the library.

    Attributes:
        loaded: definition of the tokenizer.
        vocabulary: token ids and token bytes.
    """

    loaded: LoadedDefinition
    vocabulary: Vocabulary

    def locate(
        self,
        text: Text,
        offsets: Sequence[tuple[int, int]] | NDArray[np.int64],
        ids: NDArray[np.int32],
        from_text: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """Returns the spans of the tokens of a text.

        Args:
            text: text, as it was before it was made valid for the library.
            offsets: spans of the tokens in characters, as the library gives them, shape `(num_tokens, 2)`.
            ids: token ids, `int32`, shape `(num_tokens,)`.
            from_text: whether each token is from the text, and not inserted, `bool`, shape `(num_tokens,)`.

        Returns:
            1-based half-open byte spans without overlaps, `int64`, shape `(num_tokens, 2)`; `(0, 0)` for
            inserted tokens.
        """
        data = to_utf8(text)
        characters = np.array(offsets, np.int64).reshape(-1, 2)
        # Offsets can exceed the text where the model adds a suffix to words, so they are clipped.
        spans = find_character_starts(data).take(characters, mode="clip") + 1
        spans[~from_text] = 0
        separate = separate_spans(spans[from_text], ids[from_text], self._span_bytes, self._prefix_ids, data)
        test = self._change_test
        spans[from_text] = separate if test is None else cover_changed_characters(separate, data, test)
        return spans

    @cached_property
    def _prefix_ids(self) -> frozenset[int]:
        """Ids of the tokens that a normalizer or pre-tokenizer adds before texts, such as `▁`."""
        pipeline = self.loaded.pipeline
        steps = [*get_steps(pipeline, "normalizer"), *get_steps(pipeline, "pre_tokenizer")]
        forms = {" "} | {step.get("prepend") or step.get("replacement") or " " for step in steps}
        if self.loaded.is_byte_level:
            forms = {map_bytes_to_unicode(form.encode("utf-8")) for form in forms}
        ids = map(self.loaded.library_tokenizer.token_to_id, forms)
        return frozenset(id_ for id_ in ids if id_ is not None)

    @cached_property
    def _span_bytes(self) -> list[bytes]:
        """Bytes of the text span of each id, for `separate_spans`. Other ids have the bytes of their form.

        Trimmed spans leave out spaces, and a byte token such as `<0xE6>` spans one byte.
        """
        trims = any(step.get("trim_offsets") for step in get_steps(self.loaded.pipeline, "post_processor"))
        span_bytes = [b""] * self.vocabulary.size
        for id_, token in self.vocabulary.bytes_by_id.items():
            if self.loaded.is_byte_level:
                span_bytes[id_] = token.strip(b" ") if trims else token
            else:
                is_byte = BYTE_PIECE.fullmatch(token)
                span_bytes[id_] = bytes([int(token[3:5], 16)]) if is_byte else token
        return span_bytes

    @cached_property
    def _change_test(self) -> ChangeTest | None:
        """Test of characters that the normalizer changes together; `None` without a normalizer."""
        normalizer = self.loaded.library_tokenizer.normalizer
        return None if normalizer is None else ChangeTest(normalizer.normalize_str)
