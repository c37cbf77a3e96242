"""Worker threads and slices: where work goes that must not hold the event loop."""
