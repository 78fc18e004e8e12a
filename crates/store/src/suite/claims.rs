//! Claims: one owner at a time, and numbers by which an earlier one is known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use toolwright_core::{BlobId, FileChange, Seq, ThreadId, Timestamp};
use toolwright_runtime::{Append, Claim, FileEntry, Shelf, Snapshot, Store, StoreError};

use super::script::{Script, input};
use super::{DEADLINE, Failure, Lost, Subject, Verdict, append, fenced, holds, refused, same, thread, within};

/// How long one looks away between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// A claim, as soon as nobody else has it.
async fn claimed(store: &dyn Store, id: &ThreadId) -> Result<Box<dyn Claim>, StoreError> {
    loop {
        match store.claim(id).await {
            Err(StoreError::Busy { .. }) => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

pub(super) async fn a_claim_is_exclusive(subject: Subject) -> Verdict {
    let id = thread("one")?;
    let another = subject.another().await?;
    let claim = subject.store.claim(&id).await?;
    same("the claim's thread", claim.thread(), &id)?;
    for store in [&subject.store, &another] {
        let found = refused("a second claim", store.claim(&id).await)?;
        same("a second claim", &found, &StoreError::Busy { thread: id.clone() })?;
    }
    subject.store.renew(&*claim).await?;
    // Others are free meanwhile.
    let other = thread("other")?;
    let elsewhere = another.claim(&other).await?;
    subject.store.renew(&*claim).await?;
    another.renew(&*elsewhere).await?;
    Ok(())
}

pub(super) async fn a_dropped_claim_is_free_at_once(subject: Subject) -> Verdict {
    let id = thread("free")?;
    let another = subject.another().await?;
    for _ in 0..20 {
        drop(subject.store.claim(&id).await?);
    }
    drop(subject.store.claim(&id).await?);
    let claim = within("a claim from elsewhere on a thread that was given free", claimed(&*another, &id)).await??;
    drop(claim);
    within("a claim on a thread that was given free elsewhere", claimed(&*subject.store, &id)).await??;
    Ok(())
}

pub(super) async fn fences_ascend(subject: Subject) -> Verdict {
    let id = thread("fences")?;
    let another = subject.another().await?;
    let mut last = 0;
    for round in 0..12 {
        let store = if round % 2 == 0 { &subject.store } else { &another };
        let claim = within("a claim on a free thread", claimed(&**store, &id)).await??;
        holds(&format!("the fence {} of a later claim is above {last}", claim.fence()), claim.fence() > last)?;
        last = claim.fence();
        if round % 4 == 3 {
            store.delete(&*claim).await?;
        }
    }
    Ok(())
}

/// An entry that needs no content.
fn folder(path: &str) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        mime_type: String::new(),
        size: 0,
        blob: None,
        location: None,
        is_directory: true,
        metadata: serde_json::Map::new(),
        created_at: Timestamp(1),
        modified_at: Timestamp(1),
    }
}

pub(super) async fn an_old_claim_can_do_nothing(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("old")?);
    let another = subject.another().await?;
    let mut script = Script::opened(&id, 1)?;
    append(store, &id, 0, script.take()).await?;
    let old = Lost::of(&*store.claim(&id).await?);
    let claim = store.claim(&id).await?;
    let value = Arc::<str>::from("1");
    store.data().set_value(&id, Shelf::Values, "kept", Some(Arc::clone(&value)), Some(claim.fence())).await?;
    store.data().change_files(&id, vec![FileChange::Put(folder("/kept"))], Some(claim.fence())).await?;
    let snapshot = Snapshot { at: Seq(1), text: "kept".into() };
    store.save_snapshot(&*claim, snapshot.clone()).await?;
    script.asked("lost")?;
    let lost = script.take();
    let invented = Lost { thread: id.clone(), fence: claim.fence().saturating_add(1) };
    for handle in [store, &*another] {
        for old in [&old, &invented] {
            let fence = Some(old.fence);
            fenced("a renewal", &id, handle.renew(old).await)?;
            fenced("an append", &id, handle.append(old, Seq(1), lost.clone()).await)?;
            fenced("an empty append", &id, handle.append(old, Seq(1), Append::default()).await)?;
            fenced("a snapshot", &id, handle.save_snapshot(old, Snapshot { at: Seq(1), text: "lost".into() }).await)?;
            fenced("a deletion", &id, handle.delete(old).await)?;
            let data = handle.data();
            for shelf in [Shelf::Values, Shelf::Environment] {
                fenced("a new value", &id, data.set_value(&id, shelf, "lost", Some(Arc::clone(&value)), fence).await)?;
                fenced("a removed value", &id, data.set_value(&id, shelf, "kept", None, fence).await)?;
            }
            fenced("content", &id, data.keep_blob(&id, Bytes::from_static(b"lost"), fence).await)?;
            fenced("a new file", &id, data.change_files(&id, vec![FileChange::Put(folder("/lost"))], fence).await)?;
            fenced("a removed file", &id, data.change_files(&id, vec![FileChange::Remove("/kept".to_owned())], fence).await)?;
        }
    }
    same("the records", &store.read(&id, Seq(0), 9).await?.len(), &1)?;
    same("the snapshot", &store.snapshot(&id).await?, &Some(snapshot))?;
    same("values", &store.data().values(&id, Shelf::Values, "", None, 9).await?, &vec![("kept".to_owned(), value)])?;
    same("environment", &store.data().values(&id, Shelf::Environment, "", None, 9).await?, &Vec::new())?;
    same("files", &store.data().files(&id, "", None, 9).await?, &vec![folder("/kept")])?;
    same("content", &store.data().blob(&id, &BlobId::of(b"lost")).await?, &None)?;
    // The claim that is not lost still moves the thread.
    store.renew(&*claim).await?;
    Ok(store.append(&*claim, Seq(1), lost).await?)
}

