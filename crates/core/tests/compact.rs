//! What is made shorter, and what never is: the planning of compaction, and the fold of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, json};
use toolwright_core::compact::{apply, foldable, is_pinned, is_summary, pin_message, protected_from, prunable};
use toolwright_core::{
    ArgsState, Author, CallId, CallItem, Compaction, FinishReason, Folded, Item, Measured, Message, Part, Record, RecordBody, ResultItem,
    RunCause, RunId, RunLimits, SUMMARY_HEADER, Saved, Seq, StepFinish, Thread, ThreadId, Timestamp, Transcript, Usage, tokens,
};

fn call(id: &str) -> Item {
    Item::ToolCall(CallItem {
        call_id: CallId::new(id),
        provider_id: None,
        name: "search".to_owned(),
        arguments: r#"{"q":"x"}"#.to_owned(),
        state: ArgsState::Complete,
        ask: None,
        provider_data: None,
    })
}

fn result(id: &str, parts: Vec<Part>) -> Item {
    Item::ToolResult(ResultItem {
        call_id: CallId::new(id),
        provider_id: None,
        tool_name: "search".to_owned(),
        parts,
        failed: None,
        approval: None,
        marks: toolwright_core::taint::Marks::default(),
    })
}

fn message(author: Author, items: Vec<Item>) -> Message {
    Message { author, items, metadata: Map::new() }
}

fn asks(ids: &[&str]) -> Message {
    message(Author::SideA, ids.iter().map(|id| call(id)).collect())
}

fn answers(ids: &[&str]) -> Message {
    message(Author::Tool, ids.iter().map(|id| result(id, vec![Part::text("data ".repeat(100))])).collect())
}

fn says(text: &str) -> Message {
    Message::text(Author::SideA, text)
}

fn list(messages: impl IntoIterator<Item = Message>) -> Transcript {
    messages.into_iter().collect()
}

fn ids(calls: &[CallId]) -> Vec<&str> {
    calls.iter().map(CallId::as_str).collect()
}

fn text_of_result(messages: &Transcript, id: &str) -> String {
    messages.iter().flat_map(|message| message.results()).find(|result| result.call_id.as_str() == id).unwrap().text()
}

fn folded(ranges: Vec<(usize, usize)>) -> Folded {
    Folded { ranges, summary: "They spoke.".into() }
}

/// Two turns with results, an answer, and a turn whose results the model has not answered.
fn talk() -> Transcript {
    list([
        Message::human("find it"),
        asks(&["a", "b"]),
        answers(&["a", "b"]),
        asks(&["c"]),
        answers(&["c"]),
        says("Here it is."),
        Message::human("and the other"),
        asks(&["d", "e"]),
        answers(&["d", "e"]),
    ])
}

// rule: sdk-runtime CMP-4
#[test]
fn the_newest_messages_and_whatever_follows_the_last_reply_stay() {
    let messages = talk();
    let total = tokens::of_messages(messages.iter());
    assert_eq!(protected_from(&messages, total), 0);
    assert_eq!(protected_from(&messages, total - 1), 1);
    // Nothing fits, and yet the results of the last turn stay, however large they are.
    assert_eq!(protected_from(&messages, 0), 8);
    assert_eq!(ids(&prunable(&messages, protected_from(&messages, 0))), ["a", "b", "c"]);
    // Input after them is a part of what the model has not answered.
    let mut more = talk();
    more.push(Arc::new(Message::human("quick")));
    more.push(Arc::new(Message::human("please")));
    assert_eq!(protected_from(&more, 0), 8);
    // A reply that is the last message stays as the last message.
    let ended = list([Message::human("hi"), says("Hello.")]);
    assert_eq!(protected_from(&ended, 0), 1);
    // Nobody has answered yet: nothing can be left out.
    assert_eq!(protected_from(&list([Message::human("one"), Message::human("two")]), 0), 0);
    assert_eq!(protected_from(&Transcript::new(), 0), 0);
    // Whoever says otherwise is held to it.
    assert_eq!(ids(&prunable(&messages, usize::MAX)), ["a", "b", "c"]);
    assert_eq!(foldable(&messages, usize::MAX), [(0, 7)]);
}

