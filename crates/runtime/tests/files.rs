//! What a thread keeps beside its journal, in runs and from outside: files, values, environment, attachments.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::*;
use serde_json::{Value, json};
use toolwright_core::{
    Author, BlobId, BlobRef, EventKind, FileChange, FileEntry, FinishReason, Item, Message, Part, RecordBody, Seq, ThreadId, ToolOutput,
};
use toolwright_runtime::{Agent, Answer, DataStore, ForkAt, ForkPatch, MemoryStore, NoResolvers, Shelf, Store, StoreLayer};
use toolwright_tool::{EnvSource, KeepLimits, Tool, ToolContext, ToolError};

/// Standard base64, written here so that the code under test is not its own judge.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let all = chunk.iter().chain(&[0, 0]).take(3).fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
        for place in 0..4 {
            let letter = LETTERS[(all >> (18 - 6 * place) & 63) as usize] as char;
            text.push(if place <= chunk.len() { letter } else { '=' });
        }
    }
    text
}

/// A PNG's header of 640 by 480, and noise.
fn picture(length: usize, seed: u8) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0".to_vec();
    let mut state = u32::from(seed) + 1;
    while bytes.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.push((state >> 24) as u8);
    }
    bytes
}

fn data(media_type: &str, bytes: &[u8]) -> String {
    format!("data:{media_type};base64,{}", base64(bytes))
}

/// What stands for content in the journal.
fn short(bytes: &[u8], media_type: Option<&str>) -> String {
    BlobRef { id: BlobId::of(bytes), size: Some(bytes.len() as u64), media_type }.to_string()
}

fn image(address: impl Into<String>) -> Part {
    Part::Image { image: address.into(), mime_type: None }
}

/// A tool that returns these parts each time.
fn giving(name: &str, parts: Vec<Part>) -> Tool {
    let body = move |_args: Value, _cx| {
        let parts = parts.clone();
        async move { Ok::<_, ToolError>(ToolOutput::of(parts)) }
    };
    Tool::new(name, "Gives parts.").run_json(body).unwrap()
}

/// A tool whose body is a future of its context.
fn doing<F, T>(name: &str, body: F) -> Tool
where
    F: Fn(ToolContext) -> T + Send + Sync + 'static,
    T: Future<Output = Result<Value, ToolError>> + Send + 'static,
{
    Tool::new(name, "Does what the test says.").run_json(move |_args: Value, cx: ToolContext| body(cx)).unwrap()
}

async fn journal_text(store: &impl Store, thread: &str) -> String {
    let records = store.read(&ThreadId::new(thread).unwrap(), Seq(0), 100_000).await.unwrap();
    records.iter().map(|record| serde_json::to_string(&**record).unwrap()).collect::<Vec<_>>().join("\n")
}

/// The addresses of images and files in a request's messages, in order.
fn addresses(messages: &toolwright_core::Transcript) -> Vec<String> {
    let of_part = |part: &Part| match part {
        Part::Image { image: address, .. } | Part::File { data: address, .. } => Some(address.clone()),
        _ => None,
    };
    messages
        .iter()
        .flat_map(|message| message.items.iter())
        .flat_map(|item| match item {
            Item::Image { image: address, .. } | Item::File { data: address, .. } => vec![address.clone()],
            Item::ToolResult(result) => result.parts.iter().filter_map(of_part).collect(),
            _ => Vec::new(),
        })
        .collect()
}

/// A store that counts what is read and written beside the journal, over another.
struct Counting {
    inner: MemoryStore,
    blobs_read: Arc<AtomicUsize>,
    /// Content is never given.
    hangs: bool,
    blobs_kept: Arc<Mutex<Vec<BlobId>>>,
}

impl Counting {
    fn new(inner: &MemoryStore) -> Self {
        Self { inner: inner.clone(), blobs_read: Arc::default(), hangs: false, blobs_kept: Arc::default() }
    }
}

