"""Arguments of a wrong type are the library's errors, also where Python can't hash or compare the value."""

import jax.numpy as jnp
import numpy as np
import pytest

import tokjax

WRONG = (3, 1.5, b"x", [], {}, {3}, object(), np.zeros(2), np.array("x"), jnp.zeros(2), iter("x"))
TOKENIZER = tokjax.byte_level(["<eos>"], eos_token="<eos>")
CALLS = {
    "a name of a special token": lambda value: tokjax.with_roles(TOKENIZER, eos_token=value),
    "a name in a vocabulary": lambda value: tokjax.wordpiece(["[UNK]"], unk_token=value),
    "names": lambda value: tokjax.encode(TOKENIZER, "a", allowed_special=[value]),
    "a choice": lambda value: tokjax.pack_blocks([], block_size=2, pad_id=0, strategy=value),
    "an error handler": lambda value: tokjax.decode(TOKENIZER, [1], errors=value),
    "a mapping": lambda value: tokjax.collate_padded_batch([], length=1, pad_id=0, side_columns=[value]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_values_of_a_wrong_type_are_rejected(call):
    for value in WRONG:
        with pytest.raises(tokjax.errors.InvalidArgumentError):
            call(value)


@pytest.mark.parametrize("make", [lambda: TOKENIZER, lambda: tokjax.wordpiece(["[UNK]", "a"])])
@pytest.mark.parametrize("value", [None, 0, 2, "yes", np.True_])
def test_flags_are_truth_values(make, value):
    result = tokjax.encode_result(make(), "a", return_offsets=value)
    assert (result.offsets is not None) == bool(value)
