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

_COUNT = told(INTEGER, "How many", minimum=0)
_TIMEOUT = told(INTEGER, "How long it may wait; 0 for as long as the client stays", minimum=0)
_PARAMETERS = request(binary_data_output_=told(BOOLEAN, "Tensors follow the JSON, in binary form"))
_TENSORS = "The JSON, as long as the header Inference-Header-Content-Length says, and the bytes of tensors"
_SIZE = {"binary_data_size_": told(INTEGER, "Bytes of it that follow the JSON", minimum=0)}
_SENT = {
    "datatype": reference("Datatype"),
    "shape": array(told(INTEGER, "A size", minimum=0), maxItems=64),
    "data_": reference("Data"),
    "parameters_": request(**_SIZE),
}
_HANDLE = told(STRING, "By which it is fetched, fed and deleted")
_QUEUE = record(
    name=STRING,
    kind=told(STRING, "The op that makes such a queue"),
    size=told(INTEGER, "Elements in it", minimum=0),
    capacity=told(INTEGER, "Elements that it may have", minimum=0),
    peak=told(INTEGER, "The most that it has had", minimum=0),
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
                "A tensor for each component, as V2 tensors or as nested lists",
            ),
            many_=told(BOOLEAN, "Their rows are elements"),
            timeout_in_ms_=_TIMEOUT,
        ),
        others={"application/octet-stream": _TENSORS},
    ),
    "Dequeue": BodySchema(
        request(
            count_=told(INTEGER, "So many elements, as one tensor for each component", minimum=0, maximum=1_000_000),
            up_to_=told(BOOLEAN, "Once the queue is closed, fewer will do"),
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
        request(cancel_pending_=told(BOOLEAN, "Who waits to put something fails, instead of going first")),
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
        request(name_=told(STRING, "The first part of its handle"), **_SENT),
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