impl StoreLayer for Counting {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn data(&self) -> &dyn DataStore {
        self
    }
}

impl DataStore for Counting {
    fn value<'a>(&'a self, thread: &'a ThreadId, shelf: Shelf, key: &'a str) -> Answer<'a, Option<Arc<str>>> {
        DataStore::value(&self.inner, thread, shelf, key)
    }

    fn set_value<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        key: &'a str,
        value: Option<Arc<str>>,
        fence: Option<u64>,
    ) -> Answer<'a, ()> {
        self.inner.set_value(thread, shelf, key, value, fence)
    }

    fn values<'a>(
        &'a self,
        thread: &'a ThreadId,
        shelf: Shelf,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Answer<'a, Vec<(String, Arc<str>)>> {
        DataStore::values(&self.inner, thread, shelf, prefix, after, limit)
    }

    fn keep_blob<'a>(&'a self, thread: &'a ThreadId, bytes: Bytes, fence: Option<u64>) -> Answer<'a, BlobId> {
        self.blobs_kept.lock().unwrap().push(BlobId::of(&bytes));
        self.inner.keep_blob(thread, bytes, fence)
    }

    fn blob<'a>(&'a self, thread: &'a ThreadId, id: &'a BlobId) -> Answer<'a, Option<Bytes>> {
        self.blobs_read.fetch_add(1, Ordering::SeqCst);
        if self.hangs {
            return Box::pin(std::future::pending());
        }
        self.inner.blob(thread, id)
    }

    fn change_files<'a>(&'a self, thread: &'a ThreadId, changes: Vec<FileChange>, fence: Option<u64>) -> Answer<'a, ()> {
        self.inner.change_files(thread, changes, fence)
    }

    fn file<'a>(&'a self, thread: &'a ThreadId, path: &'a str) -> Answer<'a, Option<FileEntry>> {
        self.inner.file(thread, path)
    }

    fn files<'a>(&'a self, thread: &'a ThreadId, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answer<'a, Vec<FileEntry>> {
        self.inner.files(thread, prefix, after, limit)
    }

    fn copy<'a>(&'a self, from: &'a ThreadId, to: &'a ThreadId) -> Answer<'a, ()> {
        self.inner.copy(from, to)
    }
}

// rule: standard-agents FIL-1
// As standard-agents STA-3 has it.
#[tokio::test]
async fn tools_and_the_program_share_a_threads_files_and_values() {
    let store = MemoryStore::new();
    let work = doing("work", |cx| async move {
        let count = cx.values().get::<u32>("count").await?.unwrap_or(0) + 1;
        cx.values().set("count", &count).await?;
        cx.files().write(&format!("/notes/{count}.md"), format!("note {count}")).await?;
        let hits = cx.files().grep("note", "/", 10).await?;
        Ok(json!(hits.iter().map(|hit| &hit.path).collect::<Vec<_>>()))
    });
    let script = Script::new([calls([("1", "work", "{}")]), say("done"), calls([("2", "work", "{}")]), say("done")]);
    let agent = agent(script).tool(work).store(store.clone()).clock(clock()).build().unwrap();
    let thread = agent.thread("t");
    thread.values().unwrap().set("count", &10).await.unwrap();
    thread.files().unwrap().write("/from-outside.txt", "a note").await.unwrap();

    thread.send("go").await.unwrap();
    let reply = thread.send("go on").await.unwrap();
    assert_eq!(value(&results(&reply.messages)[1]), json!(["/from-outside.txt", "/notes/11.md", "/notes/12.md"]));
    assert_eq!(thread.values().unwrap().get::<u32>("count").await.unwrap(), Some(12));
    let written = thread.files().unwrap().stat("/notes/12.md").await.unwrap().unwrap();
    assert_eq!(written.created_at, toolwright_core::Timestamp(1_767_225_600_000));

    // Another thread has its own, and another agent over the store sees the same.
    assert_eq!(agent.thread("u").values().unwrap().get::<u32>("count").await.unwrap(), None);
    assert!(!agent.thread("u").files().unwrap().exists("/notes").await.unwrap());
    let again = Agent::<NoResolvers>::builder().store(store).build_without_model().unwrap();
    assert_eq!(again.thread("t").files().unwrap().read_text("/notes/11.md").await.unwrap().as_deref(), Some("note 11"));
    let error = again.thread("../t").files().unwrap_err();
    assert_eq!(error.code(), "TOOLWRIGHT_SESSION_ID_INVALID");
}