// rule: sdk-runtime CMP-5
#[test]
fn older_results_become_markers_where_that_is_shorter_and_only_once() {
    let short =
        message(Author::Tool, vec![result("s", vec![Part::text("ok")]), result("l", vec![Part::Json { value: json!(vec![7; 60]) }])]);
    let image = Part::Image { image: "data:image/png;base64,AAAA".to_owned(), mime_type: Some("image/png".to_owned()) };
    let shown = message(Author::Tool, vec![result("i", vec![image])]);
    let odd = Message::text(Author::System, "note ".repeat(200));
    let messages = list([
        odd,
        Message::human("word ".repeat(200)),
        asks(&["s", "l"]),
        short,
        asks(&["i"]),
        shown,
        says(&"text ".repeat(200)),
        Message::human("next"),
        asks(&["d"]),
        answers(&["d"]),
    ]);
    let calls = prunable(&messages, protected_from(&messages, 0));
    assert_eq!(ids(&calls), ["l", "i"], "a result that is shorter than its marker stays");
    let pruned = apply(&messages, &calls, None).unwrap();
    let characters = text_of_result(&messages, "l").chars().count();
    assert_eq!(text_of_result(&pruned, "l"), format!("[pruned: search result, {characters} chars]"));
    assert_eq!(text_of_result(&pruned, "i"), "[pruned: search result, 17 chars]");
    assert!(tokens::of_messages(pruned.iter()) < tokens::of_messages(messages.iter()));
    // Everything else is the very same message.
    for at in [0, 1, 2, 4, 6, 7, 8, 9] {
        assert!(Arc::ptr_eq(messages.get(at).unwrap(), pruned.get(at).unwrap()), "{at}");
    }
    assert!(prunable(&pruned, protected_from(&pruned, 0)).is_empty(), "a marker is never pruned again");
    assert_eq!(apply(&pruned, &calls, None).unwrap(), pruned);
}

// rule: sdk-runtime CMP-11
#[test]
fn what_is_pinned_keeps_its_whole_turn() {
    let plain = Message::human("keep this");
    let kept = pin_message(&plain);
    assert!(is_pinned(&kept) && !is_pinned(&plain), "a copy is pinned");
    assert_eq!(kept.metadata.get("pinned"), Some(&json!(true)));
    let mut messages = vec![kept, pin_message(&asks(&["a"])), answers(&["a"]), asks(&["b"]), pin_message(&answers(&["b"]))];
    messages.extend([asks(&["c"]), answers(&["c"]), says("Done."), Message::human("next"), says("Last.")]);
    let messages = list(messages);
    let protected = protected_from(&messages, 0);
    assert_eq!(ids(&prunable(&messages, protected)), ["c"]);
    assert_eq!(foldable(&messages, protected), [(5, 9)]);
    for (pruned, fold, why) in [
        (vec![CallId::new("b")], None, "the result of b is pinned"),
        (vec![], Some((0, 1)), "the message 0 is pinned, and stays"),
        (vec![], Some((3, 5)), "the message 4 is pinned, and stays"),
    ] {
        let fold = fold.map(|range| folded(vec![range]));
        assert_eq!(apply(&messages, &pruned, fold.as_ref()).unwrap_err(), why);
    }
}

// rule: sdk-runtime CMP-6
#[test]
fn older_groups_become_one_summary_where_the_first_of_them_stood() {
    let messages = list([
        Message::text(Author::System, "Facts."),
        Message::human("find it"),
        asks(&["a", "b"]),
        answers(&["a", "b"]),
        pin_message(&Message::human("never forget")),
        says("Here it is."),
        Message::human("more"),
        asks(&["c"]),
        answers(&["c"]),
    ]);
    let ranges = foldable(&messages, protected_from(&messages, 0));
    assert_eq!(ranges, [(1, 4), (5, 7)]);
    let short = apply(&messages, &[], Some(&folded(ranges))).unwrap();
    assert_eq!(
        short.iter().map(|message| message.text_of()).collect::<Vec<_>>(),
        ["Facts.", "[Conversation summary]\nThey spoke.", "never forget", "", ""]
    );
    let summary = short.get(1).unwrap();
    assert_eq!((&summary.author, is_summary(summary)), (&Author::Human, true));
    assert!(Arc::ptr_eq(short.last().unwrap(), messages.last().unwrap()));
    assert_eq!(SUMMARY_HEADER, "[Conversation summary]");
    // A summary by itself is not summarised anew; with something after it, it is.
    assert!(foldable(&short, protected_from(&short, 0)).is_empty());
    let mut more = short.clone();
    more.push(Arc::new(says("Found.")));
    more.push(Arc::new(Message::human("thanks")));
    assert_eq!(foldable(&more, protected_from(&more, 0)), [(1, 2), (3, 6)]);
}

