//! Threads that stay: over several processes, through kills, and everything that can be asked of them.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;
use std::sync::Arc;

use serde_json::{Value, json};
use toolwright::core::{Record, RecordBody};
use toolwright::models::scripted::{Reply as Turn, ScriptedModel};
use toolwright::store::Sqlite;
use toolwright::{Agent, FinishReason, Seq, Tool, ToolError};

use crate::support::server::{Reply, Server};
use crate::support::{Ended, Home, end_of};

#[path = "../../../store/tests/support/server.rs"]
mod postgres;

const CALL: Reply = Reply::Calls(&[("day_name", r#"{"date":"1999-12-31"}"#)]);
const STORE: &str = "threads.db";

/// A home with a store in it.
pub(crate) struct Kept {
    pub(crate) home: Home,
    pub(crate) store: String,
}

impl Kept {
    pub(crate) fn new() -> Self {
        let home = Home::new();
        let store = home.path().join(STORE).to_str().unwrap().to_owned();
        Self { home, store }
    }

    /// Runs the command over the store, with these variables.
    pub(crate) fn run(&self, arguments: &[&str], env: &[(&str, &str)]) -> Ended {
        let mut all = env.to_vec();
        all.push(("TOOLWRIGHT_STORE", &self.store));
        self.home.run_with(arguments, &all, "")
    }

    fn start(&self, arguments: &[&str], env: &[(&str, &str)]) -> Child {
        let mut all = env.to_vec();
        all.push(("TOOLWRIGHT_STORE", &self.store));
        self.home.start(arguments, &all)
    }

    /// What a command wrote as one JSON value.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(arguments, &[]);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        serde_json::from_str(&ended.out).unwrap()
    }

    /// Does something with an agent of the library over the same file.
    pub(crate) fn with<T>(&self, work: impl AsyncFnOnce(Sqlite) -> T) -> T {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { work(Sqlite::open(&self.store).await.unwrap()).await })
    }

    /// A thread with one call of `day_name` that waits for a decision. Its tool has the name of one that the command has.
    pub(crate) fn waiting(&self, id: &str) {
        self.with(async |store| {
            let asks = Tool::new("day_name", "The day of a date.").needs_approval().run_json(|args, _| async { Ok::<_, ToolError>(args) });
            let model = ScriptedModel::new().reply(Turn::call("day_name", json!({ "date": "1999-12-31" })));
            let agent = Agent::builder().model(model).tool(asks.unwrap()).store(store).build().unwrap();
            let reply = agent.thread(id).send("What day?").await.unwrap();
            assert_eq!(reply.finish_reason, FinishReason::AwaitingApproval);
        });
    }

    /// A thread that is done, with one call.
    fn done(&self, id: &str) {
        let server = Server::new(vec![CALL, Reply::Text(&["It was a Friday."])]);
        let ended = self.run(&["run", "What day?", "--thread", id], &server.env());
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    /// A thread whose process was killed while the model spoke. The server is ready for its next reply.
    fn killed(&self, id: &str, server: &Server) {
        let mut child = self.start(&["run", "hi", "--thread", id], &server.env());
        let mut first = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        server.request();
        server.release();
    }

    fn records(&self, id: &str) -> Vec<Arc<Record>> {
        self.with(async |store| {
            let agent = Agent::builder().store(store).build_without_model().unwrap();
            agent.thread(id).records().await.unwrap()
        })
    }
}

/// Exit code 2, nothing on standard output, and these lines on standard error.
#[track_caller]
pub(crate) fn refused(ended: &Ended, said: &str) {
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(2), "", said), "{ended:?}");
}

#[test]
fn a_thread_goes_on_in_another_process() {
    let kept = Kept::new();
    let server = Server::new(vec![Reply::Text(&["Hello, Kim."]), Reply::Text(&["Kim."])]);
    let first = kept.run(&["run", "I am Kim.", "--thread", "t"], &server.env());
    assert_eq!((first.code, first.out.as_str(), first.err.as_str()), (Some(0), "Hello, Kim.\n", ""));
    server.request();
    let second = kept.run(&["run", "Who am I?", "--thread", "t"], &server.env());
    assert_eq!((second.code, second.out.as_str()), (Some(0), "Kim.\n"), "{}", second.err);
    let said: Vec<Value> =
        server.request()["messages"].as_array().unwrap().iter().skip(1).map(|message| message["content"].clone()).collect();
    assert_eq!(said, ["I am Kim.", "Hello, Kim.", "Who am I?"]);

    // Between commands the file alone is the whole store.
    let copy = kept.home.path().join("copy.db");
    std::fs::copy(&kept.store, &copy).unwrap();
    let shown = kept.run(&["threads", "show", "t", "--store", "copy.db"], &[]);
    assert!(shown.out.ends_with("\n> Who am I?\nKim.\n"), "{shown:?}");
}