// A body that outlives its run: another owner has claimed the thread meanwhile.
#[tokio::test]
async fn who_lost_the_thread_can_not_write() {
    let left: Arc<Mutex<Option<ToolContext>>> = Arc::default();
    let slot = Arc::clone(&left);
    let leave = doing("leave", move |cx| {
        let slot = Arc::clone(&slot);
        async move {
            cx.files().write("/first", "1").await?;
            slot.lock().unwrap().get_or_insert(cx);
            Ok(Value::Null)
        }
    });
    let script = Script::new([calls([("1", "leave", "{}")]), say("done"), calls([("2", "leave", "{}")]), say("done")]);
    let agent = agent(script).tool(leave).build().unwrap();
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    thread.send("go again").await.unwrap();

    let late = left.lock().unwrap().take().unwrap();
    let link = late.files().link("/b", "https://example.org/b", toolwright_tool::FileOptions::default()).await.map(drop);
    for refused in [
        late.files().write("/a", "2").await.map(drop),
        late.files().remove("/first").await.map(drop),
        late.files().mkdir("/d").await.map(drop),
        late.files().move_to("/first", "/second").await.map(drop),
        link,
        late.values().set("k", &1).await,
        late.values().remove("k").await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.name(), "ClaimLostError");
        assert_eq!(error.message(), "another owner moves the thread by now, so nothing was written");
    }
    // Reading does no harm.
    assert_eq!(late.files().read_text("/first").await.unwrap().as_deref(), Some("1"));
    let mut walk = thread.files().unwrap().walk("/").await.unwrap();
    assert_eq!(walk.next().await.unwrap().unwrap().path, "/first");
    assert_eq!(walk.next().await.unwrap(), None);
    // From outside nobody's claim is asked for.
    thread.files().unwrap().write("/a", "3").await.unwrap();
}

// Calls that run side by side check and change the tree one after another.
#[tokio::test(flavor = "multi_thread")]
async fn side_by_side_writers_keep_the_tree_and_its_bounds() {
    let race = doing("race", |cx| async move {
        let mine = cx.call_id().to_string();
        cx.files().write(&format!("/new/{mine}"), "x").await?;
        let moved = cx.files().move_to(&format!("/new/{mine}"), "/won").await.is_ok();
        let filled = cx.files().write(&format!("/fill/{mine}"), "0123456789").await.is_ok();
        Ok(json!([moved, filled]))
    });
    let ids: Vec<String> = (0..16).map(|number| format!("c{number}")).collect();
    let asked: Vec<Item> = ids.iter().map(|id| Item::ToolCall(call_item(id, "race", "{}"))).collect();
    let script = Script::new([items_of(asked, FinishReason::ToolCalls), say("done")]);
    let limits = KeepLimits { total: 16 + 75, ..KeepLimits::default() };
    let agent = agent(script).tool(race).keep_limits(limits).build().unwrap();
    let thread = agent.thread("t");
    let reply = thread.send("go").await.unwrap();
    let outcomes: Vec<Value> = results(&reply.messages).iter().map(value).collect();
    assert_eq!(outcomes.len(), 16);
    assert_eq!(outcomes.iter().filter(|outcome| outcome[0] == true).count(), 1);
    let stats = thread.files().unwrap().stats().await.unwrap();
    assert!(stats.total_size <= 91 && stats.total_size > 81, "{stats:?}");
    let written = outcomes.iter().filter(|outcome| outcome.is_array()).count();
    let filled = outcomes.iter().filter(|outcome| outcome[1] == true).count();
    assert_eq!((written + 10 * filled) as u64, stats.total_size);
}

