"""From predictions to the next candidates; knows the data and the models."""
