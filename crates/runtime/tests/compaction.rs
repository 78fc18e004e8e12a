//! Context compaction from outside: when it acts, what it leaves, and that it never costs a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use serde_json::json;
use toolwright_core::compact::{is_summary, pin_message};
use toolwright_core::{
    Author, CallId, Event, EventKind, FinishReason, Folded, Item, Message, Record, RecordBody, Seq, ThreadId, Transcript, Usage, tokens,
};
use toolwright_runtime::{
    Agent, AgentBuilder, AgentError, CLAIM_LIMIT, Claim, Compaction, CompactionFailure, CompactionPlan, CompactionRequest,
    CompactionStrategy, MemoryStore, Model, ModelError, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelSettings, ModelStream,
    NoResolvers, PruneToolResults, Store, StoreError, StoreLayer, Summarize, TwoPhase, compact_messages,
};
use toolwright_tool::{Tool, ToolError};

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// A tool whose result has about as many tokens as asked for, and names its call.
fn big() -> Tool {
    Tool::new("big", "Gives much.")
        .run_json(|args, cx| async move {
            let words = usize::try_from(args["words"].as_u64().unwrap_or_default()).unwrap_or_default();
            Ok::<_, ToolError>(format!("{} {}", cx.call_id(), "row ".repeat(words)))
        })
        .unwrap()
}

fn call_big(id: &str, words: usize) -> Item {
    Item::ToolCall(call_item(id, "big", &json!({ "words": words }).to_string()))
}

/// The answers of a model that calls `big` once a step, and is done at the step `last`.
fn working(words: usize, last: u32) -> impl Fn(&ModelRequest) -> ModelReply + Send + Sync + 'static {
    move |request| {
        if request.step >= last {
            return reply(vec![Item::text("All done.")], FinishReason::Stop);
        }
        reply(vec![Item::text("Next."), call_big(&format!("c{}", request.step), words)], FinishReason::ToolCalls)
    }
}

fn works(words: usize, last: u32) -> impl Model {
    Asked::default().by(working(words, last))
}

/// Every request that a model was asked with.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<ModelRequest>>>);

struct Keeps {
    asked: Asked,
    answer: Box<dyn Fn(&ModelRequest) -> ModelReply + Send + Sync>,
}

impl Model for Keeps {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("test", "keeps")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        let reply = (self.answer)(&request);
        self.asked.0.lock().unwrap().push(request);
        let text = Message { author: Author::SideA, items: reply.items.clone(), metadata: serde_json::Map::new() }.text_of();
        futures_util::stream::iter([Ok(ModelEvent::TextDelta(text)), Ok(ModelEvent::Done(reply))]).boxed()
    }
}

impl Asked {
    fn by(&self, answer: impl Fn(&ModelRequest) -> ModelReply + Send + Sync + 'static) -> Keeps {
        Keeps { asked: self.clone(), answer: Box::new(answer) }
    }

    fn all(&self) -> Vec<ModelRequest> {
        self.0.lock().unwrap().clone()
    }
}

fn compactions(records: &[Arc<Record>]) -> Vec<toolwright_core::Compaction> {
    let of = |record: &Arc<Record>| match &record.body {
        RecordBody::ContextCompacted(compaction) => Some(compaction.clone()),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

fn markers(messages: &Transcript) -> usize {
    results(messages).iter().filter(|result| result.text().starts_with("[pruned: big result, ")).count()
}

fn summaries(messages: &Transcript) -> Vec<String> {
    messages.iter().filter(|message| is_summary(message)).map(|message| message.text_of()).collect()
}

/// An agent that calls `big` with 1,000 tokens a step, for `last` steps, with a window of 6,000.
fn small(last: u32, compaction: Compaction, store: &MemoryStore) -> AgentBuilder<NoResolvers> {
    let compaction = compaction.context_window(6_000).protected_tokens(2_000);
    agent(works(1_000, last)).tool(big()).max_steps(100).compaction(compaction).store(store.clone())
}

// ------------------------------------------------------------------------------------------------------------- options

// rule: sdk-runtime CMP-1
#[tokio::test]
async fn options_that_can_t_be_used_are_refused_with_what_to_do() {
    let model = || Script::new([]);
    let built = |compaction: Compaction| agent(model()).compaction(compaction).build().map(|_| ());
    let new = Compaction::new;
    for (refused, sentence) in [
        (
            new().summarizer(model()).strategy(PruneToolResults),
            "compaction.summarizer is set together with compaction.strategy; leave one of them out: a strategy has its own summarizer",
        ),
        (new().threshold_percent(0.0), "compaction.threshold_percent is 0; give a number above 0 and up to 1"),
        (new().threshold_percent(1.01), "compaction.threshold_percent is 1.01; give a number above 0 and up to 1"),
        (new().threshold_percent(f64::NAN), "compaction.threshold_percent is NaN; give a number above 0 and up to 1"),
        (new().context_window(0), "compaction.context_window is 0; give a whole number of at least 1"),
        (
            new().context_window(1000).reserve_output_tokens(1000),
            "compaction.reserve_output_tokens is 1000; give less than the window of 1000 tokens",
        ),
    ] {
        let error = built(refused.clone()).unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), ("TOOLWRIGHT_CONFIG_INVALID", sentence));
        // The same where a thread, a request or a list of messages has them.
        let agent = agent(model()).build().unwrap();
        let of_thread = agent.thread("t").compaction(refused.clone()).send("go").await.unwrap_err();
        let of_request = agent.thread("t").compact_with(refused.clone()).await.unwrap_err();
        let of_messages = compact_messages(&Transcript::new(), &refused).await.unwrap_err();
        assert!([of_thread, of_request, of_messages].iter().all(|other| other.to_string() == sentence));
    }
    built(new().threshold_percent(1.0).context_window(1).protected_tokens(0)).unwrap();
}