struct Given(HashMap<&'static str, &'static str>);

impl EnvSource for Given {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| (*value).to_owned())
    }
}

// As standard-agents ENV-2 has it.
#[tokio::test]
async fn a_threads_environment_comes_before_the_agents() {
    let store = MemoryStore::new();
    let seen: Arc<Mutex<Vec<[Option<String>; 3]>>> = Arc::default();
    let (of_body, of_policy) = (Arc::clone(&seen), Arc::clone(&seen));
    let read = |cx: &ToolContext| ["TOKEN", "REGION", "OTHER"].map(|name| cx.env(name));
    let tool = Tool::new("look", "Looks.")
        .secret_env("TOKEN")
        .env("REGION")
        .needs_approval_if(move |cx: ToolContext| {
            let seen = Arc::clone(&of_policy);
            async move {
                seen.lock().unwrap().push(read(&cx));
                Ok(toolwright_tool::ApprovalOutcome::Run)
            }
        })
        .run_json(move |_args: Value, cx: ToolContext| {
            of_body.lock().unwrap().push(read(&cx));
            async { Ok::<_, ToolError>(Value::Null) }
        })
        .unwrap();
    let script = Script::new([calls([("1", "look", "{}")]), say("done"), calls([("2", "look", "{}")]), say("done")]);
    let given = Given(HashMap::from([("TOKEN", "agent-token"), ("REGION", "agent-region"), ("OTHER", "agent-other")]));
    let agent = agent(script).tool(tool).env(given).encryption_key("a key of sixteen and more").store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    thread.set_env("TOKEN", Some("thread-\"secret\"")).await.unwrap();
    thread.set_env("OTHER", Some("thread-other")).await.unwrap();
    assert_eq!(thread.env_names().await.unwrap(), ["OTHER", "TOKEN"]);
    let (mut events, _) = collect(thread.stream("go")).await;
    thread.set_env("TOKEN", None).await.unwrap();
    events.extend(collect(thread.stream("go again")).await.0);

    let own = |token: &str| [Some(token.to_owned()), Some("agent-region".to_owned()), None];
    let (first, second) = (own("thread-\"secret\""), own("agent-token"));
    assert_eq!(*seen.lock().unwrap(), [first.clone(), first, second.clone(), second]);
    let told = format!("{}{events:?}", journal_text(&store, "t").await);
    assert!(!told.contains("secret") && !told.contains("agent-token") && !told.contains("thread-other"), "{told}");
    for name in ["", "A B", "1A", "A=B", "Ä", &"A".repeat(129)] {
        let error = thread.set_env(name, Some("x")).await.unwrap_err();
        assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID", "{name}");
    }
    assert_eq!(thread.env_names().await.unwrap(), ["OTHER"]);
}

