"""What is installed in an environment, and whether it still is, byte for byte.

`python -I docs/lock.py SITE LOCK --write` (`make lock`) compares every installed file with the hash that its
package states for it, and writes one line per package: name, version, and a hash over all that it states.
`python -I docs/lock.py SITE LOCK` (`make verify`) compares again, and with these lines. SITE is the folder of
the installed packages; the Python that looks should not be the one of the environment. What lies there and
belongs to no package is named, too, if Python would run it. Caches of bytecode are not looked at.
"""

import argparse
import base64
import csv
import hashlib
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

_CODE = {".py", ".pth", ".so"}
# How a package came here, not what it is.
_INSTALLING = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_OWN = "weft"  # it is built here


def main(words: list[str] | None = None) -> int:
    """Write a lock, or compare with it; return the exit code: 0 all is as it should be, 1 it is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("site", type=Path, help="the folder of the installed packages")
    parser.add_argument("lock", type=Path, help="the file of their hashes")
    parser.add_argument("--write", action="store_true", help="write that file")
    asked = parser.parse_args(words)
    if not any(asked.site.glob("*.dist-info")):
        parser.error(f"{asked.site}: no package is installed there")
    if not asked.write and not asked.lock.is_file():
        parser.error(
            f"{asked.lock}: no such file; make one with --write, or take that of a machine you trust"
        )
    packages = sorted(distributions(path=[str(asked.site)]), key=name_of)
    now = [line for each in packages if (line := line_of(each)) is not None]
    wrong = [*(told for each in packages for told in damaged(each)), *strangers(asked.site, packages)]
    if not asked.write:
        wrong += differences(asked.lock.read_text(encoding="utf-8").splitlines(), now)
    for told in wrong:
        print(told, file=sys.stderr)
    if wrong:
        print(f"{len(wrong)} differences{'; nothing was written' if asked.write else ''}")
        return 1
    if asked.write:
        asked.lock.write_text("\n".join(now) + "\n", encoding="utf-8")
    print(f"{len(now)} packages are {'kept in' if asked.write else 'those of'} {asked.lock}")
    return 0


def name_of(package: Distribution) -> str:
    """Return the name of a package, spelt as all spell it."""
    return str(package.metadata["Name"]).lower().replace("_", "-").replace(".", "-")


def record_of(package: Distribution) -> list[tuple[str, str]]:
    """Return the path of every file that a package states, with what it says of its hash."""
    rows = csv.reader((package.read_text("RECORD") or "").splitlines())
    return sorted((row[0], row[1]) for row in rows if len(row) == 3)


def line_of(package: Distribution) -> str | None:
    """Return the line of a package, the same wherever the same wheel is; None for what is built here."""
    if name_of(package) == _OWN:
        return None
    held = [
        f"{path} {stated}"
        for path, stated in record_of(package)
        # Commands name the Python of their environment.
        if stated and not path.startswith("..") and PurePosixPath(path).name not in _INSTALLING
    ]
    found = hashlib.sha256("\n".join(held).encode()).hexdigest()
    return f"{name_of(package)}=={package.version} --record=sha256:{found}"


def damaged(package: Distribution) -> Iterator[str]:
    """Give a line for each file that is not what its package states."""
    stated = record_of(package)
    if not stated:
        yield f"{name_of(package)}: says nothing of its files (no RECORD)"
    for path, hashed in stated:
        kind, _, wanted = hashed.partition("=")
        if not hashed:
            continue  # bytecode, and the list itself
        if kind not in hashlib.algorithms_guaranteed:
            yield f"{name_of(package)}: {path}: states a hash of an unknown kind, {kind!r}"
        elif (held := _hash(Path(str(package.locate_file(path))), kind)) != wanted:
            yield f"{name_of(package)}: {path}: {'missing' if held is None else 'changed'}"


def _hash(path: Path, kind: str) -> str | None:
    """Return the hash of a file as packages spell it; None where there is none."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, kind).digest()
    except OSError:
        return None
    return base64.urlsafe_b64encode(found).decode().rstrip("=")


def strangers(site: Path, packages: list[Distribution]) -> Iterator[str]:
    """Give a line for each file that Python would run and that belongs to no package."""
    known = {(site / path).resolve() for each in packages for path, _ in record_of(each)}
    for path in sorted(site.rglob("*")):
        if path.suffix in _CODE and path.is_file() and path.resolve() not in known:
            yield f"{path.relative_to(site)}: belongs to no package"


def differences(before: list[str], now: list[str]) -> Iterator[str]:
    """Give a line for each package that came, went or is another."""
    old, new = ({line.partition("==")[0]: line for line in lines if line.strip()} for lines in (before, now))
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"{name}: is not installed; the lock has {old[name].split()[0]}"
        elif name not in old:
            yield f"{name}: is not in the lock; {new[name].split()[0]} is installed"
        elif old[name] != new[name]:
            same = old[name].split()[0] == new[name].split()[0]
            told = "another build of the same version" if same else f"{new[name].split()[0]} is installed"
            yield f"{name}: {told}; the lock has {old[name].split()[0]}"


if __name__ == "__main__":
    sys.exit(main())
