"""Federated conformal prediction on arrays: nothing here sees a model, and numpy is all it needs.

Two clients, four labels, anyone's probabilities; on client 1 the model is far less sure:

>>> import numpy as np
>>> from fedcover import conformal
>>> rng = np.random.default_rng(0)
>>> probs = [rng.dirichlet(np.full(4, a), size=2000) for a in (0.1, 0.5)]
>>> labels = [np.array([rng.choice(4, p=p) for p in block]) for block in probs]
>>> scores = [conformal.score("aps", p, u=rng.random(len(p))) for p in probs]
>>> calibration = [conformal.true_scores(s[:1000], y[:1000]) for s, y in zip(scores, labels)]
>>> threshold = conformal.calibrate(calibration, alpha=0.1)  # only counts leave a client
>>> sets = [conformal.prediction_sets(s[1000:], threshold.q_hat) for s in scores]
>>> for s, y in zip(sets, labels):
...     print(f"{conformal.coverage(s, y[1000:]):.3f} {conformal.mean_set_size(s):.2f}")
0.901 1.34
0.904 2.15

The flow is ``softmax`` → ``score`` → ``calibrate`` → ``prediction_sets`` → metrics. Every
federated step (temperature, RAPS's constants, quantile) is a client function and a server
generator; see :mod:`fedcover.conformal.protocol`.
"""

from fedcover.conformal.graph_scores import (
    GRAPH_SCORES,
    Diffusion,
    GraphScores,
    base_score,
    graph_scores,
)
from fedcover.conformal.metrics import (
    GroupMetrics,
    ResplitMetrics,
    by_group,
    class_coverage_gap,
    coverage,
    covered,
    empty_rate,
    evaluate_resplits,
    mean_set_size,
    singleton_hits,
    singleton_rate,
    size_stratified,
)
from fedcover.conformal.mondrian import (
    GROUP_RULES,
    GroupThreshold,
    group_client,
    group_quantiles_over_resplits,
    group_server,
    group_thresholds,
)
from fedcover.conformal.order import exact_rank
from fedcover.conformal.protocol import converse, message_bytes
from fedcover.conformal.quantiles import beta_binomial, calibrate, quantile_over_resplits, server_of
from fedcover.conformal.rules import RULES, Threshold, coverage_band, mixture_band
from fedcover.conformal.scores import (
    SCORES,
    RapsConstants,
    add_top_label,
    aps,
    aps_det,
    crossing_sets,
    lac,
    prediction_sets,
    raps,
    score,
    true_scores,
)
from fedcover.conformal.temperature import (
    TEMPERATURES,
    averaged_client,
    averaged_server,
    fit_temperature,
    nll,
    pooled_client,
    pooled_server,
    softmax,
)
from fedcover.conformal.tuning import (
    DAPS_GRID,
    RAPS_GRID,
    SNAPS_GRID,
    choose_diffusion,
    choose_raps,
    diffusion_client,
    diffusion_server,
    raps_client,
    raps_server,
)

__all__ = [
    "DAPS_GRID",
    "GRAPH_SCORES",
    "GROUP_RULES",
    "RAPS_GRID",
    "RULES",
    "SCORES",
    "SNAPS_GRID",
    "TEMPERATURES",
    "Diffusion",
    "GraphScores",
    "GroupMetrics",
    "GroupThreshold",
    "RapsConstants",
    "ResplitMetrics",
    "Threshold",
    "add_top_label",
    "aps",
    "aps_det",
    "averaged_client",
    "averaged_server",
    "base_score",
    "beta_binomial",
    "by_group",
    "calibrate",
    "choose_diffusion",
    "choose_raps",
    "class_coverage_gap",
    "converse",
    "coverage",
    "coverage_band",
    "covered",
    "crossing_sets",
    "diffusion_client",
    "diffusion_server",
    "empty_rate",
    "evaluate_resplits",
    "exact_rank",
    "fit_temperature",
    "graph_scores",
    "group_client",
    "group_quantiles_over_resplits",
    "group_server",
    "group_thresholds",
    "lac",
    "mean_set_size",
    "message_bytes",
    "mixture_band",
    "nll",
    "pooled_client",
    "pooled_server",
    "prediction_sets",
    "quantile_over_resplits",
    "raps",
    "raps_client",
    "raps_server",
    "score",
    "server_of",
    "singleton_hits",
    "singleton_rate",
    "size_stratified",
    "softmax",
    "true_scores",
]
