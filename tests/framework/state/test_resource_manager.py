from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.framework.state.resource_manager import (
    ANONYMOUS_NAME,
    ContainerInfo,
    ResourceHandle,
    ResourceManager,
    handle_from_tensor,
    make_handle_tensor,
    step_container,
)
from aexec.framework.types import TypeIndex
from aexec.framework.wire import tensor_codec

CPU0 = "/job:localhost/replica:0/task:0/device:CPU:0"
CPU1 = "/job:localhost/replica:0/task:0/device:CPU:1"


class Var:
    type_name = "tensorflow::Var"

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def __repr__(self) -> str:
        return "<Var>"


class Queue:
    type_name = "tensorflow::QueueInterface"


class FifoQueue(Queue):
    pass


# Names of nodes' resources


def info(node="v", **attrs) -> ContainerInfo:
    return ContainerInfo.from_attrs({k: v.encode() for k, v in attrs.items()}, node)


def test_shared_name_is_the_name():
    assert info(container="c", shared_name="n") == ContainerInfo("c", "n")


def test_default_container_is_localhost():
    assert info(shared_name="n").container == "localhost"
    assert ContainerInfo.from_attrs({}, "v", use_node_name=True, default_container="d").container == "d"


def test_variable_goes_by_its_nodes_name():
    assert ContainerInfo.from_attrs({"shared_name": b""}, "scope/v", use_node_name=True).name == "scope/v"


def test_unnamed_resource_gets_a_private_name_with_a_number():
    first, second = info("q"), info("q")
    assert first.is_private
    assert first.name.endswith("_q")
    number = int(first.name.removeprefix("_").removesuffix("_q"))
    assert second.name == f"_{number + 1}_q"


def test_anonymous_name_is_another_each_time():
    first, second = info(shared_name=ANONYMOUS_NAME), info(shared_name=ANONYMOUS_NAME)
    assert first.name.startswith("_AnonymousVar")
    assert first.is_private
    assert first != second


def test_shared_name_must_not_begin_with_an_underscore():
    with pytest.raises(errors.InvalidArgumentError) as caught:
        info(shared_name="_x")
    assert caught.value.message == "shared_name cannot start with '_':_x"


@pytest.mark.parametrize("container", ["a b", "a_b", "/a", "-a", "ä"])
def test_containers_have_a_syntax(container):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        info(container=container)
    assert caught.value.message == f"container contains invalid characters: {container}"


@pytest.mark.parametrize("container", ["a", "0a", ".a", "a/b-c.d"])
def test_containers_that_are_fine(container):
    assert info(container=container, shared_name="n").container == container


# Handles

HANDLE = ResourceHandle.of_type(Var, ContainerInfo("c", "n"), CPU0, [(dtypes.float32, PartialTensorShape([2, None]))])


def test_handle_survives_the_wire():
    assert ResourceHandle.from_proto(HANDLE.to_proto()) == HANDLE
    assert ResourceHandle.from_proto(proto.ResourceHandleProto()) == ResourceHandle()


def test_handle_tensor_survives_the_wire():
    message = tensor_codec.to_proto(make_handle_tensor(HANDLE), dtypes.resource)
    assert handle_from_tensor(tensor_codec.from_proto(message)) == HANDLE