pub(super) async fn a_number_that_nobody_was_given_counts_as_lost(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("unclaimed")?);
    for fence in [0, 1, u64::MAX] {
        let answer = store.data().set_value(&id, Shelf::Values, "k", Some("1".into()), Some(fence)).await;
        fenced(&format!("a value under the fence {fence} of a thread that was never claimed"), &id, answer)?;
        let invented = Lost { thread: id.clone(), fence };
        fenced("an append to a thread that was never claimed", &id, store.append(&invented, Seq(0), Append::default()).await)?;
    }
    same("values", &store.data().values(&id, Shelf::Values, "", None, 9).await?, &Vec::new())
}

pub(super) async fn a_claim_alone_makes_no_thread(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("unborn")?);
    let claim = store.claim(&id).await?;
    store.renew(&*claim).await?;
    store.append(&*claim, Seq(0), Append::default()).await?;
    for _ in 0..2 {
        same("what the index says", &store.info(&id).await?, &None)?;
        same("threads", &store.threads(&toolwright_runtime::ThreadQuery::default()).await?.items, &Vec::new())?;
        same("unfinished threads", &store.unfinished(None, 9).await?, &Vec::new())?;
        store.delete(&*claim).await?;
    }
    Ok(())
}

pub(super) async fn one_of_many_holds_a_claim(subject: Subject) -> Verdict {
    const TASKS: usize = 50;
    let id = thread("contested")?;
    let another = subject.another().await?;
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        let store = Arc::clone(if number % 2 == 0 { &subject.store } else { &another });
        let (id, inside) = (id.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            let claim = claimed(&*store, &id).await?;
            let before = inside.fetch_add(1, Ordering::SeqCst);
            // Whoever was let in beside this one has time to show it.
            tokio::task::yield_now().await;
            store.renew(&*claim).await?;
            let fence = claim.fence();
            inside.fetch_sub(1, Ordering::SeqCst);
            drop(claim);
            Ok::<_, StoreError>((before, fence))
        });
    }
    let mut fences = BTreeSet::new();
    while let Some(ended) = within("a claim for each of the tasks that want one", tasks.join_next()).await? {
        let (before, fence) = ended.map_err(|error| Failure::new(error.to_string()))??;
        same("other owners inside", &before, &0)?;
        holds(&format!("the fence {fence} is given once"), fences.insert(fence))?;
    }
    same("claims", &fences.len(), &TASKS)
}

