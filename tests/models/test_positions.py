"""Positions of each kind: what they add, what is learned, what is saved."""

from math import cos, sin

import pytest
import torch

from dragoman.models.positions import PositionKind, Positions, sinusoids

LONGEST, WIDTH = 23, 11


@pytest.mark.parametrize("width", [2, 7, 11, 61])
def test_a_longer_table_begins_with_the_shorter_one(width: int) -> None:
    short, long = sinusoids(13, width), sinusoids(29, width)
    assert short.shape == (13, width)
    assert torch.equal(long[:13], short)
    assert long.abs().max() <= 1


def test_no_two_positions_of_a_long_table_are_alike() -> None:
    table = sinusoids(1021, 31).double()
    distances = torch.cdist(table, table) + 10 * torch.eye(len(table), dtype=torch.float64)
    # The fastest pair turns by one radian a position: a position and the next are 2 sin(1/2) = 0.96 apart in it alone.
    # Whole turns come near 22 and 355 (22/7 and 355/113 of a half turn); then the slower pairs must tell them apart.
    assert distances.min() > 0.1


def test_far_positions_are_as_exact_as_near_ones() -> None:
    table = sinusoids(5003, 6)
    for position in (1, 5002):
        for pair in range(3):
            angle = position / 10000 ** (2 * pair / 6)
            # Half a unit in the last place of a float32 near 1 is 2^-25, about 3e-8.
            assert table[position, 2 * pair].item() == pytest.approx(sin(angle), abs=6e-8)
            assert table[position, 2 * pair + 1].item() == pytest.approx(cos(angle), abs=6e-8)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_what_is_added_depends_on_the_position_alone(kind: PositionKind) -> None:
    layer = Positions(kind, LONGEST, WIDTH)
    embedded = torch.randn(2, 5, WIDTH)
    places = torch.tensor([[0, 1, 2, 0, 1], [7, 22, 2, 1, 0]])  # restarting, as in a packed row
    added = layer(embedded, places) - embedded
    assert layer.table is not None
    torch.testing.assert_close(added, layer.table[places].detach(), rtol=0, atol=1e-6)
    assert (added[0, 1] - added[0, 2]).abs().max() > 0.01


def test_no_positions_add_nothing() -> None:
    embedded = torch.randn(2, 5, WIDTH)
    assert torch.equal(Positions("none", LONGEST, WIDTH)(embedded, torch.arange(10).view(2, 5)), embedded)


@pytest.mark.parametrize(("kind", "learned"), [("sinusoidal", 0), ("learned", LONGEST * WIDTH), ("none", 0)])
def test_only_learned_positions_are_parameters_and_saved(kind: PositionKind, learned: int) -> None:
    layer = Positions(kind, LONGEST, WIDTH)
    assert sum(parameter.numel() for parameter in layer.parameters()) == learned
    assert sum(tensor.numel() for tensor in layer.state_dict().values()) == learned


def test_a_position_learns_only_where_it_was_used() -> None:
    layer = Positions("learned", LONGEST, WIDTH)
    layer(torch.zeros(1, 3, WIDTH), torch.tensor([[2, 3, 2]])).sum().backward()
    assert isinstance(layer.table, torch.nn.Parameter)
    assert layer.table.grad is not None
    # The gradient of a sum is one for each time a position was added.
    assert layer.table.grad[:, 0].tolist() == [{2: 2.0, 3: 1.0}.get(position, 0.0) for position in range(LONGEST)]