#[test]
fn a_conversation_goes_on_where_it_was_left() {
    let kept = Kept::new();
    let server = Server::new(vec![Reply::Text(&["Hello, Kim."]), Reply::Text(&["Kim."])]);
    let mut env = server.env().to_vec();
    env.push(("TOOLWRIGHT_STORE", &kept.store));
    let first = kept.home.run_with(&["chat", "--thread", "t"], &env, "I am Kim.\n");
    assert_eq!((first.code, first.out.as_str(), first.err.as_str()), (Some(0), "Hello, Kim.\n", ""));
    let second = kept.home.run_with(&["chat", "--thread", "t"], &env, "Who am I?\n");
    assert_eq!((second.code, second.out.as_str(), second.err.as_str()), (Some(0), "Kim.\n", "going on with the thread t: I am Kim.\n"));
}

#[test]
fn without_a_store_the_thread_is_in_the_data_folder_which_is_said_once() {
    let home = Home::new();
    let server = Server::new(vec![Reply::Text(&["One."]), Reply::Text(&["Two."])]);
    let listed = home.run(&["threads", "list"]);
    assert_eq!((listed.code, listed.out.as_str()), (Some(0), ""));
    assert_eq!(listed.err, "no thread is kept in the default store yet; `toolwright run --thread ID \"...\"` keeps one\n");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "looking makes nothing");

    let first = home.run_with(&["run", "a", "--thread", "t"], &server.env(), "");
    assert_eq!((first.code, first.out.as_str()), (Some(0), "One.\n"));
    assert!(first.err.starts_with("threads are kept in ") && first.err.contains("toolwright/threads.db"), "{}", first.err);
    let second = home.run_with(&["run", "b", "--thread", "t"], &server.env(), "");
    assert_eq!((second.out.as_str(), second.err.as_str()), ("Two.\n", ""));
    assert!(home.run(&["threads", "list"]).out.starts_with("t  finished"));
}

#[test]
fn without_a_thread_nothing_is_kept_and_no_store_is_made() {
    let home = Home::new();
    let server = Server::new(vec![Reply::Text(&["One."])]);
    let ended = home.run_with(&["run", "a"], &server.env(), "");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("One.\n", ""));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn a_store_in_memory_is_no_store() {
    let home = Home::new();
    let server = Server::new(vec![Reply::Text(&["One."])]);
    let ended = home.run_with(&["run", "a", "--thread", "t", "--store", "memory:"], &server.env(), "");
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(0), "One.\n", ""));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn a_run_in_a_store_without_a_thread_says_which_one_it_is() {
    let kept = Kept::new();
    let server = Server::new(vec![Reply::Text(&["One."])]);
    let ended = kept.home.run_with(&["run", "a", "--store", STORE], &server.env(), "");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "One.\n"));
    let id = kept.json(&["threads", "list", "--json"])["threads"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(ended.err, format!("this is the thread {id}; go on with `toolwright run --thread {id} \"...\" --store threads.db`\n"));
}