// As standard-agents TOL-16 and TOL-17 have it.
// rule: standard-agents FIL-10
#[tokio::test]
async fn an_attachment_is_stored_once_and_referred_to() {
    let store = MemoryStore::new();
    let counting = Counting::new(&store);
    let (read, kept) = (Arc::clone(&counting.blobs_read), Arc::clone(&counting.blobs_kept));
    let bytes = picture(300_000, 1);
    let address = data("image/png", &bytes);
    let plot = giving("plot", vec![Part::text("see"), image(address.clone())]);
    let script = Script::new([calls([("1", "plot", "{}")]), calls([("2", "plot", "{}")]), say("done")]);
    let agent = agent(Arc::clone(&script)).tool(plot).store(counting).clock(clock()).build().unwrap();
    let thread = agent.thread("t");
    let (events, reply) = collect(thread.stream("go")).await;
    reply.unwrap();

    let text = journal_text(&store, "t").await;
    assert!(text.len() < 20_000, "the journal has {} bytes", text.len());
    let blob = BlobId::of(&bytes);
    assert_eq!(kept.lock().unwrap().as_slice(), std::slice::from_ref(&blob));

    // What people see is short, with a reference.
    let path = format!("/attachments/{}.png", blob.digits(16));
    let reference = json!({
        "id": format!("att_{}", blob.digits(16)), "type": "file", "path": path, "name": format!("{}.png", blob.digits(16)),
        "mimeType": "image/png", "size": 300_000, "width": 640, "height": 480,
    });
    let done: Vec<Value> = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::ToolDone { .. }))
        .map(|event| serde_json::to_value(&event.kind).unwrap())
        .collect();
    assert_eq!(done.len(), 2);
    for done in &done {
        assert_eq!(done["attachments"], json!([reference]));
        assert_eq!(done["result"][1]["image"], short(&bytes, Some("image/png")));
    }

    // What the model sees is the picture, as it was, each time.
    let asked: Vec<Vec<String>> = script.asked().iter().map(|request| addresses(&request.messages)).collect();
    assert_eq!(asked, [vec![], vec![address.clone()], vec![address.clone(), address.clone()]]);
    // Read once for each message it stands in, not once for each step.
    assert_eq!(read.load(Ordering::SeqCst), 2);

    // And there is a file.
    let files = thread.files().unwrap();
    let listed = files.list("/attachments").await.unwrap();
    assert_eq!(listed.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), [path.as_str()]);
    assert_eq!(listed[0].metadata, map(&json!({ "tool": "plot", "callId": "1", "width": 640, "height": 480 })));
    assert_eq!(files.read(&path).await.unwrap().unwrap(), bytes);
    assert_eq!(files.content(&short(&bytes, None)).await.unwrap().unwrap(), bytes);
}

// A thread that is opened again, and its fork, show the model the same.
#[tokio::test]
async fn attachments_survive_restarts_and_forks() {
    let store = MemoryStore::new();
    let address = data("image/png", &picture(5_000, 2));
    let make = |answers: Vec<common::Answer>| {
        let script = Script::new(answers);
        let plot = giving("plot", vec![image(address.clone())]);
        (Arc::clone(&script), agent(script).tool(plot).store(store.clone()).build().unwrap())
    };
    let (_, first) = make(vec![calls([("1", "plot", "{}")]), say("done")]);
    first.thread("t").send("go").await.unwrap();
    let (script, second) = make(vec![say("still there"), say("there too")]);
    let thread = second.thread("t");
    thread.send("and now?").await.unwrap();
    let fork = thread.fork(ForkAt::Head, ForkPatch::default()).await.unwrap();
    fork.send("and here?").await.unwrap();
    for request in script.asked() {
        assert_eq!(addresses(&request.messages).as_slice(), std::slice::from_ref(&address));
    }
    let history = thread.history().await.unwrap();
    assert_eq!(addresses(&history), [short(&picture(5_000, 2), Some("image/png"))]);
}