// rule: sdk-runtime CMP-15
#[test]
fn a_model_without_a_window_is_taken_for_128000_tokens_and_that_is_said_once() {
    let warnings = Warnings::default();
    let store = MemoryStore::new();
    tracing::subscriber::with_default(warnings.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let agent = agent(works(140_000, 2)).tool(big()).result_limit(1_000_000).store(store.clone());
            let agent = agent.compaction(Compaction::new()).build().unwrap();
            let thread = agent.thread("t");
            thread.send("go").await.unwrap();
            thread.clone().compaction(Compaction::new().protected_tokens(0)).send("again").await.unwrap();
            thread.compact().await.unwrap();
        });
    });
    assert_eq!(
        warnings.all(),
        ["the context window of test/keeps is not known, so 128000 tokens are assumed; give it with `context_window`"]
    );
    let records = runtime_journal(&store);
    let all = compactions(&records);
    assert!(all.len() >= 2 && all.iter().all(|one| (one.context_window, one.threshold_tokens) == (128_000, 115_200)), "{all:?}");
}

fn runtime_journal(store: &MemoryStore) -> Vec<Arc<Record>> {
    journal(store, &id()).now_or_never().unwrap()
}

// -------------------------------------------------------------------------------------------------------- before a call

// rule: sdk-runtime CMP-2
// rule: sdk-runtime CMP-3
// rule: sdk-runtime CMP-14
// rule: sdk-runtime 57/7
#[tokio::test]
async fn it_acts_before_the_call_that_is_too_long_and_what_it_did_stays() {
    let (store, told) = (MemoryStore::new(), Log::default());
    let asked = Asked::default();
    let model = asked.by(working(1_000, 8));
    let tell = told.clone();
    let compaction = Compaction::new()
        .context_window(6_000)
        .protected_tokens(2_000)
        .on_compaction(move |done| tell.add(format!("{} {}", done.step.unwrap_or_default(), done.pruned.len())));
    let agent = agent(model).tool(big()).compaction(compaction).store(store.clone()).build().unwrap();
    let (events, reply) = collect(agent.thread("t").stream("go")).await;
    let reply = reply.unwrap();
    assert_eq!(reply.text, "All done.");
    let all = compactions(&journal(&store, &id()).await);
    // Five results of 1,000 fit below 5,400; at the sixth, all but the newest 2,000 tokens go; three more fit.
    assert_eq!(all.iter().map(|one| (one.step, one.pruned.len())).collect::<Vec<_>>(), [(Some(7), 5)], "{all:?}");
    assert_eq!(told.all(), ["7 5"]);
    for one in &all {
        assert!(one.tokens_before > one.threshold_tokens && one.tokens_after < one.threshold_tokens);
        assert_eq!((&*one.strategy, one.context_window, one.threshold_tokens), ("prune", 6_000, 5_400));
        assert!(one.error.is_none() && one.folded.is_none() && one.usage.is_none());
    }
    let lengths: Vec<usize> = asked.all().iter().map(|request| markers(&request.messages)).collect();
    assert_eq!(lengths, [0, 0, 0, 0, 0, 0, 5, 5], "the result persists in later steps");
    assert_eq!(markers(&reply.messages), 5);
    assert_eq!(reply.messages, agent.thread("t").history().await.unwrap());
    // The pair stands in its step, before what the model says.
    let brief = brief(&events);
    let at = brief.iter().position(|line| line == "compaction.start").unwrap();
    assert_eq!(brief[at - 1..at + 3], ["step.start 7", "compaction.start", "compaction.done", "text.delta"]);
    assert_eq!(brief.iter().filter(|line| line.starts_with("compaction.")).count(), 2);
    let EventKind::CompactionDone { tokens_after, pruned_tool_call_ids, summary, trigger, .. } =
        &events.iter().find(|event| event.kind.type_name() == "compaction.done").unwrap().kind
    else {
        panic!()
    };
    assert_eq!((*tokens_after, pruned_tool_call_ids.len(), summary, trigger), (all[0].tokens_after, 5, &None, &None));
}

// rule: sdk-runtime CMP-4
// rule: sdk-runtime CMP-10
// rule: sdk-runtime CMP-14
#[tokio::test]
async fn the_results_of_the_latest_turn_stay_even_if_they_alone_are_too_long() {
    let (store, told) = (MemoryStore::new(), Log::default());
    let script = Script::new([items_of(vec![call_big("a", 9_000), call_big("b", 9_000)], FinishReason::ToolCalls), say("done")]);
    let tell = told.clone();
    let compaction = Compaction::new().context_window(6_000).protected_tokens(0).on_compaction(move |_| tell.add("told"));
    let agent = agent(script.clone()).tool(big()).compaction(compaction).store(store.clone()).build().unwrap();
    let (events, reply) = collect(agent.thread("t").stream("go")).await;
    assert_eq!(reply.unwrap().text, "done");
    assert_eq!(markers(&script.asked()[1].messages), 0);
    let done = compactions(&journal(&store, &id()).await);
    assert_eq!((done.len(), done[0].tokens_after), (1, done[0].tokens_before), "tried once for the step");
    assert_eq!(brief(&events).iter().filter(|line| line.starts_with("compaction.")).count(), 2);
    assert_eq!(told.len(), 0, "nothing was done, nobody is told");
}

