"""The words that settings choose from; tests hold them against the tables of what they name."""

MODELS = ("gcn", "sage")
PARTITIONS = ("metis", "louvain", "random", "given")
SCORES = ("lac", "aps", "aps-det", "raps", "daps", "dlac", "snaps", "slac")
QUANTILES = ("exact", "mixture", "pooled", "average", "tdigest")
GROUP_QUANTILES = ("exact", "pooled")
"""Those that also find a threshold for each client, class or group: order statistics."""

CALIBRATIONS = ("pooled", "client", "class", "group")
"""What has a threshold of its own: nothing, or every client, class or group of nodes."""

TEMPERATURES = ("pooled", "averaged", "none")
LINKINGS = ("node", "global")
DP_PROTOTYPES = ("prior", "reconstructions")
TARGETS = ("means", "nodes")
MISSING = ("refuse", "impute")
AVERAGES = ("mean", "trimmed", "median")
