//! An approval that stands for another call, and somebody who decides about that call in the same moment: one of them is first, and
//! the other is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use toolwright_core::{ApprovalId, CallId, Decision, RecordBody, Seq, ThreadId, Timestamp, ToolFailureKind, Verdict};
use toolwright_runtime::{
    Agent, AgentError, Answer as StoreAnswer, Append, Claim, FixedClock, InboxItem, MemoryStore, Posted, Store, StoreError, StoreLayer,
};
use toolwright_tool::{ApprovalOutcome, ApprovalRequest, Tool, ToolContext};

use common::*;

fn approval_of(call: &str) -> ApprovalId {
    ApprovalId::of(&ThreadId::new("t").unwrap(), &CallId::new(call), 1)
}

fn two_calls() -> [Answer; 2] {
    [calls([("a", "act", r#"{"n":1}"#), ("b", "act", r#"{"n":2}"#)]), say("done")]
}

/// What somebody does while the gate looks at `b` because of what was said about `a`.
type Meanwhile = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

fn asks_meanwhile(meanwhile: &Arc<OnceLock<Meanwhile>>, log: &Log) -> Tool {
    let (meanwhile, times) = (Arc::clone(meanwhile), Arc::new(AtomicU32::new(0)));
    let policy = move |cx: ToolContext| {
        let (meanwhile, times) = (Arc::clone(&meanwhile), Arc::clone(&times));
        async move {
            if cx.call_id().as_str() == "b" && times.fetch_add(1, Ordering::SeqCst) == 1 {
                meanwhile.get().unwrap()().await;
            }
            Ok(ApprovalOutcome::from(ApprovalRequest::new().within(Duration::from_secs(60))))
        }
    };
    logged_with(Tool::new("act", "Acts.").needs_approval_if(policy), log)
}

#[tokio::test]
async fn who_decides_before_an_approval_of_another_call_answers_is_heard() {
    for (decision, kind) in [
        (Some(Decision::reject().by("bob")), Some(ToolFailureKind::Rejected)),
        (Some(Decision::approve_with(r#"{"n":3}"#).by("bob")), None),
        // Nobody decided, and its time is over.
        (None, Some(ToolFailureKind::Denied)),
    ] {
        let (store, log, clock) = (MemoryStore::new(), Log::default(), FixedClock::at(Timestamp(1000)));
        let meanwhile = Arc::default();
        let tool = asks_meanwhile(&meanwhile, &log);
        let agent = agent(Script::new(two_calls())).tool(tool).store(store.clone()).clock(clock.clone()).build().unwrap();
        assert_eq!(agent.thread("t").send("go").await.unwrap().pending.len(), 2);
        let (approvals, timers, said) = (agent.approvals(), store.clone(), decision.clone());
        let decides: Meanwhile = Arc::new(move || {
            let (approvals, timers, said, clock) = (approvals.clone(), timers.clone(), said.clone(), clock.clone());
            async move {
                // They are told that it counts.
                if let Some(said) = said {
                    return approvals.decide(&approval_of("b"), said).await.unwrap();
                }
                clock.advance(60_000);
                timers.post_due(Timestamp(61_000), 10).await.unwrap();
            }
            .boxed()
        });
        meanwhile.set(decides).ok().unwrap();
        agent.approvals().decide(&approval_of("a"), Decision::approve().by("ada").always()).await.unwrap();
        let reply = within(agent.thread("t").resume()).await.unwrap();
        let kinds: Vec<_> = failures(&reply.messages).into_iter().map(|(_, kind, ..)| kind).collect();
        assert_eq!(kinds, kind.iter().cloned().collect::<Vec<_>>(), "{decision:?}");
        assert_eq!(log.all(), if kind.is_some() { vec!["body a"] } else { vec!["body a", "body b"] });
        let edited = results(&reply.messages).iter().any(|result| value(result) == serde_json::json!({ "n": 3 }));
        assert_eq!(edited, kind.is_none(), "what bob made of the arguments runs");
        assert!(store.inbox(&ThreadId::new("t").unwrap(), 0).await.unwrap().is_empty());
    }
}

/// A store in which somebody decides about `b` right before it is written down that `a`'s approval lets it run.
struct Between {
    store: MemoryStore,
    others: Arc<OnceLock<Agent<toolwright_runtime::NoResolvers>>>,
    told: Log,
    dies: AtomicBool,
}

impl StoreLayer for Between {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn append<'a>(&'a self, claim: &'a dyn Claim, expected: Seq, append: Append) -> StoreAnswer<'a, ()> {
        async move {
            let runs =
                |body: &RecordBody| matches!(body, RecordBody::CallGated { call, verdict: Verdict::Run, .. } if call.as_str() == "b");
            if append.records.iter().any(|record| runs(&record.body)) {
                let others = self.others.get().unwrap().approvals();
                for decision in [Decision::reject().by("bob"), Decision::approve().by("bob")] {
                    let told = others.decide(&approval_of("b"), decision).await;
                    self.told.add(format!("{:?}", told.map_err(|error| format!("{}: {error}", error.code()))));
                }
                if self.dies.swap(false, Ordering::SeqCst) {
                    return Err(StoreError::failed("the process is killed"));
                }
            }
            self.store.append(claim, expected, append).await
        }
        .boxed()
    }
}

#[tokio::test]
async fn who_decides_after_it_has_answered_is_told_whose_approval_it_was() {
    for dies in [false, true] {
        let (store, log, told) = (MemoryStore::new(), Log::default(), Log::default());
        let asks = || logged_with(Tool::new("act", "Acts.").needs_approval(), &log);
        let others = Arc::new(OnceLock::new());
        let between = Between { store: store.clone(), others: Arc::clone(&others), told: told.clone(), dies: AtomicBool::new(dies) };
        let first = agent(Script::new(two_calls())).tool(asks()).store(between).build().unwrap();
        let second = agent(Script::new([say("done")])).tool(asks()).store(store.clone()).build().unwrap();
        others.set(second.clone()).ok().unwrap();
        assert_eq!(first.thread("t").send("go").await.unwrap().pending.len(), 2);
        first.approvals().decide(&approval_of("a"), Decision::approve().by("ada").always()).await.unwrap();
        let resumed = first.thread("t").resume().await;
        let code = "TOOLWRIGHT_APPROVAL_CONFLICT";
        assert_eq!(told.len(), 2);
        assert!(told.all().iter().all(|told| told.contains(code) && told.contains("by ada")), "{:?}", told.all());
        if dies {
            // What was answered is known to whoever goes on.
            assert!(matches!(resumed, Err(AgentError::Store(_))));
            second.thread("t").resume().await.unwrap();
        }
        assert_eq!(log.all(), ["body a", "body b"], "{dies}");
        let records = journal(&store, &ThreadId::new("t").unwrap()).await;
        let decided = records.iter().filter_map(|record| match &record.body {
            RecordBody::CallDecided { call, decision, .. } => Some((call.as_str(), decision.by.as_deref())),
            _ => None,
        });
        assert!(decided.clone().all(|(_, by)| by == Some("ada")), "{:?}", decided.collect::<Vec<_>>());
        assert!(store.inbox(&ThreadId::new("t").unwrap(), 0).await.unwrap().is_empty());
    }
}

/// A store in which something happens right before bob's decision is posted, when he has looked at what waits.
struct Before {
    store: MemoryStore,
    meanwhile: Arc<OnceLock<Meanwhile>>,
    happened: AtomicBool,
}

impl StoreLayer for Before {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn post<'a>(&'a self, thread: &'a ThreadId, key: &'a str, item: InboxItem) -> StoreAnswer<'a, Posted> {
        async move {
            let bobs = matches!(&item, InboxItem::Decision { decision, .. } if decision.by.as_deref() == Some("bob"));
            if bobs && !self.happened.swap(true, Ordering::SeqCst) {
                self.meanwhile.get().unwrap()().await;
            }
            self.store.post(thread, key, item).await
        }
        .boxed()
    }
}

#[tokio::test]
async fn one_of_several_who_approves_after_it_was_decided_is_told_so_whatever_they_saw_before() {
    for voted in [false, true] {
        for rejected in [false, true] {
            let (store, log, clock) = (MemoryStore::new(), Log::default(), FixedClock::at(Timestamp(1000)));
            let asks = || {
                let request = ApprovalRequest::new().quorum(3).within(Duration::from_secs(60));
                let policy = move |_| std::future::ready(Ok(ApprovalOutcome::from(request.clone())));
                logged_with(Tool::new("act", "Acts.").needs_approval_if(policy), &log)
            };
            let meanwhile = Arc::default();
            let before = Before { store: store.clone(), meanwhile: Arc::clone(&meanwhile), happened: AtomicBool::new(false) };
            let make = |script| agent(script).tool(asks()).clock(clock.clone());
            let bobs = make(Script::new([])).store(before).build().unwrap();
            let others = make(Script::new([calls([("a", "act", "{}")]), say("done")])).store(store.clone()).build().unwrap();
            others.thread("t").send("go").await.unwrap();
            if voted {
                others.approvals().decide(&approval_of("a"), Decision::approve().by("cleo")).await.unwrap();
            }
            let (approvals, timers) = (others.approvals(), store.clone());
            let happens: Meanwhile = Arc::new(move || {
                let (approvals, timers) = (approvals.clone(), timers.clone());
                async move {
                    if rejected {
                        approvals.decide(&approval_of("a"), Decision::reject().by("ada")).await.unwrap();
                    } else {
                        timers.post_due(Timestamp(61_000), 10).await.unwrap();
                    }
                }
                .boxed()
            });
            meanwhile.set(happens).ok().unwrap();
            let told = bobs.approvals().decide(&approval_of("a"), Decision::approve().by("bob")).await.unwrap_err();
            let approval = approval_of("a").to_string();
            assert_eq!(
                told,
                if rejected {
                    AgentError::ApprovalConflict { approval, by: Some("ada".to_owned()) }
                } else {
                    AgentError::ApprovalLapsed { approval, at: Some(Timestamp(61_000)) }
                }
            );
            let reply = others.thread("t").resume().await.unwrap();
            let kind = if rejected { ToolFailureKind::Rejected } else { ToolFailureKind::Denied };
            assert_eq!((failures(&reply.messages)[0].1.clone(), log.len()), (kind, 0));
            assert!(store.inbox(&ThreadId::new("t").unwrap(), 0).await.unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn who_approved_may_still_reject_as_long_as_others_have_to_approve() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let policy = |_| std::future::ready(Ok(ApprovalOutcome::from(ApprovalRequest::new().quorum(2))));
    let tool = logged_with(Tool::new("act", "Acts.").needs_approval_if(policy), &log);
    let script = Script::new([calls([("a", "act", "{}")]), say("done")]);
    let agent = agent(script).tool(tool).store(store).build().unwrap();
    agent.thread("t").send("go").await.unwrap();
    agent.approvals().decide(&approval_of("a"), Decision::approve().by("ada")).await.unwrap();
    let reply = agent.approvals().resolve(&approval_of("a"), Decision::reject().by("ada")).await.unwrap();
    assert_eq!((failure(&reply).0, log.len()), (ToolFailureKind::Rejected, 0));
}

#[tokio::test]
async fn more_people_than_can_have_to_approve_are_an_error() {
    let policy = |_| std::future::ready(Ok(ApprovalOutcome::from(ApprovalRequest::new().quorum(u32::MAX).within(Duration::from_secs(1)))));
    let tool = logged_with(Tool::new("act", "Acts.").needs_approval_if(policy), &Log::default());
    let reply = agent(Script::new([calls([("a", "act", "{}")]), say("done")])).tool(tool).build().unwrap().send("go").await.unwrap();
    let (kind, _, message) = failure(&reply);
    assert!(kind == ToolFailureKind::Execution && message.contains("at most 64 people"), "{message}");
}

/// A tool that asks first and then waits for its result: an approval of another call brings it to its second wait.
#[tokio::test]
async fn a_rejection_counts_also_where_a_result_would_be_waited_for_next() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let meanwhile: Arc<OnceLock<Meanwhile>> = Arc::default();
    let (happens, times) = (Arc::clone(&meanwhile), Arc::new(AtomicU32::new(0)));
    let policy = move |cx: ToolContext| {
        let (happens, times) = (Arc::clone(&happens), Arc::clone(&times));
        async move {
            if cx.call_id().as_str() == "b" && times.fetch_add(1, Ordering::SeqCst) == 1 {
                happens.get().unwrap()().await;
            }
            Ok(true)
        }
    };
    let schema = serde_json::json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let tool = Tool::external("act", "Has somebody act.", schema).unwrap().needs_approval_if(policy).outside().unwrap();
    let agent = agent(Script::new(two_calls())).tool(tool).store(store.clone()).build().unwrap();
    agent.thread("t").send("go").await.unwrap();
    let approvals = agent.approvals();
    let rejects: Meanwhile = Arc::new(move || {
        let (approvals, log) = (approvals.clone(), log.clone());
        async move {
            approvals.decide(&approval_of("b"), Decision::reject().by("bob")).await.unwrap();
            log.add("told");
        }
        .boxed()
    });
    meanwhile.set(rejects).ok().unwrap();
    let reply = agent.approvals().resolve(&approval_of("a"), Decision::approve().by("ada").always()).await.unwrap();
    let waits: Vec<&str> = reply.pending.iter().map(|pending| pending.call_id.as_str()).collect();
    assert_eq!(waits, ["a"], "`b` has its result");
}

/// A store whose inbox is taken by an owner right before somebody looks into it.
struct Taken {
    store: MemoryStore,
    meanwhile: Arc<OnceLock<Meanwhile>>,
    happened: AtomicBool,
}

impl StoreLayer for Taken {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId, after: u64) -> StoreAnswer<'a, Vec<(u64, InboxItem)>> {
        async move {
            if !self.happened.swap(true, Ordering::SeqCst) {
                self.meanwhile.get().unwrap()().await;
            }
            self.store.inbox(thread, after).await
        }
        .boxed()
    }
}

#[tokio::test]
async fn who_looks_while_an_owner_takes_what_was_posted_sees_it_all_the_same() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let asks = || {
        let policy = |_| std::future::ready(Ok(ApprovalOutcome::from(ApprovalRequest::new().deciders(["bob"]))));
        logged_with(Tool::new("act", "Acts.").needs_approval_if(policy), &log)
    };
    let meanwhile: Arc<OnceLock<Meanwhile>> = Arc::default();
    let taken = Taken { store: store.clone(), meanwhile: Arc::clone(&meanwhile), happened: AtomicBool::new(false) };
    let bobs = agent(Script::new([])).tool(asks()).store(taken).build().unwrap();
    let owner = agent(Script::new([calls([("a", "act", "{}")]), say("done")])).tool(asks()).store(store.clone()).build().unwrap();
    owner.thread("t").send("go").await.unwrap();
    owner.approvals().delegate(&approval_of("a"), vec!["ada".to_owned()], None, None).await.unwrap();
    let thread = owner.thread("t");
    let takes: Meanwhile = Arc::new(move || {
        let thread = thread.clone();
        async move { assert_eq!(thread.resume().await.unwrap_err().code(), "TOOLWRIGHT_SESSION_AWAITING_APPROVAL") }.boxed()
    });
    meanwhile.set(takes).ok().unwrap();
    let told = bobs.approvals().decide(&approval_of("a"), Decision::approve().by("bob")).await.unwrap_err();
    assert_eq!(told, AgentError::ApprovalForbidden { approval: approval_of("a").to_string(), who: "bob".to_owned() });
    owner.approvals().resolve(&approval_of("a"), Decision::approve().by("ada")).await.unwrap();
    assert_eq!(log.len(), 1);
}
