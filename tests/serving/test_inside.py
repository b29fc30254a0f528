"""Every system can be looked into, as far as there is something to see."""

from pathlib import Path

import pytest
import torch

from dragoman.decoding.translator import Translator
from dragoman.errors import DataError
from dragoman.models.interface import Model
from dragoman.recipe import DecodingConfig, read_recipe
from dragoman.saved import build_model
from dragoman.serving.inside import Compare, Place, Watch
from dragoman.serving.tasks import Kind, Look, Pair

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "recipes" / "systems").glob("*.toml"))
COMPARES = {"transformer", "restricted", "gpt"}  # queries with keys, as the Transformer does
LOOKS_AT_NOTHING = {"rnn", "cho", "sutskever", "bytenet", "neural-gpu"}
PLACES = {"transformer": "sinusoidal", "restricted": "sinusoidal", "gpt": "learned", "convs2s": "learned"}
EN_DE = Pair("en", "de")
ITEM = ("1234567", "76")


@pytest.fixture(params=NAMES)
def system(request: pytest.FixtureRequest, translator: Translator) -> tuple[str, Translator]:
    """One that has learned nothing, with the pieces of one that has."""
    torch.manual_seed(17)
    vocabulary = translator.target_vocabulary
    model = build_model(read_recipe(f"systems/{request.param}", ["model.width=64"]), len(vocabulary), len(vocabulary))
    assert isinstance(model, Model)
    decoding = DecodingConfig(beam=3, extra=5)
    return request.param, Translator([model.eval()], translator.source_vocabulary, vocabulary, decoding)


def test_how_it_wrote_is_told(system: tuple[str, Translator]) -> None:
    name, translator = system
    (inside,) = Watch(EN_DE).run(translator, [ITEM])
    assert [step["chosen"]["piece"] for step in inside["steps"]] == inside["target"]["pieces"]
    assert len(inside["beam"]["ended"]) == 3
    has_cross = inside["attention"]["cross"]["layers"] > 0
    assert has_cross == (name not in LOOKS_AT_NOTHING)
    for kind, size in inside["attention"].items():
        if size["layers"]:
            (maps,) = Look(EN_DE, kind, size["layers"] - 1).run(translator, [ITEM])
            assert len(maps.weights) == size["heads"]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_scores_are_those_of_the_weights_or_there_are_none(system: tuple[str, Translator], kind: Kind) -> None:
    name, translator = system
    if name not in COMPARES:
        with pytest.raises(DataError, match="no queries and keys"):
            Compare(EN_DE, kind, 0, 0).run(translator, [ITEM])
        return
    (compared,) = Compare(EN_DE, kind, 0, 1).run(translator, [ITEM])
    (maps,) = Look(EN_DE, kind, 0).run(translator, [ITEM])
    assert (len(compared.queries), len(compared.keys)) == (len(maps.queries), len(maps.keys))
    weights, scores = torch.tensor(maps.weights[1]), torch.tensor(compared.scores)
    # What is seen beside these keys has a share too, so that only ratios are told by scores.
    seen = weights > 0.01
    row = int(seen.sum(1).argmax())
    ratios = weights[row][seen[row]].log() - scores[row][seen[row]]
    assert ratios.std().item() < 0.02
    with pytest.raises(DataError, match="no queries and keys"):
        Compare(EN_DE, kind, 0, 99).run(translator, [ITEM])


def test_what_says_where_pieces_stand_is_told(system: tuple[str, Translator]) -> None:
    name, translator = system
    (places,) = Place(EN_DE).run(translator, [5])
    assert places["kind"] == PLACES.get(name, "none")
    assert len(places["table"]) == (5 if name in PLACES else 0)
