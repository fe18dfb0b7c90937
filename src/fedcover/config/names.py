"""The words that settings choose from; tests hold them against the tables of what they name."""

MODELS = ("gcn", "sage")
PARTITIONS = ("metis", "louvain", "random", "label-skew", "given")
CUT_EDGES = ("unknown", "known")
MATCHINGS = ("private", "open")
SUMMARIES = ("features", "encoding", "labels")  # what +neighbours adds up
SCORES = ("lac", "aps", "aps-det", "raps", "daps", "dlac", "snaps", "slac")
QUANTILES = ("exact", "theorem1", "pooled", "average", "tdigest")
ASKED = ("test", "unlabelled")  # nodes that a promise is for
# Those that find an order statistic, and so a threshold for each group, too:
GROUP_QUANTILES = ("exact", "theorem1", "pooled")
CALIBRATIONS = ("pooled", "client", "class", "group")  # what has a threshold of its own
TEMPERATURES = ("pooled", "averaged", "none")
LINKINGS = ("node", "global")
DP_PROTOTYPES = ("prior", "reconstructions")
TARGETS = ("means", "nodes")
MISSING = ("refuse", "impute")
AVERAGES = ("mean", "trimmed", "median")
