//! What a thread keeps beside its journal: values, environment, content; copied and deleted.

use std::sync::Arc;

use bytes::Bytes;
use toolwright_core::{BlobId, FileChange, Seq, ThreadId, Timestamp};
use toolwright_runtime::{DataStore, Posted, Shelf, Store, StoreError, ThreadQuery};

use super::files::{entry, link};
use super::script::{Script, input};
use super::{Subject, Verdict, append, holds, refused, same, thread};

/// Keys in the order of their bytes.
const KEYS: [&str; 22] = [
    "", "\n", " ", "%", "%a", "'; drop", "/a/b", "10", "9", "A", "AB", "\\", "_", "_a", "a", "a\u{1}", "a b", "aa", "a\u{7f}", "ab", "é",
    "日本",
];

async fn set(data: &dyn DataStore, id: &ThreadId, shelf: Shelf, key: &str, value: Option<&str>) -> Result<(), StoreError> {
    data.set_value(id, shelf, key, value.map(Arc::from), None).await
}

async fn keys(data: &dyn DataStore, id: &ThreadId, shelf: Shelf, prefix: &str) -> Result<Vec<String>, StoreError> {
    Ok(data.values(id, shelf, prefix, None, usize::MAX).await?.into_iter().map(|(key, _)| key).collect())
}

pub(super) async fn values_are_set_replaced_and_removed(subject: Subject) -> Verdict {
    let (store, id, other) = (&*subject.store, thread("values")?, thread("other")?);
    let another = subject.another().await?;
    let data = store.data();
    let large = format!("[{}1]", "1234567,".repeat(131_072));
    let odd = "{\"z\":1,\"a\":[18446744073709551615,1.50,\"\\u0000 é 日本 🧰\"] }";
    same("a value that was never set", &data.value(&id, Shelf::Values, "k").await?, &None)?;
    for value in ["1", "", odd, &large, "null", "not even JSON"] {
        set(data, &id, Shelf::Values, "k", Some(value)).await?;
        for handle in [store, &*another] {
            let found = handle.data().value(&id, Shelf::Values, "k").await?;
            same("the value", &found.as_deref(), &Some(value))?;
            let listed = handle.data().values(&id, Shelf::Values, "", None, 9).await?;
            same("the values", &listed, &vec![("k".to_owned(), Arc::from(value))])?;
        }
    }
    same("the other shelf's value", &data.value(&id, Shelf::Environment, "k").await?, &None)?;
    same("another thread's value", &data.value(&other, Shelf::Values, "k").await?, &None)?;
    set(data, &id, Shelf::Environment, "k", Some("env")).await?;
    set(another.data(), &id, Shelf::Values, "k", None).await?;
    same("a value that was removed", &data.value(&id, Shelf::Values, "k").await?, &None)?;
    same("the values", &keys(data, &id, Shelf::Values, "").await?, &Vec::<String>::new())?;
    same("the other shelf's value", &data.value(&id, Shelf::Environment, "k").await?.as_deref(), &Some("env"))?;
    // There may be nothing to remove.
    set(data, &id, Shelf::Values, "k", None).await?;
    set(data, &other, Shelf::Environment, "nothing", None).await?;
    same("what the index says of a thread that has only values", &store.info(&id).await?, &None)?;
    same("threads", &store.threads(&ThreadQuery::default()).await?.items, &Vec::new())?;
    same("unfinished threads", &store.unfinished(None, 9).await?, &Vec::new())
}

