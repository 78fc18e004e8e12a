//! Records: appended all or nothing, read as they were written.

use std::sync::Arc;

use serde_json::{Value, json};
use toolwright_core::{Message, Record, RecordBody, RunId, Seq, ThreadId, Timestamp};
use toolwright_runtime::{Append, Posted, Store, StoreError};

use super::script::{Script, input, input_id, loose};
use super::{Failure, Lost, Subject, Verdict, append, fenced, refused, same, thread, within};

/// The positions of records.
fn positions(records: &[Arc<Record>]) -> Vec<u64> {
    records.iter().map(|record| record.seq.0).collect()
}

/// Records as their JSON text.
fn texts(records: &[Arc<Record>]) -> Result<Vec<String>, Failure> {
    records.iter().map(|record| serde_json::to_string(&**record).map_err(|error| Failure::new(error.to_string()))).collect()
}

async fn all(store: &dyn Store, thread: &ThreadId) -> Result<Vec<Arc<Record>>, Failure> {
    Ok(store.read(thread, Seq(0), usize::MAX).await?)
}

/// A thread with a short journal.
async fn talk(store: &dyn Store, id: &ThreadId) -> Result<Script, Failure> {
    let mut script = Script::opened(id, 1000)?;
    script.asked("Hello")?.replies("Hello to you")?.run_ends(toolwright_core::FinishReason::Stop)?;
    append(store, id, 0, script.take()).await?;
    Ok(script)
}

/// Fails unless the records come back as exactly the same JSON.
async fn round_trip(subject: &Subject, id: &str, records: Vec<Arc<Record>>) -> Verdict {
    let id = thread(id)?;
    append(&*subject.store, &id, 0, Append::records(records.clone())).await?;
    let expected = texts(&records)?;
    let another = subject.another().await?;
    for (store, handle) in [(&subject.store, "the handle that wrote"), (&another, "another handle")] {
        let found = texts(&all(&**store, &id).await?)?;
        same(&format!("the number of records that {handle} reads"), &found.len(), &expected.len())?;
        for (found, expected) in found.iter().zip(&expected) {
            same(&format!("a record that {handle} reads"), found, expected)?;
        }
    }
    Ok(())
}

pub(super) async fn a_new_thread_has_nothing(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("new")?);
    same("records", &all(store, &id).await?, &Vec::new())?;
    same("records at positions", &store.read_at(&id, &[Seq(1)]).await?, &Vec::new())?;
    same("the inbox", &store.inbox(&id, 0).await?, &Vec::new())?;
    same("the snapshot", &store.snapshot(&id).await?, &None)?;
    same("what the index says", &store.info(&id).await?, &None)?;
    same("threads", &store.threads(&toolwright_runtime::ThreadQuery::default()).await?.items, &Vec::new())?;
    same("unfinished threads", &store.unfinished(None, 10).await?, &Vec::new())?;
    same("pending decisions", &store.pending(None, None, 10).await?.items, &Vec::new())
}

pub(super) async fn records_come_back_in_order_and_in_part(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("parts")?);
    let mut script = Script::opened(&id, 1)?;
    script.asked("one")?;
    append(store, &id, 0, script.take()).await?;
    script.replies("two")?.run_ends(toolwright_core::FinishReason::Stop)?;
    append(store, &id, 3, script.take()).await?;
    same("all records", &all(store, &id).await?, &script.made().to_vec())?;
    for (after, limit, expected) in
        [(0, 1, vec![1]), (0, 3, vec![1, 2, 3]), (2, 3, vec![3, 4, 5]), (6, 9, vec![7]), (7, 9, vec![]), (8, 9, vec![]), (0, 0, vec![])]
    {
        let found = positions(&store.read(&id, Seq(after), limit).await?);
        same(&format!("at most {limit} records after {after}"), &found, &expected)?;
    }
    Ok(())
}

