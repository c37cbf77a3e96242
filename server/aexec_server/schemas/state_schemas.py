"""Bodies of what a session keeps between runs: its queues, and its tensors under handles."""

from __future__ import annotations

from aexec_server.schemas.schema import (
    BOOLEAN,
    INTEGER,
    STRING,
    BodySchema,
    array,
    either,
    record,
    reference,
    request,
    told,
)

__all__ = ["BODIES"]

_COUNT = told(INTEGER, "Count", minimum=0)
_TIMEOUT = told(INTEGER, "Longest wait in milliseconds; 0: as long as the client stays connected", minimum=0)
_PARAMETERS = request(binary_data_output_=told(BOOLEAN, "True: tensors follow the JSON in binary form"))
_TENSORS = "JSON, of the length in the header Inference-Header-Content-Length, followed by the bytes of tensors"
_SIZE = {"binary_data_size_": told(INTEGER, "Length of the tensor's bytes after the JSON", minimum=0)}
_SENT = {
    "datatype": reference("Datatype"),
    "shape": array(told(INTEGER, "Size of a dimension", minimum=0), maxItems=64),
    "data_": reference("Data"),
    "parameters_": request(**_SIZE),
}
_HANDLE = told(STRING, "Handle, by which the tensor is fetched, fed and deleted")
_QUEUE = record(
    name=STRING,
    kind=told(STRING, "The op that makes such a queue"),
    size=told(INTEGER, "Number of elements in the queue", minimum=0),
    capacity=told(INTEGER, "Largest number of elements", minimum=0),
    peak=told(INTEGER, "Largest number of elements so far", minimum=0),
    enqueued=_COUNT,
    dequeued=_COUNT,
    waiting_producers=_COUNT,
    waiting_consumers=_COUNT,
    closed=BOOLEAN,
)

BODIES: dict[str, BodySchema] = {
    "Queues": BodySchema(record(queues=array(_QUEUE))),
    "Queue": BodySchema(_QUEUE),
    "Enqueue": BodySchema(
        request(
            components=told(
                either(array(request(name_=STRING, **_SENT)), array(reference("Value"))),
                "One tensor per component, as V2 tensors or as nested lists",
            ),
            many_=told(BOOLEAN, "True: each row of the tensors is an element"),
            timeout_in_ms_=_TIMEOUT,
        ),
        others={"application/octet-stream": _TENSORS},
    ),
    "Dequeue": BodySchema(
        request(
            count_=told(
                INTEGER,
                "Number of elements to take, answered as one tensor per component",
                minimum=0,
                maximum=1_000_000,
            ),
            up_to_=told(BOOLEAN, "True: take fewer elements if the queue is closed"),
            timeout_in_ms_=_TIMEOUT,
            parameters_=_PARAMETERS,
        ),
        required=False,
    ),
    "Elements": BodySchema(
        either(
            record(components=array(reference("OutputTensor"))),
            record(components=array(reference("Value")), dtypes=array(STRING), shapes=array(reference("Shape"))),
        ),
        others={"application/octet-stream": _TENSORS},
    ),
    "CloseQueue": BodySchema(
        request(cancel_pending_=told(BOOLEAN, "True: runs that wait to put elements fail; false: they go first")),
        required=False,
    ),
    "SessionTensors": BodySchema(
        record(
            tensors=array(
                record(handle=_HANDLE, datatype=reference("Datatype"), shape=reference("Shape"), bytes=INTEGER)
            )
        )
    ),
    "KeepTensor": BodySchema(
        request(name_=told(STRING, "First part of the tensor's handle"), **_SENT),
        message="TensorProto",
        others={"application/octet-stream": _TENSORS},
    ),
    "SessionTensor": BodySchema(record(handle=_HANDLE)),
    "SessionTensorValue": BodySchema(
        record(
            handle=_HANDLE,
            datatype=reference("Datatype"),
            shape=reference("Shape"),
            data_=reference("Data"),
            parameters_=record(**_SIZE),
        ),
        message="TensorProto",
        others={"application/octet-stream": _TENSORS},
    ),
}
