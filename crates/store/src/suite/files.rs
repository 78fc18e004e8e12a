//! A thread's files: entries under paths, and the content they refer to.

use bytes::Bytes;
use serde_json::{Map, json};
use toolwright_core::{BlobId, FileChange, FileEntry, ThreadId, Timestamp};
use toolwright_runtime::{DataStore, StoreError};

use super::{Failure, Subject, Verdict, holds, refused, same, thread};

/// A file with content.
pub(super) fn entry(path: &str, content: &[u8]) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        mime_type: "text/plain".to_owned(),
        size: content.len() as u64,
        blob: Some(BlobId::of(content)),
        location: None,
        is_directory: false,
        metadata: Map::new(),
        created_at: Timestamp(1),
        modified_at: Timestamp(2),
    }
}

/// A link to somewhere else.
pub(super) fn link(path: &str) -> FileEntry {
    FileEntry { location: Some("https://example.com/a?b=c".to_owned()), blob: None, size: 12, ..entry(path, b"") }
}

fn directory(path: &str) -> FileEntry {
    FileEntry { mime_type: String::new(), blob: None, size: 0, is_directory: true, ..entry(path, b"") }
}

async fn put(data: &dyn DataStore, id: &ThreadId, entries: Vec<FileEntry>) -> Result<(), StoreError> {
    data.change_files(id, entries.into_iter().map(FileChange::Put).collect(), None).await
}

async fn paths(data: &dyn DataStore, id: &ThreadId, prefix: &str) -> Result<Vec<String>, StoreError> {
    Ok(data.files(id, prefix, None, usize::MAX).await?.into_iter().map(|entry| entry.path).collect())
}

fn json(entry: Option<&FileEntry>) -> Result<String, Failure> {
    serde_json::to_string(&entry).map_err(|error| Failure::new(error.to_string()))
}

pub(super) async fn entries_come_back_as_they_were(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("entries")?);
    let another = subject.another().await?;
    let content = Bytes::from_static(b"content");
    store.data().keep_blob(&id, content.clone(), None).await?;
    let mut full = entry("/full", &content);
    "text/plain; charset=\"utf-8\"".clone_into(&mut full.mime_type);
    full.created_at = Timestamp(i64::MIN);
    full.modified_at = Timestamp(i64::MAX);
    for key in ["z", "a", "é", "", "10", "9", "\u{0}"] {
        full.metadata.insert(key.to_owned(), json!({ "b": [u64::MAX, 0.1 + 0.2, -1], "a": "\u{0}\"\\é 日本" }));
    }
    let large = FileEntry { size: 1 << 53, ..link("/link") };
    for entry in [full, directory("/directory"), directory("/"), large, entry("/plain", &content)] {
        put(store.data(), &id, vec![entry.clone()]).await?;
        for handle in [store, &*another] {
            let found = handle.data().file(&id, &entry.path).await?;
            same("the entry", &json(found.as_ref())?, &json(Some(&entry))?)?;
            let listed = handle.data().files(&id, "", None, 99).await?;
            let listed = listed.iter().find(|listed| listed.path == entry.path);
            same("the entry as it is listed", &json(listed)?, &json(Some(&entry))?)?;
        }
    }
    same("an entry that is not there", &store.data().file(&id, "/missing").await?, &None)?;
    same("an entry whose path differs in case", &store.data().file(&id, "/Plain").await?, &None)?;
    same("another thread's entry", &store.data().file(&thread("other")?, "/plain").await?, &None)
}

pub(super) async fn entries_are_put_replaced_and_removed(subject: Subject) -> Verdict {
    let (data, id) = (subject.store.data(), thread("changes")?);
    let content = Bytes::from_static(b"content");
    data.keep_blob(&id, content.clone(), None).await?;
    put(data, &id, vec![entry("/a", &content), link("/b")]).await?;
    let replaced = FileEntry { modified_at: Timestamp(9), ..link("/a") };
    put(data, &id, vec![replaced.clone()]).await?;
    same("an entry that was replaced", &data.file(&id, "/a").await?, &Some(replaced))?;
    let remove = |path: &str| FileChange::Remove(path.to_owned());
    data.change_files(&id, vec![remove("/b"), remove("/missing")], None).await?;
    same("paths", &paths(data, &id, "").await?, &vec!["/a".to_owned()])?;
    // One after the other: the last word on a path counts.
    let first = FileEntry { modified_at: Timestamp(10), ..directory("/twice") };
    let second = FileEntry { modified_at: Timestamp(11), ..directory("/twice") };
    let changes = vec![
        FileChange::Put(first),
        FileChange::Put(second.clone()),
        FileChange::Put(link("/gone")),
        remove("/gone"),
        remove("/a"),
        FileChange::Put(directory("/a")),
    ];
    data.change_files(&id, changes, None).await?;
    same("paths", &paths(data, &id, "").await?, &vec!["/a".to_owned(), "/twice".to_owned()])?;
    same("an entry that was put twice", &data.file(&id, "/twice").await?, &Some(second))?;
    same("an entry that was removed and put", &data.file(&id, "/a").await?, &Some(directory("/a")))?;
    // Removing a directory's entry is no more than that.
    put(data, &id, vec![directory("/d"), link("/d/e")]).await?;
    data.change_files(&id, vec![remove("/d")], None).await?;
    same("what stood under a path that was removed", &paths(data, &id, "/d").await?, &vec!["/d/e".to_owned()])?;
    data.change_files(&id, Vec::new(), None).await?;
    same("paths, after a change of nothing", &paths(data, &id, "").await?.len(), &3)
}

