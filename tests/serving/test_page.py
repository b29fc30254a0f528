"""The page in a real browser, against a real server with a model that was really trained."""

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect, sync_playwright
from rich.console import Console

from dragoman.recipe import read_recipe
from dragoman.serving.app import PAGE
from dragoman.training.run import run_training
from tests.serving.conftest import Running, serving

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: `apt-get install chromium` brings it")
EN_DE = {"source": "en", "target": "de"}
TEXT = "12345"
LONGEST_MODULE = 300  # lines
OPEN = f"#text={TEXT}&inside=true"
SECRET = "a-secret-key"

# What a page may not do, caught where it happens.
WATCH = """
addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective}`));
"""

Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Browser, running: Running) -> Iterator[Visit]:
    """Opens the page; in the end nothing may have gone wrong in it, and nobody else may have been asked."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []
    asked: list[str] = []
    expected: list[str] = []

    def visit(link: str = "", url: str = running.url, expecting: str | None = None, **settings: object) -> Page:
        context = browser.new_context(**settings)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(15_000)
        context.add_init_script(WATCH)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        if expecting:
            expected.append(expecting)
        page.goto(f"{url}/{link}")
        return page

    expect.set_options(timeout=15_000)
    yield visit
    for context in contexts:
        context.close()
    # A refusal that the page tells in words is an error to the browser's console too.
    assert not [each for each in wrong if not any(re.search(pattern, each) for pattern in expected)]
    hosts = {urlsplit(each).netloc for each in asked if not each.startswith("blob:")}
    assert {host.rpartition(":")[0] for host in hosts} == {"127.0.0.1"}


def numbers_of(page: Page) -> list[list[float]]:
    """What the heat map says in words, cell by cell."""
    rows = page.locator("#map [role=row]").all()
    said = [row.locator("[role=gridcell]").evaluate_all("cells => cells.map(c => c.ariaLabel)") for row in rows]
    return [[float(each.rsplit(" ", 1)[1]) for each in row] for row in said]


def choose(page: Page, name: str, value: str) -> None:
    page.locator(f"input[name={name}][value='{value}']").check(force=True)


def value_of(page: Page, name: str) -> str:
    return page.locator(f"input[name={name}]:checked").input_value()


def translated(client: httpx.Client, text: str) -> str:
    answer = client.post("/translate", json={"q": text, **EN_DE}).json()["translatedText"]
    assert isinstance(answer, str)
    return answer


def settled(page: Page) -> Locator:
    """The map, once it is drawn."""
    expect(page.locator("#map [role=gridcell]").first).to_be_visible()
    return page.locator("#map svg")


@needs_chromium
def test_it_translates_while_one_types_and_offers_others(visit: Visit, client: httpx.Client) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#source-text").press_sequentially(TEXT, delay=20)
    expect(page.locator("#target-text")).to_have_text(translated(client, TEXT))
    expect(page.locator("#count")).to_have_text("5 of 10,000")
    other = page.locator("#alternatives button").first
    said = other.text_content()
    other.click()
    expect(page.locator("#target-text")).to_have_text(said or "")
    page.locator("#copy").click()
    expect(page.locator("#said")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == said
    page.locator("#link").click()
    assert page.evaluate("navigator.clipboard.readText()").endswith(f"/#text={TEXT}&source=en&target=de")
    page.locator("#source-text").fill("")
    expect(page.locator("#target-text")).to_have_text("")
    expect(page.locator("#alternatives")).to_be_hidden()


@needs_chromium
def test_what_comes_late_never_replaces_what_is_newer(visit: Visit, client: httpx.Client) -> None:
    held: list[Route] = []
    page = visit(expecting="net::ERR")
    page.route("**/translate", lambda route: route.continue_() if held else held.append(route))
    page.locator("#source-text").fill("111")
    page.wait_for_timeout(800)
    assert len(held) == 1
    page.locator("#source-text").fill(TEXT)
    expect(page.locator("#target-text")).to_have_text(translated(client, TEXT))
    held[0].fulfill(json={"translatedText": "too late", "sentences": []})
    page.wait_for_timeout(300)
    expect(page.locator("#target-text")).to_have_text(translated(client, TEXT))


@needs_chromium
@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_the_map_shows_what_attention_says(visit: Visit, client: httpx.Client, kind: str) -> None:
    page = visit(f"{OPEN}&kind={kind}&layer=0")
    settled(page)
    fields = {"q": TEXT, **EN_DE, "kind": kind, "layer": 0}
    weights = torch.tensor(client.post("/attention", json=fields).json()["weights"])
    assert torch.allclose(torch.tensor(numbers_of(page)), weights.mean(0), atol=1e-4)
    choose(page, "head", "max")
    assert torch.allclose(torch.tensor(numbers_of(page)), weights.amax(0), atol=1e-4)
    choose(page, "head", "2")
    assert torch.allclose(torch.tensor(numbers_of(page)), weights[2], atol=1e-4)
    shown = page.locator("#map [role=gridcell] text").evaluate_all("all => all.map(each => each.textContent)")
    assert shown == [f"{value:.2f}" for value in numbers_of(page)[0]] + shown[len(weights[2][0]) :]
    choose(page, "layer", "1")
    expect(page.locator("#map .words")).to_contain_text("layer 2")
    other = torch.tensor(client.post("/attention", json=fields | {"layer": 1}).json()["weights"])
    assert torch.allclose(torch.tensor(numbers_of(page)), other[2], atol=1e-4)


@needs_chromium
def test_words_gather_what_their_pieces_look_at(visit: Visit, client: httpx.Client) -> None:
    page = visit("#text=123 45&inside=true&layer=0&head=1&unit=words")
    settled(page)
    fields = {"q": "123 45", **EN_DE}
    weights = torch.tensor(client.post("/attention", json=fields).json()["weights"])[1]
    inside = client.post("/inside", json=fields).json()
    shown = numbers_of(page)
    assert len(shown[0]) == 3  # two words and the end
    assert [sum(row) for row in shown] == pytest.approx([1.0] * len(shown), abs=1e-3)
    source, target = (inside[side]["words"][0]["pieces"] for side in ("source", "target"))
    blanks = [0] if inside["source"]["pieces"][0] == "▁" else []
    rows = [*([0] if inside["target"]["pieces"][0] == "▁" else []), *target]
    assert shown[0][0] == pytest.approx(float(weights[rows][:, [*blanks, *source]].sum(1).mean()), abs=2e-4)


@needs_chromium
def test_pointing_at_a_piece_says_what_it_looked_at(visit: Visit, client: httpx.Client) -> None:
    page = visit(f"{OPEN}&head=0")
    settled(page)
    found = client.post("/attention", json={"q": TEXT, **EN_DE, "layer": 1}).json()
    row = found["weights"][0][1]
    most = max(range(len(row)), key=row.__getitem__)
    page.locator("#lines [data-focus=query-1]").hover()
    said = page.locator("#lines .readout")
    looking, looked_at = (
        "blank" if each == "▁" else each.lstrip("▁") for each in (found["queries"][1], found["keys"][most])
    )
    expect(said).to_contain_text(f"“{looking}” looked at “{looked_at}” {row[most]:.2f}")
    page.locator(f"#lines [data-focus=key-{most}]").hover()
    expect(said).to_contain_text("was looked at by")
    drawn = page.locator("#lines line").count()
    assert drawn == sum(weight >= 0.02 for each in found["weights"][0] for weight in each)


@needs_chromium
def test_a_cell_is_taken_apart(visit: Visit, client: httpx.Client) -> None:
    page = visit(f"{OPEN}&head=1&layer=0")
    settled(page)
    page.locator("#map [data-focus=cell-2-3]").click()
    found = client.post("/attention", json={"q": TEXT, **EN_DE, "layer": 0, "head": 1}).json()
    score, weight = found["head"]["scores"][2][3], found["weights"][1][2][3]
    expect(page.locator("#cell .readout")).to_contain_text(f"= {score:.2f}, after the softmax {weight:.2f}")
    products = page.locator("#cell svg").first.locator("rect")
    assert products.count() == 3 * len(found["head"]["queries"][0])


@needs_chromium
def test_decoding_is_stepped_through(visit: Visit, client: httpx.Client) -> None:
    page = visit(OPEN)
    settled(page)
    inside = client.post("/inside", json={"q": TEXT, **EN_DE}).json()
    slider = page.locator("#step")
    for number, step in enumerate(inside["steps"]):
        expect(page.locator("#steps .number")).to_have_text(f"{number + 1} of {len(inside['steps'])}")
        candidates = page.locator("#steps .candidates th").all_text_contents()
        assert [each.replace("_", "▁") for each in candidates][:5] == [each["piece"] for each in step["candidates"]]
        expect(page.locator("#steps .written")).to_contain_text(step["text"] or "(nothing yet)")
        living = page.locator("#steps .beam").first.locator("th").all_text_contents()
        alive = inside["beam"]["living"][number : number + 1]
        assert living == [each["text"] or "(nothing)" for step in alive for each in step]
        slider.press("ArrowRight")
    expect(page.locator("#lines [aria-pressed=true]")).to_have_attribute("data-focus", f"query-{number}")
    said = inside["beam"]["ended"][1]["text"]
    page.locator("#steps .beam button").nth(1).click()
    pieces = client.post("/inside", json={"q": TEXT, **EN_DE, "translation": said}).json()["target"]["pieces"]
    expect(page.get_by_role("group", name="what looks")).to_have_text("".join(pieces).replace("▁", "_"))


@needs_chromium
def test_a_link_restores_the_view(visit: Visit) -> None:
    page = visit(OPEN)
    settled(page)
    for name, value in (("kind", "decoder"), ("layer", "0"), ("head", "3"), ("unit", "words")):
        choose(page, name, value)
    page.locator("#map [data-focus=cell-0-0]").click()
    expect(page).to_have_url(re.compile("key=0"))
    link = page.url
    again = visit(link[link.index("#") :])
    settled(again)
    assert [value_of(again, name) for name in ("kind", "layer", "head", "unit")] == ["decoder", "0", "3", "words"]
    expect(again.locator("#map [aria-selected=true]")).to_have_attribute("data-focus", "cell-0-0")
    expect(again.locator("#source-text")).to_have_value(TEXT)
    assert numbers_of(again) == numbers_of(page)


@pytest.fixture
def save(visit: Visit, tmp_path: Path) -> Callable[[Page, str, str], Path]:
    """Saves a figure of a page in one of its kinds."""

    def save(page: Page, figure: str, kind: str) -> Path:
        with page.expect_download() as download:
            page.locator(f"#{figure}").get_by_role("button", name=kind).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    return save


@needs_chromium
def test_figures_are_saved_as_pictures(visit: Visit, save: Callable[[Page, str, str], Path]) -> None:
    page = visit(f"{OPEN}&head=1", accept_downloads=True)
    settled(page)
    for figure in ("lines", "map", "cell"):
        drawn = ElementTree.parse(save(page, figure, "SVG")).getroot()
        assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(drawn.findall(".//{*}text")) >= 6
    assert len(ElementTree.parse(save(page, "positions", "SVG")).findall(".//{*}rect")) >= 64 * 64
    for figure in ("lines", "map", "positions", "heads"):
        assert save(page, figure, "PNG").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@needs_chromium
def test_figures_are_saved_as_numbers(visit: Visit, save: Callable[[Page, str, str], Path]) -> None:
    page = visit(f"{OPEN}&head=1", accept_downloads=True)
    settled(page)
    saved = json.loads(save(page, "map", "JSON").read_text())
    assert torch.allclose(torch.tensor(saved["weights"]), torch.tensor(numbers_of(page)), atol=1e-4)
    assert (saved["text"], saved["head"]) == (TEXT, 1)
    size = (len(saved["queries"]), len(saved["keys"]))
    for figure, shape in (("heads", (2, 4, *size)), ("lines", (4, *size)), ("cell", (*size,))):
        found = json.loads(save(page, figure, "JSON").read_text())
        assert torch.tensor(found["layers" if figure == "heads" else "weights"]).shape == shape
    assert len(json.loads(save(page, "steps", "JSON").read_text())["steps"]) == size[0]
    assert torch.tensor(json.loads(save(page, "positions", "JSON").read_text())["table"]).shape == (64, 64)


@needs_chromium
def test_it_is_dark_as_the_system_or_as_one_wishes(visit: Visit) -> None:
    def darkness(page: Page) -> int:
        colour = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    assert darkness(visit(color_scheme="light")) > 600
    page = visit(color_scheme="dark")
    assert darkness(page) < 150
    button = page.locator("#theme")
    for expected in ("light", "dark", "system", "light"):
        button.click()
        expect(button).to_have_text(f"Theme: {expected}")
    assert darkness(page) > 600
    page.reload()
    expect(button).to_have_text("Theme: light")
    assert darkness(page) > 600


@needs_chromium
def test_a_keyboard_is_enough(visit: Visit, client: httpx.Client) -> None:
    page = visit()
    expect(page.locator("#engine")).not_to_be_empty()

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.locator(selector).evaluate("all => all === document.activeElement"):
                return
        pytest.fail(f"{selector} is out of reach")

    tab_to("#source-text")
    page.keyboard.type(TEXT)
    expect(page.locator("#target-text")).to_have_text(translated(client, TEXT))
    tab_to("#look")
    page.keyboard.press("Enter")
    settled(page)
    tab_to("input[name=kind]:checked")
    page.keyboard.press("ArrowRight")
    assert value_of(page, "kind") == "encoder"
    expect(page.locator("input[name=kind]:checked")).to_be_focused()
    tab_to("input[name=head]:checked")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert value_of(page, "head") == "0"
    tab_to("[data-focus=key-0]")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#lines .readout")).to_contain_text("was looked at by")
    tab_to("[data-focus=cell-0-0]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("[data-focus=cell-1-1]")).to_be_focused()
    expect(page.locator("[data-focus=cell-1-1]")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#cell .readout")).to_contain_text("after the softmax")
    tab_to("#step")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#steps .number")).to_contain_text("2 of")


@needs_chromium
def test_a_file_is_translated_whether_chosen_or_dropped(visit: Visit, client: httpx.Client, tmp_path: Path) -> None:
    page = visit(accept_downloads=True)
    expect(page.locator("#engine")).not_to_be_empty()
    (tmp_path / "letter.txt").write_text(f"{TEXT}\n")
    page.locator("#file").set_input_files(tmp_path / "letter.txt")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save letter.de.txt").click()
    assert download.value.suggested_filename == "letter.de.txt"
    assert download.value.path().read_text() == f"{translated(client, TEXT)}\n"
    page.locator("#source-text").evaluate(
        """(box, text) => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([text], "dropped.txt"));
            box.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        TEXT,
    )
    expect(page.get_by_role("link", name="Save dropped.de.txt")).to_be_visible()


