"""Every setting of a run, and those of a federation over a network, declared once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum, inf
from typing import Any

from fedcover.config import names
from fedcover.config.recipes import BEST, METHODS, recipe_of
from fedcover.config.schema import Rule, Setting, Settings, flattened, nested, options, setting
from fedcover.errors import UsageError

CLIENTS = 10  # unless the graph brings its own
MATCHED = 1000  # edges between clients that a simulation matches privately, unless told
BETA = 0.5


def at_least(least: int) -> Rule:
    """A range of whole numbers."""
    return Rule(lambda n: n >= least, f"be a whole number of {least} or more")


DEFAULT_METHODS = ("loc", "fed", BEST, "central")
COUNT = at_least(1)
POSITIVE = Rule(lambda x: 0 < x < inf, "be a positive number")
NOT_NEGATIVE = Rule(lambda x: 0 <= x < inf, "be a number of 0 or more")
BETWEEN = Rule(lambda x: 0 < x < 1, "lie strictly between 0 and 1")
BELOW_ONE = Rule(lambda x: 0 <= x < 1, "be at least 0 and below 1")
CONFIDENCE = Rule(lambda x: 0.5 <= x < 1, "be at least 0.5 and below 1")
SHARE = Rule(lambda x: 0 < x <= 1, "be above 0 and at most 1")
SHARE_OR_NONE = Rule(lambda x: 0 <= x <= 1, f"{SHARE.words}, or 0 for no generated neighbours")
PUBLISHED_SHARES = (0.01, 0.02, 0.04, 0.08, 0.1)  # the paper's grid of p
_LIMITS = "lie between 0.1 and 100, or be inf for no differential privacy"
EPSILON = Rule(lambda x: 0.1 <= x <= 100 or x == inf, _LIMITS)  # the accountant is exact there
NOISE = Rule(lambda x: 0.3 <= x <= 1000, "lie between 0.3 and 1000")
_WHY = "or a label that a client never trained on would be impossible there"
SMOOTHING = Rule(POSITIVE.holds, f"{POSITIVE.words}, {_WHY}")
STRENGTH = Rule(lambda x: 0 <= x <= 10, f"lie in 0 … 10, {_WHY}")  # at 10 about e^-50 is left
FROM_ZERO = Rule(lambda x: x >= 0, "be 0 or more")
COLUMN = Rule(lambda _: True, "be the name of a column")
RECIPES = Rule(lambda _: True, "be a word", tuple(METHODS))


@dataclass(frozen=True, kw_only=True)
class VaeSettings(Settings):
    """Sizes, weights of the loss, and training of a client's VAE.

    Training is short on purpose: a client has a hundred nodes and 10⁵ weights. After 100 epochs at
    lr 0.01 with λ_kl 1, the cross-entropy of held-out nodes on Cora is 123 (trained on: 6; marginal
    frequencies: 95), and k-means finds single nodes: 20 prototypes merge into one or two. The
    defaults give 98 (51) and 8 to 11 prototypes; on Computers 344 (332; marginal 461) and all 20.
    """

    panel, prefix, rare = "Gen", "vae_", True

    hidden: int = setting(64, "Hidden units of the VAE.", COUNT)
    latent: int = setting(16, "Latent units of the VAE.", COUNT)
    epochs: int = setting(50, "Epochs of the VAE.", COUNT)
    lr: float = setting(0.003, "Learning rate of the VAE.", POSITIVE)
    lambda_rec: float = setting(1.0, "Weight of the reconstruction in the VAE's loss.", POSITIVE)
    lambda_kl: float = setting(0.5, "Weight of the KL divergence in it.", NOT_NEGATIVE)
    beta: float = setting(0.1, "Weight of the sparsity term in it.", NOT_NEGATIVE)
    rho: float = setting(0.1, "Mean activation that the sparsity term asks for.", BETWEEN)
    min_cluster: int = setting(5, "Nodes that a prototype stands for, at least.", COUNT)
    binary: bool | None = setting(None, "Features are 0 or 1 (default: as they are).")


@dataclass(frozen=True, kw_only=True)
class GenSettings(Settings):
    """The grid of M and p, the VAE, and the federated VGAE.

    The grid is the paper's, and p = 0 besides: the cell "none", without generated neighbours.
    ``linking`` says whether the share p is taken of each node's pairs or of all pairs at a client,
    see :func:`fedcover.party.augment.choose_links`.
    """

    panel = "Gen"

    prototypes: tuple[int, ...] = setting(
        (2, 5, 10, 20), "Numbers M of prototypes to choose from.", COUNT, each="number"
    )
    shares: tuple[float, ...] = setting(
        (0.0, *PUBLISHED_SHARES),
        "Shares p of linked pairs to choose from; 0 adds the cell none, without neighbours.",
        SHARE_OR_NONE,
        each="share",
    )
    linking: str = setting("node", "Whether p is of each node's pairs or of all.", names.LINKINGS)
    link_weight: float = setting(0.25, "Weight of a generated edge; a real one has 1.", POSITIVE)
    vae: VaeSettings = field(default_factory=VaeSettings)
    link_hidden: int = setting(64, "Hidden units of the VGAE.", COUNT, rare=True)
    link_latent: int = setting(16, "Latent units of the VGAE.", COUNT, rare=True)
    link_rounds: int = setting(30, "Rounds of the VGAE, which predicts links.", COUNT)
    link_epochs: int = setting(3, "Epochs of the VGAE in each round.", COUNT, rare=True)
    link_lr: float = setting(0.01, "Learning rate of the VGAE.", POSITIVE, rare=True)
    screening: int = setting(20, "Rounds after which every M and p are compared.", COUNT)


@dataclass(frozen=True, kw_only=True)
class NeighGenSettings(Settings):
    """NeighGen of FedSage+: sizes, weights of the losses, rhythm of training and exchange.

    ``targets="nodes"`` answers with single nodes, as the original does, and lets them leak
    (docs/fedsage.md).
    """

    panel, prefix, rare = "FedSage+", "neighgen_", True

    hidden_share: float = setting(0.5, "Share of a client's nodes that are hidden.", BETWEEN)
    most: int = setting(5, "Neighbours that a node gets, at most.", COUNT)
    latent: int = setting(64, "Units of a node's embedding.", COUNT)
    hidden: int = setting(64, "Hidden units of the feature generator.", COUNT)
    lr: float = setting(0.01, "Learning rate of the generator.", POSITIVE)
    batch: int = setting(64, "Generated vectors in a client's loss at each step.", COUNT)
    warm_up: int = setting(20, "Epochs that clients train alone first.", at_least(0))
    rounds: int = setting(10, "Exchanges between clients after that.", at_least(0))
    local_epochs: int = setting(5, "Epochs at a client after each exchange.", COUNT)
    degree_weight: float = setting(1.0, "Weight of the degrees' loss.", NOT_NEGATIVE)
    feature_weight: float = setting(1.0, "Weight of the features' loss.", NOT_NEGATIVE)
    cross_weight: float = setting(1.0, "Weight of the loss at other clients.", NOT_NEGATIVE)
    groups: int = setting(10, "Latent means that a client sends, at most.", COUNT)
    min_group: int = setting(5, "Nodes that a mean stands for, at least.", at_least(2))
    targets: str = setting("means", "Features that a client answers with.", names.TARGETS)
    target_groups: int = setting(20, "Feature means in an answer, at most.", COUNT)
    target_nodes: int = setting(200, "Nodes in an answer, at most.", COUNT)


@dataclass(frozen=True, kw_only=True)
class NeighbourSettings(Settings):
    """What +neighbours adds up over a node's far ends, and how it is protected.

    ``epsilon`` is of one far end in one sum, or, with ``cap``, of one node in all sums that it
    enters. Values are clipped to length ``norm`` then.
    """

    panel, prefix = "+neighbours", "neighbour_"

    values: str = setting("features", "What is added up over a node's far ends.", names.SUMMARIES)
    least: int = setting(3, "Far ends that a sum must have, or it is not sent.", COUNT)
    shared: bool = setting(True, "Nodes with fewer far ends share a sum with similar nodes.")
    epsilon: float | None = setting(
        None, "ε of one far end in one sum; inf for none (default: none).", EPSILON
    )
    delta: float = setting(1e-5, "δ of these sums.", BETWEEN)
    norm: float = setting(1.0, "With ε: length that a node's values are clipped to.", POSITIVE)
    cap: int | None = setting(
        None, "Sums that a node enters at most; ε is then of the node in all of them.", COUNT
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon == inf:
            self._keep("epsilon", None)


@dataclass(frozen=True, kw_only=True)
class PersonalSettings(Settings):
    """How a client makes the shared model its own: a recipe's parts, +prox to +mix.

    When a client chooses its weights of the mixture, the federation's validation nodes count as
    ``shrinkage`` beside its own; infinite: all clients take the same weights.
    """

    panel = "Personal parts"

    prox: float = setting(0.1, "+prox: μ, the pull towards the shared model.", POSITIVE)
    prior_smoothing: float = setting(5.0, "+prior: nodes added, evenly over the labels.", SMOOTHING)
    prior_strength: float = setting(0.5, "+prior: weight of log label mix in the logits.", STRENGTH)
    tune_rounds: int = setting(30, "+tuned, +mix: rounds that a client goes on alone.", COUNT)
    tune_epochs: int = setting(1, "+tuned, +mix: epochs in each of these rounds.", COUNT)
    local_rounds: int = setting(40, "+mix: rounds of the model that saw no other client.", COUNT)
    shrinkage: float = setting(100.0, "+mix: validation nodes the federation counts as.", FROM_ZERO)


@dataclass(frozen=True, kw_only=True)
class Privacy(Settings):
    """How private the prototypes of each client are to be.

    ``prototypes="prior"`` clusters decoded samples of the prior, a function of the private weights
    alone: ε covers all prototypes, for all M together. ``"reconstructions"``, the paper's, clusters
    reconstructed training nodes and so touches the data again: *not* covered. ``epsilon=inf``
    turns privacy off. ``noise``, the multiplier, may stand for ``epsilon``; ε is what it costs.

    ``density`` is the public share of ones among binary features. Training starts there, since a
    small client adds little but noise: with Adam at ``lr``, noise alone moves each weight by about
    lr·√steps = 0.07, enough to learn from a strong gradient, too little to drown the start.

    Sampling and noise are seeded by (seed, client), so that results repeat: who guesses the seed
    can remove the noise. A deployment needs a cryptographic generator, which torch does not have.
    """

    epsilon: float | None = setting(None, "ε of each client.", EPSILON)
    noise: float | None = setting(None, "The noise multiplier.", NOISE)
    delta: float = setting(1e-5, "δ.", BETWEEN)
    prototypes: str = setting("prior", "What is clustered.", names.DP_PROTOTYPES)
    samples: int = setting(500, "Samples of the prior.", COUNT)
    max_grad_norm: float = setting(1.0, "Norm that gradients are clipped to.", POSITIVE)
    steps: int = setting(200, "Steps of training.", COUNT)
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
    dropout masks and APS's u anew. All methods share it, so that they can be compared in pairs.

    ``clients`` is 10 unless set, but None for the partition ``given``, whose column has the number.
    ``client_shares``: a node that is asked about is client k's with that share, whatever its scale.
    Settings with several values take any sequence, or one value alone.
    """

    panel = "Federation"

    clients: int | None = setting(
        None, f"Clients (default: {CLIENTS}, or those of the client column).", COUNT, simulated=True
    )
    partition: str = setting(
        "metis", "How to cut the graph (given: by client column).", names.PARTITIONS, simulated=True
    )
    beta: float = setting(
        BETA,
        "Of label-skew, Dirichlet's β: the smaller, the more clients differ.",
        POSITIVE,
        simulated=True,
    )
    cut_edges: str | None = setting(
        None,
        "Whether both ends know the edges between clients (default: unknown, but known of links).",
        names.CUT_EDGES,
        simulated=True,
    )
    known_share: float = setting(
        1.0, "Share of the edges between clients that both ends know.", SHARE, simulated=True
    )
    matching: str | None = setting(
        None,
        "How clients find the edges that both know; open: without protocol and masks, which change "
        f"no result (default: private up to {MATCHED:,} edges).",
        names.MATCHINGS,
        simulated=True,
    )
    methods: tuple[str, ...] = setting(
        DEFAULT_METHODS,
        f"Methods; each may have +neighbours, +prox, +prior, and +tuned or +mix, as {BEST}.",
        RECIPES,
        spelt=lambda name: str(recipe_of(name)),
    )
    seeds: int = setting(5, "Repetitions.", COUNT)
    first_seed: int = setting(0, "Seed of the first repetition.", at_least(0))
    scores: tuple[str, ...] = setting(
        ("lac",),
        "Scores; those with d look at neighbours, with s at similar nodes too.",
        names.SCORES,
        panel="Sets and promises",
    )
    quantiles: tuple[str, ...] = setting(
        ("exact",), "Rules for the threshold; exact and theorem1 have a guarantee.", names.QUANTILES
    )
    asked_about: str | None = setting(
        None,
        "Nodes that exact makes its promise for (default: those without a label, if any).",
        names.ASKED,
    )
    client_shares: tuple[float, ...] | None = setting(
        None,
        "Clients' shares of the nodes asked about, as 0.5,0.3,0.2 (default: as they are).",
        NOT_NEGATIVE,
        each="share",
        distinct=False,
    )
    confidence: float | None = setting(
        None,
        "Confidence, over calibration sets, that the level holds (default: on average over them).",
        CONFIDENCE,
    )
    max_share: float = setting(
        1.0,
        "Largest share of the nodes asked about that one client may claim; 0.5 in a network.",
        SHARE,
    )
    robust: int = setting(
        0,
        "Clients that may lie: exact leaves out this many, those least like the rest.",
        at_least(0),
    )
    calibrate: str = setting(
        "pooled", "What has its own threshold and, given enough nodes, promise.", names.CALIBRATIONS
    )
    alphas: tuple[float, ...] = setting((0.05, 0.1, 0.2), "Error rates.", BETWEEN, each="alpha")
    temperature: str = setting("pooled", "How the temperature is found.", names.TEMPERATURES)
    resplits: int = setting(100, "Re-splits that coverage is averaged over.", COUNT, simulated=True)
    empty_sets: bool = setting(True, "Leave sets empty (the default), or add the top label.")
    model: str = setting("gcn", "The network.", names.MODELS, panel="Training")
    rounds: int = setting(100, "Rounds of averaging.", COUNT)
    patience: int | None = setting(
        None, "Stop after so many rounds without a lower validation loss (default: never).", COUNT
    )
    local_epochs: int = setting(3, "Epochs at a client in each round.", COUNT)
    batch_size: int = setting(0, "Training nodes per step; 0 for all at once.", at_least(0))
    hidden: int = setting(64, "Hidden units.", COUNT)
    dropout: float = setting(0.5, "Share of units that are dropped in training.", BELOW_ONE)
    lr: float = setting(0.03, "Learning rate.", POSITIVE)
    central_decay: tuple[float, ...] = setting(
        (0.0, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3),
        "Weight decays that central chooses from.",
        NOT_NEGATIVE,
        each="decay",
        rare=True,
        simulated=True,
    )
    unit_features: bool | None = setting(
        None, "Scale features to length 1 (default: if they look like words).", off="raw-features"
    )
    standardise: bool | None = setting(
        None, "Standardise features (default: those of own tables, unless they look like words)."
    )
    train: float = setting(0.2, "Share of a client's nodes to train with.", BETWEEN)
    valid: float = setting(0.2, "Share of the training nodes to validate with.", BELOW_ONE)
    test: float | None = setting(
        None,
        "Share to test with; 0: all the rest calibrates (default: half of the rest).",
        BELOW_ONE,
    )
    epsilon: float | None = setting(
        None, "ε of Gen's prototypes; inf for none (default: none).", EPSILON, panel="Privacy"
    )
    noise: float | None = setting(None, "Noise multiplier, in place of epsilon.", NOISE)
    dp_prototypes: str = setting(
        "prior", "What is clustered; ε does not cover reconstructions.", names.DP_PROTOTYPES
    )
    gen: GenSettings = field(default_factory=GenSettings)
    neighgen: NeighGenSettings = field(default_factory=NeighGenSettings)
    personal: PersonalSettings = field(default_factory=PersonalSettings)
    neighbour: NeighbourSettings = field(default_factory=NeighbourSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clients is None and self.partition != "given":
            self._keep("clients", CLIENTS)
        if self.beta != BETA and self.partition != "label-skew":
            raise UsageError(f"beta is {self.beta:g}, which needs partition 'label-skew'.")
        if self.test is not None and self.train + self.test >= 1:
            raise UsageError(
                f"train is {self.train:g} and test is {self.test:g}, which leaves no node to "
                "calibrate with; together they must be below 1."
            )
        if self.test == 0 and self.asked_about == "test":
            raise UsageError(
                "asked_about is 'test' and test is 0, which leaves nobody to ask about; give one "
                "of them."
            )
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
        if self.client_shares is not None:
            if self.asked_about is not None:
                raise UsageError("client_shares and asked_about are both set; give one of them.")
            if self.calibrate in ("class", "group"):
                raise UsageError(
                    f"client_shares is set, which needs calibrate 'pooled' or 'client': by "
                    f"{self.calibrate}, clients count by their calibration nodes."
                )
            self._keep("client_shares", self._normalised(self.client_shares))
        if self.confidence is not None and "exact" not in self.quantiles:
            raise UsageError("confidence is set, which needs 'exact' among the quantiles.")
        if self.robust and (self.quantiles != ("exact",) or self.calibrate != "pooled"):
            raise UsageError("robust is set, which needs quantiles 'exact' and calibrate 'pooled'.")
        if self.max_share < 1:
            if not limits_shares(self.quantiles, self.calibrate):
                raise UsageError(
                    f"max_share is {self.max_share:g}, which needs quantiles 'exact' and calibrate "
                    "'pooled' or 'client': elsewhere clients count by their calibration nodes."
                )
            if self.client_shares is not None:
                raise UsageError(
                    "client_shares and max_share are both set; shares that are set have no limit."
                )
        if self.cut_edges == "unknown":
            check_linked(self.methods)
            if self.known_share < 1:
                raise UsageError(
                    f"known_share is {self.known_share:g}, which needs cut_edges 'known'."
                )
        self._check_neighbours()
        if self.clients is not None:
            check_robust(self.robust, self.clients, "clients")
            check_limit(self.max_share, self.clients, "clients")

    def _check_neighbours(self) -> None:
        """Refuse settings of +neighbours that have no effect, or none that could be meant."""
        own = self.neighbour
        if own.epsilon is None and (own.cap is not None or own.norm != 1 or own.delta != 1e-5):
            raise UsageError(
                "neighbour.cap, neighbour.norm and neighbour.delta need neighbour.epsilon, the "
                "noise that they are part of."
            )

    def _normalised(self, shares: tuple[float, ...]) -> tuple[float, ...]:
        if "exact" not in self.quantiles:
            raise UsageError("client_shares is set, which needs 'exact' among the quantiles.")
        if self.clients not in (None, len(shares)):
            raise UsageError(
                f"client_shares has length {len(shares)}; it must hold one number for each of the "
                f"{self.clients} clients."
            )
        total = fsum(shares)
        if total == 0:
            raise UsageError("client_shares is 0 for every client; at least one must be above 0.")
        # Shares that were normalised before stay: dividing once more would move their last bits.
        settled = abs(total - 1) <= len(shares) * 2.0**-52
        return shares if settled else tuple(share / total for share in shares)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "Config":
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


def check_linked(methods: Sequence[str]) -> None:
    """Refuse +neighbours where nobody knows an edge to another party."""
    if asking := [name for name in methods if recipe_of(name).neighbours]:
        raise UsageError(
            f"methods has {asking[0]!r}, which needs edges between clients that both ends know: "
            "parties' own folders have them in tables of links or by keys (match), unless "
            "cut_edges is 'unknown'; cut_edges 'known' tells clients of those that were cut."
        )


def check_robust(robust: int, parties: int, noun: str) -> None:
    """Refuse to leave out so many that liars could be the most."""
    if robust and 2 * robust >= parties:
        raise UsageError(
            f"robust is {robust}; with {parties} {noun} it must be at most {(parties - 1) // 2}: "
            "fewer than half may lie."
        )


def check_limit(max_share: float, parties: int, noun: str) -> None:
    """Refuse a limit that somebody must exceed."""
    if max_share * parties < 1 - 1e-9:
        raise UsageError(
            f"max_share is {max_share:g}; with {parties} {noun} it must be at least "
            f"{1 / parties:.3g}."
        )


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(Settings):
    """A federation whose sites may fail.

    A round goes on with the sites that answer in ``timeout`` seconds, if they are ``least`` or
    more. A job begins with ``sites`` sites, and gives up after ``join`` seconds without them.
    """

    panel = "Network"

    sites: int = setting(3, "Sites that the job begins with.", COUNT)
    least: int = setting(2, "Sites that must answer a round.", COUNT)
    timeout: float = setting(120.0, "Seconds that a round waits.", POSITIVE)
    join: float = setting(300.0, "Seconds that the job waits for its sites.", POSITIVE)
    stride: int = setting(10, "Rounds of a site's own training that one message asks for.", COUNT)
    missing: str = setting("refuse", "Empty values; impute: training nodes' mean.", names.MISSING)
    group: str | None = setting(None, "Column of nodes' groups, for calibrate group.", COLUMN)
    match: str | None = setting(None, "Column by which two sites know the same node.", COLUMN)
    average: str = setting("mean", "How the sites' weights are averaged.", names.AVERAGES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least > self.sites:
            raise UsageError(
                f"least is {self.least}, but the federation begins with {self.sites} sites."
            )


_PLAIN: dict[str, Any] = {"lr": 0.01, "unit_features": False, "central_decay": (0.0,)}

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # FedAvg without any of the parts that make sets sharper, and the usual scores.
    "plain": _PLAIN | {"methods": ("loc", "fed", "central"), "scores": ("aps", "raps", "lac")},
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
        "shares": PUBLISHED_SHARES,
        "linking": "global",
        "link_weight": 1.0,
        "screening": 5,
    },
}
"""What each preset changes, by the names of :func:`~fedcover.config.schema.options`."""


def limits_shares(quantiles: Sequence[str], calibrate: str) -> bool:
    """Whether a limit on clients' shares holds for all thresholds."""
    return tuple(quantiles) == ("exact",) and calibrate in ("pooled", "client")


def changes_of(preset: Any) -> dict[str, Any]:
    """What the preset of this name changes."""
    if preset not in tuple(PRESETS):
        raise UsageError(f"preset is {preset!r}; it must be one of {', '.join(PRESETS)}.")
    return PRESETS[preset]


def network_settings() -> dict[str, Setting]:
    """What a job over a network can be told, by the names of options."""
    shared = {name: one for name, one in options(Config).items() if not one.simulated}
    return options(NetworkSettings) | shared
