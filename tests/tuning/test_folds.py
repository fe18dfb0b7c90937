"""What candidates are compared on: one split, other validation nodes, and no label too many."""

import numpy as np
import pytest
import torch

from fedcover import Config, DataError
from fedcover.graphs.splits import Role
from fedcover.party.data import PartyData
from fedcover.simulation.repetition import prepare, settled
from fedcover.simulation.run import Simulation
from fedcover.tuning.folds import BLANK, folds, redrawn


def test_the_first_fold_is_the_runs_own_split(learnable):
    graph, config = learnable(), Config(clients=3, first_seed=4)
    own, (first, *others) = prepare(graph, config, 4), folds(graph, config, 3)
    np.testing.assert_array_equal(first.roles, own.roles)
    np.testing.assert_array_equal(first.partition.client, own.partition.client)
    assert [first.seed, *(one.seed for one in others)] == [4, 5, 6]
    for fold in others:
        assert (fold.roles != first.roles).any()
        away = first.roles >= Role.CALIB
        np.testing.assert_array_equal(fold.roles[away], first.roles[away])
        for role in Role:
            for client in range(3):
                own_nodes = fold.partition.client == client
                assert ((fold.roles == role) & own_nodes).sum() == (
                    (first.roles == role) & own_nodes
                ).sum()


def test_calibration_and_test_labels_are_not_there(learnable):
    graph = learnable()
    before = graph.y.clone()
    for fold in folds(graph, Config(clients=3), 2):
        seen = np.isin(fold.roles, (Role.TRAIN, Role.VALID))
        y = fold.graph.y.numpy()
        np.testing.assert_array_equal(y[seen], before.numpy()[seen])
        assert (y[~seen] == BLANK).all()
    assert (graph.y == before).all()


def test_features_are_on_the_scale_of_each_folds_own_training_nodes(make_graph):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(70, 9, 300), rng.normal(4e4, 9e3, 300)])
    table = [("age", "number"), ("income", "number")]
    graph = make_graph(300, rng.integers(0, 300, (600, 2)), x=x, columns=table)
    graph.missing = torch.tensor([[5], [1]])
    config = settled(Config(clients=2), graph)

    def scaled(repetition):
        (own,) = Simulation([repetition], config, lambda *_: None)._parties
        return own.gathered([party.graph.x for party in own.parties])

    several = folds(graph, Config(clients=2), 3)
    for fold in several:
        seen = scaled(fold)
        train = fold.roles == Role.TRAIN
        np.testing.assert_allclose(seen[train].mean(axis=0), 0, atol=1e-4)
        np.testing.assert_allclose(seen[train].std(axis=0), 1, atol=0.02)
    own = scaled(prepare(graph, config, 0))
    np.testing.assert_array_equal(scaled(several[0]), own)
    assert not np.array_equal(scaled(several[1]), own)


def test_redrawing_by_hand():
    roles = np.array([0, 1, 2, 3, 1, 0, 0, 2], np.int8)
    client = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    names = ("name", "x", "edge_index", "y", "u", "numeric")
    parties = [
        PartyData(**dict.fromkeys(names), number=k, seed=3, roles=roles[client == k])
        for k in range(2)
    ]
    seen = {
        tuple(np.concatenate([redrawn(party, number) for party in parties]).tolist())
        for number in range(60)
    }
    first, second = [(0, 1), (1, 0)], [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert seen == {(*a, 2, 3, *b, 2) for a in first for b in second}


def test_a_split_of_the_graphs_own_stays(learnable):
    rng = np.random.default_rng(0)
    given = rng.permutation(np.resize([0, 0, 1, 2, 3], 240))
    first, second = folds(learnable(split=given), Config(clients=2), 2)
    np.testing.assert_array_equal(first.roles, given)
    np.testing.assert_array_equal(second.roles, given)
    assert first.seed != second.seed


def test_without_validation_nodes_there_is_nothing_to_choose_by(learnable):
    with pytest.raises(DataError, match=r"^learnable has no validation nodes to choose by; raise"):
        folds(learnable(), Config(clients=2, valid=0.0), 2)
