"""What ``flwr run`` sends around: the names of two apps that are installed with fedcover."""
