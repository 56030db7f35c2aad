"""What an installed weft is made of: its dependencies with versions and licences, as a CycloneDX list.

`python docs/sbom.py FILE` (`make sbom`) writes it for the environment that runs it; extras are left out.
"""

import json
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_UNKNOWN = "not stated"


def needed(name: str) -> dict[str, tuple[Distribution, list[str]]]:
    """Return a package and all that it needs here, by name, each with the names of what it needs itself."""
    found: dict[str, tuple[Distribution, list[str]]] = {}
    waiting = [canonicalize_name(name)]
    while waiting:
        if (one := waiting.pop()) in found:
            continue
        held = distribution(one)
        asked = [Requirement(line) for line in held.requires or []]
        here = [each for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
        names = sorted({canonicalize_name(each.name) for each in here})
        found[one] = held, names
        waiting += names
    return found


def licence(held: Distribution) -> str:
    """Return the licence that a package states, on one line: an expression, words, or its classifiers."""
    told = held.metadata
    stated = told.get("License-Expression") or told.get("License") or ""
    words = [line for line in stated.splitlines() if line.strip()]
    if len(words) == 1:
        return words[0].strip()
    kinds = [line for line in told.get_all("Classifier") or [] if line.startswith("License ::")]
    return "; ".join(line.split(" :: ")[-1] for line in kinds) or (words[0].strip() if words else _UNKNOWN)


def bill(name: str = "weft") -> dict[str, Any]:
    """Return the list as CycloneDX 1.6: the package itself, its components, and who needs whom."""
    found = needed(name)
    parts = {each: _component(each, held) for each, (held, _) in sorted(found.items())}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": parts.pop(canonicalize_name(name))},
        "components": list(parts.values()),
        "dependencies": [
            {"ref": _reference(each, held), "dependsOn": [_reference(one, found[one][0]) for one in names]}
            for each, (held, names) in sorted(found.items())
        ],
    }


def _reference(name: str, held: Distribution) -> str:
    return f"pkg:pypi/{name}@{held.version}"


def _component(name: str, held: Distribution) -> dict[str, Any]:
    reference = _reference(name, held)
    stated = [{"license": {"name": licence(held)}}]
    kind = {"type": "library", "bom-ref": reference, "purl": reference}
    return {**kind, "name": name, "version": held.version, "licenses": stated}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
