"""FedAvg's sums in fixed point, on numbers that can be checked by hand."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedcover.models import Weights
from fedcover.training.averaging import Averaging
from fedcover.training.plan import Federation, PartyGraph, Plan
from fedcover.training.stack import DenseFirst, SparseFirst, Stack

BITS = 20
NO_EDGES = np.empty((2, 0), dtype=np.int64)


def client(x: np.ndarray, train: int, sparse: bool) -> PartyGraph:
    labels = np.zeros(len(x), dtype=np.int64)
    none = np.array([], dtype=np.int64)
    return PartyGraph(sp.csr_array(x) if sparse else x, NO_EDGES, labels, np.arange(train), none)


def stack(sparse: bool) -> Stack:
    """Client 0 has one training node and features 0, 1; client 1 has three and feature 1 only.

    The dense variant has all 40 features everywhere, so that the other first layer is chosen.
    """
    first, second = (np.zeros((n, 40)) if sparse else np.ones((n, 40)) for n in (1, 3))
    first[0, [0, 1]] = 1
    second[:, 1] = 1
    members = [client(first, 1, sparse), client(second, 3, sparse)]
    return Stack([Federation(members, seed=0)], Plan("gcn", classes=2, hidden=1))


def start() -> Weights:
    return Weights(torch.full((40, 1), 10.0), torch.zeros(1), torch.zeros(1, 2), torch.zeros(2))


def test_weights_are_averaged_by_training_nodes():
    dense = stack(sparse=False)
    assert isinstance(dense.first, DenseFirst)
    averaging = Averaging(dense, BITS)
    local = averaging.broadcast(averaging.shared([start()]))
    # The stack puts the client with more training nodes first: shares 3/4 and 1/4.
    local.first[0], local.first[1] = 4.0, 8.0
    local.second[0, 0, 0], local.second[1, 0, 0] = 1.0, 5.0
    shared = averaging.shared([start()])
    sent = averaging.broadcast(shared)
    mean = averaging.weights(averaging.average(local, sent, shared), 0)
    torch.testing.assert_close(mean.first, torch.full((40, 1), 5.0))
    assert mean.second[0, 0] == 2.0


def test_a_feature_that_a_client_never_sees_keeps_what_was_sent():
    sparse = stack(sparse=True)
    assert isinstance(sparse.first, SparseFirst)
    averaging = Averaging(sparse, BITS)
    shared = averaging.shared([start()])
    local = averaging.broadcast(shared)
    assert local.first.shape == (3, 1)  # feature 1 at one client, features 0 and 1 at the other
    owner = {
        (sparse.number_of[k], f): row
        for row, (k, f) in enumerate(
            zip(sparse.first.client_of_row, sparse.first.feature_of_row, strict=True)
        )
    }
    local.first[owner[0, 0]] = 2.0
    local.first[owner[0, 1]] = 6.0
    local.first[owner[1, 1]] = 14.0
    sent = averaging.broadcast(shared)
    mean = averaging.weights(averaging.average(local, sent, shared), 0).first[:, 0]
    assert mean[0] == 0.25 * 2 + 0.75 * 10
    assert mean[1] == 0.25 * 6 + 0.75 * 14
    assert (mean[2:] == 10).all()
    own = averaging.client_weights(local, shared, int(np.flatnonzero(sparse.number_of == 0)[0]))
    assert own.first[:3, 0].tolist() == [2.0, 6.0, 10.0]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_terms_that_parties_send_add_up_to_the_programs_sum(sparse):
    """What each party would send alone, in integers, is the change of the average to the bit."""
    one = stack(sparse)
    averaging = Averaging(one, BITS)
    shared, generator = averaging.shared([start()]), torch.Generator().manual_seed(1)
    local = averaging.broadcast(shared)
    for tensor in local:
        tensor += torch.randn(tensor.shape, generator=generator)
    terms = [averaging.change(local, averaging.broadcast(shared), k) for k in (0, 1)]
    mean = averaging.weights(averaging.average(local, averaging.broadcast(shared), shared), 0)
    for first, second, after, before in zip(*terms, mean, start(), strict=True):
        assert torch.equal(first, first.round())
        assert torch.equal(before + (first + second) * 2.0**-BITS, after)
    share = 0.75 * (local.second[0] - 0.0) * 2.0**BITS
    assert torch.equal(terms[0].second, share.round())


def test_a_party_by_itself_is_told_how_many_training_nodes_there_are():
    alone = Stack([Federation([client(np.ones((3, 40)), 3, False)], 0)], Plan("gcn", 2, hidden=1))
    averaging = Averaging(alone, BITS, total=12)
    shared = averaging.shared([start()])
    local = averaging.broadcast(shared)
    local.first.add_(2.0)
    change = averaging.change(local, averaging.broadcast(shared), 0)
    assert (change.first == 0.5 * 2**BITS).all()
