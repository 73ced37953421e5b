"""Roots at Azure and Google: how they are named, what is wrong with them by their codes, and commits by Google's rules,
on a server of ours; the same and more runs by ``--store gs``, and by ``--store abfss`` in an emulator."""

import traceback

import obstore
import pytest

from pulsar_spark.errors import ConnectError, InvalidUrl, NotARoot
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.sure_append import SureAppend
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import store_of
from pulsar_spark.storage.store.store_kinds import AZURE, GOOGLE
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, list_topics, prepare_root
from tests.support.object_store import ABFSS, BUCKET, GS, URLS, asking, messages, new_layout, new_root, published
from tests.support.s3_proxy import Answer, s3_proxy

SECRET = "bm90LWEtc2VjcmV0LW9mLWFueWJvZHk="


@pytest.fixture
def layout(gs) -> Layout:
    return new_layout()


@pytest.mark.parametrize(
    "root",
    [
        "abfss://",
        "abfss://container/x",
        "abfss://con@acc.dfs.core.windows.net",
        "abfss://co@acc.dfs.core.windows.net/x",
        "abfss://-container@acc.dfs.core.windows.net/x",
        "abfss://con--tainer@acc.dfs.core.windows.net/x",
        "abfss://container@Account.dfs.core.windows.net/x",
        "abfss://container@account.blob.core.windows.net/x",
        "abfss://container@account.dfs.fabric.microsoft.com/x",
        "abfss://container@account.dfs.core.windows.net/a b",
        "abfss://container@account.dfs.core.windows.net/a/../b",
        "gs://bucket",
        "gs://Bucket/x",
        "gs://bucket/ä",
    ],
)
def test_what_names_no_place_in_a_container(root):
    with pytest.raises(InvalidUrl, match=r"root '(abfss|gs):.* (give (abfss|gs)://<|give a folder)"):
        Layout(root)


@pytest.mark.parametrize("store", [ABFSS, GS])
def test_a_root_is_named_as_it_was_given(store):
    with asking("http://127.0.0.1:1", store):
        assert str(Layout(f"{URLS[store]}/a//b/").root) == f"{URLS[store]}/a/b"


@pytest.mark.parametrize("root", ["az://c/x", "wasbs://c@a.blob.core.windows.net/x", "abfs://c@a/x", "gcs://bucket/x"])
def test_others_are_told_what_is_known(root):
    with pytest.raises(InvalidUrl, match="abfss://<container>@<account>.dfs.core.windows.net/<folder>, gs://<bucket>"):
        Layout(root)


def test_a_url_with_a_password_is_refused_without_it():
    with pytest.raises(InvalidUrl) as refused:
        Layout("abfss://container:secret@account.dfs.core.windows.net/x")
    assert "secret" not in str(refused.value)


def at(store: str, url: str):
    """A store at *url*, of one who has a key."""
    if store == GS:
        return asking(url, GS)
    more = dict(AZURE_STORAGE_ACCOUNT_KEY=SECRET, AZURE_STORAGE_ENDPOINT=f"{url}/account")
    return asking(url, ABFSS, **more, AZURE_STORAGE_USE_EMULATOR="false")


@pytest.mark.parametrize(
    "store, answered, error, said",
    [
        (ABFSS, Answer(False, 404, "ContainerNotFound"), NotARoot, "container .* does not exist"),
        (ABFSS, Answer(False, 403, "AuthenticationFailed"), ConnectError, "set AZURE_STORAGE_ACCOUNT_KEY"),
        (ABFSS, Answer(False, 401, "NoAuthenticationInformation"), ConnectError, "set AZURE_STORAGE_ACCOUNT_KEY"),
        (ABFSS, Answer(False, 403, "AuthorizationPermissionMismatch"), ConnectError, "the store refuses"),
        (ABFSS, Answer(False, 503, "ServerBusy"), ConnectError, "AZURE_STORAGE_ENDPOINT"),
        (GS, Answer(False, 404, "NoSuchBucket"), NotARoot, "bucket .* does not exist"),
        (GS, Answer(False, 401, "AuthenticationRequired"), ConnectError, "set GOOGLE_APPLICATION_CREDENTIALS"),
        (GS, Answer(False, 403, "AccessDenied"), ConnectError, "the store refuses"),
        (GS, Answer(False, 503, "ServiceUnavailable"), ConnectError, "GOOGLE_BASE_URL"),
    ],
    ids=lambda each: each.code if isinstance(each, Answer) else "",
)
def test_what_is_wrong_with_a_store_is_said_at_once(store, answered, error, said):
    with s3_proxy("", lambda asked: answered) as url, at(store, url), pytest.raises(error, match=said) as refused:
        prepare_root(Layout(new_root()))
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_a_store_that_knows_no_conditional_puts_takes_no_root(gs_url):
    answer = Answer(without=("x-goog-if-generation-match",))
    with (
        s3_proxy(gs_url, lambda asked: answer) as url,
        asking(url, GS),
        pytest.raises(NotARoot, match="ignores conditional puts"),
    ):
        prepare_root(Layout(new_root()))


