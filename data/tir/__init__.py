"""Reading TVM programs: their graph, what they compute, what they take."""
