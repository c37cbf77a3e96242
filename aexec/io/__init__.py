"""File formats that TensorFlow reads and writes, as plain readers and writers that know no graph.

`record.py` is the stream of records (TFRecord), `table.py` the sorted key-value file
(SSTable), `tensor_bundle.py` the checkpoint made of both ideas.  Everything here blocks:
kernels and coroutines call it in a worker thread.
"""
