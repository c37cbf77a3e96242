"""Optimisers' updates of ref and resource variables, dense and sparse."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.ops.training import training_shapes as shapes

register_op(
    "ApplyAdaMax(var: Ref(T), m: Ref(T), v: Ref(T), beta1_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T) "
    "-> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyAdadelta(var: Ref(T), accum: Ref(T), accum_update: Ref(T), lr: T, rho: T, epsilon: T, grad: T) -> out: "
    "Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyAdagrad(var: Ref(T), accum: Ref(T), lr: T, grad: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", "update_slots: bool = true", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyAdagradDA(var: Ref(T), gradient_accumulator: Ref(T), gradient_squared_accumulator: Ref(T), grad: T, lr: "
    "T, l1: T, l2: T, global_step: int64) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyAdagradV2(var: Ref(T), accum: Ref(T), lr: T, epsilon: T, grad: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", "update_slots: bool = true", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyAdam(var: Ref(T), m: Ref(T), v: Ref(T), beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: T, "
    "epsilon: T, grad: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyAddSign(var: Ref(T), m: Ref(T), lr: T, alpha: T, sign_decay: T, beta: T, grad: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyCenteredRMSProp(var: Ref(T), mg: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, "
    "grad: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyFtrl(var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, lr: T, l1: T, l2: T, lr_power: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", "multiply_linear_by_lr: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyFtrlV2(var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, lr: T, l1: T, l2: T, l2_shrinkage: T, "
    "lr_power: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", "multiply_linear_by_lr: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyGradientDescent(var: Ref(T), alpha: T, delta: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyMomentum(var: Ref(T), accum: Ref(T), lr: T, grad: T, momentum: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyPowerSign(var: Ref(T), m: Ref(T), lr: T, logbase: T, sign_decay: T, beta: T, grad: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyProximalAdagrad(var: Ref(T), accum: Ref(T), lr: T, l1: T, l2: T, grad: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyProximalGradientDescent(var: Ref(T), alpha: T, l1: T, l2: T, delta: T) -> out: Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ApplyRMSProp(var: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, grad: T) -> out: "
    "Ref(T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyAdaMax(var: resource, m: resource, v: resource, beta1_power: T, lr: T, beta1: T, beta2: T, "
    "epsilon: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyAdadelta(var: resource, accum: resource, accum_update: resource, lr: T, rho: T, epsilon: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyAdagrad(var: resource, accum: resource, lr: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", "update_slots: bool = true", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyAdagradDA(var: resource, gradient_accumulator: resource, gradient_squared_accumulator: resource, "
    "grad: T, lr: T, l1: T, l2: T, global_step: int64)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyAdagradV2(var: resource, accum: resource, lr: T, epsilon: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", "update_slots: bool = true", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyAdam(var: resource, m: resource, v: resource, beta1_power: T, beta2_power: T, lr: T, beta1: T, "
    "beta2: T, epsilon: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyAdamWithAmsgrad(var: resource, m: resource, v: resource, vhat: resource, beta1_power: T, "
    "beta2_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyAddSign(var: resource, m: resource, lr: T, alpha: T, sign_decay: T, beta: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyCenteredRMSProp(var: resource, mg: resource, ms: resource, mom: resource, lr: T, rho: T, "
    "momentum: T, epsilon: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyFtrl(var: resource, accum: resource, linear: resource, grad: T, lr: T, l1: T, l2: T, lr_power: T)",
    "T: numbertype", "use_locking: bool = false", "multiply_linear_by_lr: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyFtrlV2(var: resource, accum: resource, linear: resource, grad: T, lr: T, l1: T, l2: T, "
    "l2_shrinkage: T, lr_power: T)",
    "T: numbertype", "use_locking: bool = false", "multiply_linear_by_lr: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyGradientDescent(var: resource, alpha: T, delta: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyKerasMomentum(var: resource, accum: resource, lr: T, grad: T, momentum: T)",
    "T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyMomentum(var: resource, accum: resource, lr: T, grad: T, momentum: T)",
    "T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyPowerSign(var: resource, m: resource, lr: T, logbase: T, sign_decay: T, beta: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyProximalAdagrad(var: resource, accum: resource, lr: T, l1: T, l2: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyProximalGradientDescent(var: resource, alpha: T, l1: T, l2: T, delta: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceApplyRMSProp(var: resource, ms: resource, mom: resource, lr: T, rho: T, momentum: T, epsilon: T, grad: T)",
    "T: numbertype", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyAdadelta(var: resource, accum: resource, accum_update: resource, lr: T, rho: T, epsilon: T, "
    "grad: T, indices: Tindices)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyAdagrad(var: resource, accum: resource, lr: T, grad: T, indices: Tindices)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "update_slots: bool = true",
    shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyAdagradDA(var: resource, gradient_accumulator: resource, gradient_squared_accumulator: "
    "resource, grad: T, indices: Tindices, lr: T, l1: T, l2: T, global_step: int64)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyAdagradV2(var: resource, accum: resource, lr: T, epsilon: T, grad: T, indices: Tindices)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "update_slots: bool = true",
    shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyCenteredRMSProp(var: resource, mg: resource, ms: resource, mom: resource, lr: T, rho: T, "
    "momentum: T, epsilon: T, grad: T, indices: Tindices)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyFtrl(var: resource, accum: resource, linear: resource, grad: T, indices: Tindices, lr: T, "
    "l1: T, l2: T, lr_power: T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "multiply_linear_by_lr: bool = false",
    shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyFtrlV2(var: resource, accum: resource, linear: resource, grad: T, indices: Tindices, lr: T, "
    "l1: T, l2: T, l2_shrinkage: T, lr_power: T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "multiply_linear_by_lr: bool = false",
    shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyKerasMomentum(var: resource, accum: resource, lr: T, grad: T, indices: Tindices, momentum: T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "use_nesterov: bool = false",
    shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyMomentum(var: resource, accum: resource, lr: T, grad: T, indices: Tindices, momentum: T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "use_nesterov: bool = false",
    shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyProximalAdagrad(var: resource, accum: resource, lr: T, l1: T, l2: T, grad: T, indices: "
    "Tindices)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyProximalGradientDescent(var: resource, alpha: T, l1: T, l2: T, grad: T, indices: Tindices)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "ResourceSparseApplyRMSProp(var: resource, ms: resource, mom: resource, lr: T, rho: T, momentum: T, epsilon: T, "
    "grad: T, indices: Tindices)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyAdadelta(var: Ref(T), accum: Ref(T), accum_update: Ref(T), lr: T, rho: T, epsilon: T, grad: T, "
    "indices: Tindices) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyAdagrad(var: Ref(T), accum: Ref(T), lr: T, grad: T, indices: Tindices) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "update_slots: bool = true",
    shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyAdagradDA(var: Ref(T), gradient_accumulator: Ref(T), gradient_squared_accumulator: Ref(T), grad: T, "
    "indices: Tindices, lr: T, l1: T, l2: T, global_step: int64) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyAdagradV2(var: Ref(T), accum: Ref(T), lr: T, epsilon: T, grad: T, indices: Tindices) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "update_slots: bool = true",
    shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyCenteredRMSProp(var: Ref(T), mg: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, "
    "epsilon: T, grad: T, indices: Tindices) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyFtrl(var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, indices: Tindices, lr: T, l1: T, l2: T, "
    "lr_power: T) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "multiply_linear_by_lr: bool = false",
    shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyFtrlV2(var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, indices: Tindices, lr: T, l1: T, l2: T, "
    "l2_shrinkage: T, lr_power: T) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "multiply_linear_by_lr: bool = false",
    shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyMomentum(var: Ref(T), accum: Ref(T), lr: T, grad: T, indices: Tindices, momentum: T) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", "use_nesterov: bool = false",
    shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyProximalAdagrad(var: Ref(T), accum: Ref(T), lr: T, l1: T, l2: T, grad: T, indices: Tindices) -> "
    "out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyProximalGradientDescent(var: Ref(T), alpha: T, l1: T, l2: T, grad: T, indices: Tindices) -> out: "
    "Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
register_op(
    "SparseApplyRMSProp(var: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, grad: T, "
    "indices: Tindices) -> out: Ref(T)",
    "T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false", shape_fn=shapes.apply_update,
)