#[test]
fn a_call_that_nobody_decides_ends_with_3_and_goes_on_when_somebody_does() {
    let kept = Kept::new();
    kept.waiting("t");
    let server = Server::new(vec![Reply::Text(&["It was a Friday."]), Reply::Text(&["Yes."])]);
    let how = "hint: decide on a terminal with `toolwright threads resume t`, see what waits with `toolwright approvals list`, or approve every call with `toolwright threads resume t --yes`";
    for arguments in [&["threads", "resume", "t"][..], &["run", "Are you sure?", "--thread", "t"], &["chat", "--thread", "t"]] {
        let asked = kept.run(arguments, &server.env());
        assert_eq!((asked.code, asked.out.as_str()), (Some(3), ""), "{asked:?}");
        let lines: Vec<&str> = asked.err.lines().collect();
        assert_eq!(
            lines[0],
            "error: the thread t waits for a decision, and nobody is there to decide [TOOLWRIGHT_SESSION_AWAITING_APPROVAL]"
        );
        assert!(lines[1].starts_with("  t:") && lines[1].ends_with(r#": day_name {"date":"1999-12-31"}"#), "{}", lines[1]);
        assert_eq!(lines[2..], [how]);
    }
    // What waits comes first, then what is said.
    let said = kept.run(&["run", "Are you sure?", "--thread", "t", "--yes"], &server.env());
    assert!(said.err.starts_with("the thread t waits for a decision, which comes first\n"), "{}", said.err);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "It was a Friday.\nYes.\n"), "{}", said.err);
    let sent = server.request();
    assert_eq!(sent["messages"].as_array().unwrap().last().unwrap()["role"], "tool");
    assert_eq!(server.request()["messages"].as_array().unwrap().last().unwrap()["content"], "Are you sure?");
}

#[test]
fn a_decision_made_elsewhere_lets_the_thread_go_on() {
    let kept = Kept::new();
    kept.waiting("t");
    kept.with(async |store| {
        let agent = Agent::builder().store(store).build_without_model().unwrap();
        let pending = agent.approvals().pending().await.unwrap();
        agent.approvals().decide(&pending[0].id, toolwright::Decision::approve().by("kim")).await.unwrap();
    });
    let server = Server::new(vec![Reply::Text(&["It was a Friday."])]);
    let ended = kept.run(&["threads", "resume", "t"], &server.env());
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "It was a Friday.\n"), "{}", ended.err);
    let again = kept.run(&["threads", "resume", "t"], &server.env());
    refused(
        &again,
        "error: the thread t has nothing to resume [TOOLWRIGHT_CHECKPOINT_NOT_FOUND]\nhint: say something new with `toolwright run --thread t \"...\"`\n",
    );
}

#[cfg(unix)]
#[test]
fn a_run_that_was_killed_is_finished_by_another_process() {
    let kept = Kept::new();
    let server = Server::new(vec![CALL, Reply::Held("first", "second"), Reply::Text(&["It was ", "a Friday."])]);
    let mut child = kept.start(&["run", "What day?", "--thread", "t"], &server.env());
    server.request();
    server.request();
    // The model has begun to speak; the call before is done.
    let mut first = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    server.release();

    let said = kept.run(&["run", "Hello?", "--thread", "t"], &server.env());
    refused(
        &said,
        "error: the last run of the thread t was interrupted [TOOLWRIGHT_SESSION_TURN_PENDING]\nhint: finish it with `toolwright threads resume t` before sending more\n",
    );
    let chat = kept.run(&["chat", "--thread", "t"], &server.env());
    assert_eq!(chat.code, Some(2), "{chat:?}");
    assert!(chat.err.starts_with("error: the last run of the thread t has not ended"), "{}", chat.err);
    let shown = kept.run(&["threads", "show", "t"], &[]);
    assert!(shown.out.starts_with("t  in-progress\n"), "{}", shown.out);
    assert!(shown.err.contains("finish it with `toolwright threads resume t`"), "{}", shown.err);

    let resumed = kept.run(&["threads", "resume", "t"], &server.env());
    assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "It was a Friday.\n"), "{}", resumed.err);
    let records = kept.records("t");
    let how_many = |kind: fn(&RecordBody) -> bool| records.iter().filter(|record| kind(&record.body)).count();
    assert_eq!(how_many(|body| matches!(body, RecordBody::RunStarted { .. })), 1);
    assert_eq!(how_many(|body| matches!(body, RecordBody::RunDone { .. })), 1);
    assert_eq!(how_many(|body| matches!(body, RecordBody::CallDone { .. })), 1);
    assert_eq!(how_many(|body| matches!(body, RecordBody::ModelReplied { .. })), 2);
}

#[cfg(unix)]
#[test]
fn of_two_that_resume_at_once_one_is_told_so() {
    let kept = Kept::new();
    let server = Server::new(vec![Reply::Held("first", "second"), Reply::Held("One", " and two.")]);
    kept.killed("t", &server);
    let mut one = kept.start(&["threads", "resume", "t"], &server.env());
    server.request();
    for arguments in [&["threads", "resume", "t"][..], &["run", "hi", "--thread", "t"], &["threads", "delete", "t", "--yes"]] {
        let other = kept.run(arguments, &server.env());
        assert_eq!((other.code, other.out.as_str()), (Some(1), ""), "{other:?}");
        assert_eq!(
            other.err,
            "error: the thread t is being moved by another owner [TOOLWRIGHT_SESSION_BUSY]\nhint: watch it with `toolwright threads events t --follow`, or wait for its run to end\n"
        );
    }
    server.release();
    let mut said = String::new();
    one.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), end_of(one).code), ("One and two.\n", Some(0)));
}

