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

_SIZE = told(INTEGER, "Size; -1 if it is unknown", minimum=-1)
_DATATYPE = told(
    STRING,
    f"One of {', '.join(DATATYPES)}, or in sessions a DataType such as DT_COMPLEX64",
    pattern=f"^({'|'.join(DATATYPES)}|DT_[A-Z0-9_]+)$",
)
_RUN_ID = told(STRING, "Id of a run, chosen by the client", pattern="^[A-Za-z0-9][A-Za-z0-9._~@+-]{0,127}$")

# Schemas that other schemas refer to.
SCHEMAS: dict[str, Schema] = {
    "Error": told(
        record(
            error=told(STRING, "Message of the error"),
            code={"type": "string", "enum": [code.name for code in Code if code is not Code.OK]},
            status=told(INTEGER, "The HTTP status", minimum=400, maximum=599),
            type={"const": "about:blank"},
            title=told(STRING, "Canonical code in words"),
            detail=told(STRING, "The same as `error`"),
            instance=told(STRING, "Path of the request, or id of the run"),
            reason_=told(STRING, "Reason for programs to test, such as server_restarted, host_ended or interrupted"),
            trace_id_=told(STRING, "Trace of the request, also in the server's log"),
            node_=told(STRING, "The node that failed"),
            op_=told(STRING, "Op of the node that failed"),
        ),
        "A problem of RFC 9457, with the member `error` of the inference protocols",
    ),
    "Datatype": _DATATYPE,
    "RunId": _RUN_ID,
    "Shape": told(array(_SIZE, maxItems=64), "Sizes of the dimensions"),
    "Data": told(
        either(NUMBER, STRING, BOOLEAN, array(reference("Data"))),
        "Elements in row-major order, nested or flat; a single value for shape []",
    ),
    "Value": told(
        either(NUMBER, STRING, BOOLEAN, request(b64=told(STRING, "Bytes in base64")), array(reference("Value"))),
        "A tensor as nested lists, of the type that the graph declares; strings that are not UTF-8 are in base64",
    ),
    "InputTensor": request(
        name=STRING,
        shape=array(told(INTEGER, "Size of a dimension", minimum=0), maxItems=64),
        datatype=reference("Datatype"),
        data_=reference("Data"),
        parameters_=request(binary_data_size_=told(INTEGER, "Length of the tensor's bytes after the JSON", minimum=0)),
    ),
    "OutputTensor": record(
        name=STRING,
        datatype=reference("Datatype"),
        shape=reference("Shape"),
        data_=reference("Data"),
        parameters_=record(binary_data_size=told(INTEGER, "Length of the tensor's bytes after the JSON", minimum=0)),
    ),
    "WantedTensor": either(
        STRING,
        request(
            name=STRING,
            parameters_=request(binary_data_=told(BOOLEAN, "True: send the tensor in binary form, after the JSON")),
        ),
    ),
    "TensorInfo": record(
        name=STRING,
        datatype=nullable(reference("Datatype")),
        shape=told(nullable(reference("Shape")), "null if the rank is unknown"),
        tensor_=told(STRING, "Name of the tensor in the graph"),
        tensors_=told(array(STRING), "Names of the tensors of which it is composed"),
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
    "runs": told(INTEGER, "Number of runs that have ended since the server's start"),
    "errors": told(INTEGER, "Number of requests answered with an error"),
    "tensor_bytes": told(INTEGER, "Bytes of memory of tensors"),
}

_PERCENTILES = nullable(record(p50=NUMBER, p95=NUMBER, p99=NUMBER))
_POINT = record(
    time=told(NUMBER, "Seconds since 1970"),
    seconds=told(NUMBER, "Seconds since the point before it"),
    codes=told(mapping(NUMBER), "Number of runs that ended since then, by canonical code"),
    latency=told(_PERCENTILES, "Seconds from a run's request to its answer; null: no runs"),
    in_line=told(_PERCENTILES, "Seconds that runs waited in line"),
    lag=told(_PERCENTILES, "Seconds by which the event loop was late"),
    batches=told(nullable(record(count=NUMBER, rows=NUMBER)), "Number of batches, and mean number of their rows"),
    runs_in_flight=NUMBER,
    runs_waiting=NUMBER,
    memory=told(mapping(NUMBER), "Bytes in use, by kind"),
    queues=told(mapping(NUMBER), "Elements in queues of models; those of clients together"),
)

BODIES: dict[str, BodySchema] = {
    "Live": BodySchema(record(live=BOOLEAN)),
    "Ready": BodySchema(record(ready=BOOLEAN), also=(503,)),
    "Metrics": BodySchema(
        others={
            "text/plain": "Metrics in the text format of Prometheus, version 0.0.4",
            "application/openmetrics-text": "Metrics in the text format of OpenMetrics, version 1.0.0",
        }
    ),
    "Status": BodySchema(
        record(
            version=STRING,
            uptime_s=NUMBER,
            ready=told(BOOLEAN, "True if /readyz answers 200"),
            **_FIGURES,
            tensor_bytes_limit=told(nullable(INTEGER), "Limit on these bytes; null: no limit"),
            host_count=told(INTEGER, "Number of session hosts"),
            hosts=told(array(record(name=STRING, **_FIGURES)), "Session hosts; at most the hundred with most to do"),
            recent_errors=told(
                array(
                    record(
                        time=told(NUMBER, "Seconds since 1970"),
                        method=STRING,
                        path=told(STRING, "Path, without handles of sessions"),
                        status=INTEGER,
                        code=STRING,
                        node=nullable(STRING),
                        op=nullable(STRING),
                    )
                ),
                "The latest errors, oldest first, without their messages",
            ),
        )
    ),
    "History": BodySchema(
        record(
            interval_s=told(NUMBER, "Seconds from point to point, if the server is not too busy"),
            client_codes=told(array(STRING), "The codes of errors that are mistakes of clients"),
            limits=told(mapping(NUMBER), "Limits of the kinds of memory, in bytes"),
            points=told(array(_POINT), "One for every five seconds of the last hour, oldest first"),
        )
    ),
    "ServerEvents": BodySchema(
        others={
            "text/event-stream": "Events sessions, status and point, each with one JSON object, when they change",
            "application/x-ndjson": "The same objects, one per line, each with a member `event`",
        }
    ),
    "SessionEvents": BodySchema(
        others={
            "text/event-stream": "Events session, runs and queues, each with one JSON object, when they change; closed",
            "application/x-ndjson": "The same objects, one per line, each with a member `event`",
        }
    ),
    "OpenApi": BodySchema(told(ANY_OBJECT, "An OpenAPI 3.1 document: this one")),
    "Page": BodySchema(others={"text/html": "A page in HTML"}),
    "PageFile": BodySchema(
        others={
            "text/css": "The style sheet of a page",
            "text/javascript": "A script of a page",
            "image/svg+xml": "The icon of the pages",
        }
    ),
}

# Parameters by name: those in paths, and the header fields and query parameters that routes name.
PARAMETERS: dict[str, Schema] = {
    "session": {"in": "path", "description": "Handle of a session", "schema": STRING},
    "run": {"in": "path", "description": "Id of a run", "schema": reference("RunId")},
    "partial": {"in": "path", "description": "Handle of a partial run", "schema": reference("RunId")},
    "operation": {"in": "path", "description": "Id of an operation", "schema": STRING},
    "wait_s": {
        "in": "query",
        "description": "Seconds to wait for the end of the operation",
        "schema": told(NUMBER, "", minimum=0),
    },
    "Last-Event-ID": {
        "in": "header",
        "description": "Number of the last event received; later ones are sent",
        "schema": INTEGER,
    },
    "Priority": {
        "in": "header",
        "description": "Urgency of RFC 9218, from u=0, the most urgent, to u=7",
        "schema": STRING,
    },
    "Prefer": {
        "in": "header",
        "description": "respond-async: answer later; with wait=5: answer later unless the run ends within 5 seconds",
        "schema": STRING,
    },
    "Idempotency-Key": {
        "in": "header",
        "description": "Key of the request; a request that is repeated with its key is carried out once",
        "schema": told(STRING, "", minLength=1, maxLength=255),
    },
    "Idempotency-Secret": {
        "in": "header",
        "description": "Secret that came with the first answer, if the server has no tokens; gives the answer"
        " to a client at another address",
        "schema": STRING,
    },
    "Aexec-Timeout-Ms": {
        "in": "header",
        "description": "Milliseconds until the deadline; 0: no deadline",
        "schema": {"type": "integer", "minimum": 0},
    },
    "queue": {"in": "path", "description": "Name of a queue", "schema": STRING},
    "tensor": {"in": "path", "description": "Handle of a kept tensor", "schema": STRING},
    "name": {"in": "query", "description": "Name of the session", "schema": STRING},
    "model": {"in": "path", "description": "Name of a model", "schema": STRING},
    "version": {
        "in": "path",
        "description": "Number of a version",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    },
    "label": {"in": "path", "description": "Label of a version", "schema": STRING},
    "region": {"in": "path", "description": "Name of a region of shared memory", "schema": STRING},
    "ttl_s": {"in": "query", "description": "Seconds without use after which the session is closed", "schema": NUMBER},
    "durable": {
        "in": "query",
        "description": "True for a session that survives the end of the server, which must have a store",
        "schema": BOOLEAN,
    },
    "durability": {
        "in": "query",
        "description": "When a durable session answers: strict, the default, once changes are on the disk; relaxed, "
        "before",
        "schema": {"enum": ["strict", "relaxed"]},
    },
    "current_graph_version": {
        "in": "query",
        "description": "Version of the graph that is extended; any version, if neither this nor the body gives one",
        "schema": INTEGER,
    },
    "node": {"in": "query", "description": "List only the node of this name, with its attrs", "schema": STRING},
    "function": {"in": "query", "description": "List the nodes of this function of the graph", "schema": STRING},
    "Aexec-Run-Id": {
        "in": "header",
        "description": "Id of the run, chosen by the client, by which the run can be cancelled",
        "schema": reference("RunId"),
    },
    "Inference-Header-Content-Length": {
        "in": "header",
        "description": "Length of the body's JSON in bytes; the tensors in binary form follow it",
        "schema": {"type": "integer", "minimum": 0},
    },
}
