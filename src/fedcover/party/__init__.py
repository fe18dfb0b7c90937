"""What a party answers: its data, its local training, its answers."""