pub(super) async fn records_come_back_byte_for_byte(subject: Subject) -> Verdict {
    let odd = "\u{0}\u{1}\t\r\n\"\\/\u{7f}\u{85}\u{2028}\u{feff}é e\u{301} ß İ 日本 🧰 \u{10ffff}";
    let mut message = Message::human(odd);
    for key in ["z", "a", "é", "", "A", "\u{0}", "10", "9", "a b", "'; drop"] {
        message.metadata.insert(key.to_owned(), json!({ "b": odd, "a": [null, true, {}, [], ""] }));
    }
    let principal = json!({ "sub": odd, "aud": ["z", "a"], "deep": { "y": { "x": { "w": 1, "v": 2 } } } });
    let started = json!({
        "kind": "run.started", "cause": "input", "agent": "agent", "limits": { "maxSteps": 3 }, "added": odd,
        "principal": principal, "metadata": message.metadata,
    });
    let started: RecordBody = serde_json::from_value(started).map_err(|error| Failure::new(error.to_string()))?;
    let run = Some(RunId::new(odd));
    let records = vec![
        loose(1, RecordBody::ThreadOpened { thread: thread("bytes")?, version: 1, agent: "agent".into(), parent: None }),
        Arc::new(Record { seq: Seq(2), at: Timestamp(i64::MIN), run: run.clone(), body: started }),
        Arc::new(Record { seq: Seq(3), at: Timestamp(i64::MAX), run, body: RecordBody::MessageAdded { message: Arc::new(message) } }),
    ];
    round_trip(&subject, "bytes", records).await
}

pub(super) async fn numbers_come_back_digit_for_digit(subject: Subject) -> Verdict {
    let mut numbers = vec![
        json!(9_007_199_254_740_993_u64),
        json!(-9_007_199_254_740_993_i64),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0),
        json!(0.0),
        json!(-0.0),
        json!(1.0),
        json!(0.1 + 0.2),
        json!(f64::MIN_POSITIVE),
        json!(5e-324),
        json!(f64::MAX),
        json!(1e300),
    ];
    // Fractions with all their digits: a reader that rounds gives some of them back as a neighbour.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..2000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = f64::from_bits(state);
        if number.is_finite() {
            numbers.push(json!(number));
        }
        numbers.push(json!((state >> 11) as f64 / (1_u64 << 53) as f64));
    }
    let mut script = Script::opened(&thread("numbers")?, 1)?;
    script.asked("count")?.calls(&["c"])?.executes("c")?.done("c", Value::Array(numbers))?;
    round_trip(&subject, "numbers", script.made().to_vec()).await
}

pub(super) async fn unknown_kinds_come_back(subject: Subject) -> Verdict {
    let id = thread("unknown")?;
    let mut script = Script::opened(&id, 1)?;
    let text = r#"{"kind":"thing.happened","zebra":{"b":1,"a":2},"apple":[1.5,"\u0000",null],"18446744073709551615":18446744073709551615}"#;
    let fields: Value = serde_json::from_str(text).map_err(|error| Failure::new(error.to_string()))?;
    script.asked("go")?.add(RecordBody::Unknown(fields))?;
    round_trip(&subject, "unknown", script.made().to_vec()).await
}

pub(super) async fn positions_that_are_not_there_are_left_out(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("some")?);
    talk(store, &id).await?;
    for (asked, expected) in [
        (vec![], vec![]),
        (vec![1], vec![1]),
        (vec![2, 5, 7], vec![2, 5, 7]),
        (vec![0, 3, 8, 9], vec![3]),
        (vec![u64::MAX], vec![]),
        ((0..3000).collect(), (1..=7).collect()),
    ] {
        let asked: Vec<Seq> = asked.into_iter().map(Seq).collect();
        let found = positions(&store.read_at(&id, &asked).await?);
        same(&format!("the records at {}", super::shown(&asked)), &found, &expected)?;
    }
    Ok(())
}

