//! Decisions that processes make: killed at any moment, racing with each other and with the end of the time for them.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use toolwright_core::{
    ApprovalId, ArgsState, CallId, CallItem, Decision, DecisionVerdict, FinishReason, Item, OnInterrupt, Outcome, RecordBody, ThreadId,
    Timestamp, ToolOutput,
};
use toolwright_runtime::{
    Agent, AgentError, InboxItem, Model, ModelEvent, ModelInfo, ModelReply, ModelRequest, ModelStream, NoResolvers, PendingApproval, Store,
};
use toolwright_tool::{ApprovalRequest, Tool, ToolError};

use crate::job::Log;
use crate::kill::{Moments, Said, read, settled};
use crate::stores::{self, Place};
use crate::{Orders, Told};

const RACES: u32 = 200;
const PACE: Duration = Duration::from_millis(2);
/// How long the result of the tool `soon` is waited for.
const SOON: Duration = Duration::from_millis(60);

/// Calls the tool that its input names, then says that it is done.
struct Calls;

impl Model for Calls {
    fn info(&self) -> ModelInfo {
        ModelInfo::new("test", "calls")
    }

    fn stream(&self, request: ModelRequest) -> ModelStream {
        let named = request.messages.iter().next().map(|message| message.text_of()).unwrap_or_default();
        let (items, finish) = if request.step == 1 {
            let call = CallItem {
                call_id: CallId::new(""),
                provider_id: Some("call".to_owned()),
                name: named,
                arguments: r#"{"n":1}"#.to_owned(),
                state: ArgsState::Complete,
                ask: None,
                provider_data: None,
            };
            (vec![Item::ToolCall(call)], FinishReason::ToolCalls)
        } else {
            (vec![Item::text("done")], FinishReason::Stop)
        };
        let reply = ModelReply { items, finish, usage: None, model: None };
        Box::pin(futures_util::stream::once(std::future::ready(Ok(ModelEvent::Done(reply)))))
    }
}

/// The agent of every process here. A body that was running at a kill does not run again: what it did can be counted.
pub(crate) fn agent(store: Arc<dyn Store>, log: &Log, pace: Duration) -> Agent {
    let tool = |name: &'static str, people: u32| {
        let log = log.clone();
        Tool::new(name, "Has an effect.")
            .needs_approval_if(move |_| std::future::ready(Ok(ApprovalRequest::new().quorum(people))))
            .on_interrupt(OnInterrupt::Fail)
            .run_json(move |args: Value, cx| {
                let log = log.clone();
                async move {
                    log.add(&format!("{} {args}", cx.thread_id().map(ToString::to_string).unwrap_or_default()));
                    tokio::time::sleep(pace).await;
                    Ok::<_, ToolError>(args)
                }
            })
            .unwrap()
    };
    let outside = |name: &str| Tool::external(name, "Is done elsewhere.", json!({ "type": "object" })).unwrap();
    Agent::<NoResolvers>::builder()
        .model(Calls)
        .tools([tool("order", 1), tool("pair", 2)])
        .tools([outside("outside").outside().unwrap(), outside("soon").result_within(SOON).outside().unwrap()])
        .store(store)
        .build()
        .unwrap()
}

/// What is decided, as a child is told it: who, what, and the number in the arguments or the result.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Verb(&'static str, &'static str, u32);

impl Verb {
    fn decision(self) -> Decision {
        let Self(by, verb, n) = self;
        decision(verb, n).by(by)
    }

    /// Whether this is the decision of a record.
    fn is(self, decision: &Decision) -> bool {
        let mine = self.decision();
        let same = match (&mine.verdict, &decision.verdict) {
            // Its time of creation is of no account.
            (DecisionVerdict::Fail { failure: mine }, DecisionVerdict::Fail { failure }) => mine.message == failure.message,
            (mine, other) => mine == other,
        };
        same && mine.by == decision.by
    }

