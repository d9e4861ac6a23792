"""`penstock study`: the experiments of a paper at this machine's scale, and a verdict on its statements."""
