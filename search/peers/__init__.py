"""Other tuners as they are, to be compared with."""
