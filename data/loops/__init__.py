"""Loop nests as values: steps that change them, which of those are legal, and their programs."""
