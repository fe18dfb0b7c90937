"""Every setting of a run, and those of a federation over a network, declared once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import fsum, inf
from typing import Any

from fedcover.config import names
from fedcover.config.recipes import BEST, METHODS, recipe_of
from fedcover.config.schema import (
    BELOW_ONE,
    BETWEEN,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    YES_OR_NO,
    Rule,
    Settings,
    at_least,
    flattened,
    nested,
    one_of,
    options,
    setting,
)
from fedcover.errors import UsageError

CLIENTS = 10
"""How many clients the graph is divided among, unless it brings its own."""

IMPOSSIBLE = "or a label that a client never trained on would be impossible there"
EPSILON = Rule(  # where the accountant is quick and exact
    lambda x: 0.1 <= x <= 100 or x == inf,
    "lie between 0.1 and 100, or be inf for no differential privacy",
)
NOISE = Rule(lambda x: 0.3 <= x <= 1000, "lie between 0.3 and 1000")

_federation = partial(setting, panel="Federation")
_sets = partial(setting, panel="Sets and promises")
_training = partial(setting, panel="Training")
_privacy = partial(setting, panel="Privacy")


@dataclass(frozen=True, kw_only=True)
class VaeSettings(Settings):
    """Sizes, weights of the loss, and training of a client's VAE.

    Training is short on purpose: a client has a hundred nodes and 10⁵ weights. Cross-entropies of
    one fifth of the training nodes, held out, 3 clients: on Cora 123 after 100 epochs at lr 0.01
    with λ_kl 1 (those trained on: 6; marginal frequencies: 95), and k-means then finds single
    nodes, which merging melts from 20 to one or two prototypes. The defaults give 98 (51) and 8 to
    11 prototypes; on Computers 344 (332; marginal 461) and all 20. β and ρ hardly matter there.
    """

    panel = "Gen"
    rare = True

    hidden: int = setting(64, "Hidden units of the VAE.", at_least(1))
    latent: int = setting(16, "Its latent units.", at_least(1))
    epochs: int = setting(50, "Its epochs.", at_least(1))
    lr: float = setting(0.003, "Its learning rate.", POSITIVE)
    lambda_rec: float = setting(1.0, "Weight of the reconstruction in its loss.", POSITIVE)
    lambda_kl: float = setting(0.5, "Weight of the KL divergence.", NOT_NEGATIVE)
    beta: float = setting(0.1, "Weight of the sparsity term.", NOT_NEGATIVE)
    rho: float = setting(0.1, "Mean activation that the sparsity term asks for.", BETWEEN)
    min_cluster: int = setting(5, "Nodes that a prototype stands for, at least.", at_least(1))
    binary: bool | None = setting(
        None, "Whether features are 0 or 1 (default: as the data are).", YES_OR_NO
    )


@dataclass(frozen=True, kw_only=True)
class GenSettings(Settings):
    """The paper's grid of M and p, the VAE, and the federated VGAE.

    ``linking`` says whether the share p is taken of each node's pairs or of all pairs at a client,
    see :func:`fedcover.party.links.choose_links`.
    """

    panel = "Gen"

    prototypes: tuple[int, ...] = setting(
        (2, 5, 10, 20),
        "Numbers M of prototypes that a client sends, to choose from.",
        at_least(1),
        each="number",
    )
    shares: tuple[float, ...] = setting(
        (0.01, 0.02, 0.04, 0.08, 0.10),
        "Shares p of candidate pairs that are linked, to choose from.",
        SHARE,
        each="share",
    )
    linking: str = setting(
        "node", "p of each node's pairs (node) or of all (global).", one_of(names.LINKINGS)
    )
    link_weight: float = setting(
        0.25, "Weight of a generated edge in the model; a real one has 1.", POSITIVE
    )
    vae: VaeSettings = field(default_factory=VaeSettings, metadata={"prefix": "vae_"})
    link_hidden: int = setting(64, "Hidden units of the VGAE.", at_least(1), rare=True)
    link_latent: int = setting(16, "Its latent units.", at_least(1), rare=True)
    link_rounds: int = setting(30, "Rounds of the VGAE, which predicts links.", at_least(1))
    link_epochs: int = setting(3, "Its epochs at a client in each round.", at_least(1), rare=True)
    link_lr: float = setting(0.01, "Its learning rate.", POSITIVE, rare=True)
    screening: int = setting(20, "Rounds after which every M and p are compared.", at_least(1))


@dataclass(frozen=True, kw_only=True)
class NeighGenSettings(Settings):
    """NeighGen of FedSage+: sizes, weights of the losses, rhythm of training and exchange.

    Clients train alone for ``warm_up`` epochs, then ``rounds`` times exchange and train
    ``local_epochs``. ``targets="nodes"`` answers with single nodes, as the original does, and lets
    them leak (docs/fedsage.md).
    """

    panel = "FedSage+"
    rare = True

    hidden_share: float = setting(0.5, "Share of a client's nodes that are hidden.", BETWEEN)
    most: int = setting(5, "Neighbours that a node gets, at most.", at_least(1))
    latent: int = setting(64, "Units of a node's embedding.", at_least(1))
    hidden: int = setting(64, "Hidden units of the feature generator.", at_least(1))
    lr: float = setting(0.01, "Learning rate of the generator.", POSITIVE)
    batch: int = setting(64, "Generated vectors in a client's loss at each step.", at_least(1))
    warm_up: int = setting(20, "Epochs that clients train alone first.", at_least(0))
    rounds: int = setting(10, "Exchanges between clients after that.", at_least(0))
    local_epochs: int = setting(5, "Epochs at a client after each exchange.", at_least(1))
    degree_weight: float = setting(1.0, "Weight of the degrees' loss.", NOT_NEGATIVE)
    feature_weight: float = setting(1.0, "Weight of the features' loss.", NOT_NEGATIVE)
    cross_weight: float = setting(1.0, "Weight of the loss at other clients.", NOT_NEGATIVE)
    groups: int = setting(10, "Latent means that a client sends, at most.", at_least(1))
    min_group: int = setting(5, "Nodes that a mean stands for, at least.", at_least(2))
    targets: str = setting(
        "means", "What a client answers with: means of features, or nodes.", one_of(names.TARGETS)
    )
    target_groups: int = setting(20, "Feature means in an answer, at most.", at_least(1))
    target_nodes: int = setting(200, "Nodes in an answer, at most.", at_least(1))


@dataclass(frozen=True, kw_only=True)
class PersonalSettings(Settings):
    """How a client makes the shared model its own: a recipe's parts, +prox to +mix."""

    panel = "Personal parts"

    prox: float = setting(
        0.1, "+prox: FedProx's μ, how strongly a client is held near the shared model.", POSITIVE
    )
    prior_smoothing: float = setting(
        5.0,
        "+prior: nodes, spread evenly over the labels, added to a client's own.",
        Rule(POSITIVE.holds, f"{POSITIVE.words}, {IMPOSSIBLE}"),
    )
    prior_strength: float = setting(
        0.5,
        "+prior: weight of the logarithm of a client's label mix in its logits.",
        # A label that 100 nodes lack gets about e^-50 at 10, still a number.
        Rule(lambda x: 0 <= x <= 10, f"lie in 0 … 10, {IMPOSSIBLE}"),
    )
    tune_rounds: int = setting(
        30, "+tuned, +mix: rounds of local training from the shared model on.", at_least(1)
    )
    tune_epochs: int = setting(1, "+tuned, +mix: epochs in each of these rounds.", at_least(1))
    local_rounds: int = setting(
        40, "+mix: rounds of the model that never saw another client.", at_least(1)
    )
    shrinkage: float = setting(
        100.0,
        "+mix: how many validation nodes of its own the whole federation is worth to a client; "
        "inf: all clients take the same weights.",
        Rule(lambda x: x >= 0, "be 0 or more"),
    )


