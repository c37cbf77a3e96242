"""Bodies of the Open Inference Protocol v2, `/v2`."""

from __future__ import annotations

from aexec_server.schemas.schema import (
    ANY_OBJECT,
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    BodySchema,
    array,
    either,
    nullable,
    record,
    reference,
    request,
    told,
)

__all__ = ["BODIES"]

_TENSORS = "The JSON, as long as the header Inference-Header-Content-Length says, and the bytes of tensors"
_DURATION = record(count=told(INTEGER, "How many", minimum=0), ns=told(INTEGER, "Nanoseconds together", minimum=0))
_INFO = record(name=STRING, datatype=STRING, shape=reference("Shape"))
_DIMS = record(name=STRING, data_type=STRING, dims=reference("Shape"))
_OTHERS = {"additionalProperties": True}  # for models that read them
_INPUT = request(
    name=STRING,
    shape=array(told(INTEGER, "A size", minimum=0), maxItems=64),
    datatype=reference("Datatype"),
    data_=reference("Data"),
    parameters_=request(binary_data_size_=told(INTEGER, "Bytes of it that follow the JSON", minimum=0)) | _OTHERS,
)
_OUTPUT = request(
    name=STRING,
    parameters_=request(
        binary_data_=told(BOOLEAN, "After the JSON, in binary form"),
        classification_=told(INTEGER, "Send so many of its highest values, each as `value:place`", minimum=0),
    )
    | _OTHERS,
)
_NOTHING = either(BOOLEAN, STRING, NUMBER, {"type": "null"})

BODIES: dict[str, BodySchema] = {
    "ServerMetadata": BodySchema(record(name=STRING, version=STRING, extensions=array(STRING))),
    "ModelNames": BodySchema(record(models=array(STRING))),
    "ModelMetadata": BodySchema(
        record(name=STRING, versions=array(STRING), platform=STRING, inputs=array(_INFO), outputs=array(_INFO))
    ),
    "LogSettings": BodySchema(
        request(
            log_file_=STRING,
            log_info_=BOOLEAN,
            log_warning_=BOOLEAN,
            log_error_=BOOLEAN,
            log_verbose_level_=INTEGER,
            log_format_=STRING,
        )
    ),
    "TraceSettings": BodySchema({"type": "object", "additionalProperties": nullable(either(STRING, array(STRING)))}),
    "Regions": BodySchema(array(ANY_OBJECT)),
    "Region": BodySchema(ANY_OBJECT),
    "ModelReady": BodySchema(record(name=STRING, ready=BOOLEAN), also=(503,)),
    "ModelConfig": BodySchema(
        record(name=STRING, platform=STRING, max_batch_size=INTEGER, input=array(_DIMS), output=array(_DIMS))
    ),
    "InferRequest": BodySchema(
        request(
            id_=nullable(told(STRING, "Comes back with the answer", maxLength=1024)),
            parameters_=request(
                signature_name_=told(nullable(STRING), "Which signature of the model"),
                timeout_=told(INTEGER, "Microseconds; 0 for none", minimum=0),
                priority_=told(INTEGER, "From 1, lower ones first; 0 for the default", minimum=0, maximum=1000),
                binary_data_output_=told(BOOLEAN, "Outputs that do not say otherwise are binary"),
                sequence_id_=told(_NOTHING, "None, 0 or empty: models keep nothing between requests"),
                sequence_start_=_NOTHING,
                sequence_end_=_NOTHING,
            )
            | _OTHERS,
            inputs=array(_INPUT),
            outputs_=told(either(STRING, array(either(STRING, _OUTPUT))), "All, if left out"),
        ),
        others={"application/octet-stream": _TENSORS},
    ),
    "InferResponse": BodySchema(
        record(model_name=STRING, model_version=STRING, id_=STRING, outputs=array(reference("OutputTensor"))),
        others={"application/octet-stream": _TENSORS},
    ),
    "Stats": BodySchema(
        record(
            model_stats=array(
                record(
                    name=STRING,
                    version=STRING,
                    last_inference=told(INTEGER, "Milliseconds since 1970; 0 for never"),
                    inference_count=told(INTEGER, "Rows"),
                    execution_count=told(INTEGER, "Steps"),
                    inference_stats=record(
                        success=_DURATION,
                        fail=_DURATION,
                        queue=_DURATION,
                        compute_input=_DURATION,
                        compute_infer=_DURATION,
                        compute_output=_DURATION,
                    ),
                    batch_stats=array(record(batch_size=INTEGER, compute_infer=_DURATION)),
                )
            )
        )
    ),
    "IndexRequest": BodySchema(request(ready_=told(BOOLEAN, "Only those that can be run")), required=False),
    "RepositoryIndex": BodySchema(array(record(name=STRING, version_=STRING, state=STRING, reason=STRING))),
    "LoadRequest": BodySchema(
        request(
            parameters_=told(
                nullable(
                    {
                        "type": "object",
                        "properties": {"config": told(STRING, "A configuration in JSON, for its version_policy")},
                        "patternProperties": {"^file:[0-9]+/": told(STRING, "Contents of a file in base64")},
                        "additionalProperties": False,
                    }
                ),
                "What to load, where it is not in the repository",
            )
        ),
        required=False,
    ),
    "UnloadRequest": BodySchema(
        request(parameters_=request(unload_dependents_=told({}, "No model has dependents"))), required=False
    ),
    "Done": BodySchema(told(ANY_OBJECT, "Empty", maxProperties=0)),
}
