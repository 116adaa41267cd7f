"""From records to a prediction; knows the data."""
