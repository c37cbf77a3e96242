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

_TENSORS = "JSON, of the length in the header Inference-Header-Content-Length, followed by the bytes of tensors"
_DURATION = record(count=told(INTEGER, "Count", minimum=0), ns=told(INTEGER, "Sum in nanoseconds", minimum=0))
_INFO = record(name=STRING, datatype=STRING, shape=reference("Shape"))
_DIMS = record(name=STRING, data_type=STRING, dims=reference("Shape"))
_OTHERS = {"additionalProperties": True}  # for models that read them
_INPUT = request(
    name=STRING,
    shape=array(told(INTEGER, "Size of a dimension", minimum=0), maxItems=64),
    datatype=reference("Datatype"),
    data_=reference("Data"),
    parameters_=request(binary_data_size_=told(INTEGER, "Length of the tensor's bytes after the JSON", minimum=0))
    | _OTHERS,
)
_OUTPUT = request(
    name=STRING,
    parameters_=request(
        binary_data_=told(BOOLEAN, "True: send the tensor in binary form, after the JSON"),
        classification_=told(INTEGER, "Number of highest values to send, each as `value:index`", minimum=0),
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
            id_=nullable(told(STRING, "Id of the request, repeated in the answer", maxLength=1024)),
            parameters_=request(
                signature_name_=told(nullable(STRING), "Name of a signature of the model"),
                timeout_=told(INTEGER, "Microseconds until the deadline; 0: no deadline", minimum=0),
                priority_=told(
                    INTEGER, "Priority from 1, the highest, to 1000; 0 and none mean 100", minimum=0, maximum=1000
                ),
                binary_data_output_=told(BOOLEAN, "Whether outputs are binary unless they say otherwise"),
                sequence_id_=told(_NOTHING, "Must be absent, 0 or empty: models keep no state between requests"),
                sequence_start_=_NOTHING,
                sequence_end_=_NOTHING,
            )
            | _OTHERS,
            inputs=array(_INPUT),
            outputs_=told(either(STRING, array(either(STRING, _OUTPUT))), "Outputs to compute; the default is all"),
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
                    last_inference=told(INTEGER, "Milliseconds since 1970; 0: never"),
                    inference_count=told(INTEGER, "Number of rows run"),
                    execution_count=told(INTEGER, "Number of steps run"),
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
    "IndexRequest": BodySchema(request(ready_=told(BOOLEAN, "True: list only models that can be run")), required=False),
    "RepositoryIndex": BodySchema(array(record(name=STRING, version_=STRING, state=STRING, reason=STRING))),
    "LoadRequest": BodySchema(
        request(
            parameters_=told(
                nullable(
                    {
                        "type": "object",
                        "properties": {
                            "config": told(STRING, "Configuration in JSON, of which version_policy is read")
                        },
                        "patternProperties": {"^file:[0-9]+/": told(STRING, "Content of a file, in base64")},
                        "additionalProperties": False,
                    }
                ),
                "The model to load, if it is not in the repository",
            )
        ),
        required=False,
    ),
    "UnloadRequest": BodySchema(
        request(parameters_=request(unload_dependents_=told({}, "No model has dependents"))), required=False
    ),
    "Done": BodySchema(told(ANY_OBJECT, "Empty", maxProperties=0)),
}
