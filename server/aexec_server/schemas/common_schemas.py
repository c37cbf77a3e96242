"""Schemas shared by all three protocols: tensors, errors, health, and the parameters of requests."""

from __future__ import annotations

from aexec.errors import Code
from aexec.hosting import DATATYPES
from aexec_server.schemas.schema import (
    ANY_OBJECT,
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    BodySchema,
    Schema,
    array,
    either,
    mapping,
    nullable,
    record,
    reference,
    request,
    told,
)

__all__ = ["BODIES", "PARAMETERS", "SCHEMAS"]

_SIZE = told(INTEGER, "-1 is a size that is open", minimum=-1)
_DATATYPE = told(
    STRING,
    f"One of {', '.join(DATATYPES)}, or in sessions a DataType such as DT_COMPLEX64",
    pattern=f"^({'|'.join(DATATYPES)}|DT_[A-Z0-9_]+)$",
)
_RUN_ID = told(STRING, "Chosen by the client", pattern="^[A-Za-z0-9][A-Za-z0-9._~@+-]{0,127}$")

# Schemas that other schemas refer to.
SCHEMAS: dict[str, Schema] = {
    "Error": told(
        record(
            error=told(STRING, "What went wrong"),
            code={"type": "string", "enum": [code.name for code in Code if code is not Code.OK]},
            status=told(INTEGER, "The HTTP status", minimum=400, maximum=599),
            type={"const": "about:blank"},
            title=told(STRING, "The code in words"),
            detail=told(STRING, "As `error`"),
            instance=told(STRING, "What it is about"),
            reason_=told(STRING, "For programs: server_restarted, host_ended, answer_forgotten"),
            trace_id_=told(STRING, "Of the trace that the request belongs to, which the server's log has too"),
            node_=told(STRING, "The node that failed"),
            op_=told(STRING, "Its op"),
        ),
        "A problem of RFC 9457, with what the inference protocols read",
    ),
    "Datatype": _DATATYPE,
    "RunId": _RUN_ID,
    "Shape": told(array(_SIZE, maxItems=64), "Sizes of the dimensions"),
    "Data": told(
        either(NUMBER, STRING, BOOLEAN, array(reference("Data"))),
        "Elements, row by row, nested or flat; a value alone where the shape is []",
    ),
    "Value": told(
        either(NUMBER, STRING, BOOLEAN, request(b64=told(STRING, "Bytes in base64")), array(reference("Value"))),
        "A tensor as nested lists, whose type the graph says; strings that are not UTF-8 as base64",
    ),
    "InputTensor": request(
        name=STRING,
        shape=array(told(INTEGER, "A size", minimum=0), maxItems=64),
        datatype=reference("Datatype"),
        data_=reference("Data"),
        parameters_=request(binary_data_size_=told(INTEGER, "Bytes of it that follow the JSON", minimum=0)),
    ),
    "OutputTensor": record(
        name=STRING,
        datatype=reference("Datatype"),
        shape=reference("Shape"),
        data_=reference("Data"),
        parameters_=record(binary_data_size=told(INTEGER, "Bytes of it that follow the JSON", minimum=0)),
    ),
    "WantedTensor": either(
        STRING,
        request(name=STRING, parameters_=request(binary_data_=told(BOOLEAN, "After the JSON, in binary form"))),
    ),
    "TensorInfo": record(
        name=STRING,
        datatype=nullable(reference("Datatype")),
        shape=told(nullable(reference("Shape")), "null if the rank is open"),
        tensor_=told(STRING, "Which tensor of the graph it is"),
        tensors_=told(array(STRING), "Which tensors it is made of"),
    ),
    "Signature": record(
        inputs=array(reference("TensorInfo")), outputs=array(reference("TensorInfo")), method_name=STRING
    ),
    "Values": mapping(reference("Value")),
    "Message": told(ANY_OBJECT, "A protobuf message in its JSON form"),
}

_FIGURES = {
    "sessions": INTEGER,
    "runs_in_flight": INTEGER,
    "runs": told(INTEGER, "That have ended since it began"),
    "errors": told(INTEGER, "Requests that were answered with one"),
    "tensor_bytes": told(INTEGER, "What tensors take of memory"),
}