// rule: sdk-runtime CMP-2
// rule: sdk-runtime CMP-3
#[tokio::test]
async fn a_long_run_stays_within_a_small_window_and_the_journal_keeps_every_result() {
    let store = MemoryStore::new();
    let asked = Asked::default();
    let model = asked.by(working(3_000, 60));
    let compaction = Compaction::new().context_window(20_000);
    let agent = agent(model).tool(big()).max_steps(60).compaction(compaction).store(store.clone()).build().unwrap();
    let reply = within(agent.thread("t").send("go")).await.unwrap();
    assert_eq!((reply.finish_reason.clone(), reply.steps), (FinishReason::Stop, 60));
    let requests = asked.all();
    assert_eq!(requests.len(), 60);
    for request in &requests {
        request.messages.check_balance().unwrap();
        let size = tokens::of_messages(request.messages.iter());
        assert!(size <= 18_000, "step {}: {size} tokens", request.step);
        assert_eq!(request.messages.len(), 1 + 2 * (request.step as usize - 1), "pruning takes no message away");
    }
    let records = journal(&store, &id()).await;
    let kept = records.iter().filter(|record| match &record.body {
        RecordBody::CallDone { outcome, .. } => serde_json::to_string(outcome).unwrap().len() > 12_000,
        _ => false,
    });
    assert_eq!(kept.count(), 59);
    // A snapshot was saved on the way; what is loaded with it, and what is loaded without, is the transcript of the run.
    assert!(store.snapshot(&id()).await.unwrap().is_some());
    let without = common::agent(Script::new([])).store(store_of(&id(), &records).await).build().unwrap();
    assert_eq!(agent.thread("t").history().await.unwrap(), reply.messages);
    assert_eq!(without.thread("t").history().await.unwrap(), reply.messages);
    // The thread's events, read from the journal, have each pair once and no result of the transcript's markers.
    let events: Vec<Event> = agent.thread("t").events_so_far(Seq(0)).unwrap().try_collect().await.unwrap();
    let pairs = brief(&events).iter().filter(|line| line.starts_with("compaction.")).count();
    assert_eq!(pairs, 2 * compactions(&records).len());
    let whole = |event: &&Event| matches!(&event.kind, EventKind::ToolDone { result, .. } if result.to_string().len() > 12_000);
    assert_eq!(events.iter().filter(whole).count(), 59);
}

#[tokio::test]
async fn what_a_provider_counts_is_the_least_that_is_believed() {
    let store = MemoryStore::new();
    let model = Answers::new(|request| {
        let usage = Usage { input_tokens: u64::from(request.step) * 1_000, output_tokens: 1, ..Usage::default() };
        let items = if request.step < 7 { vec![call_big(&format!("c{}", request.step), 100)] } else { vec![Item::text("done")] };
        ModelReply { items, finish: FinishReason::Stop, usage: Some(usage), model: None }
    });
    let compaction = Compaction::new().context_window(6_000).protected_tokens(0);
    let agent = agent(model).tool(big()).compaction(compaction).store(store.clone()).build().unwrap();
    let reply = agent.thread("t").send("go").await.unwrap();
    // By our own count it is never above 1,000.
    let all = compactions(&journal(&store, &id()).await);
    assert_eq!(all.iter().map(|one| (one.step, one.pruned.len())).collect::<Vec<_>>(), [(Some(7), 5)], "{all:?}");
    // The count of step 6, and the reply and the result since.
    assert!((6_100..6_200).contains(&all[0].tokens_before), "{all:?}");
    assert!(all[0].tokens_after < all[0].tokens_before);
    assert_eq!(reply.text, "done");
}

#[tokio::test]
async fn the_room_of_the_reply_is_not_filled() {
    for (settings, reserve, expected) in
        [(None, None, 5_400), (Some(1_000), None, 5_000), (Some(5_000), None, 5_400), (Some(1_000), Some(2_000), 4_000)]
    {
        let store = MemoryStore::new();
        let settings = ModelSettings { max_tokens: settings, ..ModelSettings::default() };
        let mut compaction = Compaction::new();
        if let Some(reserve) = reserve {
            compaction = compaction.reserve_output_tokens(reserve);
        }
        small(8, compaction, &store).settings(settings).build().unwrap().thread("t").send("go").await.unwrap();
        assert_eq!(compactions(&journal(&store, &id()).await)[0].threshold_tokens, expected);
    }
}

// ----------------------------------------------------------------------------------------------------------- summaries

// rule: sdk-runtime CMP-6
// rule: sdk-runtime CMP-14
#[tokio::test]
async fn older_turns_become_one_summary_that_no_event_shows() {
    let store = MemoryStore::new();
    let summarizer = Script::new([say("[Conversation summary]\n They fetched SECRET rows. \n")]);
    let strategy = Summarize::new(summarizer.clone()).prompt("Be brief.").max_summary_tokens(77);
    let agent = small(8, Compaction::new().strategy(strategy), &store).build().unwrap();
    let pinned = pin_message(&Message::human("never forget"));
    let (events, reply) = collect(agent.thread("t").stream(vec![pinned, Message::human("go")])).await;
    let reply = reply.unwrap();
    reply.messages.check_balance().unwrap();
    assert_eq!(reply.messages.get(0).unwrap().text_of(), "never forget");
    assert_eq!(summaries(&reply.messages), ["[Conversation summary]\nThey fetched SECRET rows."]);
    assert!(is_summary(reply.messages.get(1).unwrap()));
    // The instruction is the system's, the conversation one message of a person.
    let asked = summarizer.asked();
    assert_eq!((asked.len(), &*asked[0].instructions, asked[0].tools.len(), asked[0].settings.max_tokens), (1, "Be brief.", 0, Some(77)));
    assert_eq!((asked[0].messages.len(), &asked[0].messages.get(0).unwrap().author), (1, &Author::Human));
    let text = asked[0].messages.get(0).unwrap().text_of();
    assert!(
        text.starts_with("Person: go\n\nAssistant: Next.\n\nAssistant calls big with {\"words\":1000}\n\nTool big gives: \"c1 row row"),
        "{text}"
    );
    assert!(!text.contains("never forget"));
    let done = &compactions(&journal(&store, &id()).await)[0];
    assert_eq!((&*done.strategy, done.pruned.len(), done.error.as_deref()), ("summarize", 0, None));
    let shown = serde_json::to_string(&events).unwrap();
    assert!(!shown.contains("SECRET"), "the summary is in no event");
    let told = events.iter().find_map(|event| match &event.kind {
        EventKind::CompactionDone { summary, .. } => Some(*summary),
        _ => None,
    });
    assert_eq!(told, Some(Some(true)));
}

