"""From records to a prediction."""