pub(super) async fn keys_may_be_odd_and_are_listed_in_order(subject: Subject) -> Verdict {
    let (data, id) = (subject.store.data(), thread("keys")?);
    for key in KEYS.iter().rev() {
        set(data, &id, Shelf::Values, key, Some(key)).await?;
    }
    set(data, &id, Shelf::Environment, "a", Some("other")).await?;
    let mut expected = KEYS.map(str::to_owned).to_vec();
    expected.sort();
    same("all keys", &keys(data, &id, Shelf::Values, "").await?, &expected)?;
    for key in KEYS {
        same(&format!("the value of {key:?}"), &data.value(&id, Shelf::Values, key).await?.as_deref(), &Some(key))?;
        let begin: Vec<String> = expected.iter().filter(|known| known.starts_with(key)).cloned().collect();
        same(&format!("the keys that begin with {key:?}"), &keys(data, &id, Shelf::Values, key).await?, &begin)?;
    }
    for prefix in ["a%", "A_", "\u{10ffff}", "\\%", "aaa"] {
        same(&format!("the keys that begin with {prefix:?}"), &keys(data, &id, Shelf::Values, prefix).await?, &Vec::<String>::new())?;
    }
    // In parts, from where the last one ended.
    for (prefix, limit) in [("", 1), ("", 4), ("a", 1), ("a", 2), ("a", 99)] {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let some = data.values(&id, Shelf::Values, prefix, after.as_deref(), limit).await?;
            holds(&format!("at most {limit} come at once"), some.len() <= limit)?;
            let Some((last, _)) = some.last() else { break };
            after = Some(last.clone());
            found.extend(some.into_iter().map(|(key, _)| key));
            holds("the listing comes to an end", found.len() < 100)?;
        }
        let begin: Vec<String> = expected.iter().filter(|known| known.starts_with(prefix)).cloned().collect();
        same(&format!("the keys that begin with {prefix:?}, {limit} at a time"), &found, &begin)?;
    }
    let none = data.values(&id, Shelf::Values, "a", Some("zz"), 9).await?;
    same("keys after one that is after all of them", &none, &Vec::new())?;
    let all = data.values(&id, Shelf::Values, "a", Some("A"), 99).await?;
    same("keys after one that is before all of them", &all.len(), &6)?;
    same("none, where the limit is 0", &data.values(&id, Shelf::Values, "", None, 0).await?, &Vec::new())?;
    same("the other shelf", &keys(data, &id, Shelf::Environment, "").await?, &vec!["a".to_owned()])
}

pub(super) async fn a_value_with_nul_is_refused(subject: Subject) -> Verdict {
    let (data, id) = (subject.store.data(), thread("nul")?);
    for (key, value) in [("a\u{0}b", "1"), ("k", "\u{0}")] {
        let error = refused("a value with U+0000", set(data, &id, Shelf::Values, key, Some(value)).await)?;
        holds(&format!("it is refused as a failure: {error}"), matches!(error, StoreError::Failed { .. }))?;
    }
    same("the value of a key with U+0000", &data.value(&id, Shelf::Values, "a\u{0}b").await?, &None)?;
    same("the keys that begin with U+0000", &keys(data, &id, Shelf::Values, "\u{0}").await?, &Vec::<String>::new())?;
    same("all keys", &keys(data, &id, Shelf::Values, "").await?, &Vec::<String>::new())
}

pub(super) async fn content_is_kept_once_for_each_thread(subject: Subject) -> Verdict {
    let (store, a, b) = (&*subject.store, thread("a")?, thread("b")?);
    let another = subject.another().await?;
    let data = store.data();
    let every: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    for bytes in [Bytes::new(), Bytes::from_static(b"content"), Bytes::from_static(&[0, 255, 254, 0]), Bytes::from(every)] {
        let id = data.keep_blob(&a, bytes.clone(), None).await?;
        same("the address of content", &id, &BlobId::of(&bytes))?;
        same("the address of the same content", &data.keep_blob(&a, bytes.clone(), None).await?, &id)?;
        for handle in [store, &*another] {
            same("whether the content is the same", &(handle.data().blob(&a, &id).await?.as_ref() == Some(&bytes)), &true)?;
            same("content that another thread keeps", &handle.data().blob(&b, &id).await?.map(|found| found.len()), &None)?;
        }
    }
    let missing = BlobId::of(b"missing");
    same("content that nobody keeps", &data.blob(&a, &missing).await?, &None)?;
    same("content of a thread that keeps nothing", &data.blob(&thread("c")?, &missing).await?, &None)?;
    same("what the index says of a thread that has only content", &store.info(&a).await?, &None)
}

