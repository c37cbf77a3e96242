"""`tf.layers.Dense` and its kin: layers as objects, over the functions of `aexec.layers`.

Next to read: `base_layer.py`, `layers.py`.
"""

from __future__ import annotations

from inspect import Parameter, Signature, signature
from typing import Any

from aexec import layers
from aexec.compat.v1.namespace import renamed
from aexec.compat.v1.networks.base_layer import Layer
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.graph.collections import GraphKeys
from aexec.variables.partitioned_variable import parts_or_self
from aexec.variables.variable_scope import get_variable_scope, variable_scope

__all__ = ["function_layer"]

_SHOWN = "activation use_bias kernel_initializer bias_initializer kernel_regularizer bias_regularizer"
_WEIGHTS = f"{_SHOWN} activity_regularizer kernel_constraint bias_constraint trainable name"
_WINDOW = "filters kernel_size strides padding data_format"
_POOL = "pool_size strides padding data_format name"
_NORM = """axis momentum epsilon center scale beta_initializer gamma_initializer moving_mean_initializer
moving_variance_initializer beta_regularizer gamma_regularizer beta_constraint gamma_constraint renorm!
renorm_clipping! renorm_momentum!0.99 fused trainable virtual_batch_size! adjustment! name"""
_SEPARABLE = """dilation_rate depth_multiplier activation use_bias depthwise_initializer pointwise_initializer
bias_initializer depthwise_regularizer pointwise_regularizer bias_regularizer activity_regularizer depthwise_constraint
pointwise_constraint bias_constraint trainable name"""

# TensorFlow's name of a layer → aexec's function, and TensorFlow's arguments in their order.
_LAYERS = {
    "AveragePooling1D": ("average_pooling1d", _POOL),
    "AveragePooling2D": ("average_pooling2d", _POOL),
    "AveragePooling3D": ("average_pooling3d", _POOL),
    "BatchNormalization": ("batch_normalization", _NORM),
    "Conv1D": ("conv1d", f"{_WINDOW} dilation_rate {_WEIGHTS}"),
    "Conv2D": ("conv2d", f"{_WINDOW} dilation_rate {_WEIGHTS}"),
    "Conv2DTranspose": ("conv2d_transpose", f"{_WINDOW} {_WEIGHTS}"),
    "Conv3D": ("conv3d", f"{_WINDOW} dilation_rate {_WEIGHTS}"),
    "Conv3DTranspose": ("conv3d_transpose", f"{_WINDOW} {_WEIGHTS}"),
    "Dense": ("dense", f"units {_WEIGHTS}"),
    "Dropout": ("dropout", "rate noise_shape seed name"),
    "Flatten": ("flatten", "data_format name"),
    "MaxPooling1D": ("max_pooling1d", _POOL),
    "MaxPooling2D": ("max_pooling2d", _POOL),
    "MaxPooling3D": ("max_pooling3d", _POOL),
    "SeparableConv1D": ("separable_conv1d", f"{_WINDOW} {_SEPARABLE}"),
    "SeparableConv2D": ("separable_conv2d", f"{_WINDOW} {_SEPARABLE}"),
}


class FunctionLayer(Layer):
    """A layer whose `call` is a function of aexec; its arguments are attributes, and so are its weights by name."""

    _function: Any
    _settings: dict[str, Any]
    _has_weights: bool

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The outputs; `training` for layers that take it."""

        def noted(getter: Any, name: str, **arguments: Any) -> Any:
            found = getter(name, **arguments)
            self._weights += [part for part in parts_or_self(found) if part not in self._weights]
            return found

        settings = dict(self._settings, **kwargs)
        if args:
            settings["training"] = args[0]
        if self._has_weights:
            settings["trainable"] = self.trainable
        collections = get_default_graph().collections
        kept = (GraphKeys.UPDATE_OPS, self._updates), (GraphKeys.REGULARIZATION_LOSSES, self._losses)
        before = [len(collections.get_ref(key)) for key, _ in kept]
        with variable_scope(get_variable_scope(), custom_getter=noted, auxiliary_name_scope=False) as scope:
            outputs = self._function(inputs, name=scope, **settings)
        for (key, own), count in zip(kept, before, strict=True):
            own += collections.get_ref(key)[count:]
        return outputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """Of a dense layer."""
        if "units" not in self._settings:
            return super().compute_output_shape(input_shape)  # type: ignore[no-any-return]
        return TensorShape([*list(input_shape)[:-1], self._settings["units"]])

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            settings = self.__dict__.get("_settings", {})
            if name in settings:
                return settings[name]
            for weight in self.__dict__.get("_weights", ()):
                if weight.name.rpartition("/")[2].partition(":")[0] == name:
                    return weight
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)


def function_layer(name: str) -> type[FunctionLayer]:
    """The class of a layer of `_LAYERS`."""
    function_name, arguments = _LAYERS[name]
    function = getattr(layers, function_name)
    # A class is given all that the function takes but the inputs.
    prepare = renamed(_defaults(function), arguments, name)

    def begin(self: FunctionLayer, *values: Any, **named: Any) -> None:
        own = {key: named.pop(key) for key in ("dtype", "_reuse", "_scope") if key in named}
        settings = prepare(*values, **named)
        Layer.__init__(self, settings.pop("trainable", True), settings.pop("name", None), **own)
        self._settings = settings

    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *signature(prepare).parameters.values()]
    extra = Parameter("kwargs", Parameter.VAR_KEYWORD)
    begin.__signature__ = Signature([*parameters, extra])  # type: ignore[attr-defined]
    doc = f"`tf.layers.{name}`, over `aexec.layers.{function_name}`."
    members = {"_function": staticmethod(function), "_has_weights": "trainable" in arguments.split()}
    return type(name, (FunctionLayer,), {"__init__": begin, "__doc__": doc, **members})


def _defaults(function: Any) -> Any:
    """A function that returns its arguments, with the signature of another without the inputs."""

    def given(**settings: Any) -> dict[str, Any]:
        return settings

    given.__signature__ = Signature(list(signature(function).parameters.values())[1:])  # type: ignore[attr-defined]
    return given


def __getattr__(name: str) -> Any:
    if name in _LAYERS:
        globals()[name] = made = function_layer(name)
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
