"""NeighGen, FedSage+'s generator of missing neighbours (Zhang et al., NeurIPS 2021)."""