pub(super) async fn content_stays_while_some_thread_keeps_it(subject: Subject) -> Verdict {
    let (store, a, b, c) = (&*subject.store, thread("a")?, thread("b")?, thread("c")?);
    let another = subject.another().await?;
    let data = store.data();
    let bytes = Bytes::from_static(b"shared");
    let id = data.keep_blob(&a, bytes.clone(), None).await?;
    another.data().keep_blob(&b, bytes.clone(), None).await?;
    let claim = store.claim(&a).await?;
    store.delete(&*claim).await?;
    same("content of a thread that was deleted", &data.blob(&a, &id).await?, &None)?;
    same("content that another thread keeps still", &data.blob(&b, &id).await?, &Some(bytes.clone()))?;
    drop(claim);
    // Files that no longer refer to it change nothing in that.
    let file = entry("/f", &bytes);
    data.change_files(&b, vec![FileChange::Put(file)], None).await?;
    data.change_files(&b, vec![FileChange::Remove("/f".to_owned())], None).await?;
    same("content whose file was removed", &data.blob(&b, &id).await?, &Some(bytes.clone()))?;
    let claim = store.claim(&b).await?;
    store.delete(&*claim).await?;
    same("content that nobody keeps any more", &data.blob(&b, &id).await?, &None)?;
    // It can come again.
    data.keep_blob(&c, bytes.clone(), None).await?;
    same("content that came again", &another.data().blob(&c, &id).await?, &Some(bytes))
}

pub(super) async fn many_keep_the_same_content_at_once(subject: Subject) -> Verdict {
    let another = subject.another().await?;
    let mut tasks = tokio::task::JoinSet::new();
    let bytes = Bytes::from(vec![7; 100_000]);
    for task in 0..16 {
        let store = Arc::clone(if task % 2 == 0 { &subject.store } else { &another });
        let (id, bytes) = (thread(&format!("t{}", task % 4))?, bytes.clone());
        tasks.spawn(async move {
            let blob = store.data().keep_blob(&id, bytes, None).await?;
            let key = format!("k{task}");
            store.data().set_value(&id, Shelf::Values, &key, Some(blob.as_str().into()), None).await
        });
    }
    while let Some(ended) = super::within("the end of everybody who keeps content", tasks.join_next()).await? {
        ended.map_err(|error| super::Failure::new(error.to_string()))??;
    }
    for number in 0..4 {
        let id = thread(&format!("t{number}"))?;
        let found = subject.store.data().blob(&id, &BlobId::of(&bytes)).await?;
        same("whether the content is the same", &(found.as_ref() == Some(&bytes)), &true)?;
        same("values", &keys(subject.store.data(), &id, Shelf::Values, "k").await?.len(), &4)?;
    }
    Ok(())
}

/// Gives a thread one of everything that it can keep.
async fn furnish(data: &dyn DataStore, id: &ThreadId) -> Verdict {
    set(data, id, Shelf::Values, "k", Some("1")).await?;
    set(data, id, Shelf::Environment, "HOME", Some("\"/\"")).await?;
    let (filed, loose) = (Bytes::from_static(b"in a file"), Bytes::from_static(b"in no file"));
    data.keep_blob(id, filed.clone(), None).await?;
    data.keep_blob(id, loose, None).await?;
    data.change_files(id, vec![FileChange::Put(entry("/f", &filed)), FileChange::Put(link("/l"))], None).await?;
    Ok(())
}

/// Fails unless the thread has what [`furnish`] gave, or, if it is not `furnished`, nothing.
async fn has(what: &str, store: &dyn Store, id: &ThreadId, furnished: bool) -> Verdict {
    let data = store.data();
    let count = usize::from(furnished);
    same(&format!("values of {what}"), &keys(data, id, Shelf::Values, "").await?.len(), &count)?;
    same(&format!("environment of {what}"), &keys(data, id, Shelf::Environment, "").await?, &vec!["HOME".to_owned(); count])?;
    let files = data.files(id, "", None, 9).await?;
    let expected = if furnished { vec![entry("/f", b"in a file"), link("/l")] } else { Vec::new() };
    same(&format!("files of {what}"), &files, &expected)?;
    for content in [&b"in a file"[..], b"in no file"] {
        let expected = furnished.then(|| Bytes::copy_from_slice(content));
        same(&format!("content of {what}"), &data.blob(id, &BlobId::of(content)).await?, &expected)?;
    }
    Ok(())
}

