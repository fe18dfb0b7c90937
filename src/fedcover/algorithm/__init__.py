"""What the coordinator asks: generators that yield requests and never hold a node."""
