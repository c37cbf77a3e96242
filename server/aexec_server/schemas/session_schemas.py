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
_COUNT = told(INTEGER, "Count", minimum=0)
_TENSORS = "JSON, of the length in the header Inference-Header-Content-Length, followed by the bytes of tensors"
_SESSION = {
    "session_handle": STRING,
    "owner_": told(STRING, "Owner of the token that made the session; shown to admins only"),
    "graph_version": told(INTEGER, "Number of extensions so far"),
    "nodes": _COUNT,
    "runs": told(INTEGER, "Number of runs begun so far"),
    "runs_in_flight": _COUNT,
    "plans": told(INTEGER, "Number of plans kept, one for each set of feeds, fetches and targets"),
    "ttl_s": told(nullable(NUMBER), "Seconds without use after which the session is closed; null: never"),
    "idle_s": told(NUMBER, "Seconds since the last use"),
    "durable_": told(BOOLEAN, "True for a durable session"),
    "durability_": told({"enum": ["strict", "relaxed"]}, "When requests of a durable session are answered"),
}
_OPTIONS = {
    "type": "object",
    "description": "Fields of RunOptions; those that are not honoured are refused by name",
    "properties": {
        "timeout_in_ms": told(INTEGER, "Milliseconds until the deadline; 0: no deadline", minimum=0),
        "priority": told(
            INTEGER, "Priority from 1, the highest, to 1000; 0 and none mean 100", minimum=0, maximum=1000
        ),
        "trace_level": {"enum": ["NO_TRACE", "SOFTWARE_TRACE", "HARDWARE_TRACE", "FULL_TRACE", 0, 1, 2, 3]},
        "output_partition_graphs": BOOLEAN,
        "prints": told(BOOLEAN, "True: put the output of printing nodes into the metadata, not into the server's log"),
    },
}
_PARAMETERS = request(
    timeout_=told(INTEGER, "Microseconds until the deadline; 0: no deadline", minimum=0),
    priority_=told(INTEGER, "Priority from 1, the highest, to 1000; 0 and none mean 100", minimum=0, maximum=1000),
    binary_data_output_=told(BOOLEAN, "Whether outputs are binary unless they say otherwise"),
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
    "cancelled": told(BOOLEAN, "True if the run was cancelled and is ending"),
    "seconds": told(NUMBER, "Seconds since the request came"),
    "step_id_": told(INTEGER, "Id of the step, if it has begun"),
    "nodes_": _COUNT,
    "ready_": told(INTEGER, "Number of nodes that are ready to run"),
    "running_": told(INTEGER, "Number of nodes that run in threads or wait"),
    "live_bytes_": told(nullable(INTEGER), "Bytes of memory of the run's tensors"),
    "peak_bytes_": told(nullable(INTEGER), "Largest number of these bytes so far"),
}

