"""The command line: one module a group of commands, and what shows their results."""
