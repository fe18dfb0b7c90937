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

from fedcover.conformal.exchangeability import PermutationTest as PermutationTest
from fedcover.conformal.exchangeability import permutation_test as permutation_test
from fedcover.conformal.graph_scores import GRAPH_SCORES as GRAPH_SCORES
from fedcover.conformal.graph_scores import Diffusion as Diffusion
from fedcover.conformal.graph_scores import GraphScores as GraphScores
from fedcover.conformal.graph_scores import base_score as base_score
from fedcover.conformal.graph_scores import graph_scores as graph_scores
from fedcover.conformal.intervals import beta_binomial_interval as beta_binomial_interval
from fedcover.conformal.metrics import GroupMetrics as GroupMetrics
from fedcover.conformal.metrics import ResplitMetrics as ResplitMetrics
from fedcover.conformal.metrics import by_group as by_group
from fedcover.conformal.metrics import class_coverage_gap as class_coverage_gap
from fedcover.conformal.metrics import coverage as coverage
from fedcover.conformal.metrics import coverage_interval as coverage_interval
from fedcover.conformal.metrics import covered as covered
from fedcover.conformal.metrics import empty_rate as empty_rate
from fedcover.conformal.metrics import evaluate_resplits as evaluate_resplits
from fedcover.conformal.metrics import mean_set_size as mean_set_size
from fedcover.conformal.metrics import singleton_hits as singleton_hits
from fedcover.conformal.metrics import singleton_rate as singleton_rate
from fedcover.conformal.metrics import size_stratified as size_stratified
from fedcover.conformal.metrics import worst_slab_coverage as worst_slab_coverage
from fedcover.conformal.mondrian import GROUP_RULES as GROUP_RULES
from fedcover.conformal.mondrian import GroupThreshold as GroupThreshold
from fedcover.conformal.mondrian import group_client as group_client
from fedcover.conformal.mondrian import (
    group_quantiles_over_resplits as group_quantiles_over_resplits,
)
from fedcover.conformal.mondrian import group_server as group_server
from fedcover.conformal.mondrian import group_thresholds as group_thresholds
from fedcover.conformal.protocol import converse as converse
from fedcover.conformal.protocol import message_bytes as message_bytes
from fedcover.conformal.pvalues import group_p_values as group_p_values
from fedcover.conformal.pvalues import p_values as p_values
from fedcover.conformal.pvalues import rule_weights as rule_weights
from fedcover.conformal.robust import SPREAD as SPREAD
from fedcover.conformal.robust import capped as capped
from fedcover.conformal.robust import outliers as outliers
from fedcover.conformal.robust import spread_client as spread_client
from fedcover.conformal.rules import RULES as RULES
from fedcover.conformal.rules import Threshold as Threshold
from fedcover.conformal.rules import beta_binomial as beta_binomial
from fedcover.conformal.rules import calibrate as calibrate
from fedcover.conformal.rules import coverage_band as coverage_band
from fedcover.conformal.rules import quantile_over_resplits as quantile_over_resplits
from fedcover.conformal.rules import server_of as server_of
from fedcover.conformal.scores import SCORES as SCORES
from fedcover.conformal.scores import RapsConstants as RapsConstants
from fedcover.conformal.scores import add_top_label as add_top_label
from fedcover.conformal.scores import aps as aps
from fedcover.conformal.scores import aps_det as aps_det
from fedcover.conformal.scores import crossing_sets as crossing_sets
from fedcover.conformal.scores import lac as lac
from fedcover.conformal.scores import prediction_sets as prediction_sets
from fedcover.conformal.scores import raps as raps
from fedcover.conformal.scores import score as score
from fedcover.conformal.scores import true_scores as true_scores
from fedcover.conformal.targets import NO_TERMS as NO_TERMS
from fedcover.conformal.targets import Terms as Terms
from fedcover.conformal.targets import exact_rank as exact_rank
from fedcover.conformal.temperature import TEMPERATURES as TEMPERATURES
from fedcover.conformal.temperature import averaged_client as averaged_client
from fedcover.conformal.temperature import averaged_server as averaged_server
from fedcover.conformal.temperature import fit_temperature as fit_temperature
from fedcover.conformal.temperature import nll as nll
from fedcover.conformal.temperature import pooled_client as pooled_client
from fedcover.conformal.temperature import pooled_server as pooled_server
from fedcover.conformal.temperature import softmax as softmax
from fedcover.conformal.tuning import DAPS_GRID as DAPS_GRID
from fedcover.conformal.tuning import RAPS_GRID as RAPS_GRID
from fedcover.conformal.tuning import SNAPS_GRID as SNAPS_GRID
from fedcover.conformal.tuning import choose_diffusion as choose_diffusion
from fedcover.conformal.tuning import choose_raps as choose_raps
from fedcover.conformal.tuning import diffusion_client as diffusion_client
from fedcover.conformal.tuning import diffusion_server as diffusion_server
from fedcover.conformal.tuning import raps_client as raps_client
from fedcover.conformal.tuning import raps_server as raps_server