pub(super) async fn limits_and_positions_may_be_the_greatest(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("greatest")?);
    talk(store, &id).await?;
    store.post(&id, "k", input("i")).await?;
    same("records after the greatest position", &store.read(&id, Seq(u64::MAX), 5).await?, &Vec::new())?;
    same("the inbox after the greatest position", &store.inbox(&id, u64::MAX).await?, &Vec::new())?;
    same("records up to the greatest limit", &store.read(&id, Seq(0), usize::MAX).await?.len(), &7)?;
    same("unfinished threads up to the greatest limit", &store.unfinished(None, usize::MAX).await?, &vec![id.clone()])?;
    let query = toolwright_runtime::ThreadQuery { limit: usize::MAX, ..Default::default() };
    same("threads up to the greatest limit", &store.threads(&query).await?.items.len(), &1)?;
    same("pending decisions up to the greatest limit", &store.pending(None, None, usize::MAX).await?.items, &Vec::new())?;
    let values = store.data().values(&id, toolwright_runtime::Shelf::Values, "", None, usize::MAX).await?;
    same("values up to the greatest limit", &values, &Vec::new())?;
    same("files up to the greatest limit", &store.data().files(&id, "", None, usize::MAX).await?, &Vec::new())?;
    let claim = store.claim(&id).await?;
    let answer = store.append(&*claim, Seq(u64::MAX), Append::default()).await;
    let expected = StoreError::Conflict { thread: id, expected: Seq(u64::MAX), actual: Seq(7) };
    same("an append after the greatest position", &refused("an append after the greatest position", answer)?, &expected)
}

pub(super) async fn one_append_may_be_large(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("many")?);
    let mut script = Script::opened(&id, 1)?;
    script.started(&toolwright_core::RunCause::Input)?;
    for number in 3..=2000 {
        script.said(Message::human(format!("message {number}")))?;
    }
    append(store, &id, 0, script.take()).await?;
    same("all records", &(all(store, &id).await? == script.made()), &true)?;
    let found = store.info(&id).await?.map(|info| info.head);
    same("where the index says that the journal ends", &found, &Some(Seq(2000)))
}

pub(super) async fn one_record_may_be_large(subject: Subject) -> Verdict {
    let id = thread("large")?;
    let mut script = Script::opened(&id, 1)?;
    let text = (0..500_000).map(|number| format!("{number:09}")).collect::<Vec<_>>().join(" ");
    script.asked("go")?.replies(&text)?;
    round_trip(&subject, "large", script.made().to_vec()).await
}

pub(super) async fn an_append_without_records_moves_only_the_inbox(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("empty")?);
    let script = talk(store, &id).await?;
    for key in ["a", "b", "c"] {
        store.post(&id, key, input(key)).await?;
    }
    let before = store.info(&id).await?;
    let posted = store.inbox(&id, 0).await?;
    let through = posted.get(1).map_or(0, |(position, _)| *position);
    let claim = store.claim(&id).await?;
    store.append(&*claim, Seq(7), Append { records: Vec::new(), inbox_through: through }).await?;
    let left = |items: Vec<(u64, toolwright_runtime::InboxItem)>| items.iter().map(|(_, item)| input_id(item)).collect::<Vec<_>>();
    same("what is left in the inbox", &left(store.inbox(&id, 0).await?), &vec!["c".to_owned()])?;
    same("the records", &all(store, &id).await?, &script.made().to_vec())?;
    same("what the index says", &store.info(&id).await?, &before)?;
    // What was taken stays taken, whatever a later append says.
    store.append(&*claim, Seq(7), Append::default()).await?;
    same("what is left in the inbox", &left(store.inbox(&id, 0).await?), &vec!["c".to_owned()])
}

/// What a refused append may not have changed.
async fn unchanged(store: &dyn Store, id: &ThreadId, script: &Script, before: Option<&toolwright_runtime::ThreadInfo>) -> Verdict {
    same("the records", &all(store, id).await?, &script.made().to_vec())?;
    same("what the index says", &store.info(id).await?.as_ref(), &before)?;
    same("pending decisions", &store.pending(Some(id), None, 10).await?.items, &Vec::new())?;
    let inbox: Vec<String> = store.inbox(id, 0).await?.iter().map(|(_, item)| input_id(item)).collect();
    same("the inbox", &inbox, &vec!["kept".to_owned()])
}

/// Records that would change everything the index says, for a thread that [`talk`] made.
fn further(id: &ThreadId) -> Result<Vec<Arc<Record>>, Failure> {
    let mut script = Script::opened(id, 1000)?;
    script.asked("Hello")?.replies("Hello to you")?.run_ends(toolwright_core::FinishReason::Stop)?.take();
    script.at(1_000_000).asked("more")?.calls(&["c"])?.asks("c")?;
    Ok(script.take().records)
}