// rule: standard-agents FIL-10
#[tokio::test]
async fn input_is_stored_once_too() {
    let store = MemoryStore::new();
    let (first, second) = (picture(200_000, 3), picture(100_000, 4));
    let items = vec![
        Item::text("look"),
        Item::Image { image: data("image/png", &first), mime_type: Some("image/png".to_owned()) },
        Item::File {
            data: data("text/csv;charset=utf-8", &second),
            mime_type: "text/csv".to_owned(),
            filename: Some("../my data.csv".to_owned()),
        },
    ];
    let latch = Latch::default();
    let script = Script::new([calls([("1", "hold", "{}")]), say("seen"), say("seen")]);
    let agent = agent(Arc::clone(&script)).tool(holding("hold", &latch)).store(store.clone()).build().unwrap();
    let thread = agent.thread("t");
    let run = thread.stream(items.clone());
    within(latch.reached()).await;
    // From elsewhere, while the run goes on.
    let ticket = thread.enqueue(items).await.unwrap();
    latch.release();
    within(run).await.unwrap();
    assert!(within(ticket.joined_run()).await.unwrap());

    let text = journal_text(&store, "t").await;
    assert!(text.len() < 20_000, "the journal has {} bytes", text.len());
    assert!(text.contains(&short(&first, None)) && text.contains(&short(&second, Some("text/csv;charset=utf-8"))));
    let given = vec![data("image/png", &first), data("text/csv;charset=utf-8", &second)];
    let asked = script.asked();
    assert_eq!(addresses(&asked[0].messages), given);
    assert_eq!(addresses(&asked[1].messages), [given.clone(), given].concat());

    let listed = thread.files().unwrap().list("/attachments").await.unwrap();
    let mut paths: Vec<&str> = listed.iter().map(|entry| entry.path.as_str()).collect();
    paths.sort_unstable();
    let mut wanted = [
        format!("/attachments/{}.png", BlobId::of(&first).digits(16)),
        format!("/attachments/{}-my-data.csv", BlobId::of(&second).digits(16)),
    ];
    wanted.sort();
    assert_eq!(paths, wanted);
    let csv = listed.iter().find(|entry| entry.mime_type.starts_with("text/csv")).unwrap();
    assert_eq!((csv.metadata["name"].clone(), csv.mime_type.as_str()), (json!("../my data.csv"), "text/csv;charset=utf-8"));
}

// What can't be read as content, is small, or is elsewhere, stays as it was written, to the letter.
#[tokio::test]
async fn what_is_no_large_content_stays_as_it_is() {
    let store = MemoryStore::new();
    let long = "A".repeat(5_000);
    let written = vec![
        data("image/png", &picture(500, 5)),
        format!("data:image/png;base64,{long}*"),
        format!("data:image/png;base64,{long}="),
        format!("data:image/png,{long}"),
        format!("data:{long}"),
        format!("https://example.org/{long}.png"),
        long.clone(),
        "blob:https://example.org/1".to_owned(),
        String::new(),
    ];
    let plot = giving("plot", written.iter().map(image).collect());
    let script = Script::new([calls([("1", "plot", "{}")]), say("done")]);
    let agent = agent(Arc::clone(&script)).tool(plot).store(store).build().unwrap();
    let thread = agent.thread("t");
    let (events, _) = collect(thread.stream("go")).await;
    assert_eq!(addresses(&script.asked()[1].messages), written);
    assert_eq!(addresses(&thread.history().await.unwrap()), written);
    assert!(!thread.files().unwrap().exists("/attachments").await.unwrap());
    for event in events {
        assert!(!matches!(event.kind, EventKind::ToolDone { attachments, .. } if !attachments.is_empty()));
    }
}

// Content without padding comes back with it; the bytes are the same.
#[tokio::test]
async fn padding_may_be_left_out() {
    let bytes = picture(4_000, 6);
    let padded = data("image/png", &bytes);
    assert!(padded.ends_with('='));
    let plot = giving("plot", vec![image(padded.trim_end_matches('='))]);
    let script = Script::new([calls([("1", "plot", "{}")]), say("done")]);
    let agent = agent(Arc::clone(&script)).tool(plot).build().unwrap();
    agent.send("go").await.unwrap();
    assert_eq!(addresses(&script.asked()[1].messages), [padded]);
}

// A journal that came without its content: the model is told, the run goes on.
#[tokio::test]
async fn content_that_is_gone_is_said_to_be() {
    let store = MemoryStore::new();
    let gone = short(b"gone", None);
    let plot = giving("plot", vec![image(gone.clone()), Part::text("and text")]);
    let script = Script::new([calls([("1", "plot", "{}")]), say("done")]);
    let agent = agent(Arc::clone(&script)).tool(plot).store(store).build().unwrap();
    let input = vec![Item::File { data: gone.clone(), mime_type: "text/plain".to_owned(), filename: Some("a.txt".to_owned()) }];
    let reply = agent.thread("t").send(input).await.unwrap();
    assert_eq!(reply.finish_reason, FinishReason::Stop);
    let messages = &script.asked()[1].messages;
    assert_eq!(messages.get(0).unwrap().text_of(), "[the file \"a.txt\" is no longer kept and can't be shown]");
    assert_eq!(results(messages)[0].text(), "[the image is no longer kept and can't be shown]\nand text");
    // The journal still says what it was.
    assert_eq!(addresses(&reply.messages), [gone.clone(), gone.clone()]);
}

