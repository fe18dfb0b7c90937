"""Prototypes: the k-means centres of a party's reconstructed features (paper, section 5.2).

A cluster with few members is nearly a real node, so that small clusters are merged before
anything is sent (docs/privacy.md).
"""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fedcover.config import Privacy, VaeSettings
from fedcover.errors import UsageError
from fedcover.models import vae
from fedcover.models.vae import Features, Key
from fedcover.training.plan import Index, Rows

STARTS = 3  # k-means++ starts; the best one counts

Points = NDArray[np.floating]
Centres = dict[int, Rows]  # by M: at most M rows of features


def all_prototypes(
    features: Sequence[Features],
    keys: Sequence[Key],
    settings: VaeSettings,
    counts: Sequence[int],
    privacy: Privacy | None = None,
    secrets: Sequence[int] | None = None,
    on_party: Callable[[int], None] | None = None,
) -> list[Centres]:
    """What each party would send (:func:`prototypes`), from its training nodes' features.

    ``secrets`` are the parties' own, for private noise; ``on_party`` counts those that are done.
    Every party has a thread to itself: sums that several share are rounded otherwise, and k-means
    then finds other centres.
    """
    if privacy is not None and privacy.active:
        for x, (_, number) in zip(features, keys, strict=True):
            vae.check_size(x.shape[0], number, privacy)
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=_keep_to_one_thread)
    try:
        work = [
            pool.submit(prototypes, x, key, settings, counts, privacy, secret)
            for x, key, secret in zip(features, keys, secrets or [0] * len(keys), strict=True)
        ]
        sent = []
        for done, future in enumerate(work, 1):
            sent.append(future.result())
            if on_party is not None:
                on_party(done)
        return sent
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _keep_to_one_thread() -> None:
    torch.get_num_threads()  # what torch asks at its first product would undo the next line
    torch.set_num_threads(1)


def prototypes(
    x: Features,
    key: Key,
    settings: VaeSettings,
    counts: Sequence[int],
    privacy: Privacy | None = None,
    secret: int = 0,
) -> Centres:
    """For each M of ``counts``, at most M rows of features; one VAE serves all M.

    A party with fewer training nodes than ``settings.min_cluster`` has none.
    ``spending(privacy)`` is what private prototypes cost, the same for every party.
    """
    if privacy is None or not privacy.active:
        trained = vae.trained_vae(x, key, settings)
    else:
        trained = vae.trained_private_vae(x, key, settings, privacy, secret)
    if privacy is None or not privacy.covered:
        points = trained.reconstruct(x)
    else:
        points = vae.prior_samples(trained, key, settings, privacy)
    return _centres(points, counts, settings, key)


def _centres(points: Rows, counts: Sequence[int], settings: VaeSettings, key: Key) -> Centres:
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


def cluster(points: Points, m: int, min_size: int, rng: np.random.Generator) -> tuple[Rows, Index]:
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


def merge_small(points: Points, labels: Index, min_size: int) -> Index:
    """Join each cluster below ``min_size``, smallest first, to the one with the nearest centre.

    The joint centre is the mean of all members. It ends when no cluster is too small or only one
    is left. The labels returned are 0, 1, … without gaps.
    """
    while True:
        merged: Index = np.unique(labels, return_inverse=True)[1]
        sizes = np.bincount(merged)
        if len(sizes) == 1 or sizes.min() >= min_size:
            return merged
        centres, small = means(points, merged), int(sizes.argmin())
        distance = np.square(centres - centres[small]).sum(axis=1)
        distance[small] = np.inf
        labels = np.where(merged == small, distance.argmin(), merged)


def means(
    points: Points,
    labels: Index,
    weights: Index | None = None,
) -> NDArray[np.float64]:
    """The (weighted) mean of each cluster's points, by label."""

    def mean(mine: NDArray[np.bool_]) -> NDArray[np.float64]:
        share = None if weights is None else weights[mine]
        return np.average(points[mine].astype(np.float64), axis=0, weights=share)

    return np.stack([mean(labels == k) for k in range(labels.max() + 1)])


def _k_means(
    points: Points,
    m: int,
    rng: np.random.Generator,
    weights: Index | None = None,
) -> Index:
    """Labels 0, 1, … without gaps; equal points may leave fewer than ``m`` clusters."""
    # Loading scikit-learn takes a second, which runs without Gen do not need.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(m, n_init=STARTS, random_state=int(rng.integers(2**31)))
    # One thread: the problems are small, and sums in a fixed order give the same centres again.
    with _thread_pools().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than m
        labels = model.fit(points, sample_weight=weights).labels_
    distinct: Index = np.unique(labels, return_inverse=True)[1]
    return distinct


@cache
def _thread_pools() -> ThreadpoolController:
    """Those of numpy and scikit-learn; to find them takes milliseconds."""
    return ThreadpoolController()
