//! The index: what a store says of threads without folding them.

use std::sync::Arc;

use serde_json::{Value, json};
use toolwright_core::{
    ApprovalAsk, ApprovalId, AskKind, Author, CallId, FinishReason, InputId, InputMode, Message, RecordBody, RunCause, Seq, StepFinish,
    ThreadId, Timestamp, sha256_hex,
};
use toolwright_runtime::{Append, PendingApproval, Store, StoreError, ThreadInfo, ThreadQuery, ThreadStatus};

use super::script::{ARGUMENTS, Script, input};
use super::{Failure, Subject, Verdict, append, holds, refused, same, thread};

async fn info(store: &dyn Store, id: &ThreadId) -> Result<ThreadInfo, Failure> {
    store.info(id).await?.ok_or_else(|| Failure::new(format!("expected that the index knows {id}, found nothing")))
}

/// The calls that wait.
async fn waiting(store: &dyn Store, id: Option<&ThreadId>) -> Result<Vec<String>, StoreError> {
    Ok(store.pending(id, None, usize::MAX).await?.items.iter().map(|pending| pending.call_id.to_string()).collect())
}

fn words(of: &[&str]) -> Vec<String> {
    of.iter().map(|word| (*word).to_owned()).collect()
}

/// Appends what the script made since, and gives what the index then says.
pub(super) async fn moved(store: &dyn Store, id: &ThreadId, script: &mut Script) -> Result<ThreadInfo, Failure> {
    let append = script.take();
    let before = (script.made().len() - append.records.len()) as u64;
    self::append(store, id, before, append).await?;
    let info = info(store, id).await?;
    same("where the index says that the journal ends", &info.head, &Seq(script.made().len() as u64))?;
    same("when the index says that it changed", &Some(info.changed_at), &script.made().last().map(|record| record.at))?;
    let listed = store.threads(&ThreadQuery { text: Some(id.to_string()), ..ThreadQuery::default() }).await?;
    same("the thread as it is listed", &listed.items.iter().find(|listed| listed.id == *id), &Some(&info))?;
    let expected = if info.status == ThreadStatus::InProgress { vec![id.clone()] } else { Vec::new() };
    same("unfinished threads", &store.unfinished(None, 9).await?, &expected)?;
    Ok(info)
}

pub(super) async fn the_index_follows_a_thread_through_its_life(subject: Subject) -> Verdict {
    let (store, id, parent) = (&*subject.store, thread("life")?, thread("parent")?);
    let another = subject.another().await?;
    let mut script = Script::opened_with(&id, -5, "the agent", Some(&parent))?;
    let opened = moved(store, &id, &mut script).await?;
    let expected = ThreadInfo {
        id: id.clone(),
        agent: "the agent".to_owned(),
        status: ThreadStatus::Finished,
        title: String::new(),
        parent: Some(parent.clone()),
        forked_from: None,
        created_at: Timestamp(-5),
        changed_at: Timestamp(-5),
        head: Seq(1),
    };
    same("what the index says of a thread that was opened", &opened, &expected)?;
    script.asked("Do it")?;
    let running = moved(store, &id, &mut script).await?;
    same("the status in a run", &running.status, &ThreadStatus::InProgress)?;
    same("the title", running.title.as_str(), "Do it")?;
    script.calls(&["a", "b", "c"])?.asks("a")?.asks("b")?;
    same("the status while the gate asks", &moved(store, &id, &mut script).await?.status, &ThreadStatus::InProgress)?;
    same("calls that wait", &waiting(store, None).await?, &words(&["a", "b"]))?;
    script.asks("c")?.step_ends(StepFinish::AwaitingApproval)?.run_ends(FinishReason::AwaitingApproval)?;
    same("the status of a paused run", &moved(store, &id, &mut script).await?.status, &ThreadStatus::AwaitingApproval)?;
    same("calls that wait", &waiting(&*another, Some(&id)).await?, &words(&["a", "b", "c"]))?;
    same("the other handle's word", &info(&*another, &id).await?, &info(store, &id).await?)?;
    script.decided("b")?.started(&RunCause::Decision)?;
    same("the status of a run that goes on", &moved(store, &id, &mut script).await?.status, &ThreadStatus::InProgress)?;
    same("calls that wait", &waiting(store, None).await?, &words(&["a", "c"]))?;
    // A result settles a call that nobody decided about.
    script.done("a", json!(1))?;
    moved(store, &id, &mut script).await?;
    same("calls that wait", &waiting(store, None).await?, &words(&["c"]))?;
    // What is asked and decided in one append never waits.
    script.executes("b")?.done("b", json!(2))?.decided("c")?.executes("c")?.done("c", json!(3))?;
    script.calls(&["d"])?.asks("d")?.decided("d")?;
    moved(store, &id, &mut script).await?;
    same("calls that wait", &waiting(store, None).await?, &words(&[]))?;
    script.executes("d")?.done("d", json!(4))?.step_ends(StepFinish::ToolCalls)?.replies("Done")?.run_ends(FinishReason::Stop)?;
    let ended = moved(store, &id, &mut script).await?;
    same("the status of a run that ended", &ended.status, &ThreadStatus::Finished)?;
    // The clock went back: the last record counts, not the latest moment.
    script.at(-100).asked("Do more")?;
    let again = moved(store, &id, &mut script).await?;
    same("what never changes", &(again.title, again.created_at, again.parent), &("Do it".to_owned(), Timestamp(-5), Some(parent)))
}

