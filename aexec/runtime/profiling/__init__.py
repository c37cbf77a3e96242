"""What steps did and how long it took: traces, step statistics, profiles, and the cost model learnt from them."""
