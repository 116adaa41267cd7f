"""What the named operators compute: in TE, and in NumPy."""
