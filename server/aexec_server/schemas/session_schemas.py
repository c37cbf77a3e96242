"""Bodies of the Session API, `/v1/sessions`."""

from __future__ import annotations

from aexec_server.schemas.schema import (
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

__all__ = ["BODIES"]

_GRAPH = told(either(told(STRING, "Base64 of a GraphDef"), reference("Message")), "A GraphDef")
_COUNT = told(INTEGER, "How many", minimum=0)
_TENSORS = "The JSON, as long as the header Inference-Header-Content-Length says, and the bytes of tensors"
_SESSION = {
    "session_handle": STRING,
    "owner_": told(STRING, "Whose token made it; told to admins"),
    "graph_version": told(INTEGER, "How often it was extended"),
    "nodes": _COUNT,
    "runs": told(INTEGER, "How many it has begun"),
    "runs_in_flight": _COUNT,
    "plans": told(INTEGER, "How many plans it keeps, one for each set of feeds, fetches and targets"),
    "ttl_s": told(nullable(NUMBER), "Seconds without use after which it is closed; null for never"),
    "idle_s": told(NUMBER, "Seconds since it was used"),
}
_OPTIONS = {
    "type": "object",
    "description": "RunOptions; further fields of that message are honoured, or refused by name",
    "properties": {
        "timeout_in_ms": told(INTEGER, "0 for none", minimum=0),
        "priority": told(INTEGER, "From 1, lower ones first; 0 for the default", minimum=0, maximum=1000),
        "trace_level": {"enum": ["NO_TRACE", "SOFTWARE_TRACE", "HARDWARE_TRACE", "FULL_TRACE", 0, 1, 2, 3]},
        "output_partition_graphs": BOOLEAN,
        "prints": told(BOOLEAN, "What nodes print is to be in the metadata, instead of the server's log"),
    },
}
_PARAMETERS = request(
    timeout_=told(INTEGER, "Microseconds; 0 for none", minimum=0),
    priority_=told(INTEGER, "From 1, lower ones first; 0 for the default", minimum=0, maximum=1000),
    binary_data_output_=told(BOOLEAN, "Outputs that do not say otherwise are binary"),
)
_GIVEN = either(array(reference("InputTensor")), reference("Values"))
_WANTED = either(STRING, array(reference("WantedTensor"), maxItems=4096))
_COMMON = {
    "run_id_": nullable(reference("RunId")),
    "options_": _OPTIONS,
    "parameters_": _PARAMETERS,
}
_RUN: Schema = {
    "run_id": STRING,
    "state": {"enum": ["pending", "running", "succeeded", "failed", "cancelled"]},
    "cancelled": told(BOOLEAN, "It ends because that was asked for"),
    "seconds": told(NUMBER, "Since it came"),
    "step_id_": told(INTEGER, "Of its step, if that has begun"),
    "nodes_": _COUNT,
    "ready_": told(INTEGER, "Nodes that are ready to run"),
    "running_": told(INTEGER, "Nodes that run in threads, or wait for something"),
    "live_bytes_": told(nullable(INTEGER), "What its tensors take of memory"),
    "peak_bytes_": told(nullable(INTEGER), "What they took at most"),
}

BODIES: dict[str, BodySchema] = {
    "CreateSessionRequest": BodySchema(
        request(
            graph_def=_GRAPH,
            config_=told(reference("Message"), "A ConfigProto"),
            target_=STRING,
            ttl_s_=told(nullable(NUMBER), "Seconds without use after which it is closed"),
            name_=told(
                STRING,
                "What it is to be called; without one it gets a handle that nobody can guess",
                pattern="^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$",
            ),
            limits_=told(
                request(
                    max_runs_=told(INTEGER, "Runs in flight", minimum=1),
                    max_memory_bytes_=told(INTEGER, "What its tensors take, with what it keeps", minimum=1),
                    max_run_bytes_=told(INTEGER, "What those of one run take", minimum=1),
                    max_kept_bytes_=told(INTEGER, "What it keeps under handles", minimum=1),
                ),
                "Within the server's",
            ),
        ),
        message="CreateSessionRequest",
        others={"application/octet-stream": "A GraphDef"},
    ),
    "CreatedSession": BodySchema(record(session_handle=STRING, graph_version=INTEGER), message="CreateSessionResponse"),
    "Sessions": BodySchema(record(sessions=array(record(**_SESSION)))),
    "Session": BodySchema(
        record(
            **_SESSION,
            inputs_=told(array(reference("TensorInfo")), "Of the signature that a run without a name gets"),
            outputs_=array(reference("TensorInfo")),
            signatures=mapping(reference("Signature")),
        )
    ),
    "CloseRequest": BodySchema(message="CloseSessionRequest", required=False),
    "Closed": BodySchema(message="CloseSessionResponse"),
    "ExtendRequest": BodySchema(
        request(
            graph_def=_GRAPH,
            current_graph_version_=told(INTEGER, "Of the graph that is extended; may be in the address in its place"),
        ),
        message="ExtendSessionRequest",
        others={"application/octet-stream": "A GraphDef"},
    ),
    "ExtendedSession": BodySchema(record(new_graph_version=INTEGER), message="ExtendSessionResponse"),
    "GraphDef": BodySchema(
        reference("Message"),
        message="GraphDef",
        others={"text/plain": "Protobuf's text form", "application/octet-stream": "A GraphDef"},
    ),
    "DevicesRequest": BodySchema(message="ListDevicesRequest", required=False),
    "Devices": BodySchema(
        record(
            devices=array(record(name=STRING, device_type=STRING, memory_limit=INTEGER, incarnation=INTEGER)),
        ),
        message="ListDevicesResponse",
    ),
    "RunRequest": BodySchema(
        told(
            either(
                told(
                    request(feeds_=_GIVEN, fetches_=_WANTED, targets_=told(array(STRING), "Operations"), **_COMMON),
                    "By the graph's own names",
                ),
                told(
                    request(
                        signature_=told(nullable(STRING), "One may be left out"),
                        inputs_=_GIVEN,
                        outputs_=told(_WANTED, "All, if left out"),
                        **_COMMON,
                    ),
                    "By the names of a signature",
                ),
            ),
            "Tensors are a list, for programs, or an object of nested lists, for people; so are those of the answer",
        ),
        message="RunStepRequest",
        others={"application/octet-stream": _TENSORS},
    ),
    "RunResponse": BodySchema(
        either(
            told(
                record(run_id=STRING, outputs=array(reference("OutputTensor")), metadata_=reference("Message")),
                "For programs",
            ),
            told(
                record(
                    run_id=STRING,
                    outputs=reference("Values"),
                    dtypes=mapping(STRING),
                    shapes=mapping(reference("Shape")),
                    metadata_=reference("Message"),
                ),
                "For people",
            ),
        ),
        message="RunStepResponse",
        others={"application/octet-stream": _TENSORS},
    ),
    "ResetRequest": BodySchema(
        request(containers_=told(array(STRING, maxItems=4096), "The default one, if none is named")),
        message="ResetRequest",
        required=False,
    ),
    "Reset": BodySchema(request(), message="ResetResponse"),
    "PartialRunSetup": BodySchema(
        request(
            feeds_=told(array(STRING, maxItems=4096), "All tensors that will be fed"),
            fetches_=told(array(STRING, maxItems=4096), "All tensors that will be fetched"),
            targets_=told(array(STRING, maxItems=4096), "Operations"),
            run_id_=nullable(reference("RunId")),
            options_=request(timeout_in_ms_=told(INTEGER, "Of the step as a whole; 0 for none", minimum=0)),
        ),
        message="PartialRunSetupRequest",
    ),
    "PartialRunHandle": BodySchema(
        record(partial_run_handle=told(STRING, "Also the id of the run")), message="PartialRunSetupResponse"
    ),
    "PartialRunRequest": BodySchema(
        request(feeds_=_GIVEN, fetches_=_WANTED),
        message="RunStepRequest",
        others={"application/octet-stream": _TENSORS},
    ),
    "Runs": BodySchema(record(runs=array(record(**_RUN)))),
    "Run": BodySchema(
        record(**_RUN, waits_for=told(array(STRING), "What its nodes do and wait for, of the first of them"))
    ),
    "Nodes": BodySchema(
        record(
            graph_version=INTEGER,
            functions=told(array(STRING), "Names of its functions"),
            total=told(INTEGER, "Nodes that there are, of which 20000 at most are listed"),
            nodes=array(
                record(
                    name=STRING,
                    op=STRING,
                    device=STRING,
                    inputs=told(array(STRING), "As in a NodeDef: node, node:1, ^node"),
                    outputs=array(record(datatype=STRING, shape=nullable(reference("Shape")))),
                    attrs_=told(mapping(STRING), "Shortened"),
                )
            ),
        )
    ),
    "CancelRequest": BodySchema(
        request(reason_=told(nullable(STRING), "For whoever waits for the run")), required=False
    ),
    "Cancelled": BodySchema(record(cancelled=told(BOOLEAN, "is the run in flight, or was the last one of its id?"))),
}
