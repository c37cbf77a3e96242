"""Records of steps: traces, step statistics, profiles, and the cost model learned from them."""