BODIES: dict[str, BodySchema] = {
    "CreateSessionRequest": BodySchema(
        request(
            graph_def=_GRAPH,
            config_=told(reference("Message"), "A ConfigProto"),
            target_=STRING,
            ttl_s_=told(nullable(NUMBER), "Seconds without use after which the session is closed"),
            name_=told(
                STRING,
                "Name of the session; without one it gets a handle that nobody can guess",
                pattern="^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$",
            ),
            limits_=told(
                request(
                    max_runs_=told(INTEGER, "Limit on runs in flight", minimum=1),
                    max_memory_bytes_=told(INTEGER, "Limit on the bytes of its tensors, kept ones included", minimum=1),
                    max_run_bytes_=told(INTEGER, "Limit on the bytes of the tensors of one run", minimum=1),
                    max_kept_bytes_=told(INTEGER, "Limit on the bytes of tensors under handles", minimum=1),
                ),
                "Limits of the session, within those of the server",
            ),
            durable_=told(BOOLEAN, "True: the session survives the end of the server, which must have a store"),
            durability_=told(
                {"enum": ["strict", "relaxed"]},
                "strict, the default of a durable session: requests are answered once their changes are on the disk; "
                "relaxed: before, and the changes of the last second may be lost",
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
            inputs_=told(
                array(reference("TensorInfo")), "Inputs of the signature that a run without a signature's name uses"
            ),
            outputs_=array(reference("TensorInfo")),
            signatures=mapping(reference("Signature")),
        )
    ),
    "CloseRequest": BodySchema(message="CloseSessionRequest", required=False),
    "Closed": BodySchema(message="CloseSessionResponse"),
    "ExtendRequest": BodySchema(
        request(
            graph_def=_GRAPH,
            current_graph_version_=told(INTEGER, "Version of the graph that is extended; may be in the query instead"),
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
                    request(
                        feeds_=_GIVEN, fetches_=_WANTED, targets_=told(array(STRING), "Operations to run"), **_COMMON
                    ),
                    "Feeds and fetches by the names of the graph",
                ),
                told(
                    request(
                        signature_=told(nullable(STRING), "Name of the signature; may be absent"),
                        inputs_=_GIVEN,
                        outputs_=told(_WANTED, "Outputs to compute; the default is all"),
                        **_COMMON,
                    ),
                    "Feeds and fetches by the names of a signature",
                ),
            ),
            "Tensors are a list, for programs, or an object of nested lists, for people; the answer has the same form",
        ),
        message="RunStepRequest",
        others={"application/octet-stream": _TENSORS},
    ),
    "RunResponse": BodySchema(
        either(
            told(
                record(run_id=STRING, outputs=array(reference("OutputTensor")), metadata_=reference("Message")),
                "Tensors as a list",
            ),
            told(
                record(
                    run_id=STRING,
                    outputs=reference("Values"),
                    dtypes=mapping(STRING),
                    shapes=mapping(reference("Shape")),
                    metadata_=reference("Message"),
                ),
                "Tensors as an object of nested lists",
            ),
        ),
        message="RunStepResponse",
        others={"application/octet-stream": _TENSORS},
    ),
    "ResetRequest": BodySchema(
        request(
            containers_=told(
                array(STRING, maxItems=4096), "Names of the containers to clear; without names the default container"
            )
        ),
        message="ResetRequest",
        required=False,
    ),
    "Reset": BodySchema(request(), message="ResetResponse"),
    "PartialRunSetup": BodySchema(
        request(
            feeds_=told(array(STRING, maxItems=4096), "All tensors that will be fed"),
            fetches_=told(array(STRING, maxItems=4096), "All tensors that will be fetched"),
            targets_=told(array(STRING, maxItems=4096), "Operations to run"),
            run_id_=nullable(reference("RunId")),
            options_=request(
                timeout_in_ms_=told(
                    INTEGER, "Milliseconds until the deadline of the whole step; 0: no deadline", minimum=0
                )
            ),
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
    "Run": BodySchema(record(**_RUN, waits_for=told(array(STRING), "What the first of its nodes do or wait for"))),
    "Nodes": BodySchema(
        record(
            graph_version=INTEGER,
            functions=told(array(STRING), "Names of the graph's functions"),
            total=told(INTEGER, "Number of all nodes; at most 20000 of them are listed"),
            nodes=array(
                record(
                    name=STRING,
                    op=STRING,
                    device=STRING,
                    inputs=told(array(STRING), "Inputs as in a NodeDef: node, node:1, ^node"),
                    outputs=array(record(datatype=STRING, shape=nullable(reference("Shape")))),
                    calls_=told(array(STRING), "Functions that it calls; left out if there are none"),
                    attrs_=told(mapping(STRING), "Attrs, with long values shortened"),
                )
            ),
        )
    ),
    "CancelRequest": BodySchema(
        request(reason_=told(nullable(STRING), "Reason, as the waiting client sees it")), required=False
    ),
    "Cancelled": BodySchema(
        record(cancelled=told(BOOLEAN, "True if the run is in flight, or was the last one of its id"))
    ),
}