// A store that hangs in the middle of a read is waited for as long as a model would be.
#[tokio::test(start_paused = true)]
async fn a_store_that_never_gives_content_ends_the_run_in_time() {
    let mut store = Counting::new(&MemoryStore::new());
    store.hangs = true;
    let plot = giving("plot", vec![image(data("image/png", &picture(9_000, 14)))]);
    let script = Script::new([calls([("1", "plot", "{}")]), say("never")]);
    let agent = agent(Arc::clone(&script)).tool(plot).store(store).build().unwrap();
    let error = within(agent.thread("t").send("go")).await.unwrap_err();
    assert!(error.to_string().contains("the store did not give the content that messages refer to within 300 s"), "{error}");
    assert_eq!(script.times(), 1);
}

#[tokio::test]
async fn attachments_are_bounded() {
    let store = MemoryStore::new();
    let name = Some("big.bin".to_owned());
    let big = Part::File { data: data("application/zip", &picture(5_000, 7)), mime_type: "application/zip".to_owned(), filename: name };
    let script = Script::new([calls([("1", "big", "{}"), ("2", "fits", "{}")]), calls([("3", "more", "{}")]), say("done")]);
    let limits = KeepLimits { file: 4_000, total: 6_000, ..KeepLimits::default() };
    let agent = agent(Arc::clone(&script))
        .tool(giving("big", vec![big]))
        .tool(giving("fits", vec![image(data("image/png", &picture(3_500, 8)))]))
        .tool(giving("more", vec![image(data("image/png", &picture(3_000, 9)))]))
        .keep_limits(limits)
        .store(store.clone())
        .build()
        .unwrap();
    let reply = agent.thread("t").send("go").await.unwrap();
    let said: Vec<String> = results(&reply.messages).iter().map(toolwright_core::ResultItem::text).collect();
    assert_eq!(said[0], "[the file \"big.bin\" was not kept: it has 5000 bytes, and 4000 are allowed]");
    assert_eq!(said[1], "[image]");
    assert!(said[2].starts_with("[the image was not kept: /attachments/") && said[2].contains("6000 are allowed"), "{}", said[2]);
    assert!(journal_text(&store, "t").await.len() < 10_000);
}

// Whatever stands in the way in the tree, content is kept once.
#[tokio::test]
async fn a_tree_in_the_way_is_no_reason_to_fill_the_journal() {
    for taken in ["directory is a file", "another file is there", "ten others are there"] {
        let store = MemoryStore::new();
        let bytes = picture(9_000, 10);
        let digits = BlobId::of(&bytes).digits(16).to_owned();
        let plot = giving("plot", vec![image(data("image/png", &bytes))]);
        let script = Script::new([calls([("1", "plot", "{}")]), say("done")]);
        let agent = agent(Arc::clone(&script)).tool(plot).store(store.clone()).build().unwrap();
        let thread = agent.thread("t");
        let files = thread.files().unwrap();
        match taken {
            "directory is a file" => drop(files.write("/attachments", "mine").await.unwrap()),
            "another file is there" => drop(files.write(&format!("/attachments/{digits}.png"), "mine").await.unwrap()),
            _ => {
                files.write(&format!("/attachments/{digits}.png"), "mine").await.unwrap();
                for number in 2..=10 {
                    files.write(&format!("/attachments/{digits}-{number}.png"), "mine").await.unwrap();
                }
            }
        }
        thread.send("go").await.unwrap();
        assert!(journal_text(&store, "t").await.len() < 5_000, "{taken}");
        assert_eq!(addresses(&script.asked()[1].messages), [data("image/png", &bytes)], "{taken}");
        if taken == "another file is there" {
            assert_eq!(files.read_text(&format!("/attachments/{digits}.png")).await.unwrap().as_deref(), Some("mine"));
            assert_eq!(files.read(&format!("/attachments/{digits}-2.png")).await.unwrap().unwrap(), bytes);
        }
    }
}

