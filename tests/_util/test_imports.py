"""Tests of optional imports."""

import pytest

import tokjax
from tokjax._util.imports import import_optional


def test_missing_libraries_are_reported():
    with pytest.raises(
        tokjax.errors.MissingExtraError, match="x needs no_such_library, which is not installed"
    ) as error:
        import_optional("no_such_library.part", extra="chat", purpose="x")
    assert "pip install 'tokjax[chat]'" in str(error.value)
    assert isinstance(error.value, ImportError)


def test_optional_library_bugs_are_raised(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        import_optional("half_installed", extra="chat", purpose="x")
