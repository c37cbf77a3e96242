"""Runs graphs that TensorFlow made of pipelines, and compares their elements with those that it recorded."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

import aexec
from aexec import errors
from tests.kernels.datasets.pipelines import MOST, MOST_ERRORS

__all__ = ["difference", "graph_of"]


def graph_of(case: dict[str, Any]) -> bytes:
    """The GraphDef of a recorded pipeline."""
    return bytes.fromhex(case["graph"])


def _decoded(value: list[Any]) -> np.ndarray[Any, Any]:
    dtype, shape, values = value
    if dtype != "string":
        return np.array(values, dtype).reshape(shape)
    texts = np.empty(len(values), object)
    texts[:] = [base64.b64decode(text) for text in values]
    return texts.reshape(shape)


async def _pass(session: aexec.Session, case: dict[str, Any]) -> tuple[list[Any], list[str]]:
    elements: list[Any] = []
    failed: list[str] = []
    try:
        if case["initializer"]:
            await session.run([], targets=[case["initializer"]])
        while len(elements) < MOST and len(failed) < MOST_ERRORS:
            try:
                values = await session.run(case["fetches"])
                elements.append([np.array(value, object if type(value) is bytes else None) for value in values])
            except errors.OutOfRangeError:
                break
            except errors.OpError as error:
                elements.append(None)
                failed.append(type(error).__name__)
    except errors.OpError as error:
        failed.append(type(error).__name__)
    return elements, failed


async def difference(case: dict[str, Any]) -> str:
    """How the elements and errors of a pipeline differ from the recorded ones; "" if they do not."""
    async with aexec.Session(graph_of(case)) as session:
        for number, expected in enumerate(case["passes"]):
            elements, failed = await _pass(session, case)
            if failed != expected["errors"]:
                return f"pass {number}: errors {failed}, expected {expected['errors']}"
            if len(elements) != len(expected["elements"]):
                return f"pass {number}: {len(elements)} elements, expected {len(expected['elements'])}"
            for position, (element, recorded) in enumerate(zip(elements, expected["elements"], strict=True)):
                wanted = None if recorded is None else [_decoded(value) for value in recorded]
                if not _are_equal(element, wanted):
                    return f"pass {number}, element {position}: {element}, expected {wanted}"
    return ""


def _are_equal(element: list[Any] | None, wanted: list[Any] | None) -> bool:
    if element is None or wanted is None:
        return element is wanted
    return len(element) == len(wanted) and all(
        component.dtype == value.dtype and component.shape == value.shape and np.array_equal(component, value)
        for component, value in zip(element, wanted, strict=True)
    )
