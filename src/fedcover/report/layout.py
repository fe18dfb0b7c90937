"""Where the nodes of a cut graph are drawn: an island for each client, by forces.

Islands are discs whose area is their number of nodes; clients between which many edges were cut are
neighbours. Inside an island, edges pull, nodes push each other off, and a node that lost an edge is
pulled towards the island where its neighbour lies. No random number is drawn.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

GOLDEN = np.pi * (3.0 - np.sqrt(5.0))  # a sunflower's angle: points that are spread evenly
ISLAND_STEPS = 150
NODE_STEPS = 50
PAIRS = 50_000  # nodes times steps: large islands cost the square of their nodes each step
GAP = 1.18  # distance of touching islands, in sums of their radii
MANY = 100  # clients above which the islands stay where the sunflower puts them

Points = NDArray[np.float64]


def positions(
    client: NDArray[np.integer], edges: NDArray[np.integer], clients: int
) -> NDArray[np.float64]:
    """Place every node (n, 2) in the square from −1 to 1.

    ``client`` (n,) says which island, ``edges`` (2, m) holds each edge once, as positions.
    """
    n = len(client)
    if not n:
        return np.zeros((0, 2))
    radius = np.sqrt(np.bincount(client, minlength=clients) / np.pi)
    ends = client[edges]
    cut = ends[0] != ends[1]
    centre = _islands(radius, ends[:, cut])

    lean = np.zeros((n, 2))
    for here, there in (edges[:, cut], edges[::-1, cut]):
        away = centre[client[there]] - centre[client[here]]
        np.add.at(lean, here, away / np.maximum(np.linalg.norm(away, axis=1), 1e-9)[:, None])
    place = np.empty((n, 2))
    for number in range(clients):
        own = np.flatnonzero(client == number)
        inside = np.searchsorted(own, edges[:, ~cut & (ends[0] == number)])
        place[own] = centre[number] + radius[number] * _island(inside, lean[own])
    place -= (place.max(axis=0) + place.min(axis=0)) / 2
    return np.asarray(place / max(float(np.abs(place).max()), 1e-9))


def _sunflower(n: int) -> Points:
    """n points that fill the unit disc evenly."""
    k = np.arange(n)
    far = np.sqrt((k + 0.5) / max(n, 1))
    return np.asarray(np.stack([far * np.cos(k * GOLDEN), far * np.sin(k * GOLDEN)], axis=1))


def _islands(radius: NDArray[np.float64], cut: NDArray[np.integer]) -> Points:
    """Centres of the islands: close where many edges were cut, and never on top of each other."""
    clients = len(radius)
    place: Points = _sunflower(clients) * 1.6 * np.sqrt((radius**2).sum())
    if clients == 1 or clients > MANY:
        return place
    between = np.zeros((clients, clients))
    np.add.at(between, tuple(cut), 1.0)
    between += between.T
    pull = between / max(float(between.max()), 1.0)
    least = GAP * (radius[:, None] + radius)
    for step in range(ISLAND_STEPS):
        far = cdist(place, place) + 1e-9
        inward = 0.12 * (1.0 - step / ISLAND_STEPS) / np.sqrt(clients) * (pull + 0.02)
        move = np.where(far > least, inward, 0.5) * (far - least) / far
        np.fill_diagonal(move, 0.0)
        place = place - _apart(place, move)
    return place


def _island(edges: NDArray[np.int64], lean: Points) -> Points:
    """Nodes of one island in the unit disc (Fruchterman and Reingold's forces)."""
    n = len(lean)
    place = _sunflower(n)
    if n < 3:
        return place * 0.5
    k = 1.4 / np.sqrt(n)  # the distance at which an edge's pull and a pair's push are even
    source, target = edges
    degree = np.maximum(np.bincount(edges.ravel(), minlength=n), 1.0)[:, None]
    steps = min(NODE_STEPS, max(20, PAIRS // n), 2 * n)
    for step in range(steps):
        force = _apart(place, k * k / (cdist(place, place, "sqeuclidean") + 1e-4 * k))
        along = place[target] - place[source]
        pull = along * (np.linalg.norm(along, axis=1) / k)[:, None]
        np.add.at(force, source, pull)
        np.subtract.at(force, target, pull)
        force += 0.4 * lean / degree - 0.9 * place
        length = np.maximum(np.linalg.norm(force, axis=1), 1e-9)[:, None]
        place = place + force / length * np.minimum(length, 0.12 * (1.0 - step / steps))
    place -= place.mean(axis=0)
    # Directions and the order of distances stay, the distances are spread over the disc: half of
    # the way only, so that what is dense stays visibly denser.
    far = np.linalg.norm(place, axis=1)
    even = np.sqrt((rankdata(far, "ordinal") - 0.5) / n)
    wanted = 0.5 * even + 0.5 * far / max(float(far.max()), 1e-9)
    return np.asarray(place * (wanted / np.maximum(far, 1e-9))[:, None])


def _apart(place: Points, weight: NDArray[np.float64]) -> Points:
    """Σ_j w_ij (x_i − x_j) = x_i Σ_j w_ij − Σ_j w_ij x_j: a sum over all pairs as one product."""
    return np.asarray(place * weight.sum(axis=1, keepdims=True) - weight @ place)
