"""The engine on Dask distributed: the only modules that import it."""
