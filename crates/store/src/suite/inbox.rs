//! The inbox: what others post for a thread's owner, each key once.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolwright_core::{AbortReason, ApprovalId, CallId, FinishReason, InputId, InputMode, Message, RunId, Seq, ThreadId};
use toolwright_runtime::{Append, InboxItem, Posted, Store, StoreError};

use super::script::{Script, input, input_id};
use super::{Failure, Subject, Verdict, append, holds, refused, same, thread, within};

/// The ids of what waits.
async fn waiting(store: &dyn Store, id: &ThreadId) -> Result<Vec<String>, StoreError> {
    Ok(store.inbox(id, 0).await?.iter().map(|(_, item)| input_id(item)).collect())
}

fn words(of: &[&str]) -> Vec<String> {
    of.iter().map(|word| (*word).to_owned()).collect()
}

pub(super) async fn items_come_back_as_they_were(subject: Subject) -> Verdict {
    let id = thread("items")?;
    let another = subject.another().await?;
    let odd = "\u{0}\"\\é 日本 🧰\n";
    let mut message = Message::human(odd);
    message.metadata.insert("z".to_owned(), serde_json::json!({ "b": 1, "a": [u64::MAX, 0.1 + 0.2] }));
    let (approval, call) = (ApprovalId::new(odd), CallId::new(odd));
    let decide = |decision| InboxItem::Decision { approval: approval.clone(), call: call.clone(), sha256: odd.into(), decision };
    let handed = |to: &[&str], by: Option<&str>| InboxItem::Delegate {
        approval: approval.clone(),
        call: call.clone(),
        to: to.iter().map(|name| (*name).to_owned()).collect(),
        by: by.map(str::to_owned),
        note: by.map(str::to_owned),
    };
    let mut items: Vec<InboxItem> = super::decisions::of_every_kind().into_iter().map(decide).collect();
    items.extend([
        handed(&[], None),
        handed(&["ada", odd], Some(odd)),
        InboxItem::Remind { approval: approval.clone(), call: call.clone(), times: u32::MAX },
        InboxItem::Cancel { reason: AbortReason::abort(odd), run: None },
        InboxItem::Cancel { reason: AbortReason::timeout("late"), run: Some(RunId::new("r")) },
        InboxItem::Input {
            id: InputId::new("i"),
            mode: InputMode::Steer,
            messages: vec![Arc::new(message), Arc::new(Message::human(""))],
            only: Some(RunId::new("r")),
        },
        InboxItem::Input { id: InputId::new("j"), mode: InputMode::Queue, messages: Vec::new(), only: None },
    ]);
    for (number, item) in items.iter().enumerate() {
        let answer = subject.store.post(&id, &format!("k{number}"), item.clone()).await?;
        same("the first of a key", &answer, &Posted::First)?;
    }
    for store in [&subject.store, &another] {
        let found: Vec<InboxItem> = store.inbox(&id, 0).await?.into_iter().map(|(_, item)| item).collect();
        let json = |items: &[InboxItem]| serde_json::to_string(items).map_err(|error| Failure::new(error.to_string()));
        same("the items", &json(&found)?, &json(&items)?)?;
    }
    Ok(())
}

pub(super) async fn only_the_first_of_a_key_is_kept(subject: Subject) -> Verdict {
    let id = thread("keys")?;
    let another = subject.another().await?;
    let (store, other) = (&*subject.store, thread("other")?);
    same("the first of a key", &store.post(&id, "k", input("first")).await?, &Posted::First)?;
    for handle in [store, &*another] {
        let answer = handle.post(&id, "k", input("second")).await?;
        same("a second of a key", &answer, &Posted::Late(Box::new(input("first"))))?;
    }
    // Keys are a thread's own, and compared byte by byte.
    same("the same key of another thread", &store.post(&other, "k", input("x")).await?, &Posted::First)?;
    for key in ["K", "k ", " k", "", "%", "_", "k%", "é", "e\u{301}", "E\u{301}", "日本", "'; drop", "\n", &"k".repeat(2000)] {
        same(&format!("the first of the key {}", super::shown(&key)), &store.post(&id, key, input(key)).await?, &Posted::First)?;
        let answer = another.post(&id, key, input("late")).await?;
        same("a second of a key", &answer, &Posted::Late(Box::new(input(key))))?;
    }
    // A key stays taken once its item was.
    let through = store.inbox(&id, 0).await?.last().map_or(0, |(position, _)| *position);
    let claim = store.claim(&id).await?;
    store.append(&*claim, Seq(0), Append { records: Vec::new(), inbox_through: through }).await?;
    same("the inbox", &store.inbox(&id, 0).await?, &Vec::new())?;
    let answer = store.post(&id, "k", input("third")).await?;
    same("a later one of a key that was taken", &answer, &Posted::Late(Box::new(input("first"))))?;
    same("the inbox", &store.inbox(&id, 0).await?, &Vec::new())?;
    same("the other thread's inbox", &waiting(store, &other).await?, &words(&["x"]))
}

