//! Timers and snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolwright_core::{Seq, Timestamp};
use toolwright_runtime::{Posted, Snapshot, Store, StoreError};

use super::script::{input, input_id};
use super::{Failure, Subject, Verdict, append, holds, same, thread, within};

/// The ids of threads that timers posted to.
async fn due(store: &dyn Store, now: i64, limit: usize) -> Result<Vec<String>, StoreError> {
    Ok(store.post_due(Timestamp(now), limit).await?.iter().map(ToString::to_string).collect())
}

pub(super) async fn what_is_due_is_posted_earliest_first(subject: Subject) -> Verdict {
    let store = &*subject.store;
    let moments = [("c", 30), ("a", 10), ("b", 20), ("d", 40), ("past", -5), ("beginning", i64::MIN), ("end", i64::MAX), ("a", 25)];
    for (id, at) in moments {
        store.post_at(&thread(id)?, &format!("timer {at}"), Timestamp(at), input(&format!("{id} at {at}"))).await?;
    }
    same("nothing is posted before its moment", &store.inbox(&thread("a")?, 0).await?, &Vec::new())?;
    same("what is due before all but one", &due(store, -6, 9).await?, &vec!["beginning".to_owned()])?;
    same("what is due at a moment", &due(store, 10, 9).await?, &vec!["past".to_owned(), "a".to_owned()])?;
    same("what is due of what was posted", &due(store, 10, 9).await?, &Vec::<String>::new())?;
    same("nothing, where the limit is 0", &due(store, 100, 0).await?, &Vec::<String>::new())?;
    same("the earliest two", &due(store, 100, 2).await?, &vec!["b".to_owned(), "a".to_owned()])?;
    same("what is left", &due(store, 100, usize::MAX).await?, &vec!["c".to_owned(), "d".to_owned()])?;
    same("what is due short of the end", &due(store, i64::MAX - 1, 9).await?, &Vec::<String>::new())?;
    same("what is due at the end", &due(store, i64::MAX, 9).await?, &vec!["end".to_owned()])?;
    let posted: Vec<String> = store.inbox(&thread("a")?, 0).await?.iter().map(|(_, item)| input_id(item)).collect();
    same("the inbox", &posted, &vec!["a at 10".to_owned(), "a at 25".to_owned()])
}

pub(super) async fn timers_of_one_moment_go_by_thread_and_key(subject: Subject) -> Verdict {
    let store = &*subject.store;
    for id in ["b", "A", "a-", "a_", "a"] {
        for key in ["2", "1"] {
            store.post_at(&thread(id)?, key, Timestamp(5), input(&format!("{id}{key}"))).await?;
        }
    }
    let expected = ["A", "A", "a", "a", "a-", "a-", "a_", "a_", "b", "b"].map(str::to_owned).to_vec();
    let mut found = due(store, 5, 3).await?;
    found.extend(due(store, 5, 9).await?);
    same("threads of timers", &found, &expected)?;
    let posted: Vec<String> = store.inbox(&thread("a_")?, 0).await?.iter().map(|(_, item)| input_id(item)).collect();
    same("the inbox", &posted, &vec!["a_1".to_owned(), "a_2".to_owned()])
}

pub(super) async fn a_timer_is_replaced_and_cancelled_by_its_key(subject: Subject) -> Verdict {
    let (store, id, other) = (&*subject.store, thread("replaced")?, thread("other")?);
    let another = subject.another().await?;
    store.post_at(&id, "k", Timestamp(10), input("first")).await?;
    store.post_at(&other, "k", Timestamp(10), input("other")).await?;
    another.post_at(&id, "k", Timestamp(20), input("second")).await?;
    same("what is due of the first two", &due(store, 10, 9).await?, &vec!["other".to_owned()])?;
    same("what is due of the one that replaced the first", &due(store, 20, 9).await?, &vec!["replaced".to_owned()])?;
    let posted: Vec<String> = store.inbox(&id, 0).await?.iter().map(|(_, item)| input_id(item)).collect();
    same("the inbox", &posted, &vec!["second".to_owned()])?;
    // One that was posted is not there any more; one that was not is.
    same("whether a timer that was posted is there", &store.cancel_timer(&id, "k").await?, &false)?;
    store.post_at(&id, "later", Timestamp(30), input("later")).await?;
    same("whether a timer of another key is there", &store.cancel_timer(&id, "Later").await?, &false)?;
    same("whether a timer of another thread is there", &store.cancel_timer(&other, "later").await?, &false)?;
    same("whether the timer is there", &another.cancel_timer(&id, "later").await?, &true)?;
    same("whether it is there once more", &store.cancel_timer(&id, "later").await?, &false)?;
    same("what is due of what was taken back", &due(store, 99, 9).await?, &Vec::<String>::new())
}

