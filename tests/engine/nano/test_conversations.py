import re

import pytest

from engine.nano.catalogue import catalogue
from engine.nano.chat import ANSWER, EOS, NOTHING, SPECIALS, Conversation, Document
from engine.nano.evalsets import build
from engine.nano.families import lists, pages, passkey, sections, spelt
from engine.nano.mixture import SHARES, batch, sample
from engine.nano.names import entity, held_out, seeded
from engine.nano.render import render
from engine.nano.vocabulary import words

FAMILIES = {family.__module__.rpartition(".")[2]: family for family in SHARES}
SAMPLES = 40


def rendered(family, encoder, count, budget=420):
    rng = seeded(f"{family.__module__}")
    rows = (render(family(rng, budget), encoder, rng, budget) for _ in range(count))
    return [row for row in rows if row is not None]


@pytest.mark.parametrize("name", FAMILIES)
def test_fast_encoding_equals_that_of_the_tokenizer(name, encoder):
    for ids, _ in rendered(FAMILIES[name], encoder, SAMPLES):
        text = encoder.decode(ids)
        assert encoder.tokenizer.encode(text, add_special_tokens=False).ids == ids


@pytest.mark.parametrize("name", FAMILIES)
def test_a_conversation_fits_its_budget_and_ends_with_an_answer(name, encoder):
    rows = rendered(FAMILIES[name], encoder, SAMPLES)
    assert len(rows) > SAMPLES // 2
    for ids, weights in rows:
        assert len(ids) == len(weights) <= 420
        assert ids[0] == SPECIALS.index("<｜begin▁of▁sentence｜>")
        assert ids[-1] == SPECIALS.index(EOS)
        assert max(weights) == ANSWER


def test_the_same_seed_makes_the_same_batch_and_another_seed_another(encoder):
    ids, weights = batch(seeded("a"), encoder, 2, 256)
    again, _ = batch(seeded("a"), encoder, 2, 256)
    other, _ = batch(seeded("b"), encoder, 2, 256)
    assert ids.shape == (2, 257)
    assert weights.shape == (2, 256)
    assert (ids == again).all()
    assert (ids != other).any()


def test_training_entities_are_never_held_out_ones_and_the_other_way_round():
    rng = seeded("split")
    assert not any(held_out(entity(rng)) for _ in range(500))
    assert all(held_out(entity(rng, held_out=True)) for _ in range(100))


def test_no_name_of_the_evaluation_is_in_a_training_list():
    names = {name.lower() for name in words("names_held_out")}
    trained = {w.lower() for name in ("names", "nouns", "cities") for w in words(name)}
    assert not names & trained


def test_every_fact_of_a_section_stands_below_its_own_heading(encoder):
    rng = seeded("sections")
    checked = 0
    for _ in range(60):
        names = sections.titles(rng, 4)
        headings = sections.place_sections(rng, names, "## {t}")
        starts = [depth for depth, _ in headings] + [1.0]
        planted = [((starts[n] + starts[n + 1]) / 2, f"Of {t}.") for n, t in enumerate(names)]
        document = Document("", planted, headings=headings, line_format="{s}")
        conversation = Conversation()
        conversation.user(document)
        conversation.answer("OK.")
        # so small that headings and facts share their place among the filler
        ids, _ = render(conversation, encoder, rng, 120) or ([], [])
        lines = encoder.decode(ids).split("\n")
        for title in names:
            if f"## {title}" in lines or any(line.endswith(f"## {title}") for line in lines):
                above = [x for x in lines[: lines.index(f"Of {title}.")] if "## " in x]
                assert above[-1].endswith(f"## {title}")
                checked += 1
    assert checked > 100


@pytest.mark.parametrize("kind", range(len(lists.KINDS)))
def test_a_list_cut_anywhere_continues_with_its_very_rest(kind):
    made = lists.KINDS[kind]
    lines = [made.line(i, "fox") for i in range(1, 8)]
    text = made.separator.join(lines)
    for at in range(1, len(text)):
        rest = lists.weighted(lists._rest(lines, made.separator, at), made.separator)
        assert "".join(piece for piece, _ in rest) == text[at:]


def test_what_decides_whether_a_list_goes_on_weighs_like_its_end():
    parts = lists.weighted(["1. a", "2. b"], "\n")
    assert parts == [("1. a", 60), ("\n", ANSWER), ("2. b", 60), ("", ANSWER)]
    parts = lists.weighted(["On day 1.", "On day 2."], " ")
    assert parts[1] == (" On", ANSWER)


def test_a_cut_answer_closes_with_an_eos_that_teaches_nothing():
    conversation = Conversation()
    conversation.user("Write a page")
    conversation.cut_answer("<html> <bo", eos=True)
    conversation.user("continue")
    conversation.answer("dy>")
    parts = conversation.parts()
    assert (EOS, NOTHING) in parts
    assert (" <bo", NOTHING) in parts
    assert parts[-1] == (EOS, ANSWER)


def test_reasoning_of_earlier_turns_stays_only_where_tools_are():
    def history(*, tools):
        conversation = Conversation(thinking=True, has_tools=tools)
        for answer in ("first", "second"):
            conversation.user("?")
            conversation.answer(answer, reasoning=f"think {answer}")
        return "".join(str(text) for text, _ in conversation.parts())

    assert history(tools=False).count("<think>") == 1
    assert "think first" not in history(tools=False)
    assert history(tools=True).count("<think>") == 2


def test_a_page_is_saved_only_when_there_is_one(encoder):
    rng = seeded("pages")
    for _ in range(200):
        conversation = pages.make(rng, 250)
        text = "".join(str(text) for text, _ in conversation.parts())
        assert ("<title>" in text or "<html>" in text or "```" in text) != (
            pages.NO_PAGE in text or pages.NOTHING_YET in text
        )


@pytest.mark.parametrize(("family", "least"), [(spelt, 0.4), (passkey, 0.0)])
def test_words_that_begin_a_line_are_asked_for_inside_a_sentence(family, least):
    rng = seeded("spelt")
    respelt = asked = 0
    for _ in range(300):
        told = ""
        for part, weight in family.make(rng, 300).parts():
            if isinstance(part, Document):
                told += "".join(f"\n{statement}" for _, statement in part.planted)
            elif weight == ANSWER and " is " in part:
                value = part.partition(" is ")[2].removesuffix(".")
                assert value in told
                asked += 1
                respelt += f" {value}" not in told and not value.isdigit()
            elif part != EOS:
                told += part
    assert asked > 60
    assert least < respelt / asked < least + 0.25


def test_thinking_text_varies(encoder):
    thoughts = set()
    rng = seeded("thoughts")
    while len(thoughts) < 12:
        ids, _ = sample(rng, encoder, 300)
        thoughts |= {
            t.split()[0] for t in re.findall(r"<think>(\w[^<]*)</think>", encoder.decode(ids))
        }
    assert len(thoughts) >= 12


@pytest.mark.parametrize("key", [key for key in catalogue() if key[1] <= 512], ids=str)
def test_every_set_of_the_card_asks_for_an_answer_that_follows_the_prompt(key, encoder):
    maker, _ = catalogue()[key]
    for item in build(maker, encoder, 2, f"{key}"):
        assert len(item.ids) <= key[1]
        assert 0 < item.start < item.end <= len(item.ids)
        assert item.ids[item.end - 1] == SPECIALS.index(EOS)