pub(super) async fn an_entry_without_its_content_is_refused_with_all_beside_it(subject: Subject) -> Verdict {
    let (data, id, other) = (subject.store.data(), thread("refused")?, thread("other")?);
    let (kept, foreign) = (Bytes::from_static(b"kept"), Bytes::from_static(b"foreign"));
    data.keep_blob(&id, kept.clone(), None).await?;
    data.keep_blob(&other, foreign.clone(), None).await?;
    put(data, &id, vec![entry("/old", &kept)]).await?;
    for (what, wrong) in [
        ("content that nobody keeps", entry("/wrong", b"nobody's")),
        ("content that another thread keeps", entry("/wrong", &foreign)),
        ("a path with U+0000", directory("/a\u{0}b")),
    ] {
        for first in [true, false] {
            let mut changes = vec![FileChange::Put(entry("/new", &kept)), FileChange::Remove("/old".to_owned())];
            changes.insert(if first { 0 } else { 2 }, FileChange::Put(wrong.clone()));
            let error = refused(&format!("an entry with {what}"), data.change_files(&id, changes, None).await)?;
            holds(&format!("an entry with {what} is refused as a failure: {error}"), matches!(error, StoreError::Failed { .. }))?;
            same("paths, after a change that was refused", &paths(data, &id, "").await?, &vec!["/old".to_owned()])?;
        }
    }
    same("an entry of a path with U+0000", &data.file(&id, "/a\u{0}b").await?, &None)?;
    same("paths that begin with U+0000", &paths(data, &id, "\u{0}").await?, &Vec::<String>::new())?;
    // Removing what can't be there does nothing.
    data.change_files(&id, vec![FileChange::Remove("/a\u{0}b".to_owned())], None).await?;
    same("paths", &paths(data, &id, "").await?, &vec!["/old".to_owned()])?;
    // Content that comes first makes the difference.
    data.keep_blob(&id, foreign.clone(), None).await?;
    put(data, &id, vec![entry("/foreign", &foreign)]).await?;
    same("paths", &paths(data, &id, "").await?, &vec!["/foreign".to_owned(), "/old".to_owned()])
}

pub(super) async fn paths_are_listed_in_the_order_of_their_bytes(subject: Subject) -> Verdict {
    let (data, id) = (subject.store.data(), thread("order")?);
    let mut expected: Vec<String> = [
        "/",
        "/a",
        "/A",
        "/a/b",
        "/a.b",
        "/a-b",
        "/a_b",
        "/a%b",
        "/ab",
        "/a b",
        "/a\\b",
        "/a'b",
        "/b",
        "/é",
        "/e\u{301}",
        "/z",
        "/日本",
        "/\u{ff5e}",
        "/🧰",
        "/a/b/c",
        "/a/B",
        "/aa/b",
        "/%",
        "/_",
        "/notes/today.md",
        "/Notes/today.md",
    ]
    .map(str::to_owned)
    .to_vec();
    put(data, &id, expected.iter().rev().map(|path| directory(path)).collect()).await?;
    put(data, &thread("other")?, vec![directory("/a/other")]).await?;
    expected.sort();
    same("all paths", &paths(data, &id, "").await?, &expected)?;
    for prefix in ["/", "/a", "/a/", "/A", "/a_", "/a%", "/a\\", "/é", "/e", "/notes/", "/_", "/%", "/🧰", "/a/b/c/d", "a", "\u{10ffff}"]
    {
        let begin: Vec<String> = expected.iter().filter(|path| path.starts_with(prefix)).cloned().collect();
        same(&format!("the paths that begin with {prefix:?}"), &paths(data, &id, prefix).await?, &begin)?;
        for limit in [1, 3] {
            let (mut found, mut after) = (Vec::new(), None::<String>);
            loop {
                let some = data.files(&id, prefix, after.as_deref(), limit).await?;
                holds(&format!("at most {limit} come at once"), some.len() <= limit)?;
                let Some(last) = some.last() else { break };
                after = Some(last.path.clone());
                found.extend(some.into_iter().map(|entry| entry.path));
                holds("the listing comes to an end", found.len() < 100)?;
            }
            same(&format!("the paths that begin with {prefix:?}, {limit} at a time"), &found, &begin)?;
        }
    }
    same("none, where the limit is 0", &data.files(&id, "", None, 0).await?, &Vec::new())
}