// rule: sdk-runtime CMP-4
// case: field-reports 41
#[test]
fn no_cut_falls_between_a_call_and_its_result() {
    let messages = talk();
    for protected in 0..=messages.len() {
        let ranges = foldable(&messages, protected);
        if !ranges.is_empty() {
            apply(&messages, &[], Some(&folded(ranges))).unwrap().check_balance().unwrap();
        }
    }
    // The cut that drops the call and keeps the result, and its opposite, are refused whoever asks for them.
    for (range, why) in [((0, 2), "the transcript is not balanced at message 1"), ((2, 4), "the transcript is not balanced at message 2")] {
        let refused = apply(&messages, &[], Some(&folded(vec![range]))).unwrap_err();
        assert!(refused.starts_with(why), "{refused}");
    }
    let refused = apply(&messages, &[], Some(&folded(vec![(0, 9)]))).unwrap_err();
    assert_eq!(refused, "the message 8 comes after the last reply, and stays");
    assert_eq!(apply(&messages, &[CallId::new("d")], None).unwrap_err(), "the result of d is one of the last reply's, which stay");
}

// case: field-reports 43
#[test]
fn text_beside_a_result_stays_with_the_call_or_goes_with_it() {
    let mixed = message(Author::Human, vec![Item::text("ok"), result("t9", vec![Part::text("data ".repeat(100))])]);
    let rest = || [says("Good."), Message::human("next"), says("Last.")];
    let messages = list([Message::human("go"), asks(&["t9"]), mixed.clone()].into_iter().chain(rest()));
    messages.check_balance().unwrap();
    assert_eq!(foldable(&messages, 3), [(0, 3)]);
    assert_eq!(foldable(&messages, 2), [(0, 1)], "its text is within what stays, so its call stays too");
    for ranges in [foldable(&messages, 3), foldable(&messages, 2)] {
        apply(&messages, &[], Some(&folded(ranges))).unwrap().check_balance().unwrap();
    }
    // Kept for its text, it keeps its call.
    let messages = list([Message::human("go"), asks(&["t9"]), pin_message(&mixed)].into_iter().chain(rest()));
    assert_eq!(foldable(&messages, 4), [(0, 1), (3, 4)]);
    assert!(prunable(&messages, 4).is_empty());
    // As a marker, only the result is shorter.
    let messages = list([Message::human("go"), asks(&["t9"]), mixed].into_iter().chain(rest()));
    let pruned = apply(&messages, &prunable(&messages, 4), None).unwrap();
    assert_eq!(pruned.get(2).unwrap().items[0], Item::text("ok"));
    assert_eq!(text_of_result(&pruned, "t9"), "[pruned: search result, 500 chars]");
}

#[test]
fn a_plan_that_does_not_fit_is_refused_with_its_reason() {
    let messages = talk();
    let fold = |ranges: &[(usize, usize)]| apply(&messages, &[], Some(&folded(ranges.to_vec()))).unwrap_err();
    assert_eq!(fold(&[]), "nothing is folded");
    assert_eq!(fold(&[(0, 0)]), "the messages 0 to 0 can't be folded");
    assert_eq!(fold(&[(0, 100)]), "the messages 0 to 100 can't be folded");
    assert_eq!(fold(&[(3, 5), (0, 3)]), "the messages 0 to 3 can't be folded");
    assert_eq!(apply(&messages, &[CallId::new("z")], None).unwrap_err(), "the call z has no result in the transcript");
    let blank = Folded { ranges: vec![(0, 1)], summary: " \n".into() };
    assert_eq!(apply(&messages, &[], Some(&blank)).unwrap_err(), "the summary is empty");
}

#[test]
fn an_id_that_a_history_uses_twice_names_no_one_result() {
    let messages = list([
        Message::human("go"),
        asks(&["call_0"]),
        answers(&["call_0"]),
        asks(&["x"]),
        answers(&["x"]),
        asks(&["call_0"]),
        answers(&["call_0"]),
    ]);
    assert_eq!(ids(&prunable(&messages, protected_from(&messages, 0))), ["x"]);
}

/// A thread whose transcript is `messages`.
fn thread_of(messages: &Transcript) -> Thread {
    let mut thread = Thread::new();
    let opened = RecordBody::ThreadOpened { thread: ThreadId::new("t").unwrap(), version: 1, agent: "a".into(), parent: None };
    let messages = messages.iter().map(|message| RecordBody::MessageAdded { message: Arc::clone(message) });
    for body in std::iter::once(opened).chain(messages) {
        apply_to(&mut thread, body);
    }
    thread
}

fn apply_to(thread: &mut Thread, body: RecordBody) {
    let record = Record { seq: thread.head().next(), at: Timestamp(0), run: None, body };
    thread.apply(&record).unwrap();
}