// Hooks and direct calls, too: whoever made the result.
#[tokio::test]
async fn results_of_hooks_and_direct_calls_are_stored_once() {
    let store = MemoryStore::new();
    let address = data("image/png", &picture(50_000, 11));
    let answer = address.clone();
    let hook = says("pictures", move |_| Ok(Say::Answer(ToolOutput::of(vec![image(answer.clone())]))));
    let agent = Agent::<NoResolvers>::builder().tool(echo("echo")).at(At::Hook, hook).store(store.clone()).build_without_model().unwrap();
    let reply = agent.thread("t").invoke("echo", "{}").await.unwrap();
    let Some(toolwright_core::Outcome::Done { output }) = reply.outcome else { panic!("done") };
    assert_eq!(output.attachments().len(), 1);
    assert!(journal_text(&store, "t").await.len() < 5_000);
    let records = journal(&store, &ThreadId::new("t").unwrap()).await;
    assert!(records.iter().any(|record| matches!(&record.body, RecordBody::CallDone { .. })));
}

// A file of the thread as a result: its address is short from the beginning.
#[tokio::test]
async fn a_tool_shows_a_file_of_the_thread() {
    let bytes = picture(20_000, 12);
    let written = bytes.clone();
    let show = Tool::new("show", "Shows.")
        .run_json(move |_args: Value, cx: ToolContext| {
            let bytes = written.clone();
            async move {
                cx.files().write("/plots/one.png", bytes).await?;
                let part = cx.files().part("/plots/one.png").await?.ok_or_else(|| ToolError::new("there is no plot"))?;
                Ok::<_, ToolError>(ToolOutput::of(vec![part]))
            }
        })
        .unwrap();
    let script = Script::new([calls([("1", "show", "{}")]), say("done")]);
    let agent = agent(Arc::clone(&script)).tool(show).build().unwrap();
    let thread = agent.thread("t");
    thread.send("go").await.unwrap();
    assert_eq!(addresses(&script.asked()[1].messages), [data("image/png", &bytes)]);
    assert!(!thread.files().unwrap().exists("/attachments").await.unwrap());
}

// Messages of other authors, such as a history that is sent along, hold content too.
#[tokio::test]
async fn whole_histories_are_stored_once() {
    let store = MemoryStore::new();
    let address = data("image/jpeg", &picture(30_000, 13));
    let result = toolwright_core::ResultItem {
        call_id: toolwright_core::CallId::new("old"),
        provider_id: None,
        tool_name: "plot".to_owned(),
        parts: vec![image(address.clone())],
        failed: None,
        approval: None,
        marks: toolwright_core::taint::Marks::default(),
    };
    let mut call = call_item("old", "plot", "{}");
    call.call_id = toolwright_core::CallId::new("old");
    let message = |author, items| Message { author, items, metadata: serde_json::Map::new() };
    let history = vec![
        message(Author::SideA, vec![Item::ToolCall(call)]),
        message(Author::Tool, vec![Item::ToolResult(result)]),
        Message::human("what was that?"),
    ];
    let script = Script::new([say("a plot")]);
    let agent = agent(Arc::clone(&script)).store(store.clone()).build().unwrap();
    agent.thread("t").send(history).await.unwrap();
    assert_eq!(addresses(&script.asked()[0].messages), [address]);
    assert!(journal_text(&store, "t").await.len() < 5_000);
}
