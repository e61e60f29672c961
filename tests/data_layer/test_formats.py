"""Names of datasets, records as bytes, and orders."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dethpc.data_layer import Key, Order
from dethpc.data_layer.about import About
from dethpc.data_layer.record import decode, encode
from dethpc.errors import DatasetDamaged
from dethpc.storage.manifest import Checksum

TEXT = st.text(min_size=1, max_size=60)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


@given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=2, unique=True))
def test_no_two_keys_have_one_folder_even_where_letters_have_no_case(pairs: list[tuple[str, str]]) -> None:
    one, other = (Key.of(*pair).folder for pair in pairs)
    assert one.lower() != other.lower()
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", one) and len(one) <= 80


@pytest.mark.parametrize("wrong", [None, 1.5, True, b"x", ["x"]])
def test_a_name_is_a_text_or_a_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match="dataset_version is a text"):
        Key.of("x", wrong)
    assert Key.of("x", 3) == Key.of("x", "3")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="dataset_id is empty"):
        Key.of("", "v1")


@given(PLAIN)
def test_records_come_back_as_they_were(record: Any) -> None:
    assert decode(encode(record)) == record


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)], ids=str)
def test_tensors_of_every_kind_come_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 10).to(dtype)
    found, label = decode(encode((tensor, 3)))
    assert (found.dtype, found.shape, label) == (dtype, tensor.shape, 3) and torch.equal(found, tensor)
    found += found  # it may be written to, as one that was never cached


def test_a_row_of_a_large_tensor_does_not_take_the_rest_along() -> None:
    whole, array = torch.randn(10_000, 4), np.zeros((10_000, 4))
    assert len(encode({"x": whole[3], "t": whole.t()[0, :2], "y": array[3], "m": torch.conj(whole[3])})) < 1000


@given(PLAIN, st.data())
def test_any_changed_byte_is_found(record: Any, data: Any) -> None:
    stored = bytearray(encode(record))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DatasetDamaged):
        decode(bytes(stored))
    with pytest.raises(DatasetDamaged):
        decode(bytes(stored[:at]))


def test_what_cannot_be_kept_is_named() -> None:
    with pytest.raises(TypeError, match="a record of type function cannot be cached"):
        encode(lambda: None)


@given(st.binary())
def test_no_text_passes_for_what_is_written_beside_a_dataset(text: bytes) -> None:
    with pytest.raises(DatasetDamaged):
        About.from_text(Key("x", "v1"), text)


def test_what_is_written_beside_a_dataset_is_of_that_dataset() -> None:
    about = About(Key("x", "v1"), "a1", 7, Checksum(9, (1, 2)))
    assert About.from_json(about.key, about.to_json()) == about
    for change in ({"dataset_id": "y"}, {"format": 2}, {"made": "../up"}, {"crc32": ["xyz"]}, {"records": None}):
        with pytest.raises(DatasetDamaged):
            About.from_json(about.key, {**about.to_json(), **change})


@given(st.integers(0, 200), st.integers(0, 2**40), st.integers(0, 1000))
def test_an_order_has_every_record_once_and_follows_from_seed_and_epoch(length: int, seed: int, epoch: int) -> None:
    order = Order(seed, shuffle=True)
    assert sorted(order.epoch(length, epoch)) == list(range(length))
    assert order.epoch(length, epoch) == Order(seed, shuffle=True).epoch(length, epoch)
    assert list(Order(seed).epoch(length, epoch)) == list(range(length))


def test_orders_of_epochs_and_seeds_differ_unless_they_are_to_stay() -> None:
    assert Order(1, True).epoch(50, 0) != Order(1, True).epoch(50, 1)
    assert Order(1, True).epoch(50, 0) != Order(2, True).epoch(50, 0)
    assert Order(1, True, reshuffle=False).epoch(50, 0) == Order(1, True, reshuffle=False).epoch(50, 9)
    found = list(Order(7, True).epoch(8, 3))
    assert found == [4, 2, 3, 7, 6, 0, 1, 5], "a release must not change what a run goes on with"
