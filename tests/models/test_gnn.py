import numpy as np
import pytest
import torch

from fedcover.models import initial_weights, propagation, to_module
from fedcover.models.gnn import from_module, weight_shapes

PATH = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])  # 0 - 1 - 2, and node 3 alone


def test_gcn_propagation_by_hand():
    (matrix,) = propagation("gcn", PATH, 4)
    a, b = 1 / 2, 1 / np.sqrt(6)  # degrees with self-loop: 2, 3, 2, 1
    expected = [[a, b, 0, 0], [b, 1 / 3, b, 0], [0, b, a, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(matrix.toarray(), expected)


def test_sage_propagation_by_hand():
    mean, root = propagation("sage", PATH, 4)
    expected = [[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(mean.toarray(), expected)
    np.testing.assert_array_equal(root.toarray(), np.eye(4))


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_weights_go_into_a_pyg_module_and_back(model):
    weights = initial_weights(model, 7, 5, 3, np.random.default_rng(1))
    back = from_module(model, to_module(model, weights))
    for ours, theirs in zip(weights, back, strict=True):
        assert torch.equal(ours, theirs)


def test_initial_weights_depend_on_the_generator_alone():
    torch.manual_seed(0)
    first = initial_weights("sage", 6, 4, 2, np.random.default_rng(5))
    torch.manual_seed(1)
    second = initial_weights("sage", 6, 4, 2, np.random.default_rng(5))
    other = initial_weights("sage", 6, 4, 2, np.random.default_rng(6))
    assert torch.equal(first.first, second.first)
    assert not torch.equal(first.first, other.first)
    limit = np.sqrt(6 / (6 + 4))
    assert first.first.abs().max() <= limit
    assert [tuple(tensor.shape) for tensor in first] == [(12, 4), (4,), (8, 2), (2,)]
    assert [*weight_shapes("sage", 6, 4, 2).values()] == [(12, 4), (4,), (8, 2), (2,)]
