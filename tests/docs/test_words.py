"""The pages are in plain English: short sentences, people and things as subjects, none of the phrases listed here."""

import re
from pathlib import Path

from tests.docs.pages import PAGES, REPOSITORY, name_of
from tests.support.judging import failures

AVOIDED = {
    r"\b(is|are|was|were) told\b": "say who tells whom",
    r"\bwhat is out\b": "delivered and not acknowledged",
    r"\bwho has\b(?! (message|had))": "name the person or the program",
    r"\blets? go of\b": "release, remove, delete",
    r"\bis minded\b": "matters, is noticed",
    r"\bThe same of\b": "name it",
    r"\bbehind (it|them|this|that|which)\b": "after",
    r"\bnobody need\b": "nobody needs to",
    r"\bin vain\b(?!;)": "without success",
    r"\bof its own accord\b": "by itself",
    r"\b(?:goes|go) before\b": "say which one counts, or comes first",
    r"\band their kind\b": "and similar",
    r"\bknow(?:s)? why\b": "records why",
    r"\b(?:go|goes|going) on from\b": "continue",
    r"\ba slip\b": "misspelt, a mistake",
    r"\bconcerns itself\b": "name what it concerns",
    r"\bnoth?ing of\b": "none of, no",
    r"\bWho(?:ever)? (?:has|needs|reads|did|gives)\b": "name the person or the program",
    r"\bwhat (?:waits|is there|was asked|came due|died)\b": "name it: messages that wait, ...",
    r"\bof (?:ours|yours)\b": "our, your; of your own",
    r"\bis asked of\b": "who asks what",
    r"\bsimply|obviously|of course|just\b": "leave it out",
}
"""Phrases that make a reader go back, or add nothing, and what to write."""
MOST_WORDS = 30
"""Of a sentence; 25 as a rule."""
WRITTEN_BY_HAND = [
    page
    for page in (*PAGES, REPOSITORY / "ARCHITECTURE.md", REPOSITORY / "CHANGELOG.md")
    if "reference" not in page.parts
]


def prose_of(text: str) -> list[str]:
    """The sentences of a page, without code, tables and headings.

    >>> prose_of("# A\\n\\nOne. Two `x.y` here.\\n\\n```\\nno\\n```\\n- Three\\n| no |")
    ['One.', 'Two x here.', 'Three']
    """
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "x", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#"))]
    blocks = re.split(r"\n\s*\n|\n\s*(?:- |\* |\d+\. )", "\n" + "\n".join(lines))
    sentences = []
    for block in blocks:
        block = re.sub(r"^\s*(?:- |\* |\d+\. )", "", block)
        sentences += re.split(r"(?<=[.!?:;])\s+(?=[A-Zx*])", " ".join(block.split()))
    return [sentence for sentence in sentences if sentence]


def test_pages_are_read_once():
    assert failures(_is_plain, WRITTEN_BY_HAND, name_of) == {}


def test_reference_pages_have_no_phrase_to_avoid():
    """Help texts, policies, errors, tables and docstrings become these pages."""
    assert failures(_avoids, [page for page in PAGES if "reference" in page.parts], name_of) == {}


def _avoids(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = [f"{found[0]!r}: {instead}" for pattern, instead in AVOIDED.items() if (found := re.search(pattern, text))]
    assert not found, "\n".join(found)


def _is_plain(page: Path) -> None:
    sentences = prose_of(page.read_text(encoding="utf-8"))
    found = [
        f"{found[0]!r}: {instead}: {sentence[:90]}"
        for sentence in sentences
        for pattern, instead in AVOIDED.items()
        if (found := re.search(pattern, sentence))
    ]
    long = [sentence[:90] for sentence in sentences if len(sentence.split()) > MOST_WORDS]
    assert not found and not long, "\n".join([*found, *(f"more than {MOST_WORDS} words: {each}" for each in long)])


def test_words_that_are_ours_are_used_and_briefly_explained():
    page = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page.partition("| word | meaning |")[2], flags=re.MULTILINE)
    code = " ".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "pulsar_spark").rglob("*.py")).lower()
    code = re.sub(r"[\s_]+", " ", code)
    assert len(rows) > 20
    assert [word for word, meaning in rows if len(meaning.split()) > 25] == []
    terms = [term.strip() for word, _ in rows for term in re.sub(r" \(.*\)", "", word).split(",")]
    assert [term for term in terms if not re.search(rf"\b{term}", code)] == []
