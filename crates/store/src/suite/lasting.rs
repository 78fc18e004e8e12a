//! What was written is there after a restart.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use toolwright_core::{BlobId, FileChange, Seq, Timestamp};
use toolwright_runtime::{Append, Posted, Shelf, Snapshot, ThreadQuery};

use super::files::{entry, link};
use super::script::{Script, input, input_id};
use super::{Subject, Verdict, append, holds, refused, same, thread};

pub(super) async fn everything_is_there_after_a_restart(subject: Subject) -> Verdict {
    let id = thread("lasting")?;
    let (journal, threads, pending, before) = {
        let (store, data) = (&*subject.store, subject.store.data());
        let mut script = Script::opened(&id, 1)?;
        script.asked("Do it")?.calls(&["a", "b"])?.asks("a")?.asks("b")?.decided("a")?.executes("a")?.done("a", json!(1))?;
        append(store, &id, 0, script.take()).await?;
        for key in ["taken", "waiting"] {
            store.post(&id, key, input(key)).await?;
        }
        let through = store.inbox(&id, 0).await?.first().map_or(0, |(position, _)| *position);
        append(store, &id, script.made().len() as u64, Append { records: Vec::new(), inbox_through: through }).await?;
        store.post_at(&id, "timer", Timestamp(9), input("timer")).await?;
        for (shelf, key) in [(Shelf::Values, "k"), (Shelf::Environment, "HOME")] {
            data.set_value(&id, shelf, key, Some(shelf.as_str().into()), None).await?;
        }
        let content = Bytes::from_static(b"content");
        data.keep_blob(&id, content.clone(), None).await?;
        data.change_files(&id, vec![FileChange::Put(entry("/f", &content)), FileChange::Put(link("/l"))], None).await?;
        let claim = store.claim(&id).await?;
        store.save_snapshot(&*claim, Snapshot { at: Seq(1), text: "saved".into() }).await?;
        let threads = store.threads(&ThreadQuery::default()).await?;
        (script.made().to_vec(), threads, store.pending(None, None, 9).await?, claim.fence())
    };
    same("threads before", &threads.items.len(), &1)?;
    same("pending decisions before", &pending.items.len(), &1)?;

    let subject = subject.restarted().await?;
    let (store, data) = (&*subject.store, subject.store.data());
    same("the records", &store.read(&id, Seq(0), 99).await?, &journal)?;
    same("threads", &store.threads(&ThreadQuery::default()).await?, &threads)?;
    same("pending decisions", &store.pending(None, None, 9).await?, &pending)?;
    let inbox = store.inbox(&id, 0).await?;
    same("the inbox", &inbox.iter().map(|(_, item)| input_id(item)).collect(), &vec!["waiting".to_owned()])?;
    let found = store.snapshot(&id).await?;
    holds("the snapshot is the last one, or none", found.is_none_or(|found| &*found.text == "saved"))?;
    for (shelf, key) in [(Shelf::Values, "k"), (Shelf::Environment, "HOME")] {
        same("a value", &data.value(&id, shelf, key).await?.as_deref(), &Some(shelf.as_str()))?;
    }
    same("content", &data.blob(&id, &BlobId::of(b"content")).await?, &Some(Bytes::from_static(b"content")))?;
    same("files", &data.files(&id, "", None, 9).await?, &vec![entry("/f", b"content"), link("/l")])?;
    // Numbers go on from where they were.
    let answer = store.post(&id, "taken", input("late")).await?;
    same("a post under a key that was taken before", &answer, &Posted::Late(Box::new(input("taken"))))?;
    same("threads of timers", &store.post_due(Timestamp(9), 9).await?, &vec![id.clone()])?;
    let last = inbox.last().map_or(0, |(position, _)| *position);
    let new = store.inbox(&id, last).await?;
    same("what came after the last position", &new.iter().map(|(_, item)| input_id(item)).collect(), &vec!["timer".to_owned()])?;
    let claim = store.claim(&id).await?;
    holds("a fence after a restart is above those before", claim.fence() > before)?;
    store.delete(&*claim).await?;
    let fence = claim.fence();
    drop(claim);

    let subject = subject.restarted().await?;
    same("the records of a thread that was deleted", &subject.store.read(&id, Seq(0), 99).await?, &Vec::new())?;
    let claim = subject.store.claim(&id).await?;
    holds("the fence of a deleted thread is remembered over a restart", claim.fence() > fence)
}

pub(super) async fn what_was_refused_is_not_there_after_a_restart(subject: Subject) -> Verdict {
    let id = thread("refused")?;
    {
        let store = &*subject.store;
        let mut script = Script::opened(&id, 1)?;
        append(store, &id, 0, script.take()).await?;
        script.asked("More")?.calls(&["c"])?.asks("c")?;
        let claim = store.claim(&id).await?;
        refused("an append elsewhere", store.append(&*claim, Seq(7), script.take()).await)?;
        let entries = vec![FileChange::Put(link("/l")), FileChange::Put(entry("/f", b"not kept"))];
        refused("an entry without its content", store.data().change_files(&id, entries, None).await)?;
    }
    let subject = subject.restarted().await?;
    let store = &*subject.store;
    same("the records", &store.read(&id, Seq(0), 99).await?.len(), &1)?;
    same("pending decisions", &store.pending(None, None, 9).await?.items, &Vec::new())?;
    same("files", &store.data().files(&id, "", None, 9).await?, &Vec::new())
}

pub(super) async fn a_place_can_be_opened_many_times(subject: Subject) -> Verdict {
    let id = thread("reopened")?;
    let mut subject = subject;
    for round in 0..8_u64 {
        let key = format!("k{round}");
        subject.store.data().set_value(&id, Shelf::Values, &key, Some("1".into()), None).await?;
        let beside = subject.another().await?;
        let found = beside.data().values(&id, Shelf::Values, "", None, 99).await?;
        same("values", &found.len(), &(round as usize + 1))?;
        // A claim that another handle holds does not outlast it.
        let claim = beside.claim(&id).await?;
        drop(claim);
        drop(beside);
        subject = subject.restarted().await?;
        let claim = subject.store.claim(&id).await?;
        subject.store.renew(&*claim).await?;
    }
    let store = Arc::clone(&subject.store);
    same("values", &store.data().values(&id, Shelf::Values, "", None, 99).await?.len(), &8)
}
