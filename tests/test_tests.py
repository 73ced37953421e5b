"""Every test can fail for what it is about: it asserts or expects an error itself, or hands that to a helper of the
tests that does."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent
JUDGES = {"raises", "warns", "fail", "eventually", "check", "holds", "duels", "play"}
"""Calls that fail where something is not as expected, besides those named ``assert_...``: pytest's, and helpers of the
tests whose asserts lie one call further down."""


def _asserts(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(function))


def _called(function: ast.AST) -> set[str]:
    """Names of the functions and methods it calls."""
    callees = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {
        callee.id if isinstance(callee, ast.Name) else callee.attr
        for callee in callees
        if hasattr(callee, "id") or hasattr(callee, "attr")
    }


def silent_tests(source: str) -> list[str]:
    """Tests of a module that nothing can fail but an error on the way.

    >>> silent_tests("def test_a():\\n  f()\\ndef test_b():\\n  g()\\ndef g():\\n  assert x")
    ['test_a']
    """
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    judges = JUDGES | {function.name for function in functions if _asserts(function)}
    return [
        function.name
        for function in functions
        if function.name.startswith("test_")
        and not _asserts(function)
        and not any(name in judges or name.startswith("assert_") for name in _called(function))
    ]


def test_every_test_asserts_something():
    silent = {
        str(path.relative_to(TESTS)): silent_tests(path.read_text(encoding="utf-8"))
        for path in TESTS.rglob("test_*.py")
    }
    assert {path: names for path, names in silent.items() if names} == {}
