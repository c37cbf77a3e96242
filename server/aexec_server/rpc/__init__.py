"""gRPC: the services that clients of TensorFlow, TensorFlow Serving and Triton call, on the event loop of HTTP.

`method.py` has the row of a call, and what its coroutine is given; `services.py` the table of all rows.  Modules that
import `grpc` are imported by `opening.py` when the server is asked to listen for gRPC, and by no other.
"""
