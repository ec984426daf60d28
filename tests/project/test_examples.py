"""Tests of all example programs: help texts, tests and length."""

import pytest

from tests.support.example_runner import EXAMPLES, PROGRAMS, run_example


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_help_is_shown(program):
    done = run_example(program, "--help")
    assert "usage" in done.stdout.casefold()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_every_program_has_a_test(program):
    tests = (EXAMPLES.parent / "tests").rglob("test_examples*.py")
    assert any(f'run_example("{program.name}"' in path.read_text("utf-8") for path in tests)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_programs_are_short(path):
    assert len(path.read_text("utf-8").splitlines()) < 120
