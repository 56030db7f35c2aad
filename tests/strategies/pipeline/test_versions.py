"""Versions of weights: never changed, kept while they are needed and no longer."""

import pytest
import torch
from torch import nn

from weft.strategies.pipeline.versions import Versions


def changed(weight: nn.Parameter, by: float) -> None:
    with torch.no_grad():
        weight += by


def test_a_version_stays_as_it_was_until_it_is_released() -> None:
    weight = nn.Parameter(torch.zeros(2))
    versions = Versions({"w": weight}, copies=True)
    old = versions.pin(0, None)
    changed(weight, 1.0)
    versions.advance()
    assert old["w"].tolist() == [0, 0]
    assert versions.pin(1, None)["w"].tolist() == [1, 1]
    assert old["w"].is_leaf
    assert old["w"].requires_grad
    assert versions.most == 2
    versions.release(0)
    with pytest.raises(KeyError):
        versions.pin(2, 0)


def test_versions_behind_the_newest_are_kept_where_later_stages_ask_for_them() -> None:
    versions = Versions({"w": nn.Parameter(torch.zeros(1))}, copies=True, behind=2)
    for _ in range(5):
        versions.advance()
    assert versions.most == 3
    versions.pin(0, 3)
    with pytest.raises(KeyError):
        versions.pin(1, 2)


def test_without_copies_the_weights_themselves_are_the_version() -> None:
    weight = nn.Parameter(torch.zeros(1))
    versions = Versions({"w": weight}, copies=False)
    assert versions.pin(0, None)["w"] is weight
    with pytest.raises(AssertionError, match="drained"):
        versions.begin()
