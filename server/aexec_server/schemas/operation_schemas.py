"""Bodies of runs that are answered later, in events, or with a trace."""

from __future__ import annotations

from aexec_server.schemas.schema import (
    ANY_OBJECT,
    BOOLEAN,
    INTEGER,
    STRING,
    BodySchema,
    array,
    either,
    record,
    reference,
    told,
)

__all__ = ["BODIES"]

_ELSEWHERE = told(record(content_type=STRING, location=STRING), "Path of an answer that is not JSON")

BODIES: dict[str, BodySchema] = {
    "Operation": BodySchema(
        told(
            record(
                name=told(STRING, "operations/ and its id"),
                metadata=record(run_id_=reference("RunId")),
                done=told(BOOLEAN, "True if there is a response or an error"),
                response_=either(reference("RunResponse"), _ELSEWHERE),
                error_=record(
                    code=told(INTEGER, "Code of google.rpc.Code", minimum=1, maximum=16),
                    message=STRING,
                    details=array(reference("Error")),
                ),
            ),
            "An operation as in google.longrunning",
        )
    ),
    "Events": BodySchema(
        others={
            "text/event-stream": "Events output, progress, error and done, each with one JSON object",
            "application/x-ndjson": "The same objects, one per line, each with a member `event`",
        }
    ),
    "ChromeTrace": BodySchema(told(ANY_OBJECT, "Trace for chrome://tracing and Perfetto")),
}