pub(super) async fn two_writers_of_one_journal_write_each_record_once(subject: Subject) -> Verdict {
    const EACH: usize = 20;
    let id = thread("shared")?;
    let another = subject.another().await?;
    let mut script = Script::opened(&id, 1)?;
    append(&*subject.store, &id, 0, script.take()).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for (writer, store) in [&subject.store, &another, &subject.store, &another].into_iter().enumerate() {
        let (store, id) = (Arc::clone(store), id.clone());
        tasks.spawn(async move {
            for turn in 0..EACH {
                let claim = claimed(&*store, &id).await?;
                let head = store.info(&id).await?.map_or(Seq(0), |info| info.head);
                let message = toolwright_core::Message::human(format!("{writer}:{turn}"));
                let body = toolwright_core::RecordBody::MessageAdded { message: Arc::new(message) };
                store.append(&*claim, head, Append::records(vec![super::script::loose(head.0 + 1, body)])).await?;
            }
            Ok::<_, StoreError>(())
        });
    }
    while let Some(ended) = within("the turn of each writer", tasks.join_next()).await? {
        ended.map_err(|error| Failure::new(error.to_string()))??;
    }
    let records = subject.store.read(&id, Seq(0), usize::MAX).await?;
    let positions: Vec<u64> = records.iter().map(|record| record.seq.0).collect();
    same("positions", &positions, &(1..=(4 * EACH as u64 + 1)).collect())?;
    let texts: BTreeSet<String> = records
        .iter()
        .filter_map(|record| match &record.body {
            toolwright_core::RecordBody::MessageAdded { message } => Some(message.text_of()),
            _ => None,
        })
        .collect();
    same("different messages", &texts.len(), &(4 * EACH))
}

/// The limit for the cases that wait for an owner's silence.
const LIMIT: Duration = Duration::from_millis(400);

pub(super) async fn a_silent_owner_is_replaced(subject: Subject) -> Verdict {
    let Some(opened) = subject.fixture.open_with_limit(LIMIT) else { return Ok(()) };
    let store = opened.await.map_err(Failure::new)?;
    same("the limit", &store.claim_limit(), &LIMIT)?;
    let id = thread("silent")?;
    let mut script = Script::opened(&id, 1)?;
    let old = store.claim(&id).await?;
    store.append(&*old, Seq(0), script.take()).await?;
    let new = within("a claim in the place of a silent owner", claimed(&*store, &id)).await??;
    holds("the new owner's fence is above the old one's", new.fence() > old.fence())?;
    fenced("a renewal by the silent owner", &id, store.renew(&*old).await)?;
    script.asked("late")?;
    fenced("an append by the silent owner", &id, store.append(&*old, Seq(1), script.take()).await)?;
    store.post(&id, "k", input("i")).await?;
    // That the silent owner goes does not give free what is another's.
    drop(old);
    store.renew(&*new).await?;
    let found = refused("a claim beside the new owner", store.claim(&id).await)?;
    same("a claim beside the new owner", &found, &StoreError::Busy { thread: id })
}

pub(super) async fn an_owner_that_gives_signs_of_life_stays(subject: Subject) -> Verdict {
    let Some(opened) = subject.fixture.open_with_limit(LIMIT) else { return Ok(()) };
    let store = opened.await.map_err(Failure::new)?;
    let id = thread("lively")?;
    let claim = store.claim(&id).await?;
    let mut script = Script::opened(&id, 1)?;
    store.append(&*claim, Seq(0), script.take()).await?;
    let began = Instant::now();
    let mut last = Instant::now();
    let mut signs = 0;
    // Half of them renewals, half appends, for three times the limit.
    while signs < 20 || began.elapsed() < 3 * LIMIT {
        let answer = if signs % 2 == 0 { store.renew(&*claim).await } else { store.append(&*claim, Seq(1), Append::default()).await };
        if last.elapsed() > LIMIT / 2 {
            // The machine is too slow to give signs of life in time; nothing can be said.
            return Ok(());
        }
        answer?;
        last = Instant::now();
        signs += 1;
        if let Ok(taken) = store.claim(&id).await {
            return Err(Failure::new(format!("expected that an owner stays who gives signs of life, found the claim {}", taken.fence())));
        }
        tokio::time::sleep(LIMIT / 8).await;
    }
    holds("the case took less than its deadline", began.elapsed() < DEADLINE)
}