pub(super) async fn a_conflict_writes_nothing(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("conflict")?);
    let script = talk(store, &id).await?;
    store.post(&id, "k", input("kept")).await?;
    let before = store.info(&id).await?;
    let through = store.inbox(&id, 0).await?.last().map_or(0, |(position, _)| *position);
    let claim = store.claim(&id).await?;
    for expected in [0, 6, 8] {
        let append = Append { records: further(&id)?, inbox_through: through };
        let answer = store.append(&*claim, Seq(expected), append).await;
        let conflict = StoreError::Conflict { thread: id.clone(), expected: Seq(expected), actual: Seq(7) };
        same("an append elsewhere than at the end", &refused("an append elsewhere than at the end", answer)?, &conflict)?;
        unchanged(store, &id, &script, before.as_ref()).await?;
    }
    store.append(&*claim, Seq(7), Append { records: further(&id)?, inbox_through: through }).await?;
    same("the inbox, once the append was at the end", &store.inbox(&id, 0).await?, &Vec::new())
}

pub(super) async fn a_lost_claim_writes_nothing(subject: Subject) -> Verdict {
    let (store, id) = (&*subject.store, thread("lost")?);
    let script = talk(store, &id).await?;
    same("the first of a key", &store.post(&id, "k", input("kept")).await?, &Posted::First)?;
    let before = store.info(&id).await?;
    let through = store.inbox(&id, 0).await?.last().map_or(0, |(position, _)| *position);
    let lost = Lost::of(&*store.claim(&id).await?);
    let claim = store.claim(&id).await?;
    let append = Append { records: further(&id)?, inbox_through: through };
    fenced("an append of a lost claim", &id, store.append(&lost, Seq(7), append.clone()).await)?;
    unchanged(store, &id, &script, before.as_ref()).await?;
    fenced("an append elsewhere of a lost claim", &id, store.append(&lost, Seq(3), append.clone()).await)?;
    let invented = Lost { thread: id.clone(), fence: claim.fence() + 1 };
    fenced("an append of a claim that nobody gave", &id, store.append(&invented, Seq(7), append).await)?;
    unchanged(store, &id, &script, before.as_ref()).await
}

pub(super) async fn ids_differ_in_case(subject: Subject) -> Verdict {
    let store = &*subject.store;
    let ids = ["a", "A", "a_", "a-", "a1", "aA", "Aa"];
    for id in ids {
        let id = thread(id)?;
        let mut script = Script::opened(&id, 1)?;
        script.asked(id.as_str())?;
        append(store, &id, 0, script.take()).await?;
    }
    for id in ids {
        let found = store.info(&thread(id)?).await?.map(|info| info.title);
        same("the title of a thread whose id differs in case or a sign", &found, &Some(id.to_owned()))?;
    }
    Ok(())
}

pub(super) async fn a_wait_for_records_ends(subject: Subject) -> Verdict {
    let another = subject.another().await?;
    for (waiting, id) in [(&subject.store, "wait"), (&another, "wait-elsewhere")] {
        let id = thread(id)?;
        let waits = tokio::spawn({
            let (store, id) = (Arc::clone(waiting), id.clone());
            async move {
                // It may return early; whoever waits looks again.
                let mut found = Vec::new();
                while found.is_empty() {
                    store.appended(&id, Seq(0)).await;
                    found = store.read(&id, Seq(0), 10).await?;
                }
                Ok::<_, StoreError>(found.len())
            }
        });
        talk(&*subject.store, &id).await?;
        let found = within("the end of a wait for records", waits).await?.map_err(|error| Failure::new(error.to_string()))??;
        same("records after the wait", &found, &7)?;
        within("a wait for records that are there", waiting.appended(&id, Seq(0))).await?;
        within("a wait for the last record, which is there", waiting.appended(&id, Seq(6))).await?;
    }
    Ok(())
}

pub(super) async fn a_second_handle_sees_what_was_appended(subject: Subject) -> Verdict {
    let id = thread("second")?;
    let another = subject.another().await?;
    let mut script = talk(&*subject.store, &id).await?;
    same("the records that another handle reads", &all(&*another, &id).await?, &script.made().to_vec())?;
    script.asked("more")?;
    append(&*another, &id, 7, script.take()).await?;
    same("the records that the first handle reads", &all(&*subject.store, &id).await?, &script.made().to_vec())?;
    same("what both say of the thread", &subject.store.info(&id).await?, &another.info(&id).await?)
}