pub(super) async fn a_title_is_the_first_that_a_person_says(subject: Subject) -> Verdict {
    let store = &*subject.store;
    let long = "日本語 ".repeat(100);
    let cut = toolwright_core::cut(&long, 200).trim_end().to_owned();
    let cases = [
        ("plain", "Hello", "Hello"),
        ("lines", "\n  \r\n\t first \n second", "first"),
        ("odd", "\u{0}100% 'sure' \"_\" \\ \u{1b}[1m🧰", "100% 'sure' \"_\" \\ [1m🧰"),
        ("long", &long, &cut),
        ("blank", " \n \u{0}\n", ""),
    ];
    for (name, said, title) in cases {
        let id = thread(name)?;
        let mut script = Script::opened(&id, 1)?;
        script.started(&RunCause::Input)?.said(Message::text(Author::SideA, "The agent speaks first"))?;
        same("the title before a person says something", moved(store, &id, &mut script).await?.title.as_str(), "")?;
        script.said(Message::human(said))?.run_ends(FinishReason::Stop)?;
        same(&format!("the title of the thread {name}"), moved(store, &id, &mut script).await?.title.as_str(), title)?;
        script.asked("Something else")?.run_ends(FinishReason::Stop)?;
        let expected = if title.is_empty() { "Something else" } else { title };
        same(&format!("the title of the thread {name} later"), moved(store, &id, &mut script).await?.title.as_str(), expected)?;
    }
    let id = thread("queued")?;
    let mut script = Script::opened(&id, 1)?;
    let messages = vec![Arc::new(Message::text(Author::System, "A fact")), Arc::new(Message::human("From the queue"))];
    script.add(RecordBody::InputQueued { id: InputId::new("i"), mode: InputMode::Queue, messages, only: None, immediate: false })?;
    same("the title of input that waits", moved(store, &id, &mut script).await?.title.as_str(), "From the queue")
}

/// A thread in which the gate asks about a call at a moment.
async fn asking(store: &dyn Store, id: &str, at: i64, call: &str) -> Result<Script, Failure> {
    let id = thread(id)?;
    let mut script = Script::opened(&id, at - 10)?;
    script.asked("Do it")?.calls(&[call])?.at(at).asks(call)?;
    append(store, &id, 0, script.take()).await?;
    Ok(script)
}