fn compaction(pruned: Vec<CallId>, folded: Option<Folded>) -> RecordBody {
    RecordBody::ContextCompacted(Compaction {
        step: None,
        strategy: "two-phase".into(),
        tokens_before: 0,
        tokens_after: 0,
        context_window: 0,
        threshold_tokens: 0,
        pruned,
        folded,
        error: None,
        prune_only: false,
        usage: None,
    })
}

#[test]
fn what_a_provider_counted_holds_until_what_it_counted_changes() {
    let mut thread = thread_of(&list([Message::human("before")]));
    let apply_in_run = |thread: &mut Thread, body: RecordBody| {
        let record = Record { seq: thread.head().next(), at: Timestamp(0), run: Some(RunId::new("r")), body };
        thread.apply(&record).unwrap();
        Arc::new(record)
    };
    let reply = |step: u32, usage: Option<Usage>| RecordBody::ModelReplied {
        step,
        message: Arc::new(says("Hello.")),
        calls: Vec::new(),
        finish: FinishReason::Stop,
        usage,
        model: "m".into(),
        rewrote: Vec::new(),
        side: None,
    };
    let started = RecordBody::RunStarted {
        cause: RunCause::Input,
        agent: "a".into(),
        limits: RunLimits::default(),
        fingerprint: None,
        instructions: None,
        added: None,
        principal: None,
        metadata: Map::new(),
        budgets: None,
        checks_input: false,
    };
    let mut records = vec![apply_in_run(&mut thread, started)];
    let mut step = |thread: &mut Thread, number: u32, usage: Option<Usage>| {
        records.push(apply_in_run(thread, RecordBody::StepStarted { step: number }));
        records.push(apply_in_run(thread, reply(number, usage)));
        records.push(apply_in_run(thread, RecordBody::StepDone { step: number, finish: StepFinish::Stop, usage }));
    };
    let read = |tokens| Some(Usage { input_tokens: tokens, output_tokens: 5, ..Usage::default() });
    step(&mut thread, 1, None);
    assert_eq!(thread.measured(), None);
    step(&mut thread, 2, read(700));
    let measured = Some(Measured { tokens: 700, messages: 2 });
    assert_eq!(thread.measured(), measured);
    // Our own estimates, and a provider that counts nothing, say nothing new.
    step(&mut thread, 3, Some(Usage { input_tokens: 9, estimated: true, ..Usage::default() }));
    step(&mut thread, 4, read(0));
    assert_eq!(thread.measured(), measured);
    // It is saved with the fold, and so is that a summary was not enough.
    let RecordBody::ContextCompacted(nothing) = compaction(Vec::new(), None) else { panic!() };
    records.push(apply_in_run(&mut thread, RecordBody::ContextCompacted(Compaction { prune_only: true, usage: read(40), ..nothing })));
    assert_eq!(thread.measured(), measured, "nothing was changed");
    let added = Arc::new(Record {
        seq: Seq(2),
        at: Timestamp(0),
        run: None,
        body: RecordBody::MessageAdded { message: Arc::new(Message::human("before")) },
    });
    records.push(added);
    let saved = Saved::read(&thread.save().unwrap()).unwrap().complete(&records).unwrap();
    assert_eq!(saved.measured(), measured);
    for thread in [&thread, &saved] {
        let run = thread.run().unwrap();
        assert_eq!((run.prunes_only(), run.usage.unwrap().input_tokens), (true, 700 + 9 + 40));
    }
    apply_in_run(&mut thread, compaction(Vec::new(), Some(folded(vec![(0, 2)]))));
    assert_eq!(thread.measured(), None);
}

/// One turn: what was asked, results with lengths, what is pinned, system notes.
#[derive(Clone, Debug)]
enum Turn {
    Human(usize, bool),
    System(usize),
    Says(usize, bool),
    Calls(Vec<usize>, bool, bool),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let pinned = || prop::bool::weighted(0.15);
    let turn = prop_oneof![
        3 => (0..400_usize, pinned()).prop_map(|(length, pinned)| Turn::Human(length, pinned)),
        1 => (0..50_usize).prop_map(Turn::System),
        2 => (0..400_usize, pinned()).prop_map(|(length, pinned)| Turn::Says(length, pinned)),
        5 => (prop::collection::vec(0..2000_usize, 1..4), pinned(), pinned()).prop_map(|(lengths, call, result)| Turn::Calls(lengths, call, result)),
    ];
    prop::collection::vec(turn, 0..30)
}