pub(super) async fn a_key_with_nul_is_refused(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("nul")?);
    let error = refused("a key with U+0000", store.post(&id, "a\u{0}b", input("i")).await)?;
    holds(&format!("it is refused as a failure, with one sentence: {error}"), matches!(error, StoreError::Failed { .. }))?;
    let error = refused("a timer whose key has U+0000", store.post_at(&id, "\u{0}", toolwright_core::Timestamp(1), input("i")).await)?;
    holds(&format!("it is refused as a failure, with one sentence: {error}"), matches!(error, StoreError::Failed { .. }))?;
    same("whether a timer is there whose key has U+0000", &store.cancel_timer(&id, "\u{0}").await?, &false)?;
    same("the inbox", &store.inbox(&id, 0).await?, &Vec::new())?;
    same("threads of timers", &store.post_due(toolwright_core::Timestamp(5), 9).await?, &Vec::new())
}

pub(super) async fn positions_ascend(subject: Subject) -> Verdict {
    let id = thread("positions")?;
    let another = subject.another().await?;
    let mut last = 0;
    for number in 0..10 {
        let store = if number % 2 == 0 { &subject.store } else { &another };
        store.post(&id, &number.to_string(), input(&number.to_string())).await?;
        let items = store.inbox(&id, last).await?;
        same("what came after the last position", &items.iter().map(|(_, item)| input_id(item)).collect(), &vec![number.to_string()])?;
        let position = items.first().map_or(0, |(position, _)| *position);
        holds(&format!("the position {position} is above {last}"), position > last)?;
        last = position;
        if number == 5 {
            // A position that was taken is not used again.
            let claim = store.claim(&id).await?;
            store.append(&*claim, Seq(0), Append { records: Vec::new(), inbox_through: last }).await?;
        }
    }
    same("what waits", &waiting(&*subject.store, &id).await?, &words(&["6", "7", "8", "9"]))
}

pub(super) async fn what_is_journaled_is_taken_in_the_same_write(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("taken")?);
    let mut script = Script::opened(&id, 1)?;
    append(store, &id, 0, script.take()).await?;
    for key in ["a", "b", "c"] {
        store.post(&id, key, input(key)).await?;
    }
    let positions: Vec<u64> = store.inbox(&id, 0).await?.iter().map(|(position, _)| *position).collect();
    let (first, second) = (positions.first().copied().unwrap_or(0), positions.get(1).copied().unwrap_or(0));
    let claim = store.claim(&id).await?;
    script.asked("go")?;
    store.append(&*claim, Seq(1), Append { inbox_through: first, ..script.take() }).await?;
    same("what waits", &waiting(store, &id).await?, &words(&["b", "c"]))?;
    // An append that says less takes nothing back.
    script.replies("yes")?;
    store.append(&*claim, Seq(3), script.take()).await?;
    same("what waits", &waiting(store, &id).await?, &words(&["b", "c"]))?;
    // One that fails takes nothing.
    script.run_ends(FinishReason::Stop)?;
    let end = Append { inbox_through: second, ..script.take() };
    refused("an append elsewhere", store.append(&*claim, Seq(5), end.clone()).await)?;
    same("what waits", &waiting(store, &id).await?, &words(&["b", "c"]))?;
    store.append(&*claim, Seq(6), end).await?;
    same("what waits", &waiting(store, &id).await?, &words(&["c"]))
}

pub(super) async fn a_thread_without_journal_has_an_inbox(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("early")?);
    store.post(&id, "k", input("early")).await?;
    same("what the index says", &store.info(&id).await?, &None)?;
    same("threads", &store.threads(&toolwright_runtime::ThreadQuery::default()).await?.items, &Vec::new())?;
    same("unfinished threads", &store.unfinished(None, 9).await?, &vec![id.clone()])?;
    let position = store.inbox(&id, 0).await?.first().map_or(0, |(position, _)| *position);
    let mut script = Script::opened(&id, 1)?;
    append(store, &id, 0, Append { inbox_through: position, ..script.take() }).await?;
    same("the inbox", &store.inbox(&id, 0).await?, &Vec::new())?;
    same("unfinished threads", &store.unfinished(None, 9).await?, &Vec::new())
}

/// Everything that comes, until there is so much, as one learns of it who asks for what comes after the last.
async fn follow(store: Arc<dyn Store>, id: ThreadId, until: usize) -> Result<Vec<(u64, String)>, StoreError> {
    let (mut seen, mut last) = (Vec::new(), 0);
    while seen.len() < until {
        store.posted(&id, last).await;
        for (position, item) in store.inbox(&id, last).await? {
            last = last.max(position);
            seen.push((position, input_id(&item)));
        }
    }
    Ok(seen)
}

