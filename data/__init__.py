"""From an operator to a measured record; knows nothing of models."""