// rule: sdk-runtime CMP-7
#[tokio::test]
async fn two_phases_prune_and_summarize_only_what_pruning_leaves_too_long() {
    // Pruning is enough: the summarizer is never asked.
    let (store, summarizer) = (MemoryStore::new(), Script::new([]));
    small(8, Compaction::new().summarizer(summarizer.clone()), &store).build().unwrap().thread("t").send("go").await.unwrap();
    let done = compactions(&journal(&store, &id()).await);
    assert_eq!((done.len(), &*done[0].strategy, done[0].pruned.len(), summarizer.times()), (1, "two-phase", 5, 0));
    // A person's long messages can't be pruned.
    let usage = Usage { input_tokens: 500, output_tokens: 20, ..Usage::default() };
    let summarizer = Asked::default();
    let writes = summarizer.by(move |_| ModelReply { usage: Some(usage), ..reply(vec![Item::text("Rows.")], FinishReason::Stop) });
    let store = MemoryStore::new();
    let thread = small(3, Compaction::new().summarizer(writes), &store).build().unwrap().thread("t");
    thread.send("word ".repeat(2_800)).await.unwrap();
    let reply = thread.send("word ".repeat(2_800)).await.unwrap();
    let done = compactions(&journal(&store, &id()).await);
    let asked = summarizer.all();
    assert_eq!((done.len(), asked.len(), done[0].step, asked[0].step), (1, 1, Some(4), 4), "{done:?}");
    let read = asked[0].messages.get(0).unwrap().text_of();
    assert!(read.contains("Tool big gives: [pruned: big result, ") && !read.contains("row row"), "it reads the pruned text");
    assert!(done[0].pruned.is_empty(), "what was folded away is no marker");
    assert_eq!(summaries(&reply.messages), ["[Conversation summary]\nRows."]);
    assert!(done[0].tokens_after <= done[0].threshold_tokens);
    // What it cost is counted, and nothing else here costs anything.
    assert_eq!((done[0].usage, reply.usage), (Some(usage), Some(usage)));
}

struct Fails(&'static str);

impl Model for Fails {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("test", "fails")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        let answer = match self.0 {
            "error" => fails(ModelError::new("test", "no capacity")),
            "nothing" => say(" \n"),
            "filtered" => items_of(vec![Item::text("I can")], FinishReason::ContentFilter),
            "cut" => stream_of(Vec::new()),
            "silent" => then_silence(Vec::new()),
            _ => panic!("a model's own code"),
        };
        answer(&request)
    }
}

// rule: sdk-runtime CMP-8
#[tokio::test(start_paused = true)]
async fn a_summarizer_that_fails_costs_the_summary_and_older_results_become_markers() {
    for (how, error) in [
        ("error", "the summarizer failed: test: no capacity"),
        ("nothing", "the summarizer failed: test/fails wrote nothing"),
        ("filtered", "the summarizer failed: test/fails ended with content_filter"),
        ("cut", "the summarizer failed: test: the reply ended before it was complete"),
        ("silent", "the summarizer failed: test/fails did not end within 10 s"),
        ("panic", "the summarizer failed: the code of test/fails panicked"),
    ] {
        for strategy in ["summarize", "two-phase"] {
            let store = MemoryStore::new();
            let compaction = match strategy {
                "summarize" => Compaction::new().strategy(Summarize::new(Fails(how))),
                _ => Compaction::new().strategy(TwoPhase::new(Fails(how))),
            };
            let agent = small(6, compaction, &store).model_timeout(Duration::from_secs(10)).build().unwrap();
            let (events, reply) = collect(agent.thread("t").stream("word ".repeat(5_000))).await;
            assert_eq!(reply.unwrap().text, "All done.");
            let done = compactions(&journal(&store, &id()).await);
            assert_eq!((&*done[0].strategy, done[0].error.as_deref()), (strategy, Some(error)));
            assert!(done[0].folded.is_none() && !done[0].prune_only);
            let told = events
                .iter()
                .any(|event| matches!(&event.kind, EventKind::CompactionDone { error: Some(told), .. } if told.message == error));
            assert!(told, "{how}");
        }
    }
    // Where there are older results, they are pruned in its place.
    let store = MemoryStore::new();
    let agent = small(8, Compaction::new().strategy(Summarize::new(Fails("error"))), &store).build().unwrap();
    agent.thread("t").send("go").await.unwrap();
    assert_eq!(compactions(&journal(&store, &id()).await)[0].pruned.len(), 5);
}

// rule: sdk-runtime CMP-9
#[tokio::test]
async fn a_summary_that_is_not_enough_is_not_used_and_the_run_prunes_from_then_on() {
    let store = MemoryStore::new();
    let summarizer = Asked::default();
    let writes = summarizer.by(|_| reply(vec![Item::text("long ".repeat(5_000))], FinishReason::Stop));
    // A summary of 5,000 tokens beside 2,000 that stay is above 5,400.
    let agent = small(16, Compaction::new().strategy(Summarize::new(writes)), &store).build().unwrap();
    let thread = agent.thread("t");
    let reply = thread.send("go").await.unwrap();
    assert!(summaries(&reply.messages).is_empty());
    let done = compactions(&journal(&store, &id()).await);
    let names: Vec<&str> = done.iter().map(|one| &*one.strategy).collect();
    assert!(names.len() >= 2 && names[0] == "summarize" && names[1..].iter().all(|name| *name == "prune"), "{names:?}");
    assert_eq!(summarizer.all().len(), 1, "it is asked once in the run");
    assert!(done[0].prune_only && done[0].pruned.len() == 5 && done[1..].iter().all(|one| !one.prune_only && one.error.is_none()));
    let error = done[0].error.clone().unwrap();
    assert!(
        error.starts_with("the summary is not enough: ") && error.ends_with(" tokens where 5400 are wanted; it was not used"),
        "{error}"
    );
    assert!(done[0].tokens_after < done[0].threshold_tokens);
    // The next run tries again.
    thread.send("word ".repeat(5_000)).await.unwrap();
    assert_eq!(summarizer.all().len(), 2);
}

