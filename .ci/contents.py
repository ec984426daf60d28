"""Checks the contents of a wheel and an sdist: `contents.py TREE DIRECTORY`.

TREE is a clean copy of the repository. The wheel must have exactly its `tokjax/`, the sdist all of its files.
"""

import re
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

GENERATED_FILES = {"PKG-INFO", "setup.cfg"}


def check_files(archive_name, files, expected):
    """Exits with an error that lists missing and unexpected files, if there are any."""
    missing, unexpected = sorted(expected - files), sorted(files - expected)
    if missing or unexpected:
        advice = "see MANIFEST.in, and package-data in pyproject.toml"
        sys.exit(f"error: {archive_name}: missing files {missing}, unexpected files {unexpected}; {advice}")
    print(f"{archive_name}: {len(files)} files, as expected")


def check_wheel(wheel, tree_files, version):
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if not name.startswith("tokjax-")}
        metadata = HeaderParser().parsestr(archive.read(f"tokjax-{version}.dist-info/METADATA").decode())
    check_files(wheel.name, files, {name for name in tree_files if name.startswith("tokjax/")})
    for name in sorted(name for name in files if not name.endswith(".py")):
        print(f"  {name}")
    if metadata["Version"] != version:
        sys.exit(
            f"error: {wheel.name} has version {metadata['Version']}, but tokjax.__version__ is {version}"
        )


def check_sdist(sdist, tree_files):
    with tarfile.open(sdist) as archive:
        members = [member.name for member in archive.getmembers() if member.isfile()]
    files = {name.split("/", 1)[1] for name in members}
    generated = {name for name in files if name.startswith("tokjax.egg-info/")} | GENERATED_FILES
    check_files(sdist.name, files - generated, tree_files)


def main():
    tree, directory = map(Path, sys.argv[1:])
    tree_files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    source = (tree / "tokjax" / "__init__.py").read_text("utf-8")
    version = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE).group(1)
    check_wheel(directory / f"tokjax-{version}-py3-none-any.whl", tree_files, version)
    check_sdist(directory / f"tokjax-{version}.tar.gz", tree_files)


if __name__ == "__main__":
    main()
