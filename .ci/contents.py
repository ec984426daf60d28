"""Whether a wheel and an sdist hold what they should: `contents.py TREE DIRECTORY`.

The tree is a clean one, such as a clone: the wheel has its `tokjax/` and no more, the sdist has all of it.
"""

import re
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

WRITTEN_BY_THE_BUILD = {"PKG-INFO", "setup.cfg"}


def check_same(what, found, expected):
    """End with both differences, if there are any."""
    missing, unexpected = sorted(expected - found), sorted(found - expected)
    if missing or unexpected:
        remedy = "see MANIFEST.in, and package-data in pyproject.toml"
        sys.exit(f"error: {what} lacks {missing} and has {unexpected} besides; {remedy}")
    print(f"{what}: {len(found)} files, as expected")


def check_wheel(wheel, tree_files, version):
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if not name.startswith("tokjax-")}
        metadata = HeaderParser().parsestr(archive.read(f"tokjax-{version}.dist-info/METADATA").decode())
    check_same(wheel.name, files, {name for name in tree_files if name.startswith("tokjax/")})
    for name in sorted(name for name in files if not name.endswith(".py")):
        print(f"  {name}")
    if metadata["Version"] != version:
        sys.exit(f"error: {wheel.name} says version {metadata['Version']}, tokjax.__version__ is {version}")


def check_sdist(sdist, tree_files):
    with tarfile.open(sdist) as archive:
        files = {name.name.split("/", 1)[1] for name in archive.getmembers() if name.isfile()}
    made = {name for name in files if name.startswith("tokjax.egg-info/")} | WRITTEN_BY_THE_BUILD
    check_same(sdist.name, files - made, tree_files)


def main():
    tree, directory = map(Path, sys.argv[1:])
    tree_files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    source = (tree / "tokjax" / "__init__.py").read_text("utf-8")
    version = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE).group(1)
    check_wheel(directory / f"tokjax-{version}-py3-none-any.whl", tree_files, version)
    check_sdist(directory / f"tokjax-{version}.tar.gz", tree_files)


if __name__ == "__main__":
    main()