pub(super) async fn a_pending_decision_has_all_that_a_decider_needs(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("decider")?);
    let another = subject.another().await?;
    let odd = "\"\\é 日本\n';--";
    let mut script = Script::opened(&id, 1)?;
    let approval = ApprovalId::of(&id, &CallId::new(odd), 1);
    let detail = json!({ "z": [u64::MAX, 0.1 + 0.2, null], "a": { "é": odd, "b": "\u{0}" } });
    let ask = ApprovalAsk {
        kind: AskKind::Question,
        reason: Some(format!("{odd}\u{0}")),
        expires_at: Some(Timestamp(i64::MAX)),
        detail: Some(detail.clone()),
        quorum: 3,
        deciders: vec![odd.to_owned(), "ada".to_owned()],
        ..ApprovalAsk::new(approval.clone())
    };
    script.asked("Do it")?.calls(&[odd])?.at(77).asks_for(odd, ask.clone())?;
    append(store, &id, 0, script.take()).await?;
    let expected = PendingApproval {
        id: approval,
        thread_id: id.clone(),
        call_id: CallId::new(odd),
        tool: "act".into(),
        arguments: ARGUMENTS.into(),
        sha256: sha256_hex(ARGUMENTS.as_bytes()).into(),
        reason: Some(format!("{odd}\u{0}")),
        asked_at: Some(Timestamp(77)),
        expires_at: Some(Timestamp(i64::MAX)),
        kind: AskKind::Question,
        detail: Some(detail),
        quorum: 3,
        deciders: vec![odd.to_owned(), "ada".to_owned()],
        approved_by: Vec::new(),
    };
    for handle in [store, &*another] {
        for only in [None, Some(&id)] {
            let found = handle.pending(only, None, 9).await?;
            same("pending decisions", &found.items, &vec![expected.clone()])?;
            let json = |value: Option<&Value>| value.map(Value::to_string);
            let detail = found.items.first().and_then(|pending| pending.detail.as_ref());
            same("the detail byte for byte", &json(detail), &json(expected.detail.as_ref()))?;
            same("the cursor after the last page", &found.next, &None)?;
        }
    }
    same("another thread's pending decisions", &store.pending(Some(&thread("other")?), None, 9).await?.items, &Vec::new())?;
    // Decided, and asked for once more.
    let second = ApprovalId::of(&id, &CallId::new(odd), 2);
    script.decided(odd)?.at(99).asks_for(odd, ApprovalAsk { approval: second.clone(), ..ask })?;
    append(store, &id, 6, script.take()).await?;
    let found = store.pending(None, None, 9).await?.items;
    let found: Vec<_> = found.into_iter().map(|pending| (pending.id, pending.asked_at)).collect();
    same("what waits after it was asked again", &found, &vec![(second, Some(Timestamp(99)))])?;
    let claim = store.claim(&id).await?;
    store.delete(&*claim).await?;
    same("pending decisions of a thread that was deleted", &store.pending(None, None, 9).await?.items, &Vec::new())
}

/// All pages, one after the other.
async fn pages(store: &dyn Store, query: &ThreadQuery) -> Result<Vec<Vec<String>>, Failure> {
    let (mut query, mut pages) = (query.clone(), Vec::new());
    loop {
        let page = store.threads(&query).await?;
        pages.push(page.items.iter().map(|info| info.id.to_string()).collect());
        holds("pages come to an end", pages.len() < 100)?;
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return Ok(pages),
        }
    }
}