pub(super) async fn a_timer_whose_key_was_posted_posts_nothing(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("late")?);
    store.post_at(&id, "k", Timestamp(10), input("timer")).await?;
    same("the first of the key", &store.post(&id, "k", input("person")).await?, &Posted::First)?;
    same("the thread of the timer", &due(store, 10, 9).await?, &vec!["late".to_owned()])?;
    same("what is due afterwards", &due(store, 99, 9).await?, &Vec::<String>::new())?;
    let posted: Vec<String> = store.inbox(&id, 0).await?.iter().map(|(_, item)| input_id(item)).collect();
    same("the inbox", &posted, &vec!["person".to_owned()])?;
    // The other way round, the timer was first.
    store.post_at(&id, "l", Timestamp(20), input("timer")).await?;
    due(store, 20, 9).await?;
    let answer = store.post(&id, "l", input("person")).await?;
    same("a post after the timer's", &answer, &Posted::Late(Box::new(input("timer"))))
}

pub(super) async fn each_timer_is_posted_once_whoever_calls(subject: Subject) -> Verdict {
    const TIMERS: usize = 60;
    let another = subject.another().await?;
    for number in 0..TIMERS {
        let id = thread(&format!("t{}", number % 7))?;
        subject.store.post_at(&id, &format!("k{number}"), Timestamp(number as i64), input(&number.to_string())).await?;
    }
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..8 {
        let store = Arc::clone(if caller % 2 == 0 { &subject.store } else { &another });
        callers.spawn(async move {
            let mut threads = Vec::new();
            loop {
                let some = store.post_due(Timestamp(TIMERS as i64), 3).await?;
                if some.is_empty() {
                    return Ok::<_, StoreError>(threads);
                }
                threads.extend(some);
            }
        });
    }
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    while let Some(ended) = within("the end of every caller", callers.join_next()).await? {
        for id in ended.map_err(|error| Failure::new(error.to_string()))?? {
            *counted.entry(id.to_string()).or_default() += 1;
        }
    }
    same("timers posted", &counted.values().sum::<usize>(), &TIMERS)?;
    for (id, count) in counted {
        let mut posted: Vec<String> = subject.store.inbox(&thread(&id)?, 0).await?.iter().map(|(_, item)| input_id(item)).collect();
        same(&format!("the inbox of {id}"), &posted.len(), &count)?;
        posted.sort();
        posted.dedup();
        same(&format!("different items in the inbox of {id}"), &posted.len(), &count)?;
    }
    Ok(())
}

pub(super) async fn a_timer_wakes_whoever_waits_for_posts(subject: Subject) -> Verdict {
    let id = thread("woken")?;
    let another = subject.another().await?;
    subject.store.post_at(&id, "k", Timestamp(1), input("timer")).await?;
    let waits = tokio::spawn({
        let (store, id) = (Arc::clone(&another), id.clone());
        async move {
            while store.inbox(&id, 0).await?.is_empty() {
                store.posted(&id, 0).await;
            }
            Ok::<_, StoreError>(())
        }
    });
    subject.store.post_due(Timestamp(1), 1).await?;
    Ok(within("the end of a wait for a timer's post", waits).await?.map_err(|error| Failure::new(error.to_string()))??)
}

pub(super) async fn a_snapshot_is_kept_and_replaced(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("saved")?);
    let another = subject.another().await?;
    let mut script = super::script::Script::opened(&id, 1)?;
    append(store, &id, 0, script.take()).await?;
    let claim = store.claim(&id).await?;
    same("the snapshot", &store.snapshot(&id).await?, &None)?;
    let large = (0..100_000).map(|number| format!("{number} \"\\é")).collect::<Vec<_>>().join(" ");
    for (at, text) in [(1, "{}"), (1, "other"), (u64::MAX, "far"), (2, &large), (0, "")] {
        let snapshot = Snapshot { at: Seq(at), text: text.into() };
        store.save_snapshot(&*claim, snapshot.clone()).await?;
        for handle in [store, &*another] {
            // It is a cache: a store may lose it, but not give another.
            let found = handle.snapshot(&id).await?;
            holds(&format!("the snapshot is the last one, at {at}, or none"), found.is_none_or(|found| found == snapshot))?;
        }
    }
    same("another thread's snapshot", &store.snapshot(&thread("other")?).await?, &None)?;
    // Nor does an append change it.
    let last = Snapshot { at: Seq(1), text: "last".into() };
    store.save_snapshot(&*claim, last.clone()).await?;
    script.asked("more")?;
    store.append(&*claim, Seq(1), script.take()).await?;
    same("the snapshot", &store.snapshot(&id).await?, &Some(last))?;
    store.delete(&*claim).await?;
    same("the snapshot of a thread that was deleted", &store.snapshot(&id).await?, &None)
}