fn transcript_of(turns: &[Turn]) -> Transcript {
    let mut out = Vec::new();
    let pin = |message: Message, pinned: bool| if pinned { pin_message(&message) } else { message };
    for (at, turn) in turns.iter().enumerate() {
        match turn {
            Turn::Human(length, pinned) => out.push(pin(Message::human("w ".repeat(*length)), *pinned)),
            Turn::System(length) => out.push(Message::text(Author::System, "n ".repeat(*length))),
            Turn::Says(length, pinned) => out.push(pin(says(&"s ".repeat(*length)), *pinned)),
            Turn::Calls(lengths, call_pinned, result_pinned) => {
                let names: Vec<String> = (0..lengths.len()).map(|index| format!("c{at}_{index}")).collect();
                out.push(pin(asks(&names.iter().map(String::as_str).collect::<Vec<_>>()), *call_pinned));
                let items = names.iter().zip(lengths).map(|(name, length)| result(name, vec![Part::text("r ".repeat(*length))])).collect();
                out.push(pin(message(Author::Tool, items), *result_pinned));
            }
        }
    }
    list(out)
}

/// Everything a compaction with these options does: prune, and then fold.
fn compacted(messages: &Transcript, protected: u64, prune: bool, fold: bool) -> (Transcript, Vec<CallId>, Option<Folded>) {
    let pruned = if prune { prunable(messages, protected_from(messages, protected)) } else { Vec::new() };
    let once = apply(messages, &pruned, None).unwrap();
    let ranges = if fold { foldable(&once, protected_from(&once, protected)) } else { Vec::new() };
    let fold = (!ranges.is_empty()).then(|| folded(ranges));
    (apply(messages, &pruned, fold.as_ref()).unwrap(), pruned, fold)
}

proptest! {
    // rule: sdk-runtime CMP-4
    // rule: sdk-runtime CMP-5
    // rule: sdk-runtime CMP-6
    // rule: sdk-runtime CMP-11
    #[test]
    fn whatever_is_compacted_stays_balanced_keeps_what_it_must_and_is_done_after_once(
        turns in turns(), protected in prop_oneof![Just(0_u64), 0..6000_u64], prune: bool, fold: bool,
    ) {
        let messages = transcript_of(&turns);
        messages.check_balance().unwrap();
        let (short, pruned, fold_made) = compacted(&messages, protected, prune, fold);
        short.check_balance().unwrap();
        // What came after the last reply is the very same.
        let newest = messages.iter().rposition(|message| message.author == Author::SideA).map_or(0, |at| at + 1);
        let tail = messages.len() - newest.min(messages.len().saturating_sub(1));
        for back in 1..=tail {
            prop_assert!(Arc::ptr_eq(messages.get(messages.len() - back).unwrap(), short.get(short.len() - back).unwrap()));
        }
        // What is pinned, what the system said, and every reply that is there: untouched, in its order.
        let must = |message: &&Arc<Message>| is_pinned(message) || message.author == Author::System;
        let (before, after): (Vec<_>, Vec<_>) = (messages.iter().filter(must).collect(), short.iter().filter(must).collect());
        prop_assert_eq!(before.len(), after.len());
        prop_assert!(before.iter().zip(&after).all(|(one, other)| Arc::ptr_eq(one, other)));
        for (at, message) in messages.iter().enumerate().filter(|(_, message)| is_pinned(message)) {
            let partner = if message.calls().next().is_some() { at + 1 } else { at.saturating_sub(1) };
            if message.calls().next().is_some() || message.results().next().is_some() {
                let partner = messages.get(partner).unwrap();
                prop_assert!(short.iter().any(|kept| Arc::ptr_eq(kept, partner)), "a pinned turn is whole");
            }
        }
        let replies = short.iter().filter(|message| message.author == Author::SideA);
        for reply in replies {
            prop_assert!(messages.iter().any(|message| Arc::ptr_eq(message, reply)), "a reply that is kept is not rewritten");
        }
        prop_assert!(short.iter().filter(|message| is_summary(message)).count() <= 1);
        // Pruning never costs tokens.
        let once = apply(&messages, &pruned, None).unwrap();
        prop_assert!(tokens::of_messages(once.iter()) <= tokens::of_messages(messages.iter()));
        // The fold of the journal gives the same, and so does a second time.
        let mut thread = thread_of(&messages);
        apply_to(&mut thread, compaction(pruned, fold_made));
        prop_assert_eq!(thread.transcript(), &short);
        let (again, pruned, fold_made) = compacted(&short, protected, prune, fold);
        prop_assert_eq!(&again, &short);
        prop_assert!(pruned.is_empty() && fold_made.is_none());
    }
}