#[tokio::test]
async fn a_reply_that_is_kept_has_its_reasoning_and_signature_as_they_came() {
    let store = MemoryStore::new();
    let thinks = |step: u32| Item::Reasoning {
        text: format!("thought {step}"),
        signature: Some(format!("signed {step}")),
        provenance: Some("test/answers".to_owned()),
        encrypted: None,
    };
    let model = Answers::new(move |request| match request.step {
        step if step < 12 => reply(vec![thinks(step), call_big(&format!("c{step}"), 1_000)], FinishReason::ToolCalls),
        step => reply(vec![thinks(step), Item::text("done")], FinishReason::Stop),
    });
    let summarizer = Asked::default();
    let writes = summarizer.by(|_| reply(vec![Item::text("Rows.")], FinishReason::Stop));
    let compaction = Compaction::new().strategy(Summarize::new(writes)).context_window(6_000).protected_tokens(2_000);
    let agent = agent(model).tool(big()).max_steps(20).compaction(compaction).store(store.clone()).build().unwrap();
    let reply = agent.thread("t").send("go").await.unwrap();
    let replied: Vec<Arc<Message>> = journal(&store, &id())
        .await
        .iter()
        .filter_map(|record| match &record.body {
            RecordBody::ModelReplied { message, .. } => Some(Arc::clone(message)),
            _ => None,
        })
        .collect();
    let kept: Vec<&Arc<Message>> = reply.messages.iter().filter(|message| message.author == Author::SideA).collect();
    assert!(kept.len() < replied.len() && kept.len() >= 2);
    assert!(kept.iter().zip(&replied[replied.len() - kept.len()..]).all(|(kept, replied)| *kept == replied));
    // What a model thought is handed to no other.
    assert!(summarizer.all().iter().all(|request| !request.messages.get(0).unwrap().text_of().contains("thought")));
}

#[tokio::test]
async fn a_conversation_that_is_too_long_for_the_summarizer_is_cut_for_it() {
    struct Narrow(Asked);
    impl Model for Narrow {
        fn info(&self) -> ModelInfo {
            ModelInfo { context_window: Some(4_000), ..ModelInfo::new("test", "narrow") }
        }
        fn stream(&self, request: ModelRequest) -> ModelStream {
            self.0.by(|_| reply(vec![Item::text("Rows.")], FinishReason::Stop)).stream(request)
        }
    }
    for words in [3_000, 30_000] {
        let asked = Asked::default();
        let first = "\u{4E2D}\u{6587}\u{5B57} ".repeat(words / 10);
        let mut messages: Vec<Message> = vec![Message::human(first)];
        for at in 0..12 {
            let mut call = call_item("x", "big", "{}");
            call.call_id = CallId::new(format!("c{at}"));
            let result = toolwright_core::ResultItem {
                call_id: call.call_id.clone(),
                provider_id: None,
                tool_name: "big".to_owned(),
                parts: vec![toolwright_core::Part::text("row ".repeat(words))],
                failed: None,
                approval: None,
                marks: toolwright_core::taint::Marks::default(),
            };
            messages.push(Message { author: Author::SideA, items: vec![Item::ToolCall(call)], metadata: serde_json::Map::new() });
            messages.push(Message { author: Author::Tool, items: vec![Item::ToolResult(result)], metadata: serde_json::Map::new() });
        }
        let options = Compaction::new().strategy(Summarize::new(Narrow(asked.clone())).max_summary_tokens(200)).protected_tokens(0);
        let done = compact_messages(&messages.into_iter().collect(), &options).await.unwrap();
        assert_eq!((done.error, done.summary.as_deref()), (None, Some("Rows.")));
        let request = &asked.all()[0];
        let size = tokens::of_messages(request.messages.iter()) + tokens::of_text(&request.instructions) + 200;
        assert!((1_000..=4_000).contains(&size), "{size}");
    }
}

// ---------------------------------------------------------------------------------------------------------- strategies

type Plans = Box<dyn Fn(&CompactionRequest) -> Result<CompactionPlan, CompactionFailure> + Send + Sync>;

struct Own(Plans);

fn own(plan: impl Fn(&CompactionRequest) -> Result<CompactionPlan, CompactionFailure> + Send + Sync + 'static) -> Own {
    Own(Box::new(plan))
}

impl CompactionStrategy for Own {
    fn name(&self) -> &'static str {
        "own"
    }

    fn plan<'a>(&'a self, request: &'a CompactionRequest) -> BoxFuture<'a, Result<CompactionPlan, CompactionFailure>> {
        async move { (self.0)(request) }.boxed()
    }
}

/// A strategy that never ends.
struct Hangs;

impl CompactionStrategy for Hangs {
    fn name(&self) -> &'static str {
        "hangs"
    }

    fn plan<'a>(&'a self, _request: &'a CompactionRequest) -> BoxFuture<'a, Result<CompactionPlan, CompactionFailure>> {
        std::future::pending().boxed()
    }
}

// rule: sdk-runtime CMP-10
#[tokio::test]
async fn a_strategy_of_ones_own_is_given_what_it_needs_and_its_plan_is_done() {
    let store = MemoryStore::new();
    let (seen, told) = (Log::default(), Log::default());
    let (saw, tell) = (seen.clone(), told.clone());
    let strategy = own(move |request| {
        let half = request.messages.iter().take(3).cloned().collect::<Transcript>();
        assert!(request.count(&half) < request.tokens && request.count(&request.messages) == request.tokens);
        assert!(!request.cancelled.is_cancelled() && request.thread == Some(id()) && request.run.is_some() && !request.forced);
        saw.add(format!("{:?} {} {} {}", request.step, request.context_window, request.threshold_tokens, request.protected_tokens));
        if request.step == Some(7) {
            return Ok(CompactionPlan::nothing());
        }
        let folded = Folded { ranges: vec![(0, 5)], summary: "Older rows were left out.".into() };
        Ok(CompactionPlan { pruned: vec![CallId::new("c3"), CallId::new("c4")], folded: Some(folded), ..CompactionPlan::default() })
    });
    let compaction = Compaction::new().strategy(strategy).on_compaction(move |done| tell.add(format!("{:?}", done.step)));
    let reply = small(9, compaction, &store).build().unwrap().thread("t").send("go").await.unwrap();
    assert_eq!(seen.all(), ["Some(7) 6000 5400 2000", "Some(8) 6000 5400 2000"]);
    assert_eq!(told.all(), ["Some(8)"]);
    assert_eq!(summaries(&reply.messages), ["[Conversation summary]\nOlder rows were left out."]);
    assert_eq!(markers(&reply.messages), 2);
    let done = compactions(&journal(&store, &id()).await);
    assert_eq!(done.iter().map(|one| &*one.strategy).collect::<Vec<_>>(), ["own", "own"]);
}

