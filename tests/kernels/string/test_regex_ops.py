"""Regular expressions: RE2's syntax and matches, with TensorFlow's messages."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from aexec.framework import errors
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.kernels.string import regex
from aexec.kernels.string.regex import compile_ns, compile_pattern, uses_groups
from tests.kernels.array_support import assert_gives, assert_refuses
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op, strings


@pytest.mark.parametrize("op", ops_of("string.regex_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def as_bytes(text):
    return text.encode() if isinstance(text, str) else text


def replaced(text, pattern, rewrite, every=True):
    return compile_pattern(as_bytes(pattern), uses_groups(as_bytes(rewrite))).replace(
        as_bytes(text), as_bytes(rewrite), every=every, more=lambda num_bytes: None
    )


@pytest.mark.parametrize(
    ("text", "pattern", "rewrite", "want"),
    [
        ("abcabc", "b*", "-", "-a-c-a-c-"),
        ("", "b*", "-", "-"),
        ("abc", "(a)(b)", r"\2\1\0\\", r"baab\c"),
        ("abc", "(a)|(b)", r"[\2]", "[][b]c"),
        # A group that there is not: nothing is replaced.  An escape that there is not ends the rewrite.
        ("abc", "(a)(b)", r"x\3", "abc"),
        ("abc", "(a)(b)", r"x\q!", "xc"),
        ("héé", ".", "-", "---"),
        ("héé", "x*", "-", "-h-é-é-"),
        (b"a\xffb", ".", "-", b"-\xff-"),
        (b"a\xffb", "[^a]", "-", b"a\xff-"),
        (b"a\xffb", r"\W", "-", b"a\xffb"),
        ("abc abc", "c$", "x", "abc abx"),
        ("ab\n", "b$", "x", "ab\n"),
        ("a\nb\n", "^", ">", ">a\nb\n"),
        ("a\nb\n", "(?m)^", ">", ">a\n>b\n>"),
        ("a\nb\n", "(?m)b$", ">", "a\n>\n"),
        ("a1b22", "[[:digit:]]+", "#", "a#b#"),
        ("a1 b", "[^[:alpha:]1]", "#", "a1#b"),
        ("aé1", r"\pL", "L", "LL1"),
        ("aé1", r"\PL|\p{Ll}", "x", "xxx"),
        ("aé٣", r"\w|\d", "x", "xé٣"),
        ("aé a", r"\b", "|", "|a|é |a|"),
        ("aXbx", "(?i)x", ".", "a.b."),
        ("aXbx", "a(?i:x)|x", ".", ".b."),
        ("ABab", "a(?i)b|b", ".", "A.."),
        ("ABab", "(a(?i)b|b)b?", ".", "A.."),
        ("aab", "(?U)a+", ".", "..b"),
        ("aab", "(?U)a+?", ".", ".b"),
        ("a\nb", "(?s).", ".", "..."),
        ("a+b", r"\Q+\E", "-", "a-b"),
        ("aé", r"\x{e9}|\x61|\141", "-", "--"),
        ("x{,2}", "x{,2}", "-", "-"),
        ("a]b-", "[]a-]", "x", "xxbx"),
        ("ab", r"\B", "-", "a-b"),
        ("", r"\B", "-", "-"),
        ("cc", r"c\z*", "-", "--"),
        ("aab", "(?P<x>a){2}", r"\1", "ab"),
        ("tab\there", r"\t", "-", "tab-here"),
    ],
)
def test_replace(text, pattern, rewrite, want):
    assert replaced(text, pattern, rewrite) == as_bytes(want)


def test_replace_the_first():
    assert replaced("abcabc", "b*", "-", every=False) == b"-abcabc"
    assert replaced("abcabc", "b", "-", every=False) == b"a-cabc"
    assert replaced("abcabc", "x", "-", every=False) == b"abcabc"


@pytest.mark.parametrize(
    ("text", "pattern", "want"),
    [
        ("ab", "ab|abc", True),
        ("abc", "ab|abc", True),
        ("ab\n", "a.*", False),
        ("ab\n", "ab$", False),
        ("a\nb", "a.*", False),
        ("a\nb", "(?s)a.*", True),
        ("xab", "ab", False),
        ("é", ".", True),
        ("é", "..", False),
        ("", "", True),
    ],
)
def test_full_match(text, pattern, want):
    assert compile_pattern(as_bytes(pattern)).full_match(as_bytes(text)) is want


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "missing ): (a"),
        ("a)", "unexpected ): a)"),
        ("[a", "missing ]: [a"),
        ("*a", "no argument for repetition operator: *"),
        ("a**", "bad repetition operator: **"),
        ("a{2,1}", "invalid repetition size: {2,1}"),
        ("a{1001}", "invalid repetition size: {1001}"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        (r"\y", r"invalid escape sequence: \y"),
        ("(?=a)", "invalid perl operator: (?="),
        ("(?!a)", "invalid perl operator: (?!"),
        ("[b-a]", "invalid character class range: b-a"),
        ("[[:nothing:]]", "invalid character class range: [:nothing:]"),
    ],
)
def test_invalid_patterns_are_refused(pattern, why):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        compile_pattern(as_bytes(pattern))
    assert caught.value.message == f"Invalid pattern: {pattern}, error: {why}"


@pytest.mark.parametrize("pattern", ["a*+", "a++", "(?<=a)b", "(?#x)", r"\p{Nothing}", "(?P=a)", "\\"])
def test_patterns_unknown_to_re2_are_refused(pattern):
    with pytest.raises(errors.InvalidArgumentError, match="Invalid pattern: "):
        compile_pattern(pattern.encode())


def test_pattern_that_is_not_utf8():
    with pytest.raises(errors.InvalidArgumentError, match="invalid UTF-8"):
        compile_pattern(b"a\xff")


@pytest.mark.parametrize("pattern", [r"\pL" * 100, r"(\pL{30}){30}", "ab" * 33_000, "." * 20_000])
def test_patterns_that_are_too_large(pattern):
    with pytest.raises(errors.InvalidArgumentError, match="error: pattern too large - "):
        compile_pattern(pattern.encode())


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+b", "(?:a?){100}a{100}b", "(.*)*(.*)*(.*)*b"])
def test_time_is_linear_whatever_the_pattern(pattern):
    began = time.process_time()
    assert not compile_pattern(pattern.encode()).full_match(b"a" * 10_000)
    assert time.process_time() - began < 1


# The kernels


def scalar(value):
    return strings(value, shape=())


def test_replacing_kernels():
    x = strings("ab", "ba", shape=(2, 1))
    assert_gives("StaticRegexReplace", [x], strings("-b", "b-", shape=(2, 1)), pattern="a", rewrite="-")
    assert_gives("RegexReplace", [x, scalar("a"), scalar("-")], strings("-b", "b-", shape=(2, 1)))
    once = run_op("RegexReplace", [strings("aa"), scalar("a"), scalar("-")], replace_global=False)
    assert once.tolist() == [b"-a"]


def test_matching_kernels():
    x = strings("ab", "ba")
    assert_gives("StaticRegexFullMatch", [x], np.array([True, False]), pattern="a.")
    assert_gives("RegexFullMatch", [x, scalar("b.")], np.array([False, True]))


def test_kernel_errors():
    x = strings("ab")
    message = "Invalid pattern: (a, error: missing ): (a"
    assert_refuses("StaticRegexReplace", [x], message, pattern="(a", rewrite="")
    assert_refuses("RegexReplace", [x, scalar("(a"), scalar("")], message)
    assert_refuses("StaticRegexFullMatch", [x], message, pattern="(a")
    assert_refuses("RegexFullMatch", [x, scalar("(a")], message)
    assert_refuses("RegexReplace", [x, x, scalar("")], "Pattern must be scalar, but received [1]")
    assert_refuses("RegexReplace", [x, scalar("a"), x], "Rewrite must be scalar, but received [1]")
    assert_refuses("RegexFullMatch", [x, x], "Pattern must be scalar, but received [1]")


def peak_of_a_match(groups):
    """Kilobytes by which a process grows that matches a pattern of so many groups, each in another."""
    code = f"""import resource