    /// The arguments that its body runs with, if it lets one run.
    fn runs(self) -> Option<String> {
        match self.1 {
            "approve" => Some(r#"{"n":1}"#.to_owned()),
            "edit" => Some(format!(r#"{{"n":{}}}"#, self.2)),
            _ => None,
        }
    }
}

fn decision(verb: &str, n: u32) -> Decision {
    match verb {
        "approve" => Decision::approve(),
        "edit" => Decision::approve_with(format!(r#"{{"n":{n}}}"#)),
        "reject" => Decision::reject().note("no"),
        "complete" => Decision::complete(ToolOutput::json(json!({ "n": n }))),
        "fail" => Decision::fail(toolwright_core::ToolFailure::new(
            toolwright_core::ToolFailureKind::Execution,
            "outside",
            &format!("failure {n}"),
        )),
        verb => panic!("there is no verb {verb}"),
    }
}

/// A child that decides what it is told, one decision a line.
pub(crate) async fn decide(agent: &Agent) {
    crate::say("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let [by, verb, n, approval] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line} has four parts") };
        let decided = agent.approvals().decide(&ApprovalId::new(approval), decision(verb, n.parse().unwrap()).by(by)).await;
        crate::say(crate::told(decided));
    }
}

/// A child that goes on with a thread as soon as it can, until its run is done.
pub(crate) async fn go_on(agent: &Agent, thread: &str) {
    crate::say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    loop {
        match agent.thread(thread).resume().await {
            Ok(reply) if reply.finish_reason == FinishReason::Stop => return crate::say("done"),
            Ok(_) | Err(AgentError::AwaitingApproval { .. }) => tokio::time::sleep(Duration::from_micros(500)).await,
            Err(error) => return crate::say(crate::told(Err(error))),
        }
    }
}

fn orders(role: &'static str, place: &Place, thread: &str, log: &Log) -> Orders {
    Orders { role, store: place.address(), thread: thread.to_owned(), log: log.clone(), pace: PACE }
}

fn started(orders: &Orders) -> Told {
    let mut child = orders.start();
    assert_eq!(child.says().as_deref(), Some("ready"));
    child
}

/// A thread whose call of `tool` waits.
async fn waiting(agent: &Agent, thread: &str, tool: &str) -> PendingApproval {
    let reply = agent.thread(thread).send(tool).await.unwrap();
    assert_eq!((reply.finish_reason, reply.pending.len()), (FinishReason::AwaitingApproval, 1), "{thread}");
    reply.pending.into_iter().next().unwrap()
}

fn tell(child: &mut Told, Verb(by, verb, n): Verb, approval: &ApprovalId) {
    child.tell(&format!("{by}|{verb}|{n}|{approval}"));
}

/// What a thread's journal says of its decision.
struct Journal {
    said: Said,
    decided: Vec<Decision>,
    votes: Vec<Decision>,
    begun: bool,
    results: Vec<Outcome>,
}

fn journal(said: Said) -> Journal {
    let mut journal = Journal { decided: Vec::new(), votes: Vec::new(), begun: false, results: Vec::new(), said };
    for record in &journal.said.records {
        match &record.body {
            RecordBody::CallDecided { decision, .. } => journal.decided.push(decision.clone()),
            RecordBody::CallVoted { decision, .. } => journal.votes.push(decision.clone()),
            RecordBody::CallExecuting { .. } => journal.begun = true,
            RecordBody::CallDone { outcome, .. } => journal.results.push(outcome.clone()),
            _ => {}
        }
    }
    journal
}

/// What bodies of a thread did.
fn effects(log: &Log, thread: &str) -> Vec<String> {
    log.lines().iter().filter_map(|line| Some(line.strip_prefix(thread)?.strip_prefix(' ')?.to_owned())).collect()
}

/// The run has ended with this decision and no other, and it had its effect once; `interrupted`, if its body was running at a kill.
async fn check(store: &Arc<dyn Store>, log: &Log, thread: &str, winner: Verb, interrupted: bool) {
    let ended = journal(read(store, thread).await);
    let [decision] = &ended.decided[..] else { panic!("{thread}: one decision is expected: {:?}", ended.decided) };
    assert!(winner.is(decision), "{thread}: {winner:?} won, and the journal says {decision:?}");
    let [outcome] = &ended.results[..] else { panic!("{thread}: one result is expected: {:?}", ended.results) };
    let effects = effects(log, thread);
    let expected: Vec<String> = winner.runs().into_iter().collect();
    if interrupted {
        assert!(effects.len() <= 1 && effects.iter().all(|effect| expected.contains(effect)), "{thread}: {winner:?} had {effects:?}");
        assert!(matches!(outcome, Outcome::Failed { failure } if failure.error == "InterruptedError"), "{thread}: {outcome:?}");
    } else {
        assert_eq!(effects, expected, "{thread}: {winner:?}");
        let shown = |output: &ToolOutput| output.shown().to_string();
        match (winner.1, outcome) {
            ("approve" | "edit", Outcome::Done { output }) => assert_eq!(Some(shown(output)), winner.runs(), "{thread}"),
            ("complete", Outcome::Done { output }) => assert_eq!(shown(output), json!({ "n": winner.2 }).to_string(), "{thread}"),
            ("fail", Outcome::Failed { failure }) => assert_eq!(failure.message, format!("failure {}", winner.2), "{thread}"),
            ("reject", Outcome::Failed { failure }) => assert!(failure.message.contains("no"), "{thread}: {failure:?}"),
            _ => panic!("{thread}: {winner:?} gave {outcome:?}"),
        }
    }
    assert!(ended.said.thread.run().is_none() && ended.said.thread.pending().next().is_none(), "{thread}");
    ended.said.thread.transcript().check_balance().unwrap();
    let id = ThreadId::new(thread).unwrap();
    assert_eq!(store.pending(Some(&id), None, 9).await.unwrap().items, Vec::new(), "{thread}");
}

/// Goes on to the end, from wherever the thread stands.
async fn finish(agent: &Agent, thread: &str) {
    match agent.thread(thread).resume().await {
        Ok(reply) => assert_eq!(reply.finish_reason, FinishReason::Stop, "{thread}"),
        // It had ended.
        Err(AgentError::NothingToResume { .. }) => {}
        Err(error) => panic!("{thread}: {error}"),
    }
}

// ------------------------------------------------------------------------------------------------------------------ kills

/// What the process that is killed decides, about which tool, and what another one decides after it.
const KILLED: [(&str, Verb, Verb); 6] = [
    ("order", Verb("ada", "approve", 1), Verb("eve", "reject", 0)),
    ("order", Verb("ada", "reject", 0), Verb("eve", "approve", 1)),
    ("order", Verb("ada", "edit", 2), Verb("eve", "edit", 3)),
    ("outside", Verb("ada", "complete", 2), Verb("eve", "fail", 3)),
    // One of two approvals: the first, and the last.
    ("pair", Verb("ada", "approve", 1), Verb("bob", "approve", 1)),
    ("pair", Verb("ada", "approve", 1), Verb("bob", "approve", 1)),
];

async fn killed_while_deciding(place: Place, kills: u32) {
    let store = stores::open(&place.address()).await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    let (mut log, agent_log) = (Log::at(logs.path().join("log")), Log::at(logs.path().join("own")));
    let agent = agent(Arc::clone(&store), &agent_log, Duration::ZERO);
    let mut took = Duration::MAX;
    for thread in ["undisturbed", "again", "and-again"] {
        let pending = waiting(&agent, thread, "order").await;
        let (mut decides, mut goes_on) =
            (started(&orders("decide", &place, thread, &log)), started(&orders("go on", &place, thread, &log)));
        let began = Instant::now();
        tell(&mut decides, KILLED[0].1, &pending.id);
        goes_on.tell("go");
        assert_eq!(goes_on.says().as_deref(), Some("done"));
        took = took.min(began.elapsed());
        check(&store, &log, thread, KILLED[0].1, false).await;
    }
    let mut moments = Moments(7);
    // How the thread stood after the kill, and how often the killed one had heard that its decision counts.
    let mut stood: BTreeMap<&str, u32> = BTreeMap::new();
    let mut heard = 0;
    for round in 0..kills {
        let thread = format!("killed-{round}");
        log = Log::at(logs.path().join(&thread));
        let (tool, first, second) = KILLED[round as usize % KILLED.len()];
        let last_vote = round as usize % KILLED.len() == 5;
        let pending = waiting(&agent, &thread, tool).await;
        if last_vote {
            agent.approvals().decide(&pending.id, second.decision()).await.unwrap();
        }
        let (mut decides, mut goes_on) =
            (started(&orders("decide", &place, &thread, &log)), started(&orders("go on", &place, &thread, &log)));
        tell(&mut decides, first, &pending.id);
        goes_on.tell("go");
        let mut at = [moments.next(took.as_micros() as u64), moments.next(took.as_micros() as u64)];
        let decider_first = at[0] < at[1];
        at.sort_unstable();
        std::thread::sleep(Duration::from_micros(at[0]));
        let (one, other) = if decider_first { (&mut decides, &mut goes_on) } else { (&mut goes_on, &mut decides) };
        one.child.kill().unwrap();
        std::thread::sleep(Duration::from_micros(at[1] - at[0]));
        other.child.kill().unwrap();
        for child in [one, other] {
            child.child.wait().unwrap();
        }
        let ack = decides.says();
        assert!(ack.as_deref().is_none_or(|ack| ack == "done"), "{thread}: {ack:?}");
        heard += u32::from(ack.is_some());

        // Another process looks: pending or decided. What the killed one heard holds.
        let killed = journal(settled(&store, &thread).await);
        let id = ThreadId::new(thread.as_str()).unwrap();
        let in_inbox = store.inbox(&id, 0).await.unwrap().into_iter().any(
            |(_, item)| matches!(item, InboxItem::Decision { approval, decision, .. } if approval == pending.id && first.is(&decision)),
        );
        let in_journal = killed.decided.iter().chain(&killed.votes).any(|decision| first.is(decision));
        assert!(killed.decided.len() <= 1, "{thread}");
        assert!(ack.is_none() || in_inbox || in_journal, "{thread}: a decision that was acknowledged is lost");
        let stands = match () {
            () if !killed.results.is_empty() => "had its result",
            () if killed.begun => "had begun",
            () if !killed.decided.is_empty() => "was decided",
            () if in_journal => "was voted on",
            () if in_inbox => "was posted",
            () => "was pending",
        };
        *stood.entry(stands).or_default() += 1;

        let of_two = tool == "pair";
        // The same decision again, by somebody who saw no answer; or another one, by somebody else.
        let again = agent.approvals().decide(&pending.id, if of_two { first.decision() } else { second.decision() }).await;
        let counted = match again {
            Ok(()) => false,
            // A server may have been about to write it when we looked.
            Err(AgentError::ApprovalConflict { by, .. }) => {
                let known = if of_two && !killed.decided.is_empty() { [Some("ada"), Some("bob")] } else { [Some("ada"); 2] };
                assert!(known.contains(&by.as_deref()), "{thread}: {by:?} was first");
                true
            }
            Err(error) => panic!("{thread}: {error}"),
        };
        assert!(counted || !(in_inbox || in_journal), "{thread}: {first:?} was there, and another counted");
        if of_two && !last_vote {
            agent.approvals().decide(&pending.id, second.decision()).await.unwrap();
        }
        let agent = self::agent(Arc::clone(&store), &log, Duration::ZERO);
        finish(&agent, &thread).await;
        let winner = match () {
            () if of_two && !last_vote => second,
            () if of_two || counted => first,
            () => second,
        };
        check(&store, &log, &thread, winner, killed.begun && killed.results.is_empty()).await;
    }
    let told: Vec<String> = stood.iter().map(|(stood, times)| format!("{times} {stood}")).collect();
    println!(
        "{place}: {kills} kills within {} ms of who decides and who goes on, {heard} after the decider had heard that it counts; of the \
         calls {}; each was decided once and had its effect once",
        took.as_millis(),
        told.join(", ")
    );
    // They went where it hurts.
    assert!(stood.len() >= 3 && stood.values().all(|times| *times < kills * 3 / 4), "the kills came at the wrong moments");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_sqlite_a_decision_of_a_killed_process_is_pending_or_made() {
    killed_while_deciding(Place::sqlite(), 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_postgres_a_decision_of_a_killed_process_is_pending_or_made() {
    if let Some(place) = Place::postgres() {
        killed_while_deciding(place, 60).await;
    }
}

// ------------------------------------------------------------------------------------------------------------------ races

/// Which tool, what was said before, and what two processes decide at once.
const RACED: [(&str, Option<Verb>, [Verb; 2]); 10] = [
    ("order", None, [Verb("ada", "approve", 1), Verb("bob", "reject", 0)]),
    ("order", None, [Verb("ada", "approve", 1), Verb("bob", "approve", 1)]),
    ("order", None, [Verb("ada", "edit", 2), Verb("bob", "edit", 3)]),
    ("order", None, [Verb("ada", "reject", 0), Verb("bob", "edit", 3)]),
    ("outside", None, [Verb("ada", "complete", 2), Verb("bob", "fail", 3)]),
    ("outside", None, [Verb("ada", "complete", 2), Verb("bob", "complete", 3)]),
    ("outside", None, [Verb("ada", "reject", 0), Verb("bob", "complete", 3)]),
    // The last of two approvals, and a rejection.
    ("pair", Some(Verb("cleo", "approve", 1)), [Verb("ada", "approve", 1), Verb("bob", "reject", 0)]),
    ("pair", Some(Verb("cleo", "approve", 1)), [Verb("ada", "approve", 1), Verb("bob", "approve", 1)]),
    ("pair", None, [Verb("ada", "reject", 0), Verb("bob", "reject", 0)]),
];

async fn raced(place: Place) {
    let store = stores::open(&place.address()).await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    let log = Log::at(logs.path().join("log"));
    let agent = agent(Arc::clone(&store), &log, Duration::ZERO);
    let mut deciders = ["a", "b"].map(|_| started(&orders("decide", &place, "", &log)));
    let mut won = [0u32; 2];
    for round in 0..RACES {
        let thread = format!("race-{round}");
        let (tool, before, verbs) = RACED[round as usize % RACED.len()];
        let pending = waiting(&agent, &thread, tool).await;
        if let Some(before) = before {
            agent.approvals().decide(&pending.id, before.decision()).await.unwrap();
        }
        for (decider, verb) in deciders.iter_mut().zip(verbs) {
            tell(decider, verb, &pending.id);
        }
        let said = deciders.each_mut().map(|decider| decider.says().unwrap());
        let winner = said.iter().position(|said| said == "done").unwrap_or_else(|| panic!("{thread}: nobody decided: {said:?}"));
        let loser = &said[1 - winner];
        let by = format!("by {}", verbs[winner].0);
        assert!(loser.starts_with("TOOLWRIGHT_APPROVAL_CONFLICT ") && loser.ends_with(&by), "{thread}: the other is told who: {said:?}");
        won[winner] += 1;
        finish(&agent, &thread).await;
        check(&store, &log, &thread, verbs[winner], false).await;
        // Later, too.
        let late = agent.approvals().decide(&pending.id, Decision::approve().by("late")).await.unwrap_err();
        assert_eq!(late, AgentError::ApprovalConflict { approval: pending.id.to_string(), by: Some(verbs[winner].0.to_owned()) });
    }
    // One name in two processes is one approval.
    for round in 0..20 {
        let thread = format!("twice-{round}");
        let pending = waiting(&agent, &thread, "pair").await;
        let ada = Verb("ada", "approve", 1);
        for decider in &mut deciders {
            tell(decider, ada, &pending.id);
        }
        let mut said = deciders.each_mut().map(|decider| decider.says().unwrap());
        said.sort_unstable();
        assert!(said[0].starts_with("TOOLWRIGHT_APPROVAL_CONFLICT ") && said[1] == "done", "{thread}: {said:?}");
        assert!(matches!(agent.thread(&*thread).resume().await, Err(AgentError::AwaitingApproval { .. })), "{thread}: it takes two");
        let bob = Verb("bob", "approve", 1);
        agent.approvals().decide(&pending.id, bob.decision()).await.unwrap();
        finish(&agent, &thread).await;
        check(&store, &log, &thread, bob, false).await;
    }
    println!(
        "{place}: {RACES} races of two deciders, won {} to {}, each loser told who was first; 20 of one name, each counted once",
        won[0], won[1]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn over_sqlite_one_of_two_deciders_wins_and_the_other_is_told_who() {
    raced(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_postgres_one_of_two_deciders_wins_and_the_other_is_told_who() {
    if let Some(place) = Place::postgres() {
        raced(place).await;
    }
}

fn now() -> Timestamp {
    Timestamp(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64)
}

/// A result, a failure and the end of the time for both, all at about the same moment.
async fn raced_with_time(place: Place) {
    let store = stores::open(&place.address()).await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    let log = Log::at(logs.path().join("log"));
    let agent = agent(Arc::clone(&store), &log, Duration::ZERO);
    let mut deciders = ["a", "b"].map(|_| started(&orders("decide", &place, "", &log)));
    let verbs = [Verb("ada", "complete", 2), Verb("bob", "fail", 3)];
    let mut moments = Moments(11);
    let mut won: BTreeMap<&str, u32> = BTreeMap::new();
    for round in 0..RACES {
        let thread = format!("soon-{round}");
        let pending = waiting(&agent, &thread, "soon").await;
        let until = pending.expires_at.unwrap();
        let before = moments.next(16) as i64;
        let left = until.0 - before - now().0;
        std::thread::sleep(Duration::from_millis(u64::try_from(left).unwrap_or_default()));
        for (decider, verb) in deciders.iter_mut().zip(verbs) {
            tell(decider, verb, &pending.id);
        }
        // A worker looks for what is due.
        while now() <= until {
            store.post_due(now(), 100).await.unwrap();
            tokio::task::yield_now().await;
        }
        store.post_due(now(), 100).await.unwrap();
        let said = deciders.each_mut().map(|decider| decider.says().unwrap());
        let winners: Vec<usize> = (0..2).filter(|at| said[*at] == "done").collect();
        finish(&agent, &thread).await;
        let (winner, told) = match winners[..] {
            [winner] => (verbs[winner].1, format!("by {}", verbs[winner].0)),
            [] => ("time", "nobody did in time, so the call is refused".to_owned()),
            _ => panic!("{thread}: both won: {said:?}"),
        };
        for line in said.iter().filter(|line| *line != "done") {
            assert!(line.starts_with("TOOLWRIGHT_APPROVAL_CONFLICT ") && line.ends_with(&told), "{thread}: {winner} won: {said:?}");
        }
        if let [winner] = winners[..] {
            check(&store, &log, &thread, verbs[winner], false).await;
        } else {
            let ended = journal(read(&store, &thread).await);
            assert!(matches!(&ended.decided[..], [Decision { verdict: DecisionVerdict::Lapsed, .. }]), "{thread}: {:?}", ended.decided);
            let lapsed = |outcome: &Outcome| matches!(outcome, Outcome::Failed { failure } if failure.error == "TimeoutError");
            assert!(ended.results.len() == 1 && ended.results.iter().all(lapsed), "{thread}: {:?}", ended.results);
        }
        *won.entry(winner).or_default() += 1;
    }
    let counts: Vec<String> = won.iter().map(|(winner, times)| format!("{winner} {times}")).collect();
    println!("{place}: {RACES} races of a result, a failure and the end of the time for them, won: {}", counts.join(", "));
    assert!(won.len() >= 2, "they did not meet: {won:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_sqlite_a_result_a_failure_and_the_end_of_their_time_race_and_one_counts() {
    raced_with_time(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_postgres_a_result_a_failure_and_the_end_of_their_time_race_and_one_counts() {
    if let Some(place) = Place::postgres() {
        raced_with_time(place).await;
    }
}