def test_handle_tensor_is_a_read_only_scalar():
    tensor = make_handle_tensor(HANDLE)
    assert tensor.shape == ()
    assert tensor.dtype == object
    assert not tensor.flags.writeable
    assert handle_from_tensor(tensor) is HANDLE
    assert handle_from_tensor(tensor.reshape(1), Var) is HANDLE


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.array([HANDLE, HANDLE]), "resource handle must have 1 element, not 2"),
        (np.array([], object), "resource handle must have 1 element, not 0"),
        (np.array(b"h", object), "expected a resource handle, got bytes"),
        (np.array(1.0), "expected a resource handle, got float"),
    ],
)
def test_invalid_handle_is_refused(tensor, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        handle_from_tensor(tensor)


def test_handle_to_another_type_is_refused():
    with pytest.raises(errors.InvalidArgumentError) as caught:
        handle_from_tensor(make_handle_tensor(HANDLE), Queue)
    assert caught.value.message == (
        "Trying to access a handle's resource using the wrong type. The handle points to a resource (name 'n') of "
        f"type 'tensorflow::Var' (hash code {TypeIndex.of(Var).hash_code}) but you are trying to access the resource "
        f"as type 'tensorflow::QueueInterface' (hash code {TypeIndex.of(Queue).hash_code})"
    )


def test_handle_of_unknown_type_is_taken_for_any():
    handle = ResourceHandle(container="c", name="n")
    assert handle_from_tensor(make_handle_tensor(handle), Queue) is handle


# The manager


@pytest.fixture
def manager() -> ResourceManager:
    return ResourceManager(CPU0)


def test_create_then_lookup(manager):
    variable = Var()
    manager.create("c", "n", variable)
    assert manager.lookup("c", "n", Var) is variable
    assert manager.find("c", "n", Var) is variable


def test_names_are_apart_by_type_and_container(manager):
    resources = [Var(), Var(), FifoQueue()]
    manager.create("c", "n", resources[0])
    manager.create("d", "n", resources[1])
    manager.create("c", "n", resources[2], Queue)
    assert [manager.lookup("c", "n", Var), manager.lookup("d", "n", Var), manager.lookup("c", "n", Queue)] == resources
    assert manager.find("c", "n", FifoQueue) is None


def test_creating_twice_is_an_error(manager):
    manager.create("c", "n", Var())
    with pytest.raises(errors.AlreadyExistsError) as caught:
        manager.create("c", "n", Var())
    assert caught.value.message == "Resource c/n/tensorflow::Var"


def test_lookup_in_a_container_that_does_not_exist(manager):
    with pytest.raises(errors.NotFoundError) as caught:
        manager.lookup("localhost", "rv", Var)
    assert caught.value.message == ("Container localhost does not exist. (Could not find resource: localhost/rv)")
    assert manager.find("localhost", "rv", Var) is None


def test_lookup_of_what_does_not_exist(manager):
    manager.create("localhost", "other", Var())
    with pytest.raises(errors.NotFoundError) as caught:
        manager.lookup("localhost", "rv", Var)
    assert caught.value.message == "Resource localhost/rv/tensorflow::Var does not exist."


def test_lookup_by_handle(manager):
    variable = Var()
    manager.create("c", "n", variable)
    assert manager.lookup_handle(HANDLE, Var) is variable
    with pytest.raises(errors.InvalidArgumentError, match="using the wrong type"):
        manager.lookup_handle(HANDLE, Queue)


def test_handle_of_another_device_is_refused(manager):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        manager.lookup_handle(ResourceHandle(CPU1, "c", "n"), Var)
    assert caught.value.message == f"Trying to access resource n located in device {CPU1} from device {CPU0}"


def test_manager_of_no_device_takes_handles_of_any():
    manager = ResourceManager()
    manager.create("c", "n", Var())
    assert manager.lookup_handle(HANDLE, Var)


def test_lookup_or_create_makes_once(manager):
    made = manager.lookup_or_create("c", "n", Var, Var)
    assert manager.lookup_or_create("c", "n", Var, Var) is made


def test_failing_maker_leaves_nothing(manager):
    def fail():
        raise errors.ResourceExhaustedError("no room")

    with pytest.raises(errors.ResourceExhaustedError):
        manager.lookup_or_create("c", "n", Var, fail)
    assert manager.statistics().containers == 0


def test_maker_may_make_other_resources(manager):
    manager.lookup_or_create("c", "n", Var, lambda: manager.lookup_or_create("c", "m", Var, Var))
    assert manager.lookup("c", "n", Var) is manager.lookup("c", "m", Var)


def test_one_of_racing_callers_makes_the_resource(manager):
    start, made, got = threading.Barrier(8), [], []

    def make() -> Var:
        made.append(Var())
        return made[-1]

    def race() -> None:
        start.wait()
        got.append(manager.lookup_or_create("c", "n", Var, make))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert got == made * 8


def test_delete_closes(manager):
    variable = Var()
    manager.create("c", "n", variable)
    manager.delete("c", "n", Var)
    assert variable.closed == 1
    assert manager.find("c", "n", Var) is None


def test_deleting_what_does_not_exist(manager):
    with pytest.raises(errors.NotFoundError, match=r"^Container c does not exist\.$"):
        manager.delete("c", "n", Var)
    manager.create("c", "other", Var())
    with pytest.raises(errors.NotFoundError, match=r"^Resource c/n/tensorflow::Var does not exist\.$"):
        manager.delete("c", "n", Var)


def test_delete_by_handle_finds_the_type(manager):
    variable, queue = Var(), FifoQueue()
    manager.create("c", "n", queue, Queue)
    manager.create("c", "n", variable)
    manager.delete_handle(HANDLE)
    assert variable.closed == 1
    manager.delete_handle(ResourceHandle(container="c", name="n"))
    assert manager.find("c", "n", Queue) is None


def test_delete_by_handle_of_what_does_not_exist(manager):
    with pytest.raises(errors.NotFoundError, match=r"^Container c does not exist\.$"):
        manager.delete_handle(HANDLE)
    manager.create("c", "other", Var())
    with pytest.raises(errors.NotFoundError, match=r"^Resource c/n/tensorflow::Var does not exist\.$"):
        manager.delete_handle(HANDLE)
    with pytest.raises(errors.NotFoundError, match=r"^Resource c/n/<unknown> does not exist\.$"):
        manager.delete_handle(ResourceHandle(container="c", name="n"))


def test_cleanup_closes_all_of_one_container(manager):
    variables = [Var() for _ in range(3)]
    for i, variable in enumerate(variables):
        manager.create("c" if i else "d", str(i), variable)
    manager.cleanup("c")
    manager.cleanup("c")
    assert [v.closed for v in variables] == [0, 1, 1]


def test_steps_container_goes_with_the_step(manager):
    variable = Var()
    manager.create(step_container(12), "ta", variable)
    manager.cleanup_step(11)
    assert variable.closed == 0
    manager.cleanup_step(12)
    assert variable.closed == 1
    assert step_container(12) == "__per_step_12"


def test_clear_closes_everything(manager):
    variables = [Var() for _ in range(3)]
    for i, variable in enumerate(variables):
        manager.create(f"c{i}", "n", variable)
    manager.clear()
    assert [v.closed for v in variables] == [1, 1, 1]
    assert manager.statistics().resources == 0


def test_failing_close_does_not_keep_others_open(manager, caplog):
    class Broken:
        def close(self) -> None:
            raise errors.InternalError("stuck")

    variables = [Var(), Var()]
    manager.create("c", "a", variables[0])
    manager.create("c", "b", Broken())
    manager.create("c", "z", variables[1])
    with pytest.raises(errors.InternalError, match="stuck"):
        manager.cleanup("c")
    assert [v.closed for v in variables] == [1, 1]
    assert "stuck" in caplog.text


def test_listing_and_statistics(manager):
    manager.create("d", "x", Var())
    manager.create("c", "q", FifoQueue(), Queue)
    manager.create("c", "a", Var())
    assert [(r.container, r.name, r.type_name) for r in manager.resources()] == [
        ("c", "a", "tensorflow::Var"),
        ("c", "q", "tensorflow::QueueInterface"),
        ("d", "x", "tensorflow::Var"),
    ]
    assert manager.resources()[0].debug == "<Var>"
    statistics = manager.statistics()
    assert (statistics.containers, statistics.resources) == (2, 3)
    assert statistics.by_type == {"tensorflow::QueueInterface": 1, "tensorflow::Var": 2}
    assert repr(manager) == "<ResourceManager 2 containers, 3 resources>"


class ManagerModel(RuleBasedStateMachine):
    """Any sequence of calls, compared with one flat dict."""

    containers = st.sampled_from(["a", "b"])
    names = st.sampled_from(["x", "y"])
    kinds = st.sampled_from([Var, Queue])

    def __init__(self) -> None:
        super().__init__()
        self.manager = ResourceManager()
        self.expected: dict[tuple[str, str, type], object] = {}

    @rule(container=containers, name=names, kind=kinds)
    def create(self, container, name, kind):
        resource = kind()
        if (container, name, kind) in self.expected:
            with pytest.raises(errors.AlreadyExistsError):
                self.manager.create(container, name, resource)
        else:
            self.manager.create(container, name, resource)
            self.expected[container, name, kind] = resource

    @rule(container=containers, name=names, kind=kinds)
    def lookup_or_create(self, container, name, kind):
        found = self.manager.lookup_or_create(container, name, kind, kind)
        assert self.expected.setdefault((container, name, kind), found) is found

    @rule(container=containers, name=names, kind=kinds)
    def delete(self, container, name, kind):
        if self.expected.pop((container, name, kind), None) is None:
            with pytest.raises(errors.NotFoundError):
                self.manager.delete(container, name, kind)
        else:
            self.manager.delete(container, name, kind)

    @rule(container=containers)
    def cleanup(self, container):
        self.manager.cleanup(container)
        self.expected = {key: r for key, r in self.expected.items() if key[0] != container}

    @invariant()
    def agrees_with_the_model(self):
        for key in [(c, n, k) for c in "ab" for n in "xy" for k in (Var, Queue)]:
            assert self.manager.find(*key) is self.expected.get(key)
        statistics = self.manager.statistics()
        assert statistics.resources == len(self.expected)
        assert statistics.containers == len({c for c, _, _ in self.expected})


ManagerModel.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestManagerModel = ManagerModel.TestCase