// rule: sdk-runtime CMP-8
// case: field-reports 41
#[tokio::test(start_paused = true)]
async fn a_strategy_that_fails_or_asks_for_what_may_not_be_changes_nothing_and_the_run_goes_on() {
    let folds = |range: (usize, usize)| {
        own(move |_| {
            let folded = Folded { ranges: vec![range], summary: "x".into() };
            Ok(CompactionPlan { folded: Some(folded), ..CompactionPlan::default() })
        })
    };
    let prunes = |call: &'static str| own(move |_| Ok(CompactionPlan { pruned: vec![CallId::new(call)], ..CompactionPlan::default() }));
    let cases: Vec<(Compaction, &str)> = vec![
        (Compaction::new().strategy(own(|_| Err("no idea".into()))), "no idea"),
        (Compaction::new().strategy(own(|_| panic!("a strategy's own code"))), "the code of the strategy `own` panicked"),
        (Compaction::new().strategy(Hangs), "the strategy `hangs` did not end within 10 s"),
        // The cut that drops a call and keeps its result, and the other way round.
        (Compaction::new().strategy(folds((0, 2))), "the plan of `own` can't be used: the transcript is not balanced at message 1"),
        (Compaction::new().strategy(folds((2, 4))), "the plan of `own` can't be used: the transcript is not balanced at message 2"),
        (Compaction::new().strategy(folds((1, 99))), "the plan of `own` can't be used: the messages 1 to 99 can't be folded"),
        (
            Compaction::new().strategy(prunes("c6")),
            "the plan of `own` can't be used: the result of c6 is one of the last reply's, which stay",
        ),
        (Compaction::new().strategy(prunes("zz")), "the plan of `own` can't be used: the call zz has no result in the transcript"),
    ];
    for (compaction, error) in cases {
        let store = MemoryStore::new();
        let agent = small(7, compaction, &store).model_timeout(Duration::from_secs(10)).build().unwrap();
        let reply = agent.thread("t").send("go").await.unwrap();
        assert_eq!((reply.text.as_str(), reply.messages.len()), ("All done.", 14));
        reply.messages.check_balance().unwrap();
        let done = compactions(&journal(&store, &id()).await);
        assert_eq!(done.len(), 1);
        assert!(done[0].error.as_deref().is_some_and(|told| told.starts_with(error)), "{:?} is not {error}", done[0].error);
        assert_eq!((done[0].tokens_after, done[0].pruned.len(), &done[0].folded), (done[0].tokens_before, 0, &None));
    }
}

#[tokio::test]
async fn somebody_who_panics_when_told_costs_nothing() {
    let store = MemoryStore::new();
    let compaction = Compaction::new().on_compaction(|_| panic!("the application's own code"));
    let reply = small(8, compaction, &store).build().unwrap().thread("t").send("go").await.unwrap();
    assert_eq!((reply.text.as_str(), markers(&reply.messages)), ("All done.", 5));
}

// ------------------------------------------------------------------------------------------------- stopped, redirected

/// An agent whose summarizer is silent at first, and a run that waits for it.
async fn waiting(summarizer: &Arc<Script>, store: &MemoryStore) -> (Agent, toolwright_runtime::RunStream) {
    let compaction = Compaction::new().strategy(Summarize::new(summarizer.clone()));
    let agent = small(8, compaction, store).build().unwrap();
    let mut run = agent.thread("t").stream("go");
    until(&mut run, |event| matches!(event, EventKind::StepStart { step: 7 })).await;
    while summarizer.times() == 0 {
        tokio::task::yield_now().await;
    }
    (agent, run)
}

#[tokio::test]
async fn a_run_that_is_stopped_stops_its_summarizer_and_keeps_nothing_it_did_not_say() {
    let (store, summarizer) = (MemoryStore::new(), Script::new([then_silence(Vec::new())]));
    let (agent, run) = waiting(&summarizer, &store).await;
    run.cancel("enough");
    let reply = within(run).await.unwrap();
    assert_eq!(reply.finish_reason, FinishReason::Aborted);
    assert!(summarizer.asked()[0].cancelled.is_cancelled());
    // The text of the step before is not taken for what this step's model had said.
    assert_eq!(reply.messages.len(), 13);
    assert!(reply.messages.last().unwrap().results().next().is_some());
    assert!(compactions(&journal(&store, &id()).await).is_empty());
    assert_eq!(agent.thread("t").send("go on").await.unwrap().text, "All done.");
}

#[tokio::test]
async fn input_that_steers_does_not_wait_for_a_summary() {
    let (store, summarizer) = (MemoryStore::new(), Script::new([then_silence(Vec::new()), say("Rows.")]));
    let (_, run) = waiting(&summarizer, &store).await;
    let ticket = run.steer("no, the other").await.unwrap();
    let reply = within(run).await.unwrap();
    assert!(ticket.joined_run().await.unwrap());
    assert!(summarizer.asked()[0].cancelled.is_cancelled());
    assert_eq!((reply.text.as_str(), summaries(&reply.messages).len()), ("All done.", 1));
    let done = compactions(&journal(&store, &id()).await);
    assert_eq!(done.iter().map(|one| one.step).collect::<Vec<_>>(), [Some(8)]);
    assert!(reply.messages.iter().any(|message| message.text_of() == "no, the other"));
}

// -------------------------------------------------------------------------------------------------------- crash, resume

