"""Bodies of TensorFlow Serving's REST API, `/v1/models`."""

from __future__ import annotations

from aexec_server.schemas.schema import (
    ANY_OBJECT,
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

_SIGNATURE_NAME: dict[str, Schema] = {
    "signature_name_": told(nullable(STRING), "Name of the signature; the default is serving_default")
}
_VALUES = either(reference("Value"), reference("Values"))
_FEATURES = told(mapping(reference("Value")), "Features by name: a value, or a list of them")

BODIES: dict[str, BodySchema] = {
    "PredictRequest": BodySchema(
        either(
            told(request(**_SIGNATURE_NAME, instances=array(_VALUES, minItems=1)), "Row by row"),
            told(request(**_SIGNATURE_NAME, inputs=_VALUES), "Column by column"),
        )
    ),
    "PredictResponse": BodySchema(either(record(predictions=array(_VALUES)), record(outputs=_VALUES))),
    "ExamplesRequest": BodySchema(
        request(
            **_SIGNATURE_NAME,
            context_=told(_FEATURES, "Features that all examples share"),
            examples=array(_FEATURES, minItems=1),
        )
    ),
    "ClassifyResponse": BodySchema(
        record(results=array(array(told(array({}, minItems=2, maxItems=2), "A label and its score"))))
    ),
    "RegressResponse": BodySchema(record(results=array(either(NUMBER, STRING)))),
    "ServingStatus": BodySchema(
        record(
            model_version_status=array(
                record(
                    version=STRING,
                    state={"enum": ["UNKNOWN", "START", "LOADING", "AVAILABLE", "UNLOADING", "END"]},
                    status=record(error_code=STRING, error_message=STRING),
                )
            )
        )
    ),
    "ServingMetadata": BodySchema(
        record(
            model_spec=record(name=STRING, signature_name=STRING, version=STRING),
            metadata=record(
                signature_def=record(signature_def=mapping(told(ANY_OBJECT, "A SignatureDef in its JSON form")))
            ),
        )
    ),
}