@needs_chromium
def test_it_fits_a_phone_and_reads_from_right_to_left(visit: Visit) -> None:
    page = visit(OPEN, viewport={"width": 360, "height": 740}, has_touch=True)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("#source-text").evaluate("box => box.matches(':dir(ltr)')")
    page.locator("#source-text").fill("\u05e9\u05dc\u05d5\u05dd 12")
    assert page.locator("#source-text").evaluate("box => box.matches(':dir(rtl)')")


@needs_chromium
def test_what_is_typed_is_text_and_nothing_else(visit: Visit) -> None:
    typed = "<img src=x onerror=alert(1)> 12"
    page = visit(f"#inside=true&text={typed}")
    expect(page.locator("#source-text")).to_have_value(typed)
    settled(page)
    assert page.locator("img").count() == 0


@needs_chromium
def test_two_ways_are_swapped_keys_are_asked_for_and_too_much_is_refused(
    visit: Visit, reverser: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text(SECRET)
    words = [f"de:en={reverser}", "--keys", str(tmp_path / "keys"), "--megabytes", "0.002"]
    with serving(f"en:de={reverser}", tmp_path / "log", *words) as two_ways:
        page = visit(url=two_ways.url, expecting="40[03]|413")
        expect(page.locator("#key-form")).to_be_visible()
        page.locator("#source").select_option("en")
        page.locator("#source-text").fill(TEXT)
        expect(page.locator("#notice")).to_contain_text("asks for an API key")
        page.locator("#key").fill("another")
        page.locator("#key").press("Enter")
        expect(page.locator("#notice")).to_contain_text("does not know this API key")
        page.locator("#key").fill(SECRET)
        page.locator("#key").press("Enter")
        expect(page.locator("#target-text")).to_have_text(TEXT[::-1])
        expect(page.locator("#notice")).to_be_hidden()
        page.locator("#swap").click()
        expect(page.locator("#source-text")).to_have_value(TEXT[::-1])
        expect(page.locator("#target-text")).to_have_text(TEXT)
        assert [page.locator(each).input_value() for each in ("#source", "#target")] == ["de", "en"]
        page.locator("#source-text").fill("1" * 3000)
        expect(page.locator("#notice")).to_contain_text("more than the server takes at once")


@needs_chromium
def test_what_a_server_lacks_or_refuses_is_said(visit: Visit, reversals: Path, tmp_path: Path) -> None:
    recipe = read_recipe("systems/cho", ["model.width=64", "training.steps=1", "training.batch_tokens=768"])
    run_training(recipe, reversals / "data", tmp_path / "run", torch.device("cpu"), Console(quiet=True))
    # One language alone, and a model that looks at nothing; three requests a minute.
    with serving(f"en:en={tmp_path / 'run'}", tmp_path / "log", "--rate", "3") as lonely:
        page = visit(OPEN, url=lonely.url, expecting="429|ERR_")
        expect(page.locator("#lines .words")).to_contain_text("writes without attention")
        expect(page.locator("#positions .words")).to_contain_text("adds nothing")
        expect(page.locator("#steps .candidates")).to_be_visible()
        expect(page.locator("#map")).to_be_hidden()
        expect(page.locator("#swap")).to_be_disabled()
        page.locator("#source-text").fill("777")
        expect(page.locator("#notice")).to_contain_text("The server has much to do (Slowdown: 3 per 1 minute).")
        expect(page.locator("#notice")).to_contain_text("Trying again in")
        lonely.process.kill()
        lonely.process.wait()
        page.get_by_role("button", name="Try now").click()
        expect(page.locator("#notice")).to_contain_text("The server does not answer.")
        expect(page.locator("#source-text")).to_have_value("777")


def test_its_files_are_short_and_name_no_other_host() -> None:
    files = [path for path in PAGE.iterdir() if path.is_file()]
    assert {".html", ".js", ".css", ".svg"} == {path.suffix for path in files}
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < LONGEST_MODULE, path.name
        assert set(re.findall(r"\w+://[\w.]+", text)) <= {"http://www.w3.org"}, path.name  # the name of SVG's words
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\b|new Function", text), path.name
        for imported in re.findall(r'from "(.+?)"', text):
            assert (PAGE / imported).is_file(), (path.name, imported)


def test_the_tour_names_every_module() -> None:
    tour = (Path(__file__).parents[2] / "docs" / "tour.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", tour.split("| module | what it does |")[1])
    assert sorted(named) == sorted(path.stem for path in PAGE.glob("*.js"))