from aexec.kernels.string.regex import compile_pattern
compile_pattern(b"(a)").full_match(b"a")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
compile_pattern(b"(" * {groups} + b"b" + b")" * {groups}).full_match(b"a" * 10)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"""
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_groups_that_nobody_reads_take_no_memory():
    assert peak_of_a_match(4000) < 20_000


@pytest.mark.parametrize(
    ("pattern", "rewrite"),
    [
        ("(" * 2000 + "b" + ")" * 2000, r"\1"),
        ("".join(f"(?P<n{i}>b)" for i in range(2000)), "-"),
        ("((a){900})" * 5 + "(b)" * 80, r"\3"),
    ],
)
def test_groups_in_too_many_instructions_are_refused(pattern, rewrite):
    with pytest.raises(errors.InvalidArgumentError, match=r"too large - \d+ groups in a program of \d+ instructions"):
        replaced("b", pattern, rewrite)


def test_groups_that_are_read_may_be_many():
    assert replaced("b", "(" * 300 + "b" + ")" * 300, r"[\9]") == b"[b]"
    assert replaced("b", "(" * 4000 + "b" + ")" * 4000, r"[\0]") == b"[b]"


@pytest.mark.parametrize(("rewrite", "uses"), [(b"", False), (rb"\\1", False), (rb"a\0", False), (rb"a\0\1", True)])
def test_rewrite_says_whether_groups_are_read(rewrite, uses):
    assert uses_groups(rewrite) is uses


def test_patterns_are_kept_in_one_place_only(monkeypatch):
    monkeypatch.setattr(regex, "_KEPT", 3)
    monkeypatch.setattr(regex, "_kept", regex.OrderedDict())
    kernels = [build("StaticRegexFullMatch", [strings("1")], pattern=str(i))[0].compute for i in range(5)]
    assert list(regex._kept) == [(b"2", False), (b"3", False), (b"4", False)]
    assert [kernel(strings("1")).tolist() for kernel in kernels] == [[False], [True], [False], [False], [False]]
    assert compile_pattern(b"4") is compile_pattern(b"4")
    again = compile_pattern(b"0")
    compile_pattern(b"1")
    assert compile_pattern(b"0") is again  # used just now


@pytest.mark.parametrize("pattern", [rb"(\pL\pN){9}", b"([a-z]{30}x){33}", b"ab" * 30_000])
async def test_slow_patterns_are_compiled_in_a_thread(pattern):
    with pytest.raises(NeedsThreadError):
        compile_pattern(pattern)
    with pytest.raises(NeedsThreadError):
        build("StaticRegexFullMatch", [strings("1")], pattern=pattern.decode())


@pytest.mark.parametrize("pattern", [rb"(\d{4})-(\d{2})-(\d{2})", b"[a-z]+|[0-9]*", b"word" * 100])
async def test_ordinary_patterns_are_compiled_on_the_loop(pattern):
    assert compile_pattern(pattern)
    assert compile_ns(pattern, groups=False) == 0


@pytest.mark.parametrize(
    "pattern", ["a", "(a|b)*c{3}", r"\pL{15}", "(a{30}){30}", "[^a]{300}", "ab" * 5000, "a?" * 900]
)
def test_estimate_of_compiling_is_not_too_low(pattern):
    monkey = pattern.encode() + b"|estimate"
    expected = compile_ns(monkey, groups=False)
    began = time.thread_time_ns()
    compile_pattern(monkey)
    assert time.thread_time_ns() - began < 10 * expected


def test_estimate_of_compiling_many_repetitions_takes_no_time():
    began = time.thread_time()
    compile_ns(b"a{999}" * 10_000, groups=False)
    assert time.thread_time() - began < 1  # it takes some 10 ms, on a busy machine more
