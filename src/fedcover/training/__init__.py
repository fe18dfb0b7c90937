"""Training of GNNs, of many parties as one program: it knows graphs and plans, no algorithm."""