BODIES: dict[str, BodySchema] = {
    "Live": BodySchema(record(live=BOOLEAN)),
    "Ready": BodySchema(record(ready=BOOLEAN), also=(503,)),
    "Metrics": BodySchema(
        others={
            "text/plain": "Metrics in the text format of Prometheus, version 0.0.4",
            "application/openmetrics-text": "The same in that of OpenMetrics, version 1.0.0",
        }
    ),
    "Status": BodySchema(
        record(
            version=STRING,
            uptime_s=NUMBER,
            ready=told(BOOLEAN, "As /readyz says"),
            **_FIGURES,
            tensor_bytes_limit=told(nullable(INTEGER), "null for no limit"),
            host_count=told(INTEGER, "The processes in which sessions are"),
            hosts=told(array(record(name=STRING, **_FIGURES)), "Of many, the hundred with most to do"),
            recent_errors=told(
                array(
                    record(
                        time=told(NUMBER, "Seconds since 1970"),
                        method=STRING,
                        path=told(STRING, "Without the handles of sessions"),
                        status=INTEGER,
                        code=STRING,
                        node=nullable(STRING),
                        op=nullable(STRING),
                    )
                ),
                "The latest, oldest first, without what they said",
            ),
        )
    ),
    "OpenApi": BodySchema(told(ANY_OBJECT, "An OpenAPI 3.1 document: this one")),
    "Page": BodySchema(others={"text/html": "A page for people"}),
    "PageFile": BodySchema(
        others={"text/css": "How it looks", "text/javascript": "What it does", "image/svg+xml": "An icon"}
    ),
}

# Parameters by name: those in paths, and the header fields and query parameters that routes name.
PARAMETERS: dict[str, Schema] = {
    "session": {"in": "path", "description": "Handle of a session", "schema": STRING},
    "run": {"in": "path", "description": "Id of a run", "schema": reference("RunId")},
    "partial": {"in": "path", "description": "Handle of a partial run", "schema": reference("RunId")},
    "operation": {"in": "path", "description": "Id of an operation", "schema": STRING},
    "wait_s": {"in": "query", "description": "Seconds to wait for its end", "schema": told(NUMBER, "", minimum=0)},
    "Last-Event-ID": {"in": "header", "description": "Number of the last event", "schema": INTEGER},
    "Priority": {"in": "header", "description": "RFC 9218's: u=0 to u=7, the urgent first", "schema": STRING},
    "Prefer": {"in": "header", "description": "respond-async, or respond-async, wait=5", "schema": STRING},
    "Idempotency-Key": {
        "in": "header",
        "description": "The same request with the same key is carried out once",
        "schema": told(STRING, "", minLength=1, maxLength=255),
    },
    "Idempotency-Secret": {
        "in": "header",
        "description": "Told with the first answer where there are no tokens; it gets that answer from another address",
        "schema": STRING,
    },
    "Aexec-Timeout-Ms": {
        "in": "header",
        "description": "Milliseconds until its deadline; 0 for none",
        "schema": {"type": "integer", "minimum": 0},
    },
    "queue": {"in": "path", "description": "Name of a queue", "schema": STRING},
    "tensor": {"in": "path", "description": "Handle of a tensor that is kept", "schema": STRING},
    "name": {"in": "query", "description": "What it is to be called", "schema": STRING},
    "model": {"in": "path", "description": "Name of a model", "schema": STRING},
    "version": {
        "in": "path",
        "description": "Number of a version",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    },
    "label": {"in": "path", "description": "Label of a version", "schema": STRING},
    "region": {"in": "path", "description": "Name of a region of shared memory", "schema": STRING},
    "ttl_s": {"in": "query", "description": "Seconds without use after which it is closed", "schema": NUMBER},
    "current_graph_version": {
        "in": "query",
        "description": "Of the graph that is extended; any, if neither this nor the body says it",
        "schema": INTEGER,
    },
    "node": {"in": "query", "description": "Only the node of this name, with its attrs", "schema": STRING},
    "function": {"in": "query", "description": "Nodes of this function of the graph", "schema": STRING},
    "Aexec-Run-Id": {
        "in": "header",
        "description": "Names the run, so that it can be cancelled while it is under way",
        "schema": reference("RunId"),
    },
    "Inference-Header-Content-Length": {
        "in": "header",
        "description": "How many bytes of the body are JSON; the tensors in binary form follow them",
        "schema": {"type": "integer", "minimum": 0},
    },
}
