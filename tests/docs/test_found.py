"""What people look for first is a word of the README, and the page one click from there answers it."""

import re

import pytest

from tests.docs.pages import REPOSITORY, SITE, links_of

QUESTIONS = {
    "How do I let messages expire?": ("TTL", "message_ttl_seconds"),
    "Which subscription types are there?": ("Subscription types", "Key_Shared"),
    "How do I monitor it?": ("Monitoring", "msgBacklog"),
    "How do I run it on a cluster?": ("Clusters", "spark-submit"),
    "How do I upgrade?": ("Upgrades", "new root"),
    "Should I take Kafka or Pulsar instead?": ("Compared with Pulsar, Kafka and SQS", "Take it if"),
    "Which rules differ from Pulsar's?": ("what differs", "transactions"),
    "What did a broker that died leave?": ("what a crash leaves", "repairs it"),
    "What do I do when it fails?": ("Troubleshooting", "pulsar-spark doctor"),
    "Does it run on S3?": ("object stores", "s3://"),
    "How do I send dead letters back?": ("Dead letters", "reprocess_dead_letters"),
    "How fast is it?": ("Five figures", "publish to receive"),
    "What can it not do?": ("## Limits", "geo-replication"),
}
"""By question: the word that a reader searches for, and a word of the answer."""


@pytest.mark.parametrize("word, answer", QUESTIONS.values(), ids=QUESTIONS)
def test_an_answer_is_one_click_away(word, answer):
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert word in readme
    if word.startswith("##") or f"## {word}" in readme:
        assert answer in readme.partition(word)[2].partition("\n## ")[0]
        return
    linked = [text for text in re.findall(r"\[[^\]]*\]\([^)]+\)", readme) if word in text]
    pages = {REPOSITORY / link.partition("#")[0] for text in linked for link in links_of(text)}
    assert any(answer in page.read_text(encoding="utf-8") for page in pages if SITE in page.parents)
