"""What the broker itself answers."""
