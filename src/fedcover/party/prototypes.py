"""Prototypes: the k-means centres of a client's reconstructed features (paper, section 5.2).

A cluster with few members is nearly a real node, so that small clusters are merged before
anything is sent (docs/privacy.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fedcover.config import Privacy, VaeSettings
from fedcover.errors import UsageError
from fedcover.models.private_vae import prior_samples, train_private_vaes
from fedcover.models.vaes import Key, trained_vaes, training_features
from fedcover.training.plan import PartyGraph

STARTS = 3  # k-means++ starts; the best one counts


def client_prototypes(
    clients: Sequence[PartyGraph],
    keys: Sequence[Key],
    settings: VaeSettings,
    counts: Sequence[int],
    privacy: Privacy | None = None,
    on_client: Callable[[int], None] | None = None,
) -> list[dict[int, NDArray[np.float32]]]:
    """What each client would send: for each M of ``counts``, at most M rows of features.

    ``keys[i]`` is (seed, number) of client i. One VAE a client serves all M. A client with fewer
    training nodes than ``settings.min_cluster`` sends no row. ``spending(privacy)`` is what
    private prototypes cost, the same for every client. ``on_client`` counts those that are done.
    """
    sent: list[dict[int, NDArray[np.float32]]] = [{} for _ in clients]
    if privacy is not None and privacy.active:
        trained = train_private_vaes(clients, keys, settings, privacy)
    else:
        trained = trained_vaes(clients, keys, settings)
    for done, (i, vae) in enumerate(trained, 1):
        if privacy is not None and privacy.covered:
            points = prior_samples(vae, keys[i], settings, privacy)
        else:
            points = vae.reconstruct(training_features(clients[i]))
        sent[i] = _centres(points, counts, settings, keys[i])
        if on_client is not None:
            on_client(done)
    return sent


def _centres(
    points: NDArray[np.float32], counts: Sequence[int], settings: VaeSettings, key: Key
) -> dict[int, NDArray[np.float32]]:
    """The centres for every M, all of them unions of the finest clusters.

    Two clusterings of the same points may differ by a single one, which the difference of their
    centres would reveal; unions differ by ``min_cluster`` points at least.
    """
    rng = np.random.default_rng([*key, 0xC105])
    centres, sizes = cluster(points, max(counts), settings.min_cluster, rng)
    found = {}
    for m in sorted(counts, reverse=True):
        if len(centres) > m:
            labels = _k_means(centres, m, rng, sizes)
            centres = means(centres, labels, sizes).astype(np.float32)
            sizes = np.bincount(labels, sizes).astype(np.int64)
        found[m] = centres
    return found


def cluster(
    points: NDArray[np.floating], m: int, min_size: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """At most ``m`` centres (rows) of at least ``min_size`` points each, and their sizes.

    There are fewer than ``m`` when points are fewer or small clusters were merged, and none at
    all when all points together are below ``min_size``.
    """
    for name, value in (("m", m), ("min_size", min_size)):
        if value < 1:
            raise UsageError(f"{name} is {value}, but must be 1 or more.")
    if len(points) < min_size:
        return np.empty((0, points.shape[1]), np.float32), np.empty(0, np.int64)
    labels = merge_small(points, _k_means(points, min(m, len(points)), rng), min_size)
    return means(points, labels).astype(np.float32), np.bincount(labels)


def merge_small(
    points: NDArray[np.floating], labels: NDArray[np.integer], min_size: int
) -> NDArray[np.int64]:
    """Join each cluster below ``min_size``, smallest first, to the one with the nearest centre.

    The joint centre is the mean of all members. It ends when no cluster is too small or only one
    is left. The labels returned are 0, 1, … without gaps.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    sizes = np.bincount(labels)
    while len(sizes) > 1 and sizes.min() < min_size:
        centres = means(points, labels)
        small = int(sizes.argmin())
        distance = np.square(centres - centres[small]).sum(axis=1)
        distance[small] = np.inf
        labels[labels == small] = distance.argmin()
        labels = np.unique(labels, return_inverse=True)[1]
        sizes = np.bincount(labels)
    return labels.astype(np.int64)


def means(
    points: NDArray[np.floating],
    labels: NDArray[np.integer],
    weights: NDArray[np.number] | None = None,
) -> NDArray[np.float64]:
    """The (weighted) mean of each cluster's points, by label."""
    parts = []
    for k in range(labels.max() + 1):
        mine = labels == k
        share = None if weights is None else weights[mine]
        parts.append(np.average(points[mine].astype(np.float64), axis=0, weights=share))
    return np.stack(parts)


def _k_means(
    points: NDArray[np.floating],
    m: int,
    rng: np.random.Generator,
    weights: NDArray[np.number] | None = None,
) -> NDArray[np.integer]:
    """Labels 0, 1, … without gaps; equal points may leave fewer than ``m`` clusters."""
    model = KMeans(m, n_init=STARTS, random_state=int(rng.integers(2**31)))
    # One thread: the problems are small, and sums in a fixed order give the same centres again.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than m
        labels = model.fit(points, sample_weight=weights).labels_
    distinct: NDArray[np.integer] = np.unique(labels, return_inverse=True)[1]
    return distinct
