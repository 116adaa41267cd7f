"""What the models see of a program."""