@dataclass(frozen=True, kw_only=True)
class Privacy(Settings):
    r"""How private the prototypes of each client are to be.

    ``prototypes="prior"``: centres of decoded samples of the prior, a function of the private
    weights alone, so that ε covers all prototypes, for all M together. ``"reconstructions"``, the
    paper's: centres of reconstructed training nodes, which touch the data again: *not* covered.
    ``epsilon=inf`` trains without differential privacy. In place of ``epsilon`` the ``noise``
    multiplier can be given; ε is then what it costs.

    ``density`` is the share of ones among binary features as far as it is public: training starts
    there, since on a small client little more than noise is added to it. With Adam at ``lr``, noise
    alone moves each weight by about lr·√steps in all, 0.07: enough to learn from a strong gradient,
    too little to drown the start. More steps or another rate change hardly anything at equal ε.

    Sampling and noise come from generators seeded by (seed, client), so that results repeat: this
    is a simulation. Who knows or guesses the seed can remove the noise; a deployment needs a
    cryptographic generator, which torch does not have.
    """

    epsilon: float | None = setting(None, "ε of each client.", EPSILON)
    noise: float | None = setting(None, "The noise multiplier.", NOISE)
    delta: float = setting(1e-5, "δ.", BETWEEN)
    prototypes: str = setting("prior", "What is clustered.", one_of(names.DP_PROTOTYPES))
    samples: int = setting(500, "Samples of the prior.", at_least(1))
    max_grad_norm: float = setting(1.0, "Norm that gradients are clipped to.", POSITIVE)
    steps: int = setting(200, "Steps of training.", at_least(1))
    sample_rate: float = setting(0.25, "Chance of a node to be in a step.", BETWEEN)
    lr: float = setting(0.005, "Learning rate.", POSITIVE)
    density: float = setting(0.02, "Share of ones among binary features.", BETWEEN)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.epsilon is None) == (self.noise is None):
            raise UsageError("Privacy takes either epsilon or noise.")

    @property
    def asked(self) -> str:
        """In words."""
        return f"epsilon {self.epsilon:g}" if self.noise is None else f"noise {self.noise:g}"

    @property
    def active(self) -> bool:
        """False for ε = ∞."""
        return self.noise is not None or self.epsilon != inf

    @property
    def covered(self) -> bool:
        """Whether the prototypes sent are inside ε."""
        return self.active and self.prototypes == "prior"


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """A run's settings; the defaults are the preset ``default`` (the guarantee holds).

    Every seed is a whole repetition: it draws the partition, the split, the initial weights, the
    dropout masks and APS's u anew, and all methods share it, so that they can be compared in
    pairs.

    ``clients`` is 10 if not set, but stays None for the partition ``given``, whose column knows
    the number. ``mixture`` is for the quantile rule of that name: a test node is client k's with
    that share, whatever its scale. Settings with several values take any sequence, or one value
    alone.
    """

    clients: int | None = _federation(
        None,
        f"Number of clients (default: {CLIENTS}, or what the client column has).",
        at_least(1),
        simulated=True,
    )
    partition: str = _federation(
        "metis",
        "How the graph is divided: metis, louvain, random or given (the client column).",
        one_of(names.PARTITIONS),
        simulated=True,
    )
    methods: tuple[str, ...] = _federation(
        ("loc", "fed", BEST, "central"),
        f"Of {', '.join(METHODS)}; separated by commas. Each may be followed by +prox, "
        f"+prior, and +tuned or +mix, as in {BEST}.",
        Rule(lambda _: True, "be a word", tuple(METHODS)),
        spelt=lambda name: str(recipe_of(name)),
    )
    seeds: int = _federation(5, "Repetitions.", at_least(1))
    first_seed: int = _federation(0, "Seed of the first repetition.", at_least(0))
    scores: tuple[str, ...] = _sets(
        ("lac",),
        "Of lac, aps, aps-det, raps; over neighbours dlac, daps; over similar nodes too slac, "
        "snaps.",
        one_of(names.SCORES),
    )
    quantiles: tuple[str, ...] = _sets(
        ("exact",),
        "Of exact, mixture, pooled, average, tdigest; the first two have a guarantee.",
        one_of(names.QUANTILES),
    )
    mixture: tuple[float, ...] | None = _sets(
        None,
        "The clients' shares of test nodes, for mixture, e.g. 0.5,0.3,0.2 (default: as they are).",
        NOT_NEGATIVE,
        each="share",
        distinct=False,
    )
    calibrate: str = _sets(
        "pooled",
        "pooled: one threshold for all; client, class or group: one for each, and the promise for "
        "each that has enough calibration nodes.",
        one_of(names.CALIBRATIONS),
    )
    alphas: tuple[float, ...] = _sets(
        (0.05, 0.1, 0.2), "Levels of error, separated by commas.", BETWEEN, each="alpha"
    )
    temperature: str = _sets(
        "pooled",
        "How logits are scaled: one temperature found together (pooled), the mean of the clients' "
        "(averaged), or none.",
        one_of(names.TEMPERATURES),
    )
    resplits: int = _sets(
        100,
        "Calibration/test re-splits that coverage is judged on.",
        at_least(1),
        simulated=True,
    )
    empty_sets: bool = _sets(
        True, "Leave sets empty, or add the top label to every set.", YES_OR_NO
    )
    model: str = _training("gcn", "gcn or sage.", one_of(names.MODELS))
    rounds: int = _training(100, "Rounds of averaging.", at_least(1))
    patience: int | None = _training(
        None,
        "Stop after so many rounds without a lower validation loss (default: never).",
        at_least(1),
    )
    local_epochs: int = _training(3, "Epochs at a client in each round.", at_least(1))
    batch_size: int = _training(0, "Training nodes a step; 0 for all at once.", at_least(0))
    hidden: int = _training(64, "Hidden units.", at_least(1))
    dropout: float = _training(0.5, "Share of units that are dropped in training.", BELOW_ONE)
    lr: float = _training(0.03, "Learning rate.", POSITIVE)
    unit_features: bool | None = _training(
        None,
        "Scale each node's features to length 1 (default: if they look like words).",
        YES_OR_NO,
        off="raw_features",
    )
    standardise: bool | None = _training(
        None,
        "Bring numbers to mean 0 and deviation 1, by training nodes (default: for own tables, "
        "unless they look like words).",
        YES_OR_NO,
    )
    train: float = _training(0.2, "Share of a client's nodes to train with.", BETWEEN)
    valid: float = _training(0.2, "Share of a client's nodes to validate with.", BELOW_ONE)
    epsilon: float | None = _privacy(
        None,
        "Gen: differential privacy of the prototypes; inf for none (default: none).",
        EPSILON,
    )
    noise: float | None = _privacy(
        None, "Gen: the noise multiplier, in place of epsilon (default: none).", NOISE
    )
    dp_prototypes: str = _privacy(
        "prior",
        "Gen: prior, or reconstructions (the paper's; not covered by epsilon).",
        one_of(names.DP_PROTOTYPES),
    )
    gen: GenSettings = field(default_factory=GenSettings)
    neighgen: NeighGenSettings = field(
        default_factory=NeighGenSettings, metadata={"prefix": "neighgen_"}
    )
    personal: PersonalSettings = field(default_factory=PersonalSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clients is None and self.partition != "given":
            self._keep("clients", CLIENTS)
        if self.epsilon == inf:
            self._keep("epsilon", None)
        if self.epsilon is not None and self.noise is not None:
            raise UsageError("epsilon and noise are both set; give one of them.")
        if self.privacy is None and self.dp_prototypes != "prior":
            raise UsageError(
                f"dp_prototypes is {self.dp_prototypes!r}, which needs epsilon or noise."
            )
        unfit = [rule for rule in self.quantiles if rule not in names.GROUP_QUANTILES]
        if self.calibrate != "pooled" and unfit:
            raise UsageError(
                f"quantiles has {unfit[0]!r}, which has one threshold for all; with calibrate "
                f"{self.calibrate!r} it must be one of {', '.join(names.GROUP_QUANTILES)}."
            )
        if self.mixture is not None:
            self._keep("mixture", self._normalised(self.mixture))

    def _normalised(self, mixture: tuple[float, ...]) -> tuple[float, ...]:
        if "mixture" not in self.quantiles:
            raise UsageError("mixture is set, which needs 'mixture' among the quantiles.")
        if self.clients not in (None, len(mixture)):
            raise UsageError(
                f"mixture has length {len(mixture)}; it must hold one number for each of the "
                f"{self.clients} clients."
            )
        total = fsum(mixture)
        if total == 0:
            raise UsageError("mixture is 0 for every client; at least one must be above 0.")
        # Shares that were normalised before stay: dividing once more would move their last bits.
        settled = abs(total - 1) <= len(mixture) * 2.0**-52
        return mixture if settled else tuple(share / total for share in mixture)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Config:
        """A named preset with changes; ``None`` means: as the preset has it.

        Settings within tables have names of their own, as options of the command line have:
        ``shares`` changes ``gen.shares``, ``vae_lr`` changes ``gen.vae.lr``.
        """
        known, flat = options(cls), dict(changes_of(name))
        for key, value in changes.items():
            if value is not None:
                flat |= {key: value} if key in known else flattened(cls, {key: value})
        return cls(**nested(cls, flat))

    @property
    def privacy(self) -> Privacy | None:
        """How Gen's prototypes are protected."""
        if self.epsilon is None and self.noise is None:
            return None
        return Privacy(epsilon=self.epsilon, noise=self.noise, prototypes=self.dp_prototypes)

    @property
    def seed_range(self) -> range:
        """The seeds of the repetitions."""
        return range(self.first_seed, self.first_seed + self.seeds)


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(Settings):
    """A federation whose sites may fail.

    A round waits ``timeout`` seconds for the sites, and goes on with those that answered if they
    are ``least`` or more. A job begins when ``sites`` sites are there, and gives up after ``join``
    seconds without them.
    """

    panel = "Network"

    sites: int = setting(3, "How many sites the job begins with.", at_least(1))
    least: int = setting(2, "How many must answer a round.", at_least(1))
    timeout: float = setting(120.0, "Seconds that a round waits.", POSITIVE)
    join: float = setting(300.0, "Seconds that the job waits for its sites.", POSITIVE)
    stride: int = setting(
        10, "Rounds of a site's own training that one message asks for.", at_least(1)
    )
    missing: str = setting(
        "refuse",
        "Empty values: refuse, or impute the mean of all training nodes.",
        one_of(names.MISSING),
    )
    group: str | None = setting(
        None, "The column that says which group a node is of, for calibrate group."
    )
    average: str = setting(
        "mean",
        "How the sites' weights become one model's: mean, trimmed or median.",
        one_of(names.AVERAGES),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least > self.sites:
            raise UsageError(
                f"least is {self.least}, but the federation begins with {self.sites} sites."
            )


_PLAIN: dict[str, Any] = {"lr": 0.01, "unit_features": False}

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # FedAvg without any of the parts that make sets sharper, and the usual scores.
    "plain": {
        **_PLAIN,
        "methods": ("loc", "fed", "central"),
        "scores": ("aps", "raps", "lac"),
    },
    # The paper's section 5.1: deterministic APS, quantile averaging, averaged temperatures,
    # batches of 32. It does not state the rounds; patience ends what batches of 32 finish early.
    "paper": {
        **_PLAIN,
        "methods": ("loc", "fed", "gen"),
        "scores": ("aps-det",),
        "quantiles": ("average",),
        "temperature": "averaged",
        "batch_size": 32,
        "patience": 10,
        "linking": "global",
        "link_weight": 1.0,
        "screening": 5,
    },
}
"""What each preset changes, by the names of :func:`~fedcover.config.schema.options`."""


def changes_of(preset: Any) -> dict[str, Any]:
    """What the preset of this name changes."""
    if preset not in tuple(PRESETS):
        raise UsageError(f"preset is {preset!r}; it must be one of {', '.join(PRESETS)}.")
    return PRESETS[preset]