@pytest.mark.parametrize(
    "store, more, said",
    [
        (ABFSS, dict(AZURE_STORAGE_ACCOUNT_KEY="not-a-key!"), "set AZURE_STORAGE_ACCOUNT_KEY"),
        (ABFSS, dict(AZURE_STORAGE_SAS_TOKEN="not-a-key!"), "set AZURE_STORAGE_ACCOUNT_KEY"),
        (GS, dict(GOOGLE_SERVICE_ACCOUNT_KEY="not-a-key!"), "set GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_credentials_that_are_none(store, more, said):
    with asking("http://127.0.0.1:1", store, **{"AZURE_STORAGE_USE_EMULATOR": "false", **more}):
        with pytest.raises(ConnectError, match=said) as refused:
            Layout(new_root())
    assert "not-a-key" not in "".join(traceback.format_exception(refused.value))


def test_a_signature_is_not_shown():
    """It is part of what is asked, and so of what a client says of it."""
    token = "sv=2021-01-01&sig=hidden-signature"
    with asking("http://127.0.0.1:1", ABFSS, AZURE_STORAGE_USE_EMULATOR="false", AZURE_STORAGE_SAS_TOKEN=token):
        with pytest.raises(ConnectError) as refused:
            prepare_root(Layout(new_root()))
    assert "hidden-signature" not in "".join(traceback.format_exception(refused.value))


def test_commits_at_google(layout):
    topic = create_topic(layout, "t")
    table = SureAppend(topic.path, "publish_id")
    assert [table.append(messages(f"p-{number}"), pytest.fail) for number in range(3)] == [1, 2, 3]
    assert published(topic.path) == ["p-0", "p-1", "p-2"] and sorted(TableLog(topic.path).versions()) == [0, 1, 2, 3]
    delete_topic(layout, "t")
    assert list_topics(layout, "public", "default") == []


def removing_as_azure_does(raw, keys: list[str]) -> None:
    """In one call: what is there goes, and then the first that was not is missed."""
    missing = []
    for key in keys:
        try:
            google_removes(raw, [key])
        except FileNotFoundError as error:
            missing.append(error)
    if missing:
        raise missing[0]


google_removes = obstore.delete


@pytest.mark.parametrize("kind", [AZURE, GOOGLE], ids=lambda kind: kind.scheme)
def test_what_is_not_there_keeps_nothing_from_being_removed(layout, monkeypatch, kind):
    """Google says of each that it is missing; Azure is given a few at a time, and removes the others of the call."""
    monkeypatch.setattr(layout.store, "kind", kind._replace(removed_a_call=min(kind.removed_a_call, 2)))
    if kind is AZURE:
        monkeypatch.setattr(obstore, "delete", removing_as_azure_does)
    paths = [layout.root / f"x/{number}" for number in range(5)]
    for path in paths:
        path.write_bytes(b"")
    layout.store.remove([layout.root / "x/missing", *paths[:2], layout.root / "x/missing as well", *paths[2:]])
    assert not (layout.root / "x").is_dir()


def test_a_store_that_lists_all_is_asked_for_the_next_commit_instead(layout, monkeypatch):
    """A log has thousands of files, of which Azure lists all, whatever is asked."""
    topic, store = create_topic(layout, "t"), layout.store
    for number in range(3):
        AppendTable(topic.path).append(messages(f"p-{number}"))
    for is_listed in (True, False):
        monkeypatch.setattr(store, "lists_from_a_name", is_listed)
        for known, latest in ((0, 3), (1, 3), (3, 3), (9, 3)):
            assert TableLog(topic.path).latest(known) == latest
        before = store.calls.copy()
        assert TableLog(topic.path).latest(3) == 3
        assert store.calls - before == ({"list": 1} if is_listed else {"head": 1})


def test_the_end_of_what_a_store_holds_without_asking_for_it_as_such(layout, monkeypatch):
    path = layout.root / "x"
    path.write_bytes(b"0123456789")
    monkeypatch.setattr(layout.store, "kind", AZURE)
    assert [layout.store.last_bytes(path, count) for count in (3, 10, 20)] == [b"789", *[b"0123456789"] * 2]
    assert store_of(str(path)) is layout.store and BUCKET in layout.store.url
