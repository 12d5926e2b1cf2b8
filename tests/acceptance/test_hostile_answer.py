"""A model's answer is somebody else's text: in the report it stands as text, and runs nowhere."""

import pytest
from chromium import CHROMIUM, Document, rendered, unescaped
from product import finished
from proxies import _EventProxy

pytestmark = pytest.mark.acceptance

SCRIPT = "<script>alert(1)</script>"
MARK = "document.documentElement.setAttribute('data-owned','1')"
ANSWER = f'{SCRIPT}<script>{MARK}</script><img src="x:" onerror="{MARK}">'


class ScriptingProxy(_EventProxy):
    """Every answer is markup that would run in a page that does not escape it."""

    def __init__(self, root_url):
        super().__init__(root_url)
        self.given = set()

    def rewrite(self, event, held):
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if delta.get("content"):
                delta["content"] = "" if event["id"] in self.given else ANSWER
                self.given.add(event["id"])
        return [event]

    def whole(self, body):
        for choice in body["choices"]:
            if choice.get("message", {}).get("content"):
                choice["message"]["content"] = ANSWER
        return body


@pytest.fixture(scope="module")
def ran(engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "run"
    with ScriptingProxy(engine.root_url) as proxy:
        return finished(
            "continuation", f"--base-url={proxy.base_url}", folder=folder, name="answers are markup"
        )


def _runs_nothing_of_it(document):
    return (
        "data-owned" not in document.root
        and not [s for s in document.scripts if "alert(1)" in s or "data-owned" in s]
        and not [h for h in document.handlers if "data-owned" in h]
    )


def test_markup_in_answers_is_a_wrong_answer(ran):
    assert ran.code == 1, ran.told()
    said = {e.text for trial in ran.trials for e in trial.exchanges}
    assert any(text.startswith(SCRIPT) for text in said)


def test_markup_in_answers_stands_as_text_in_the_source_of_the_report(ran):
    document = Document(ran.report)
    assert SCRIPT in document.text
    assert _runs_nothing_of_it(document)
    assert SCRIPT not in (ran.folder / "summary.md").read_text(encoding="utf-8")
    assert not _runs_nothing_of_it(Document(unescaped(ran.report, ANSWER)))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the source was read")
def test_a_browser_shows_markup_in_answers_and_runs_none_of_it(ran, tmp_path):
    document = Document(rendered(ran.folder / "report.html", tmp_path / "profile"))
    assert SCRIPT in document.text
    assert _runs_nothing_of_it(document)
    # and this browser would have run it (but for the alert, which waits for a click)
    markup = ANSWER.removeprefix(SCRIPT)
    careless = tmp_path / "careless.html"
    careless.write_text(f"<!doctype html><html><body>{markup}</body></html>", encoding="utf-8")
    owned = Document(rendered(careless, tmp_path / "profile of the careless page"))
    assert owned.root["data-owned"] == "1"