pub(super) async fn a_copy_is_whole_and_goes_its_own_way(subject: Subject) -> Verdict {
    let (store, from, to) = (&*subject.store, thread("from")?, thread("to")?);
    let another = subject.another().await?;
    let data = store.data();
    let mut script = Script::opened(&from, 1)?;
    append(store, &from, 0, script.take()).await?;
    furnish(data, &from).await?;
    store.post(&from, "k", input("i")).await?;
    store.post_at(&from, "t", Timestamp(5), input("t")).await?;
    another.data().copy(&from, &to).await?;
    has("the copy", store, &to, true).await?;
    same("the copy's journal", &store.read(&to, Seq(0), 9).await?, &Vec::new())?;
    same("the copy's inbox", &store.inbox(&to, 0).await?, &Vec::new())?;
    same("what the index says of the copy", &store.info(&to).await?, &None)?;
    same("threads of timers", &store.post_due(Timestamp(9), 9).await?, &vec![from.clone()])?;
    // What changes in one does not change in the other.
    set(data, &from, Shelf::Values, "k", Some("2")).await?;
    data.change_files(&from, vec![FileChange::Remove("/f".to_owned())], None).await?;
    has("the copy, once the source changed", store, &to, true).await?;
    set(data, &to, Shelf::Environment, "HOME", Some("\"/home\"")).await?;
    same("the source's environment", &data.value(&from, Shelf::Environment, "HOME").await?.as_deref(), &Some("\"/\""))?;
    let claim = store.claim(&from).await?;
    store.delete(&*claim).await?;
    has("the source, once it was deleted", store, &from, false).await?;
    has("the copy, once the source was deleted", &*another, &to, true).await?;
    // Of nothing there is an empty copy.
    let empty = thread("empty")?;
    data.copy(&from, &empty).await?;
    has("the copy of a thread that keeps nothing", store, &empty, false).await
}

pub(super) async fn a_deleted_thread_leaves_nothing(subject: Subject) -> Verdict {
    let (store, id, other) = (&*subject.store, thread("deleted")?, thread("bystander")?);
    let another = subject.another().await?;
    for id in [&id, &other] {
        let mut script = Script::opened(id, 1)?;
        script.asked("Do it")?.calls(&["c"])?.asks("c")?;
        append(store, id, 0, script.take()).await?;
        furnish(store.data(), id).await?;
        store.post(id, "k", input("i")).await?;
        store.post_at(id, "t", Timestamp(5), input("t")).await?;
    }
    let claim = store.claim(&id).await?;
    let fence = claim.fence();
    store.save_snapshot(&*claim, toolwright_runtime::Snapshot { at: Seq(1), text: "saved".into() }).await?;
    store.delete(&*claim).await?;
    drop(claim);
    for handle in [store, &*another] {
        has("a thread that was deleted", handle, &id, false).await?;
        has("a thread beside it", handle, &other, true).await?;
        same("records", &handle.read(&id, Seq(0), 9).await?, &Vec::new())?;
        same("the inbox", &handle.inbox(&id, 0).await?, &Vec::new())?;
        same("the snapshot", &handle.snapshot(&id).await?, &None)?;
        same("what the index says", &handle.info(&id).await?, &None)?;
        same("pending decisions", &handle.pending(Some(&id), None, 9).await?.items, &Vec::new())?;
        same("unfinished threads", &handle.unfinished(None, 9).await?, &vec![other.clone()])?;
        same("threads", &handle.threads(&ThreadQuery::default()).await?.items.len(), &1)?;
    }
    same("threads of timers", &store.post_due(Timestamp(9), 9).await?, &vec![other.clone()])?;
    // A thread of this id begins anew, but for its fencing number.
    let claim = store.claim(&id).await?;
    holds("the fence of the new thread is above the old one's", claim.fence() > fence)?;
    let mut script = Script::opened(&id, 100)?;
    store.append(&*claim, Seq(0), script.take()).await?;
    same("when the new thread came to be", &store.info(&id).await?.map(|info| info.created_at), &Some(Timestamp(100)))?;
    same("the first of a key", &store.post(&id, "k", input("new")).await?, &Posted::First)
}
