"""What is trained and how: a party's graph, the parties of a federation, the plan of a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

Features: TypeAlias = Any  # a scipy CSR array or a numpy array, nodes × features
Rows: TypeAlias = NDArray[np.float32]
Index: TypeAlias = NDArray[np.int64]

Progress: TypeAlias = Callable[[str, int, int], None]  # called as progress(stage, done, total)


@dataclass(frozen=True)
class PartyGraph:
    """One party's graph, with local node numbers. It never leaves the party."""

    x: Features
    edge_index: Index
    y: Index
    train: Index
    valid: Index
    generated: int = 0  # nodes at the end that stand for neighbours elsewhere; they have no label
    weight: NDArray[np.float64] | None = None  # of every edge; None: each counts 1

    @property
    def nodes(self) -> int:
        """Number of nodes, generated ones included."""
        return len(self.y)

    @property
    def own(self) -> int:
        """Number of real nodes; they come first."""
        return len(self.y) - self.generated

    @property
    def real_edges(self) -> Index:
        """The edges between real nodes."""
        return self.edge_index[:, (self.edge_index < self.own).all(axis=0)]

    @property
    def edge_weight(self) -> NDArray[np.float64]:
        """How much each edge counts."""
        return np.ones(self.edge_index.shape[1]) if self.weight is None else self.weight


@dataclass(frozen=True)
class Federation:
    """The clients of one repetition, and the seed of everything random in it."""

    clients: Sequence[PartyGraph]
    seed: int
    first: int = 0  # the first client's number: not 0 where a process holds one of several


@dataclass(frozen=True)
class Prior:
    """How a client's label mix enters its logits; see :func:`log_prior`."""

    smoothing: float = 1.0  # how many nodes, spread evenly over the labels, are added to its own
    strength: float = 1.0  # 0: not at all; 1: as Bayes' rule has it


@dataclass(frozen=True)
class Plan:
    """How to train: the model, its optimiser (Adam), and the rhythm of averaging.

    The task ``labels`` minimises the cross-entropy over a client's training nodes and weighs the
    clients by their number. The task ``links`` trains a variational graph auto-encoder
    (:mod:`fedcover.models.vgae`) and weighs all clients alike, as the paper's algorithm does; its
    ``classes`` are the latent means followed by the log deviations.

    With ``prior``, every client adds :func:`log_prior` to its logits, in training and after it.
    With ``patience``, a federation ends after so many rounds without a lower validation loss.
    """

    model: str
    classes: int
    task: Literal["labels", "links"] = "labels"
    hidden: int = 64
    dropout: float = 0.5
    lr: float = 0.01
    rounds: int = 100
    patience: int | None = None
    local_epochs: int = 3
    batch_size: int | None = None
    dtype: torch.dtype = torch.float32  # float64 for comparing engines without rounding
    average: bool = True  # False: every client keeps its own model (the method Loc)
    prior: Prior | None = None
    prox: float = 0.0  # FedProx's μ: how strongly local steps are held near the shared model
    weight_decay: float = 0.0  # Adam's: what times a weight is added to its gradient
    unit_features: bool = False  # whether the model sees every node's features at length 1


def batches(count: int, plan: Plan, seed: int, client: int, round_: int) -> list[Index]:
    """The positions among a client's ``count`` training nodes that each local step sees.

    The order depends on nothing but the arguments, so that all engines agree.
    """
    size = plan.batch_size
    if size is None or count <= size:
        return [np.arange(count)] * plan.local_epochs
    rng = np.random.default_rng([seed, client, round_])
    orders = [rng.permutation(count) for _ in range(plan.local_epochs)]
    return [order[i : i + size] for order in orders for i in range(0, count, size)]


def inputs(client: PartyGraph, plan: Plan) -> Features:
    """The client's features as the model sees them; a row of zeros stays one."""
    x = client.x
    if not plan.unit_features:
        return x
    norm = (sp.linalg if sp.issparse(x) else np.linalg).norm(x, axis=1)
    scale = 1.0 / np.where(norm > 0, norm, 1.0)
    if not sp.issparse(x):
        return (x * scale[:, None]).astype(np.float32)
    values = (x.data * np.repeat(scale, np.diff(x.indptr))).astype(np.float32)
    return sp.csr_array((values, x.indices, x.indptr), shape=x.shape)


def log_prior(client: PartyGraph, plan: Plan) -> NDArray[np.float64]:
    r"""What is added to a client's logits for its label mix, one number a label.

    It is :math:`\tau \log \pi_k` with :math:`\pi_k(y) = (n_{ky} + s/C) / (n_k + s)` of its training
    labels: the shared model learns what is common to all clients, and each puts its own mix back
    (docs/sharper.md). A label that it never trained on is made unlikely, never impossible.
    """
    if plan.prior is None:
        return np.zeros(plan.classes)
    counts = np.bincount(client.y[client.train], minlength=plan.classes)
    smoothed = counts + plan.prior.smoothing / plan.classes
    return np.asarray(plan.prior.strength * np.log(smoothed / smoothed.sum()))


def initialiser(seed: int) -> np.random.Generator:
    """The generator of a federation's initial weights: the same for every method and carrier."""
    return np.random.default_rng([seed, 0x1217])
