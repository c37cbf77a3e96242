from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.framework.device_contract.device_name import LOCAL_CPU, DeviceName

parse = DeviceName.parse


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("/", ""),
        ("/cpu:0", "/device:CPU:0"),
        ("/CPU:0", "/device:CPU:0"),
        ("/Cpu:0", "/device:CPU:0"),
        ("/gpu:1", "/device:GPU:1"),
        ("/GPU:*", "/device:GPU:*"),
        ("/cpu", "/device:CPU:*"),
        ("/device:cpu:0", "/device:CPU:0"),
        ("/device:CPU", "/device:CPU:*"),
        ("/device:CPU:*", "/device:CPU:*"),
        ("/device:MY_DEV:0", "/device:MY_DEV:0"),
        ("/device:*:0", "/device:*:0"),
        ("CPU:0", "/device:CPU:0"),
        ("cpu:0", "/device:CPU:0"),
        ("/job:*", ""),
        ("/replica:*/task:*", ""),
        ("/task:007", "/task:7"),
        ("/job:foo/job:bar", "/job:bar"),
        ("//device:CPU:0/", "/device:CPU:0"),
        ("/task:0/replica:1/job:a", "/job:a/replica:1/task:0"),
        ("/job:localhost/replica:0/task:0/cpu:0", LOCAL_CPU),
        ("/job:localhost/device:cpu:0", "/job:localhost/device:CPU:0"),
        ("/job:worker/task:17/device:gpu:3", "/job:worker/task:17/device:GPU:3"),
    ],
)
def test_names_are_read_and_printed_in_canonical_form(text, printed):
    assert str(parse(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/nonsense", "Unknown attribute 'nonsense' is encountered while parsing the device spec: '/nonsense'."),
        ("/xpu:0", "Unknown attribute 'xpu' is encountered while parsing the device spec: '/xpu:0'."),
        ("/JOB:foo", "Unknown attribute 'JOB' is encountered while parsing the device spec: '/JOB:foo'."),
        ("/device:a:b:c", "Unknown attribute 'device' is encountered"),
        ("/cpu:0/gpu:1", "Multiple device types are not allowed while parsing the device spec: /cpu:0/gpu:1."),
        ("/job:1a", "Malformed device specification '/job:1a': job must be a letter"),
        ("/job:a-b", "Malformed device specification '/job:a-b'"),
        ("/job:", "Malformed device specification '/job:'"),
        ("/task:x", "Malformed device specification '/task:x': task must be a number, got 'x'"),
        ("/task:-1", "Malformed device specification '/task:-1'"),
        ("/replica:", "replica must be a number, got ''"),
        ("/device:GPU:x", "device id must be a number, got 'x'"),
        ("/device:é:0", "device type must be a letter"),
    ],
)
def test_invalid_device_names_are_refused(text, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        parse(text)
    assert message in caught.value.message


def test_parts_are_known_by_name():
    name = parse("/job:a/replica:1/task:2/device:GPU:3")
    assert (name.job, name.replica, name.task, name.type, name.id) == ("a", 1, 2, "GPU", 3)
    assert name.is_complete
    assert not parse("/job:a/replica:1/task:2/device:GPU:*").is_complete
    assert parse("/").is_empty
    assert name.local_name == "GPU:3"
    assert str(name.without_device()) == "/job:a/replica:1/task:2"


def test_name_without_type_has_no_local_name():
    with pytest.raises(errors.InvalidArgumentError, match="has no local name"):
        _ = parse("/job:a").local_name


@pytest.mark.parametrize(
    ("a", "b", "merged"),
    [
        ("/job:a", "/task:1", "/job:a/task:1"),
        ("/cpu:0", "", "/device:CPU:0"),
        ("/device:CPU:*", "/device:CPU:1", "/device:CPU:1"),
        ("/job:a/cpu:0", "/job:a", "/job:a/device:CPU:0"),
    ],
)
def test_merging_joins_what_both_know(a, b, merged):
    assert str(parse(a).merge(parse(b))) == merged
    assert str(parse(b).merge(parse(a))) == merged


@pytest.mark.parametrize(
    ("a", "b", "plural"),
    [
        ("/job:a", "/job:b", "jobs"),
        ("/replica:0", "/replica:1", "replicas"),
        ("/task:0", "/task:1", "tasks"),
        ("/device:CPU:0", "/device:GPU:0", "types"),
        ("/device:CPU:1", "/device:CPU:0", "ids"),
    ],
)
def test_merging_contradicting_names_is_an_error(a, b, plural):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        parse(a).merge(parse(b))
    assert caught.value.message == f"Cannot merge devices with incompatible {plural}: '{a}' and '{b}'"


@pytest.mark.parametrize(
    ("a", "b", "merged"),
    [
        ("/job:a/cpu:0", "/gpu:0", "/job:a"),
        ("/job:a/cpu:0", "/cpu:1", "/job:a/device:CPU:*"),
    ],
)
def test_soft_merging_drops_contradicting_types_and_ids(a, b, merged):
    assert str(parse(a).merge(parse(b), soft=True)) == merged


@pytest.mark.parametrize(("a", "b"), [("/job:a", "/job:b"), ("/task:0", "/task:1")])
def test_soft_merging_does_not_forgive_jobs_and_tasks(a, b):
    with pytest.raises(errors.InvalidArgumentError, match="Cannot merge devices"):
        parse(a).merge(parse(b), soft=True)


def test_matching():
    device = parse(LOCAL_CPU)
    for pattern in ("", "/cpu:0", "/device:CPU:*", "/job:localhost", "/device:*:0"):
        assert parse(pattern).matches(device), pattern
        assert device.is_specification(parse(pattern)), pattern
    for pattern in ("/cpu:1", "/gpu:0", "/job:worker", "/task:1"):
        assert not parse(pattern).matches(device), pattern


def test_same_address_space_needs_job_replica_and_task():
    cpu, gpu = parse(LOCAL_CPU), parse("/job:localhost/replica:0/task:0/device:GPU:0")
    assert cpu.same_address_space(gpu)
    assert not cpu.same_address_space(parse("/job:localhost/replica:0/task:1"))
    assert not parse("/job:localhost").same_address_space(parse("/job:localhost"))


identifiers = st.from_regex(r"[A-Za-z][A-Za-z0-9_]*", fullmatch=True).filter(
    lambda text: text not in ("cpu", "gpu", "tpu")
)
numbers = st.integers(0, 2**31)
device_names = st.builds(
    DeviceName,
    st.none() | identifiers,
    st.none() | numbers,
    st.none() | numbers,
    st.none() | identifiers,
    st.none() | numbers,
)


@given(device_names)
def test_printed_name_is_parsed_back(name):
    assert parse(str(name)) == name


@given(device_names, device_names)
def test_merged_name_is_a_specification_of_both(a, b):
    try:
        merged = a.merge(b)
    except errors.InvalidArgumentError:
        assert not any(n.is_specification(a) and n.is_specification(b) for n in (a, b))
    else:
        assert merged.is_specification(a)
        assert merged.is_specification(b)


@given(device_names, device_names)
def test_soft_merging_agrees_with_merging_where_that_succeeds(a, b):
    try:
        merged = a.merge(b)
    except errors.InvalidArgumentError:
        return
    assert a.merge(b, soft=True) == merged


@pytest.mark.parametrize(
    ("one", "other", "compatible", "specialised"),
    [
        ("", "/cpu:0", True, "/device:CPU:0"),
        ("/cpu:0", "", True, "/device:CPU:0"),
        ("/job:a/cpu:*", "/task:1/cpu:2", True, "/job:a/task:1/device:CPU:2"),
        ("/job:a/cpu:1", "/cpu:2", False, "/job:a/device:CPU:2"),
        ("/job:a", "/job:b/gpu:0", False, "/job:b/device:GPU:0"),
    ],
)
def test_compatible_names_and_specialising(one: str, other: str, compatible: bool, specialised: str) -> None:
    a, b = DeviceName.parse(one), DeviceName.parse(other)
    assert a.is_compatible(b) == b.is_compatible(a) == compatible
    assert str(a.specialised_to(b)) == specialised