/// A run that prunes, then summarizes, then is refused a summary: its model reports what it read.
fn whole(store: MemoryStore) -> (Agent, Asked, Asked) {
    let (asked, summarizer) = (Asked::default(), Asked::default());
    let model = asked.by(|request| {
        let input_tokens = tokens::of_messages(request.messages.iter()) * 12 / 10;
        let usage = Some(Usage { input_tokens, output_tokens: 10, ..Usage::default() });
        let text = Item::text("word ".repeat(100));
        let (items, finish) = if request.step < 24 {
            let calls = [call_big(&format!("a{}", request.step), 75), call_big(&format!("b{}", request.step), 75)];
            ([vec![text], calls.to_vec()].concat(), FinishReason::ToolCalls)
        } else {
            (vec![text], FinishReason::Stop)
        };
        ModelReply { items, finish, usage, model: None }
    });
    let writes = summarizer.by(|request| {
        let length = request.messages.get(0).unwrap().text_of().len();
        let words = if request.step < 12 { 10 } else { 2_000 };
        reply(vec![Item::text(format!("Of {length}. {}", "sum ".repeat(words)))], FinishReason::Stop)
    });
    let compaction = Compaction::new().summarizer(writes).context_window(2_000).protected_tokens(500);
    let agent = agent(model).tool(big()).max_steps(30).compaction(compaction).store(store).build().unwrap();
    (agent, asked, summarizer)
}

// rule: sdk-runtime CMP-3
// rule: sdk-runtime CMP-9
#[tokio::test]
async fn after_a_crash_at_any_record_a_model_sees_the_same() {
    let store = MemoryStore::new();
    let (agent, asked, _) = whole(store.clone());
    let expected = agent.thread("t").send("go").await.unwrap().messages;
    expected.check_balance().unwrap();
    let seen: Vec<(u32, Transcript)> = asked.all().into_iter().map(|request| (request.step, request.messages)).collect();
    let records = journal(&store, &id()).await;
    let done = compactions(&records);
    assert!(done.iter().any(|one| one.folded.is_none() && one.error.is_none()), "one prunes");
    assert!(done.iter().any(|one| one.folded.is_some()), "one summarizes");
    assert!(done.iter().any(|one| one.prune_only) && done.last().is_some_and(|one| &*one.strategy == "prune"), "one is refused: {done:?}");
    let first = records.iter().position(|record| matches!(record.body, RecordBody::StepStarted { .. })).unwrap();
    for cut in first + 1..records.len() {
        let prefix = &records[..cut];
        let (agent, asked, summarizer) = whole(store_of(&id(), prefix).await);
        let reply = within(agent.thread("t").resume()).await.unwrap();
        assert_eq!(reply.messages, expected, "cut after {cut}");
        // Each model call is the one that it would have been.
        let from = seen.len() - asked.all().len();
        let now: Vec<(u32, Transcript)> = asked.all().into_iter().map(|request| (request.step, request.messages)).collect();
        assert!(now == seen[from..], "cut after {cut}");
        // What was journaled is not summarized again.
        let kept: BTreeSet<u32> = compactions(prefix).iter().filter_map(|one| one.step).collect();
        assert!(summarizer.all().iter().all(|request| !kept.contains(&request.step)), "cut after {cut}");
    }
}

// ------------------------------------------------------------------------------------------------------------ on request

// rule: sdk-runtime CMP-13
// rule: sdk-runtime CMP-14
// rule: sdk-runtime SES-12
#[tokio::test]
async fn a_thread_is_compacted_on_request_and_says_what_that_did() {
    let store = MemoryStore::new();
    let agent = agent(works(1_000, 4)).tool(big()).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    // Nothing yet: nothing is done, and nothing comes to be.
    let none = thread.compact().await.unwrap();
    assert_eq!((none.messages_before, none.messages_after, none.tokens_before == none.tokens_after), (0, 0, true));
    assert!(thread.info().await.unwrap().is_none());
    thread.send("go").await.unwrap();
    // Below any threshold; what is protected stays protected.
    let outcome = thread.compact().await.unwrap();
    assert_eq!((outcome.messages_before, outcome.messages_after, outcome.tokens_after), (8, 8, outcome.tokens_before));
    let outcome = thread.compact_with(Compaction::new().protected_tokens(0)).await.unwrap();
    assert_eq!((&*outcome.strategy, outcome.error.clone(), outcome.messages_after), ("prune", None, 8));
    assert!(outcome.tokens_before > 3_000 && outcome.tokens_after < 500, "{outcome:?}");
    assert_eq!(markers(&thread.history().await.unwrap()), 3);
    // A summary on request, though there is room enough.
    let told = Log::default();
    let tell = told.clone();
    let options = Compaction::new()
        .summarizer(Script::new([say("Three fetches.")]))
        .protected_tokens(0)
        .on_compaction(move |done| tell.add(done.strategy.to_string()));
    let outcome = thread.compact_with(options.clone()).await.unwrap();
    assert_eq!((&*outcome.strategy, outcome.messages_before, outcome.messages_after), ("two-phase", 8, 2));
    assert_eq!(told.all(), ["two-phase"]);
    let history = thread.history().await.unwrap();
    assert_eq!(summaries(&history), ["[Conversation summary]\nThree fetches."]);
    assert_eq!(history.last().unwrap().text_of(), "All done.");
    // Once more, there is nothing left to do.
    let outcome = thread.compact_with(options).await.unwrap();
    assert_eq!((outcome.messages_before, outcome.messages_after, outcome.error), (2, 2, None));
    // Those who watch the thread see each, as asked for by somebody; what came before stands in the journal.
    let events: Vec<Event> = thread.events_so_far(Seq(0)).unwrap().try_collect().await.unwrap();
    let manual = |event: &&Event| match &event.kind {
        EventKind::CompactionStart { trigger, .. } | EventKind::CompactionDone { trigger, .. } => trigger.as_deref() == Some("manual"),
        _ => false,
    };
    assert_eq!(events.iter().filter(manual).count(), 8);
    assert!(!serde_json::to_string(&events).unwrap().contains("Three fetches."));
    // The thread goes on with what is left.
    assert_eq!(thread.send("and now?").await.unwrap().text, "All done.");
}

/// A strategy that does nothing under a name.
struct Named(&'static str);

impl CompactionStrategy for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn plan<'a>(&'a self, _request: &'a CompactionRequest) -> BoxFuture<'a, Result<CompactionPlan, CompactionFailure>> {
        async { Ok(CompactionPlan::nothing()) }.boxed()
    }
}

