"""`penstock study`: the experiments of a paper, at the scale of this machine, and what becomes of the paper's statements."""
