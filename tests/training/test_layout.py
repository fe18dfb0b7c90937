import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcover.training.layout import Layout, distinct


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40))
def test_every_item_has_its_place_and_little_is_wasted(counts):
    layout = Layout(np.array(counts))
    clients = np.repeat(np.arange(len(counts)), counts)
    places = layout.places(clients)
    assert len(np.unique(places)) == len(clients)
    assert layout.rows <= 1.25 * sum(counts) + 65 * len(layout.blocks)
    flat = torch.full((layout.rows, 1), -1)
    flat[places, 0] = torch.from_numpy(clients)
    seen = []
    for block in layout.blocks:
        batch = block.batch(flat)[..., 0]
        for client, row in zip(range(block.start, block.stop), batch, strict=True):
            held = row[row >= 0]
            assert (held == client).all()
            assert len(held) == counts[client]
            seen.append(client)
    assert seen == list(range(len(counts)))


def test_one_giant_does_not_widen_the_rest():
    layout = Layout(np.array([100_000, *([10] * 100)]))
    assert layout.rows < 110_000


@given(st.lists(st.integers(0, 99), max_size=60), st.sampled_from([100, 10_000]))
def test_distinct_numbers_are_those_of_numpy(values, below):
    # With 100 numbers the table is taken, with 10,000 numpy's own sort.
    array = np.array(values, dtype=np.int32)
    found, place = distinct(array, below)
    expected, inverse = np.unique(array, return_inverse=True)
    assert found.dtype == place.dtype == np.int64
    assert np.array_equal(found, expected)
    assert np.array_equal(place, inverse)