#[cfg(unix)]
#[test]
fn a_run_is_followed_from_another_process() {
    let kept = Kept::new();
    let server = Server::new(vec![CALL, Reply::Held("It was ", "a Friday.")]);
    let run = kept.start(&["run", "What day?", "--thread", "t"], &server.env());
    server.request();
    let mut follow = kept.start(&["threads", "events", "t", "--follow", "--json"], &[]);
    let mut events = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut until = |name: &str| -> Vec<Value> {
        let mut seen: Vec<Value> = Vec::new();
        while seen.last().is_none_or(|event| event["type"] != name) {
            seen.push(serde_json::from_str(&events.next().unwrap().unwrap()).unwrap());
        }
        seen
    };
    let before = until("tool.done");
    let kinds: Vec<&str> = before.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["run.start", "step.start", "tool.start", "tool.done"]);
    server.request();
    server.release();
    let after = until("run.done");
    assert_eq!(after.iter().find(|event| event["type"] == "text.done").unwrap()["text"], "It was a Friday.");
    assert_eq!(end_of(run).code, Some(0));

    let pid = rustix::process::Pid::from_child(&follow);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(end_of(follow).code, Some(130));

    // Replayed, they are the same; and from any of them on, the rest.
    let replay = |from: &str| -> Vec<Value> {
        let ended = kept.run(&["threads", "events", "t", "--json", "--from", from], &[]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let without_seq = |events: &[Value]| -> Vec<Value> {
        let mut events = events.to_vec();
        for event in &mut events {
            event.as_object_mut().unwrap().remove("seq");
        }
        events
    };
    let all = replay("0");
    assert_eq!(without_seq(&all), without_seq(&[before.clone(), after].concat()));
    let at = before.last().unwrap()["position"].to_string();
    assert_eq!(without_seq(&replay(&at)), without_seq(&all[before.len()..]));
}

#[test]
fn events_are_shown_as_they_were() {
    let kept = Kept::new();
    kept.done("t");
    let ended = kept.run(&["threads", "events", "t"], &[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "It was a Friday.\n"));
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines[0], r#"→ day_name {"date":"1999-12-31"}"#);
    assert!(lines[1].starts_with(r#"✓ day_name {"date":"1999-12-31","day":"Friday"} "#), "{}", lines[1]);
    kept.waiting("w");
    let waits = kept.run(&["threads", "events", "w"], &[]);
    assert!(waits.err.contains(r#"? day_name {"date":"1999-12-31"} waits for a decision"#), "{}", waits.err);
    assert!(waits.err.ends_with("the run ended: awaiting-approval\n"), "{}", waits.err);
}

#[test]
fn threads_are_listed_in_pages() {
    let kept = Kept::new();
    for id in ["a", "b"] {
        kept.done(id);
    }
    kept.waiting("w");
    let all = kept.run(&["threads", "list"], &[]);
    let lines: Vec<&str> = all.out.lines().collect();
    assert_eq!((all.code, all.err.as_str()), (Some(0), ""));
    assert_eq!(
        lines,
        [
            "w  awaiting-approval  just now     What day?",
            "b  finished           just now     What day?",
            "a  finished           just now     What day?",
        ]
    );

    let first = kept.run(&["threads", "list", "--limit", "1", "--status", "finished", "--search", "what DAY"], &[]);
    assert!(first.out.starts_with("b  "), "{}", first.out);
    let more = first.err.strip_prefix("there are more: toolwright ").unwrap().trim_end();
    let words: Vec<String> = more.split(' ').map(|word| word.replace('\'', "")).collect();
    // The search has a space, which the shell would keep together.
    let at = words.iter().position(|word| word == "what").unwrap();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.splice(at..=at + 1, ["what DAY"]);
    let second = kept.run(&words, &[]);
    assert_eq!((second.out.lines().count(), second.err.as_str()), (1, ""));
    assert!(second.out.starts_with("a  "), "{}", second.out);

    let page = kept.json(&["threads", "list", "--agent", "agent", "--json"]);
    assert_eq!(
        (&page["threads"][0]["id"], &page["threads"][0]["status"], &page["next"]),
        (&json!("w"), &json!("awaiting-approval"), &json!(null))
    );
    let none = kept.run(&["threads", "list", "--search", "nothing"], &[]);
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (Some(0), "", "no thread fits\n"));
    refused(
        &kept.run(&["threads", "list", "--after", "nowhere"], &[]),
        "error: \"nowhere\" is no cursor of a page [TOOLWRIGHT_CONFIG_INVALID]\nhint: use the `next` of the page before\n",
    );
}

#[test]
fn a_thread_is_shown_with_what_it_waits_for() {
    let kept = Kept::new();
    kept.done("t");
    let shown = kept.run(&["threads", "show", "t"], &[]);
    assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""));
    let (head, body) = shown.out.split_once("\n\n").unwrap();
    assert!(head.starts_with("t  finished\nagent    toolwright\nbegun    20"), "{head}");
    assert_eq!(
        body,
        "> What day?\n→ day_name {\"date\":\"1999-12-31\"}\n✓ day_name {\"date\":\"1999-12-31\",\"day\":\"Friday\"}\nIt was a Friday.\n"
    );

    let server = Server::new(vec![Reply::Calls(&[("day_name", r#"{"date":"soon"}"#)]), Reply::Text(&["I can't tell."])]);
    kept.run(&["run", "What day?", "--thread", "f"], &server.env());
    let failed = kept.run(&["threads", "show", "f"], &[]);
    assert!(failed.out.contains("\n✗ day_name ToolArgumentsValidationError: "), "{}", failed.out);

    kept.waiting("w");
    let shown = kept.run(&["threads", "show", "w"], &[]);
    assert!(shown.out.contains("\n? day_name {\"date\":\"1999-12-31\"}\n"), "{}", shown.out);
    assert!(shown.err.starts_with("hint: decide on a terminal with `toolwright threads resume w`"), "{}", shown.err);
    let all = kept.json(&["threads", "show", "w", "--json"]);
    assert_eq!((&all["thread"]["status"], &all["pending"][0]["toolName"]), (&json!("awaiting-approval"), &json!("day_name")));
    assert_eq!((&all["values"], &all["files"], &all["messages"][0]["author"]), (&json!(0), &json!(0), &json!("human")));
}

#[test]
fn a_fork_is_named_and_goes_on() {
    let kept = Kept::new();
    kept.done("t");
    let fork = kept.run(&["threads", "fork", "t", "--step", "1", "--input", "And 2000?"], &[]);
    assert_eq!(
        (fork.code, fork.out.as_str(), fork.err.as_str()),
        (Some(0), "t-fork-1\n", "go on with `toolwright threads resume t-fork-1`\n")
    );
    let server = Server::new(vec![Reply::Text(&["A Sunday."])]);
    let resumed = kept.run(&["threads", "resume", "t-fork-1"], &server.env());
    assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "A Sunday.\n"), "{}", resumed.err);

    let whole = kept.run(&["threads", "fork", "t", "--id", "mine"], &[]);
    assert_eq!((whole.out.as_str(), whole.err.as_str()), ("mine\n", "go on with `toolwright run --thread mine \"...\"`\n"));
    let as_json = kept.json(&["threads", "fork", "t", "--at", "3", "--json"]);
    assert_eq!(
        (&as_json["thread"]["id"], &as_json["thread"]["forkedFrom"], &as_json["from"]),
        (&json!("t-fork-2"), &json!("t"), &json!("t"))
    );

    refused(
        &kept.run(&["threads", "fork", "t", "--id", "mine"], &[]),
        "error: there is a thread mine already [TOOLWRIGHT_SESSION_EXISTS]\nhint: choose another id\n",
    );
    refused(
        &kept.run(&["threads", "fork", "t", "--step", "7"], &[]),
        "error: the thread t has no step 7 [TOOLWRIGHT_SESSION_STEP_NOT_FOUND]\nhint: its steps that can be forked are 0 to 2\n",
    );
    let beyond = kept.run(&["threads", "fork", "t", "--at", "0"], &[]);
    assert_eq!(beyond.code, Some(2), "{beyond:?}");
    assert!(
        beyond
            .err
            .starts_with("error: the thread t has no position 0 [TOOLWRIGHT_SESSION_STEP_NOT_FOUND]\nhint: its journal goes from 1 to ")
    );
    let ids: Vec<Value> =
        kept.json(&["threads", "list", "--json"])["threads"].as_array().unwrap().iter().map(|thread| thread["id"].clone()).collect();
    assert_eq!(ids.len(), 4, "what was refused made nothing: {ids:?}");
}

#[test]
fn two_threads_are_compared() {
    let kept = Kept::new();
    kept.done("a");
    kept.run(&["threads", "fork", "a", "--step", "1", "--id", "b"], &[]);
    let server = Server::new(vec![Reply::Text(&["No idea."])]);
    let ended = kept.run(&["threads", "resume", "b"], &server.env());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let compared = kept.run(&["threads", "compare", "a", "b"], &[]);
    assert_eq!((compared.code, compared.err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = compared.out.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], "the first step is the same; a has 2 steps, b has 2 steps");
    let columns = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    assert_eq!(columns(lines[2]), ["a", "b"]);
    assert_eq!(columns(lines[4]), ["It was a Friday.", "No idea."]);
    assert_eq!(kept.json(&["threads", "compare", "a", "b", "--json"])["divergedAt"], json!(1));
    let same = kept.run(&["threads", "compare", "a", "a"], &[]);
    assert_eq!(same.out, "a and a did the same, in 2 steps\n");
}

#[test]
fn an_export_is_the_journal_record_by_record() {
    let kept = Kept::new();
    kept.done("t");
    let records = kept.records("t");
    let written: String = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
    let ended = kept.run(&["threads", "export", "t"], &[]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert_eq!(ended.out, written);
    let first: Value = serde_json::from_str(ended.out.lines().next().unwrap()).unwrap();
    assert_eq!((&first["kind"], &first["thread"], &first["version"]), (&json!("thread.opened"), &json!("t"), &json!(1)));
    assert_eq!(records.first().unwrap().seq, Seq(1));

    let file = kept.home.path().join("t.jsonl");
    let to_file = kept.run(&["threads", "export", "t", "--output", file.to_str().unwrap()], &[]);
    assert_eq!((to_file.code, to_file.out.as_str()), (Some(0), ""), "{}", to_file.err);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);

    let folder = kept.run(&["threads", "export", "t", "--output", kept.home.path().to_str().unwrap()], &[]);
    assert_eq!(folder.code, Some(2), "{folder:?}");
    let unknown = kept.run(&["threads", "export", "nobody", "--output", "new.jsonl"], &[]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let lost = kept.run(&["threads", "export", "t", "--output", "none/new.jsonl"], &[]);
    assert_eq!(lost.code, Some(2), "{lost:?}");
    let names = std::fs::read_dir(kept.home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| !name.to_str().unwrap().starts_with(STORE)).collect();
    assert_eq!(left, ["t.jsonl"], "nothing half written stays");
}

#[test]
fn threads_are_deleted_when_somebody_agrees() {
    let kept = Kept::new();
    for id in ["a", "b"] {
        kept.done(id);
    }
    kept.waiting("w");
    refused(
        &kept.run(&["threads", "delete", "a"], &[]),
        "error: nobody is there to agree that it is deleted [TOOLWRIGHT_CONFIG_INVALID]\nhint: say so with --yes\n",
    );
    let deleted = kept.run(&["threads", "delete", "a", "--yes"], &[]);
    assert_eq!((deleted.code, deleted.out.as_str(), deleted.err.as_str()), (Some(0), "", "the thread a is deleted\n"));
    let none = kept.run(&["threads", "delete", "--finished-before", "2001-01-01", "--yes"], &[]);
    assert_eq!((none.code, none.err.as_str()), (Some(0), "no thread was finished before 2001-01-01T00:00:00.000Z\n"));
    let pruned = kept.run(&["threads", "delete", "--finished-before", "2999-01-01", "--yes"], &[]);
    assert_eq!((pruned.code, pruned.out.as_str(), pruned.err.as_str()), (Some(0), "b\n", "1 thread deleted\n"));
    assert!(kept.run(&["threads", "list"], &[]).out.starts_with("w  awaiting-approval"));
    refused(
        &kept.run(&["threads", "delete", "--finished-before", "soon", "--yes"], &[]),
        "error: `soon` is neither a date nor a moment [TOOLWRIGHT_CONFIG_INVALID]\nhint: write 2026-01-31, or 2026-01-31T12:00:00Z\n",
    );
    refused(
        &kept.run(&["threads", "delete", "a", "--finished-before", "2001-01-01"], &[]),
        "error: `[ID]` can't be used with `--finished-before <DATE>` [TOOLWRIGHT_CONFIG_INVALID]\nhint: see `toolwright threads delete --help`\n",
    );
    assert_eq!(kept.run(&["threads", "delete"], &[]).code, Some(2));
}

#[test]
fn what_a_tool_or_a_title_says_moves_no_cursor() {
    let kept = Kept::new();
    kept.with(async |store| {
        let odd = Tool::new("odd", "Says odd things.").run_json(|_, _| async { Ok::<_, ToolError>(json!("c\u{1b}[2Jd\u{9b}1m")) }).unwrap();
        let call = Turn::call("odd", json!({ "x": "e\u{1b}[1A" }));
        let model = ScriptedModel::new().reply(call).reply(Turn::text("f\u{1b}]0;g\u{7}"));
        let agent = Agent::builder().name("h\u{1b}[3J").model(model).tool(odd).store(store).build().unwrap();
        agent.thread("t").send("a\u{1b}[31mb").await.unwrap();
    });
    for arguments in [&["threads", "list"][..], &["threads", "show", "t"], &["threads", "events", "t"], &["threads", "compare", "t", "t"]] {
        let ended = kept.run(arguments, &[]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let said = ended.out + &ended.err;
        assert!(!said.contains(|sign: char| sign.is_control() && sign != '\n'), "{arguments:?}: {said:?}");
    }
}

#[test]
fn a_thread_that_is_not_there_is_named() {
    let kept = Kept::new();
    kept.done("t");
    let said = "error: there is no thread nobody in this store [TOOLWRIGHT_SESSION_NOT_FOUND]\nhint: list what there is with `toolwright threads list`\n";
    for arguments in [
        &["threads", "show", "nobody"][..],
        &["threads", "events", "nobody"],
        &["threads", "events", "nobody", "--follow"],
        &["threads", "resume", "nobody"],
        &["threads", "fork", "nobody"],
        &["threads", "compare", "nobody", "t"],
        &["threads", "compare", "t", "nobody"],
        &["threads", "export", "nobody"],
        &["threads", "delete", "nobody", "--yes"],
    ] {
        refused(&kept.run(arguments, &[]), said);
    }
    // Also where there is no store yet; and none is made.
    let home = Home::new();
    refused(&home.run(&["threads", "show", "nobody"]), said);
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn an_odd_id_is_refused_before_anything_is_made() {
    for id in ["", "a b", "../up", "ü", &"x".repeat(129)] {
        let home = Home::new();
        for arguments in
            [&["run", "hi", "--thread", id][..], &["chat", "--thread", id], &["threads", "show", id], &["threads", "resume", id]]
        {
            let ended = home.run(arguments);
            assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
            let lines: Vec<&str> = ended.err.lines().collect();
            assert!(
                lines[0].starts_with("error: the thread id ") && lines[0].ends_with(" is not valid [TOOLWRIGHT_SESSION_ID_INVALID]"),
                "{}",
                lines[0]
            );
            assert_eq!(lines[1..], ["hint: use 1 to 128 letters, digits, `_` and `-`"]);
        }
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
    let kept = Kept::new();
    kept.done("t");
    assert_eq!(kept.run(&["threads", "fork", "t", "--id", "a b"], &[]).code, Some(2));
    let beyond = kept.run(&["threads", "events", "t", "--from", "1000"], &[]);
    assert_eq!(beyond.code, Some(2), "{beyond:?}");
    assert!(
        beyond.err.starts_with("error: the thread t has no position 1000 [TOOLWRIGHT_SESSION_STEP_NOT_FOUND]\nhint: its journal ends at "),
        "{}",
        beyond.err
    );
    assert_eq!(kept.run(&["threads", "fork", "t", "--at", "1", "--step", "1"], &[]).code, Some(2));
    assert_eq!(kept.run(&["threads", "fork", "t", "--at", "-1"], &[]).code, Some(2));
    assert_eq!(kept.run(&["threads", "fork", "t", "--input", " "], &[]).code, Some(2));
}

#[test]
fn a_store_that_can_not_be_is_refused_in_one_sentence() {
    let home = Home::new();
    home.file("notes.txt", "this is no database, however long it goes on; it is a text, and stays one after all of this is over\n");
    std::fs::create_dir(home.path().join("folder")).unwrap();
    for (store, code, said) in [
        ("redis://me:geheim@host", 2, "no store has addresses that begin with `redis:`"),
        (" ", 2, "the address of the store is empty"),
        ("memory:", 2, "`memory:` keeps nothing from one command to the next"),
        ("folder", 2, "the store folder is a folder"),
        ("none/threads.db", 2, "there is no store none/threads.db"),
        ("typo.db", 2, "there is no store typo.db"),
        ("notes.txt", 2, "the file notes.txt is no SQLite database"),
        ("postgres://me:geheim@127.0.0.1:1/app", 1, "127.0.0.1:1"),
        ("postgres://me:geheim@", 2, "postgres://user:password@host"),
    ] {
        let ended = home.run(&["threads", "list", "--store", store]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(code), ""), "{store}: {ended:?}");
        assert!(ended.err.contains(said) && !ended.err.contains("geheim"), "{store}: {}", ended.err);
        assert!(ended.err.starts_with("error: ") && ended.err.lines().count() <= 2, "{}", ended.err);
    }
    assert!(!home.path().join("typo.db").exists() && !home.path().join("none").exists());
    // The database's version and its owner stand in its first page.
    let kept = Kept::new();
    kept.done("t");
    for (at, value, code) in [(60, 9_999_u32, 2), (68, 77, 2)] {
        let odd = kept.home.path().join("odd.db");
        let mut bytes = std::fs::read(&kept.store).unwrap();
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        std::fs::write(&odd, &bytes).unwrap();
        let ended = kept.run(&["threads", "list", "--store", "odd.db"], &[]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(code), ""), "{ended:?}");
        assert!(ended.err.contains("odd.db") && ended.err.contains("\nhint: "), "{}", ended.err);
        assert_eq!(std::fs::read(&odd).unwrap(), bytes, "what is refused is not touched");
    }
    // The header is whole, the rest is not.
    let damaged = kept.home.path().join("damaged.db");
    let mut bytes = std::fs::read(&kept.store).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(&damaged, &bytes).unwrap();
    let ended = kept.run(&["threads", "list", "--store", "damaged.db"], &[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.contains("damaged.db") && ended.err.contains("\nhint: ") && ended.err.lines().count() == 2, "{}", ended.err);
    // Where something is to be kept, a folder that is missing is named.
    let lost = home.run(&["run", "hi", "--thread", "t", "--store", "none/threads.db"]);
    assert_eq!(lost.code, Some(2), "{lost:?}");
    assert!(lost.err.contains("has no folder to be in") && lost.err.contains("hint: make none"), "{}", lost.err);
    assert!(std::fs::read_to_string(home.path().join("notes.txt")).unwrap().starts_with("this is no database"));
}

#[test]
fn a_thread_on_a_server_goes_on_and_its_password_is_never_shown() {
    let Some(server) = postgres::Server::shared() else { return };
    // Any password will do where everybody is trusted.
    let url = server.url().replace("toolwright@", "toolwright:geheim@");
    let home = Home::new();
    let model = Server::new(vec![Reply::Text(&["One."]), Reply::Text(&["Two."])]);
    let over = |arguments: &[&str]| home.run_with(&[arguments, &["--store", &url]].concat(), &model.env(), "");
    let id = server.fresh_name();
    let first = over(&["run", "a", "--thread", &id]);
    assert_eq!((first.code, first.out.as_str(), first.err.as_str()), (Some(0), "One.\n", ""));
    let second = over(&["run", "b"]);
    assert_eq!((second.code, second.out.as_str()), (Some(0), "Two.\n"), "{}", second.err);
    let (_, how) = second.err.split_once(" --store ").unwrap();
    assert!(how.starts_with("postgres://toolwright:PASSWORD@127.0.0.1:"), "{}", second.err);
    let shown = over(&["threads", "show", &id]);
    assert!(shown.out.ends_with("\n> a\nOne.\n"), "{}", shown.out);
    let unknown = over(&["threads", "show", "nobody"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("PASSWORD@"), "{unknown:?}");
    assert!(!(second.err + &unknown.err).contains("geheim"));
}
