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

from fedcover.conformal.evaluation import ResplitMetrics, evaluate_resplits
from fedcover.conformal.graph_scores import (
    GRAPH_SCORES,
    Diffusion,
    GraphScore,
    GraphScores,
    base_score,
    diffused,
    graph_scores,
    snaps,
)
from fedcover.conformal.metrics import (
    GroupMetrics,
    by_group,
    class_coverage_gap,
    coverage,
    covered,
    empty_rate,
    mean_set_size,
    min_client_coverage,
    singleton_hits,
    singleton_rate,
    size_stratified,
)
from fedcover.conformal.mondrian import (
    GROUP_RULES,
    GroupThreshold,
    group_client,
    group_server,
    group_thresholds,
)
from fedcover.conformal.order import exact_rank, from_order_key, order_key
from fedcover.conformal.protocol import Client, Listener, Message, Server, converse, message_bytes
from fedcover.conformal.quantiles import (
    RULES,
    Rule,
    Threshold,
    calibrate,
    count_client,
    count_server,
    server_of,
)
from fedcover.conformal.resplits import group_quantiles_over_resplits, quantile_over_resplits
from fedcover.conformal.scores import (
    SCORES,
    RapsConstants,
    Score,
    aps,
    aps_det,
    lac,
    raps,
    score,
    true_scores,
)
from fedcover.conformal.sets import add_top_label, crossing_sets, prediction_sets
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
    REFERENCE_ALPHA,
    SNAPS_GRID,
    choose_diffusion,
    choose_raps,
    diffusion_client,
    diffusion_server,
    raps_client,
    raps_server,
)
from fedcover.conformal.validity import beta_binomial, coverage_band, mixture_band

__all__ = [
    "DAPS_GRID",
    "GRAPH_SCORES",
    "GROUP_RULES",
    "RAPS_GRID",
    "REFERENCE_ALPHA",
    "RULES",
    "SCORES",
    "SNAPS_GRID",
    "TEMPERATURES",
    "Client",
    "Diffusion",
    "GraphScore",
    "GraphScores",
    "GroupMetrics",
    "GroupThreshold",
    "Listener",
    "Message",
    "RapsConstants",
    "ResplitMetrics",
    "Rule",
    "Score",
    "Server",
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
    "count_client",
    "count_server",
    "coverage",
    "coverage_band",
    "covered",
    "crossing_sets",
    "diffused",
    "diffusion_client",
    "diffusion_server",
    "empty_rate",
    "evaluate_resplits",
    "exact_rank",
    "fit_temperature",
    "from_order_key",
    "graph_scores",
    "group_client",
    "group_quantiles_over_resplits",
    "group_server",
    "group_thresholds",
    "lac",
    "mean_set_size",
    "message_bytes",
    "min_client_coverage",
    "mixture_band",
    "nll",
    "order_key",
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
    "snaps",
    "softmax",
    "true_scores",
]