pub(super) async fn a_follower_sees_each_post_once(subject: Subject) -> Verdict {
    const TASKS: usize = 20;
    const EACH: usize = 10;
    let id = thread("followed")?;
    let another = subject.another().await?;
    let followers: Vec<_> =
        [&subject.store, &another, &another].map(|store| tokio::spawn(follow(Arc::clone(store), id.clone(), TASKS * EACH))).into();
    let mut posters = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let store = Arc::clone(if task % 2 == 0 { &subject.store } else { &another });
        let id = id.clone();
        posters.spawn(async move {
            for turn in 0..EACH {
                let name = format!("{task}:{turn}");
                store.post(&id, &name, input(&name)).await?;
            }
            Ok::<_, StoreError>(())
        });
    }
    while let Some(ended) = within("the end of every poster", posters.join_next()).await? {
        ended.map_err(|error| Failure::new(error.to_string()))??;
    }
    for follower in followers {
        let seen = within("every post, seen by a follower", follower).await?.map_err(|error| Failure::new(error.to_string()))??;
        holds("positions ascend", seen.is_sorted_by(|(a, _), (b, _)| a < b))?;
        let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, name) in &seen {
            let (task, turn) = name.split_once(':').unwrap_or_default();
            let next = turns.entry(task).or_default();
            same(&format!("the next post of the task {task}"), turn, next.to_string().as_str())?;
            *next += 1;
        }
        same("posts", &turns.values().sum::<usize>(), &(TASKS * EACH))?;
    }
    Ok(())
}

pub(super) async fn one_of_many_posts_of_a_key_is_first(subject: Subject) -> Verdict {
    const TASKS: usize = 20;
    let id = thread("raced")?;
    let another = subject.another().await?;
    for round in 0..5 {
        let mut posters = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let store = Arc::clone(if task % 2 == 0 { &subject.store } else { &another });
            let (id, key) = (id.clone(), format!("round {round}"));
            posters.spawn(async move { Ok::<_, StoreError>((task, store.post(&id, &key, input(&format!("{round}:{task}"))).await?)) });
        }
        let (mut firsts, mut named) = (Vec::new(), Vec::new());
        while let Some(ended) = within("an answer to every post", posters.join_next()).await? {
            match ended.map_err(|error| Failure::new(error.to_string()))?? {
                (task, Posted::First) => firsts.push(format!("{round}:{task}")),
                (_, Posted::Late(first)) => named.push(input_id(&first)),
            }
        }
        same("posts that came first", &firsts.len(), &1)?;
        named.dedup();
        same("what the others were told came first", &named, &firsts)?;
        same("what waits last", &waiting(&*another, &id).await?.last().cloned().into_iter().collect(), &firsts)?;
    }
    same("what waits", &waiting(&*subject.store, &id).await?.len(), &5)
}

pub(super) async fn a_wait_for_posts_ends(subject: Subject) -> Verdict {
    let another = subject.another().await?;
    for (waiter, id) in [(&subject.store, "waits"), (&another, "waits-elsewhere")] {
        let id = thread(id)?;
        let follower = tokio::spawn(follow(Arc::clone(waiter), id.clone(), 1));
        subject.store.post(&id, "k", input("news")).await?;
        let seen = within("the end of a wait for posts", follower).await?.map_err(|error| Failure::new(error.to_string()))??;
        same("what came", &seen.iter().map(|(_, name)| name.clone()).collect(), &words(&["news"]))?;
        // What already happened needs no wait, whether or not it was taken since.
        within("a wait for what was posted", waiter.posted(&id, 0)).await?;
        let through = seen.first().map_or(0, |(position, _)| *position);
        append(&*subject.store, &id, 0, Append { records: Vec::new(), inbox_through: through }).await?;
        within("a wait for what was posted and taken", waiter.posted(&id, 0)).await?;
    }
    Ok(())
}

pub(super) async fn a_wait_outlives_a_deletion(subject: Subject) -> Verdict {
    let id = thread("again")?;
    let another = subject.another().await?;
    for waiter in [&subject.store, &another] {
        let claim = within("the claim", subject.store.claim(&id)).await??;
        subject.store.delete(&*claim).await?;
        let posts = tokio::spawn(follow(Arc::clone(waiter), id.clone(), 1));
        let records = tokio::spawn({
            let (store, id) = (Arc::clone(waiter), id.clone());
            async move {
                while store.info(&id).await?.is_none() {
                    store.appended(&id, Seq(0)).await;
                }
                Ok::<_, StoreError>(())
            }
        });
        // Not to be sure that they wait, but so that they may.
        tokio::task::yield_now().await;
        subject.store.delete(&*claim).await?;
        subject.store.append(&*claim, Seq(0), Script::opened(&id, 1)?.take()).await?;
        subject.store.post(&id, "k", input("news")).await?;
        let seen = within("a post after a deletion", posts).await?.map_err(|error| Failure::new(error.to_string()))??;
        same("posts", &seen.len(), &1)?;
        within("records after a deletion", records).await?.map_err(|error| Failure::new(error.to_string()))??;
    }
    Ok(())
}