pub(super) async fn pending_decisions_come_in_pages_oldest_first(subject: Subject) -> Verdict {
    let store = &*subject.store;
    for (id, at) in [("c", 30), ("b", 10), ("a-", 20), ("a", 20), ("A", 20), ("old", -7)] {
        asking(store, id, at, "call").await?;
    }
    let expected = words(&["old", "b", "A", "a-", "a", "c"]);
    for limit in [1, 2, 3, 6, 7] {
        let (mut found, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let page = store.pending(None, cursor.as_deref(), limit).await?;
            holds(&format!("a page has at most {limit}"), page.items.len() <= limit)?;
            found.extend(page.items.iter().map(|pending| pending.thread_id.to_string()));
            pages += 1;
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        same(&format!("threads whose calls wait, in pages of {limit}"), &found, &expected)?;
        same(&format!("pages of {limit}"), &pages, &(6_usize.div_ceil(limit)))?;
    }
    // What a cursor points at may go meanwhile.
    let page = store.pending(None, None, 2).await?;
    let id = thread("b")?;
    let claim = store.claim(&id).await?;
    store.delete(&*claim).await?;
    let rest = store.pending(None, page.next.as_deref(), 9).await?;
    let found: Vec<String> = rest.items.iter().map(|pending| pending.thread_id.to_string()).collect();
    same("the page after one whose last has gone", &found, &words(&["A", "a-", "a", "c"]))?;
    for cursor in ["", "garbage", "12", "é:ü", "1,2,3"] {
        let error = refused("pending decisions after a cursor that no page gave", store.pending(None, Some(cursor), 9).await)?;
        same("pending decisions after a cursor that no page gave", &error, &StoreError::Cursor { cursor: cursor.to_owned() })?;
    }
    Ok(())
}

pub(super) async fn a_fork_waits_for_nothing(subject: Subject) -> Verdict {
    let store = &*subject.store;
    let source = thread("source")?;
    let mut script = Script::opened(&source, 1)?;
    script.asked("Do it")?.calls(&["c"])?.asks("c")?.step_ends(StepFinish::AwaitingApproval)?.run_ends(FinishReason::AwaitingApproval)?;
    append(store, &source, 0, script.take()).await?;
    let through = Seq(script.made().len() as u64);
    for (name, in_parts) in [("fork", false), ("fork-in-parts", true)] {
        let id = thread(name)?;
        let mut fork = Script::opened(&id, 1)?;
        fork.asked("Do it")?.calls(&["c"])?.asks("c")?.step_ends(StepFinish::AwaitingApproval)?.run_ends(FinishReason::AwaitingApproval)?;
        if in_parts {
            moved(store, &id, &mut fork).await?;
            same("calls of a copy that wait", &waiting(store, Some(&id)).await?, &words(&["c"]))?;
        }
        fork.at(500).add(RecordBody::ThreadForked { from: source.clone(), through })?;
        let found = moved(store, &id, &mut fork).await?;
        same("calls of a fork that wait", &waiting(store, Some(&id)).await?, &words(&[]))?;
        same("where it was forked from", &found.forked_from, &Some(source.clone()))?;
        same("the status of a fork of a paused run", &found.status, &ThreadStatus::InProgress)?;
        same("the title of a fork", found.title.as_str(), "Do it")?;
        // What comes later is asked for anew, and does not change where the fork came from.
        fork.started(&RunCause::Resume)?.asks("c")?;
        same("where it was forked from", &moved(store, &id, &mut fork).await?.forked_from, &Some(source.clone()))?;
        same("calls of a fork that wait again", &waiting(store, Some(&id)).await?, &words(&["c"]))?;
        fork.decided("c")?.executes("c")?.done("c", json!(1))?.replies("Done")?.run_ends(FinishReason::Stop)?;
        same("the status of a fork that ended", &moved(store, &id, &mut fork).await?.status, &ThreadStatus::Finished)?;
    }
    same("calls of the source that wait", &waiting(store, Some(&source)).await?, &words(&["c"]))?;
    same("the source's status", &info(store, &source).await?.status, &ThreadStatus::AwaitingApproval)
}

/// A thread that was last changed at a moment.
async fn changed(store: &dyn Store, id: &str, at: i64) -> Verdict {
    let id = thread(id)?;
    let mut script = Script::opened(&id, at)?;
    append(store, &id, 0, script.take()).await
}

pub(super) async fn threads_come_in_pages_last_changed_first(subject: Subject) -> Verdict {
    let store = &*subject.store;
    for (id, at) in [("b", 20), ("old", i64::MIN), ("a", 20), ("a-", 20), ("a_", 20), ("A", 20), ("new", i64::MAX), ("c", -1)] {
        changed(store, id, at).await?;
    }
    let expected = words(&["new", "b", "a_", "a-", "a", "A", "c", "old"]);
    for limit in [1, 2, 3, 4, 8, 9, usize::MAX] {
        let found = pages(store, &ThreadQuery { limit, ..ThreadQuery::default() }).await?;
        same(&format!("threads in pages of {limit}"), &found.concat(), &expected)?;
        same(&format!("pages of {limit}"), &found.len(), &(8_usize.div_ceil(limit)))?;
    }
    Ok(())
}

pub(super) async fn pages_are_stable_while_threads_change(subject: Subject) -> Verdict {
    let store = &*subject.store;
    for number in 0..9 {
        changed(store, &format!("t{number}"), 100 - number).await?;
    }
    let mut query = ThreadQuery { limit: 3, ..ThreadQuery::default() };
    let first = store.threads(&query).await?;
    let ids = |infos: &[ThreadInfo]| infos.iter().map(|info| info.id.to_string()).collect::<Vec<_>>();
    same("the first page", &ids(&first.items), &words(&["t0", "t1", "t2"]))?;
    // One that was listed changes, one that was not, a new one comes, and the last one of the page goes.
    for id in ["t1", "t4"] {
        let id = thread(id)?;
        let mut script = Script::opened(&id, 1)?;
        script.take();
        script.at(500).asked("More")?;
        append(store, &id, 1, script.take()).await?;
    }
    changed(store, "newcomer", 6000).await?;
    let last = thread("t2")?;
    let claim = store.claim(&last).await?;
    store.delete(&*claim).await?;
    query.cursor = first.next;
    let rest = pages(store, &query).await?.concat();
    same("the pages after", &rest, &words(&["t3", "t5", "t6", "t7", "t8"]))?;
    query.cursor = None;
    let all = pages(store, &query).await?.concat();
    same("all pages anew", &all, &words(&["newcomer", "t4", "t1", "t0", "t3", "t5", "t6", "t7", "t8"]))
}

pub(super) async fn a_cursor_that_no_page_gave_is_refused(subject: Subject) -> Verdict {
    let store = &*subject.store;
    changed(store, "t", 1).await?;
    for cursor in ["", "garbage", "12", "é:ü", "\u{0}", "'; drop", "99999999999999999999999:t"] {
        let query = ThreadQuery { cursor: Some(cursor.to_owned()), ..ThreadQuery::default() };
        let error = refused("threads after a cursor that no page gave", store.threads(&query).await)?;
        same("threads after a cursor that no page gave", &error, &StoreError::Cursor { cursor: cursor.to_owned() })?;
    }
    Ok(())
}

pub(super) async fn threads_are_found_by_what_the_index_says(subject: Subject) -> Verdict {
    let store = &*subject.store;
    let parent = thread("Parent-1")?;
    let titled = [
        ("apples", "ÄPFEL und Birnen", "baker", 10),
        ("percent", "100% sure_thing", "baker", 20),
        ("plain", "100 sure thing", "Baker", 30),
        ("slash", "back\\slash and 'quotes'", "smith", 40),
        ("street", "Straße in İstanbul ΟΔΟΣ", "smith", 50),
    ];
    for (id, title, agent, at) in titled {
        let id = thread(id)?;
        let with = if agent == "smith" { Some(&parent) } else { None };
        let mut script = Script::opened_with(&id, at, agent, with)?;
        script.at(at).started(&RunCause::Input)?.at(at).said(Message::human(title))?;
        if agent != "baker" {
            script.at(at).run_ends(FinishReason::Stop)?;
        }
        append(store, &id, 0, script.take()).await?;
    }
    let paused = thread("Paused")?;
    let mut script = Script::opened_with(&paused, 60, "smith", None)?;
    script.at(60).asked("Wait")?.calls(&["c"])?.asks("c")?.step_ends(StepFinish::AwaitingApproval)?;
    script.at(60).run_ends(FinishReason::AwaitingApproval)?;
    append(store, &paused, 0, script.take()).await?;

    let all = ["Paused", "street", "slash", "plain", "percent", "apples"];
    let text = |text: &str| ThreadQuery { text: Some(text.to_owned()), ..ThreadQuery::default() };
    let base = ThreadQuery::default;
    let cases: Vec<(&str, ThreadQuery, &[&str])> = vec![
        ("nothing in particular", base(), &all),
        ("threads in progress", ThreadQuery { status: Some(ThreadStatus::InProgress), ..base() }, &["percent", "apples"]),
        ("threads that ended", ThreadQuery { status: Some(ThreadStatus::Finished), ..base() }, &["street", "slash", "plain"]),
        ("threads that wait", ThreadQuery { status: Some(ThreadStatus::AwaitingApproval), ..base() }, &["Paused"]),
        ("an agent's threads", ThreadQuery { agent: Some("baker".to_owned()), ..base() }, &["percent", "apples"]),
        ("those of an agent in other case", ThreadQuery { agent: Some("Baker".to_owned()), ..base() }, &["plain"]),
        ("those of no such agent", ThreadQuery { agent: Some("bake%".to_owned()), ..base() }, &[]),
        ("children", ThreadQuery { parent: Some(parent.clone()), ..base() }, &["street", "slash"]),
        ("children of nobody", ThreadQuery { parent: Some(thread("parent-1")?), ..base() }, &[]),
        ("those changed before a moment", ThreadQuery { changed_before: Some(Timestamp(30)), ..base() }, &["percent", "apples"]),
        ("those changed before all", ThreadQuery { changed_before: Some(Timestamp(i64::MIN)), ..base() }, &[]),
        ("those changed before the end", ThreadQuery { changed_before: Some(Timestamp(i64::MAX)), ..base() }, &all),
        ("an empty text", text(""), &all),
        ("a text in lower case", text("äpfel"), &["apples"]),
        ("a text in upper case", text("BIRNEN"), &["apples"]),
        ("a text in an id, in other case", text("PAUSED"), &["Paused"]),
        ("a text in ids and titles", text("s"), &["Paused", "street", "slash", "plain", "percent", "apples"]),
        ("a percent sign", text("%"), &["percent"]),
        ("a percent sign among others", text("0% S"), &["percent"]),
        ("an underscore", text("_"), &["percent"]),
        ("a text that only a wildcard would find", text("sure%thing"), &[]),
        ("a backslash", text("K\\S"), &["slash"]),
        ("a quote", text("'QUOTES'"), &["slash"]),
        ("a sharp s", text("STRAß"), &["street"]),
        ("what a sharp s is not", text("STRASS"), &[]),
        ("a dotted capital i", text("İSTAN"), &["street"]),
        ("greek", text("οδο"), &["street"]),
        ("a text that is nowhere", text("nowhere"), &[]),
        ("a text with U+0000", text("\u{0}"), &[]),
        (
            "all at once",
            ThreadQuery {
                status: Some(ThreadStatus::Finished),
                agent: Some("smith".to_owned()),
                parent: Some(parent.clone()),
                text: Some("S".to_owned()),
                changed_before: Some(Timestamp(50)),
                ..base()
            },
            &["slash"],
        ),
    ];
    for (what, query, expected) in cases {
        for limit in [100, 1] {
            let query = ThreadQuery { limit, ..query.clone() };
            same(&format!("what is found for {what}, in pages of {limit}"), &pages(store, &query).await?.concat(), &words(expected))?;
        }
    }
    Ok(())
}

pub(super) async fn unfinished_threads_come_by_their_ids(subject: Subject) -> Verdict {
    let store = &*subject.store;
    for id in ["b", "B", "a_", "a-", "a1", "a", "A"] {
        let id = thread(id)?;
        let mut script = Script::opened(&id, 1)?;
        script.asked("Go")?;
        append(store, &id, 0, script.take()).await?;
    }
    // One that ended is none, one with something in its inbox is one, whatever its journal says.
    let (ended, posted, early) = (thread("ended")?, thread("posted")?, thread("Early")?);
    for id in [&ended, &posted] {
        let mut script = Script::opened(id, 1)?;
        script.asked("Go")?.run_ends(FinishReason::Stop)?;
        append(store, id, 0, script.take()).await?;
    }
    for id in [&posted, &early] {
        store.post(id, "k", input("news")).await?;
    }
    let expected = words(&["A", "B", "Early", "a", "a-", "a1", "a_", "b", "posted"]);
    let ids = |threads: &[ThreadId]| threads.iter().map(ToString::to_string).collect::<Vec<_>>();
    same("unfinished threads", &ids(&store.unfinished(None, 99).await?), &expected)?;
    for limit in [1, 2, 4] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let some = store.unfinished(after.as_ref(), limit).await?;
            let Some(last) = some.last() else { break };
            after = Some(last.clone());
            found.extend(ids(&some));
            holds("the listing comes to an end", found.len() < 100)?;
        }
        same(&format!("unfinished threads, {limit} at a time"), &found, &expected)?;
    }
    let elsewhere = store.unfinished(Some(&thread("a0")?), 2).await?;
    same("unfinished threads after an id that is none of them", &ids(&elsewhere), &words(&["a1", "a_"]))?;
    same("none, where the limit is 0", &store.unfinished(None, 0).await?, &Vec::new())?;
    let through = store.inbox(&posted, 0).await?.last().map_or(0, |(position, _)| *position);
    append(store, &posted, 4, Append { records: Vec::new(), inbox_through: through }).await?;
    same("unfinished threads, once the inbox is taken", &ids(&store.unfinished(Some(&thread("b")?), 9).await?), &words(&[]))
}
