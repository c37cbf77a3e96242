"""File formats that TensorFlow reads and writes, as readers and writers that know no graphs.

`record.py` is the stream of records (TFRecord), `table.py` the sorted key-value file (SSTable), `tensor_bundle.py` the
checkpoint made of both ideas.  All functions here block: kernels and coroutines call them in a worker thread.
"""