// rule: sdk-runtime CMP-13
#[tokio::test]
async fn the_strategy_is_that_of_the_request_else_the_thread_s_else_the_agent_s() {
    let named = |name: &'static str| Compaction::new().strategy(Named(name));
    let plain = agent(Script::new([say("hi")])).build().unwrap();
    let thread = plain.thread("t");
    thread.send("go").await.unwrap();
    assert_eq!(&*thread.compact().await.unwrap().strategy, "prune");
    let agent = agent(Script::new([say("hi")])).compaction(named("agent").context_window(50)).build().unwrap();
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    assert_eq!(&*thread.compact().await.unwrap().strategy, "agent");
    let own = thread.clone().compaction(named("thread"));
    assert_eq!(&*own.compact().await.unwrap().strategy, "thread");
    assert_eq!(&*own.compact_with(Compaction::new().protected_tokens(1)).await.unwrap().strategy, "thread");
    assert_eq!(&*own.compact_with(named("request")).await.unwrap().strategy, "request");
    // A summarizer is a choice of strategy too.
    assert_eq!(&*own.compact_with(Compaction::new().summarizer(Script::new([]))).await.unwrap().strategy, "two-phase");
    // A thread's options hold in its runs, what they leave open is the agent's.
    let store = MemoryStore::new();
    let agent = small(8, Compaction::new(), &store).build().unwrap();
    agent.thread("t").compaction(named("thread")).send("go").await.unwrap();
    let done = compactions(&journal(&store, &id()).await);
    assert!(done.iter().all(|one| (&*one.strategy, one.context_window) == ("thread", 6_000)) && !done.is_empty());
}

// rule: sdk-runtime CMP-13
// rule: sdk-runtime DSE-10
#[tokio::test]
async fn a_thread_that_does_not_rest_is_not_compacted() {
    let store = MemoryStore::new();
    let asks = Tool::new("act", "Acts.").needs_approval().run_json(|args, _| async move { Ok::<_, ToolError>(args) }).unwrap();
    let agent = agent(Script::new([calls([("c1", "act", "{}")]), say("done")])).tool(asks).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    let head = journal(&store, &id()).await.len();
    let error = thread.compact().await.unwrap_err();
    assert!(matches!(error, AgentError::AwaitingApproval { .. }) && error.code() == "TOOLWRIGHT_SESSION_AWAITING_APPROVAL");
    let claim = store.claim(&id()).await.unwrap();
    let error = thread.compact().await.unwrap_err();
    assert!(matches!(error, AgentError::Store(StoreError::Busy { .. })) && error.code() == "TOOLWRIGHT_SESSION_BUSY");
    drop(claim);
    let records = journal(&store, &id()).await;
    assert_eq!(records.len(), head, "nothing is written");
    let cut = records.iter().position(|record| matches!(record.body, RecordBody::StepStarted { .. })).unwrap();
    let interrupted = common::agent(Script::new([])).store(store_of(&id(), &records[..=cut]).await).build().unwrap();
    let error = interrupted.thread("t").compact().await.unwrap_err();
    assert!(matches!(error, AgentError::Interrupted { .. }) && error.code() == "TOOLWRIGHT_SESSION_TURN_PENDING");
}

/// A store that counts signs of life.
struct Counts(MemoryStore, Log);

impl StoreLayer for Counts {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn renew<'a>(&'a self, claim: &'a dyn Claim) -> toolwright_runtime::Answer<'a, ()> {
        self.1.add("renewed");
        self.0.renew(claim)
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_summary_on_request_gives_signs_of_life() {
    let renewed = Log::default();
    let agent = agent(works(1_000, 4)).tool(big()).store(Counts(MemoryStore::new(), renewed.clone())).build().unwrap();
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    renewed.take();
    // A summarizer that takes longer than an owner may be silent.
    let pause = CLAIM_LIMIT * 2;
    let slow: Answer = Box::new(move |request| {
        let answer = say("Rows.")(request);
        async move {
            tokio::time::sleep(pause).await; // paused clock
            answer
        }
        .flatten_stream()
        .boxed()
    });
    let options = Compaction::new().summarizer(Script::new([slow])).protected_tokens(0);
    assert_eq!(thread.compact_with(options).await.unwrap().messages_after, 2);
    assert!((11..=12).contains(&renewed.len()), "{}", renewed.len());
}

// rule: sdk-runtime CMP-12
#[tokio::test]
async fn a_list_of_messages_is_compacted_whatever_its_length_and_left_as_it_is() {
    let agent = agent(works(1_000, 4)).tool(big()).build().unwrap();
    let messages = agent.send("go").await.unwrap().messages;
    let before = messages.clone();
    let done = compact_messages(&messages, &Compaction::new().protected_tokens(0)).await.unwrap();
    assert_eq!(messages, before);
    assert_eq!((markers(&done.messages), done.pruned.len(), done.summary, &*done.strategy), (3, 3, None, "prune"));
    assert_eq!((done.tokens_before, done.tokens_after), (tokens::of_messages(before.iter()), tokens::of_messages(done.messages.iter())));
    let options = Compaction::new().summarizer(Script::new([say("Rows.")])).protected_tokens(0);
    let done = compact_messages(&messages, &options).await.unwrap();
    assert_eq!((done.messages.len(), done.summary.as_deref(), done.error), (2, Some("Rows."), None));
    done.messages.check_balance().unwrap();
    let again = compact_messages(&done.messages, &options).await.unwrap();
    assert_eq!(again.messages, done.messages, "a summary by itself is not summarized anew");
    let none = compact_messages(&Transcript::new(), &options).await.unwrap();
    assert!(none.messages.is_empty() && none.error.is_none());
    // One that is torn already is not taken.
    let torn: Transcript = messages.iter().skip(2).cloned().collect();
    assert!(matches!(compact_messages(&torn, &options).await.unwrap_err(), AgentError::Unbalanced { .. }));
    // A summary that is longer than what it stands for is not used, asked for or not.
    let long = Compaction::new().strategy(Summarize::new(Script::new([say(&"long ".repeat(9_000))]))).protected_tokens(0);
    let done = compact_messages(&messages, &long).await.unwrap();
    assert!(done.error.is_some_and(|error| error.starts_with("the summary would make it longer: ")));
    assert!(done.summary.is_none() && done.tokens_after < done.tokens_before);
}
