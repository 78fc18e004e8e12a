//! Any sequence of operations has the same answers as over the in-memory store.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use toolwright_core::{BlobId, FileChange, FinishReason, RunCause, Seq, StepFinish, ThreadId, Timestamp};
use toolwright_runtime::{Append, Claim, DataStore, InboxItem, MemoryStore, Shelf, Snapshot, Store, StoreError, ThreadQuery, ThreadStatus};

use super::files::{entry, link};
use super::script::{Script, input, input_id};
use super::{Failure, Lost, Subject, Verdict, same, thread};

/// How many sequences, and how long each is.
const SEEDS: u64 = 12;
const OPERATIONS: usize = 150;

/// Random numbers that mean the same everywhere: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(n)) >> 64) as u64
    }

    fn pick<T: Copy>(&mut self, from: &[T], or: T) -> T {
        from.get(self.below(from.len() as u64) as usize).copied().unwrap_or(or)
    }
}

/// Whose claim an operation brings along.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Whose {
    /// The current one.
    Own,
    /// One that was lost.
    Lost,
}

#[derive(Clone, Debug)]
enum Operation {
    Claim,
    Release,
    Renew(Whose),
    Append { whose: Whose, expected: Seq, append: Append, taking: usize },
    Read { after: u64, limit: usize },
    ReadAt(Vec<Seq>),
    SaveSnapshot(Whose, Snapshot),
    Post { key: &'static str, item: InboxItem },
    Inbox { skipping: usize },
    PostAt { key: &'static str, at: i64, item: InboxItem },
    CancelTimer(&'static str),
    PostDue { now: i64, limit: usize },
    Threads(ThreadQuery),
    Unfinished { after: bool, limit: usize },
    Pending { only: bool, limit: usize },
    Delete(Whose),
    SetValue { shelf: Shelf, key: &'static str, value: Option<&'static str>, under: Option<Whose> },
    Values { shelf: Shelf, prefix: &'static str, after: Option<&'static str>, limit: usize },
    KeepBlob { content: &'static str, under: Option<Whose> },
    Blob(&'static str),
    ChangeFiles { changes: Vec<FileChange>, under: Option<Whose> },
    Files { prefix: &'static str, after: Option<&'static str>, limit: usize },
    Copy(ThreadId),
}

/// One of the two stores, with what it gave out.
struct Side {
    handles: Vec<Arc<dyn Store>>,
    claims: BTreeMap<ThreadId, Box<dyn Claim>>,
    /// The number of the last claim but one.
    lost: BTreeMap<ThreadId, u64>,
}

/// An answer as text. A failure's sentence is a store's own.
fn told<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Failed { .. }) => "failed".to_owned(),
        other => format!("{other:?}"),
    }
}

impl Side {
    fn new(handles: Vec<Arc<dyn Store>>) -> Self {
        Self { handles, claims: BTreeMap::new(), lost: BTreeMap::new() }
    }

    /// Gives every claim back.
    fn rest(&mut self) {
        self.claims.clear();
    }

    fn fence(&self, id: &ThreadId, whose: Whose) -> u64 {
        match whose {
            // Of a thread that nobody has claimed any number is none.
            Whose::Own => self.claims.get(id).map_or(u64::MAX, |claim| claim.fence()),
            Whose::Lost => self.lost.get(id).copied().unwrap_or(u64::MAX),
        }
    }

    /// The position of the inbox's item number `count`, from 1; 0 if there are not so many.
    async fn position(&self, store: &dyn Store, id: &ThreadId, count: usize) -> Result<u64, StoreError> {
        let items = store.inbox(id, 0).await?;
        Ok(count.checked_sub(1).and_then(|at| items.get(at)).map_or(0, |(position, _)| *position))
    }

    async fn perform(&mut self, turn: usize, home: usize, id: &ThreadId, operation: &Operation) -> Result<String, Failure> {
        let handle =
            |number: usize| self.handles.get(number % self.handles.len()).cloned().ok_or_else(|| Failure::new("there is no handle"));
        // What needs the claim goes through the handle that has it; the rest through any.
        let (any, own) = (handle(turn)?, handle(home)?);
        let brought = |whose: Whose| Lost { thread: id.clone(), fence: self.fence(id, whose) };
        let under = |whose: Option<Whose>| whose.map(|whose| self.fence(id, whose));
        let data: &dyn DataStore = any.data();
        let answer = match operation {
            Operation::Claim => match own.claim(id).await {
                Ok(claim) => {
                    self.claims.insert(id.clone(), claim);
                    "claimed".to_owned()
                }
                Err(error) => format!("{error:?}"),
            },
            Operation::Release => {
                if let Some(claim) = self.claims.remove(id) {
                    self.lost.insert(id.clone(), claim.fence().saturating_sub(1));
                }
                String::new()
            }
            Operation::Renew(whose) => told(own.renew(&brought(*whose)).await),
            Operation::Append { whose, expected, append, taking } => {
                let inbox_through = self.position(&*own, id, *taking).await?;
                told(own.append(&brought(*whose), *expected, Append { inbox_through, ..append.clone() }).await)
            }
            Operation::Read { after, limit } => told(any.read(id, Seq(*after), *limit).await),
            Operation::ReadAt(positions) => told(any.read_at(id, positions).await),
            Operation::SaveSnapshot(whose, snapshot) => {
                let saved = told(own.save_snapshot(&brought(*whose), snapshot.clone()).await);
                format!("{saved} {}", told(any.snapshot(id).await))
            }
            Operation::Post { key, item } => told(any.post(id, key, item.clone()).await),
            Operation::Inbox { skipping } => {
                let after = self.position(&*any, id, *skipping).await?;
                told(any.inbox(id, after).await.map(|items| items.iter().map(|(_, item)| input_id(item)).collect::<Vec<_>>()))
            }
            Operation::PostAt { key, at, item } => told(any.post_at(id, key, Timestamp(*at), item.clone()).await),
            Operation::CancelTimer(key) => told(any.cancel_timer(id, key).await),
            Operation::PostDue { now, limit } => told(any.post_due(Timestamp(*now), *limit).await),
            Operation::Threads(query) => {
                let (mut query, mut all) = (query.clone(), Vec::new());
                for _ in 0..100 {
                    let page = any.threads(&query).await?;
                    all.push(page.items);
                    query.cursor = page.next;
                    if query.cursor.is_none() {
                        break;
                    }
                }
                format!("{all:?}")
            }
            Operation::Unfinished { after, limit } => told(any.unfinished(after.then_some(id), *limit).await),
            Operation::Pending { only, limit } => {
                let (mut cursor, mut all) = (None::<String>, Vec::new());
                for _ in 0..100 {
                    let page = any.pending(only.then_some(id), cursor.as_deref(), *limit).await?;
                    all.push(page.items);
                    cursor = page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
                format!("{all:?}")
            }
            Operation::Delete(whose) => told(own.delete(&brought(*whose)).await),
            Operation::SetValue { shelf, key, value, under: whose } => {
                told(data.set_value(id, *shelf, key, value.map(Arc::from), under(*whose)).await)
            }
            Operation::Values { shelf, prefix, after, limit } => told(data.values(id, *shelf, prefix, *after, *limit).await),
            Operation::KeepBlob { content, under: whose } => {
                told(data.keep_blob(id, Bytes::from_static(content.as_bytes()), under(*whose)).await)
            }
            Operation::Blob(content) => told(data.blob(id, &BlobId::of(content.as_bytes())).await),
            Operation::ChangeFiles { changes, under: whose } => told(data.change_files(id, changes.clone(), under(*whose)).await),
            Operation::Files { prefix, after, limit } => told(data.files(id, prefix, *after, *limit).await),
            Operation::Copy(to) => told(data.copy(id, to).await),
        };
        Ok(format!("{answer}; {:?}", any.info(id).await?))
    }
}

/// What happens next in the life of a thread, so that each record fits.
struct Life {
    script: Script,
    stage: u32,
    calls: u32,
}

impl Life {
    fn new(id: &ThreadId) -> Self {
        Self { script: Script::unopened(id, 0), stage: 0, calls: 0 }
    }

    fn go_on(&mut self, at: i64) -> Verdict {
        let call = format!("call-{}", self.calls);
        let script = self.script.at(at);
        match self.stage {
            0 => script.opens("agent", None),
            1 => script.asked(&format!("Question {at}: 100% ÄÖ_")),
            2 => {
                self.calls += 1;
                let (one, two) = (format!("call-{}", self.calls), format!("call-{}b", self.calls));
                script.calls(&[&one, &two])?.asks(&one)?.asks(&two)
            }
            3 => script.step_ends(StepFinish::AwaitingApproval)?.run_ends(FinishReason::AwaitingApproval),
            4 => script.decided(&call)?.started(&RunCause::Decision),
            5 => script.executes(&call)?.done(&call, json!({ "at": at }))?.done(&format!("{call}b"), json!(null)),
            _ => {
                // After the answer comes the next question.
                self.stage = 0;
                script.replies("Done")?.run_ends(FinishReason::Stop)
            }
        }?;
        self.stage += 1;
        Ok(())
    }
}

/// The generator's view: what has to be known to make the next operation.
struct World {
    random: Random,
    ids: Vec<ThreadId>,
    lives: BTreeMap<ThreadId, Life>,
    claimed: BTreeMap<ThreadId, bool>,
    copies: usize,
    seed: u64,
}

const KEYS: [&str; 5] = ["a", "A", "ab", "b%", "é"];
const CONTENTS: [&str; 3] = ["one", "two", ""];
const PATHS: [&str; 6] = ["/a", "/A", "/a/b", "/a_b", "/é", "/"];

impl World {
    fn whose(&mut self) -> Whose {
        if self.random.below(8) == 0 { Whose::Lost } else { Whose::Own }
    }

    fn under(&mut self) -> Option<Whose> {
        (self.random.below(2) == 0).then(|| self.whose())
    }

    fn limit(&mut self) -> usize {
        self.random.pick(&[1, 2, 3, 100], 1)
    }

    fn operation(&mut self, id: &ThreadId, turn: usize) -> Result<Operation, Failure> {
        let own = self.claimed.get(id).copied().unwrap_or(false);
        let item = input(&format!("item-{turn}"));
        let key = self.random.pick(&KEYS, "a");
        Ok(match self.random.below(30) {
            0 => Operation::Claim,
            1 => Operation::Release,
            2 => Operation::Renew(self.whose()),
            3..=8 if !own => Operation::Claim,
            3..=8 => {
                let whose = self.whose();
                let wrong = self.random.below(10) == 0;
                let at = self.random.below(1000) as i64 - 100;
                let life = self.lives.entry(id.clone()).or_insert_with(|| Life::new(id));
                let end = life.script.made().len() as u64;
                if whose == Whose::Lost || wrong {
                    // It is refused, whatever it would write.
                    let append = Append::records(life.script.made().to_vec());
                    return Ok(Operation::Append { whose, expected: Seq(end + 1), append, taking: 1 });
                }
                life.go_on(at)?;
                let append = life.script.take();
                Operation::Append { whose, expected: Seq(end), append, taking: self.random.below(4) as usize }
            }
            9 => Operation::Read { after: self.random.below(12), limit: self.limit() },
            10 => Operation::ReadAt((0..self.random.below(5)).map(|at| Seq(at * 3)).collect()),
            11 => Operation::SaveSnapshot(self.whose(), Snapshot { at: Seq(turn as u64), text: format!("snapshot {turn}").into() }),
            12 | 13 => Operation::Post { key, item },
            14 => Operation::Inbox { skipping: self.random.below(3) as usize },
            15 | 16 => Operation::PostAt { key, at: self.random.below(100) as i64, item },
            17 => Operation::CancelTimer(key),
            18 => Operation::PostDue { now: self.random.below(100) as i64, limit: self.limit() },
            19 => {
                let statuses = [None, Some(ThreadStatus::InProgress), Some(ThreadStatus::AwaitingApproval), Some(ThreadStatus::Finished)];
                let text = self.random.pick(&[None, Some("äö_"), Some("COPY"), Some("0%"), Some("T")], None).map(str::to_owned);
                let changed_before = (self.random.below(3) == 0).then(|| Timestamp(self.random.below(1000) as i64));
                let status = self.random.pick(&statuses, None);
                Operation::Threads(ThreadQuery { status, text, changed_before, limit: self.limit(), ..ThreadQuery::default() })
            }
            20 => Operation::Unfinished { after: self.random.below(2) == 0, limit: self.limit() },
            21 => Operation::Pending { only: self.random.below(2) == 0, limit: self.limit() },
            22 if self.random.below(3) == 0 => Operation::Delete(self.whose()),
            22..=24 => {
                let shelf = self.random.pick(&[Shelf::Values, Shelf::Environment], Shelf::Values);
                let value = self.random.pick(&[None, Some("1"), Some("{\"b\":1,\"a\":2}")], None);
                Operation::SetValue { shelf, key, value, under: self.under() }
            }
            25 => {
                let shelf = self.random.pick(&[Shelf::Values, Shelf::Environment], Shelf::Values);
                let after = self.random.pick(&[None, Some("A"), Some("ab")], None);
                Operation::Values { shelf, prefix: self.random.pick(&["", "a", "b%"], ""), after, limit: self.limit() }
            }
            26 => Operation::KeepBlob { content: self.random.pick(&CONTENTS, ""), under: self.under() },
            27 => Operation::Blob(self.random.pick(&CONTENTS, "")),
            28 => {
                let mut changes = Vec::new();
                for _ in 0..=self.random.below(3) {
                    let path = self.random.pick(&PATHS, "/");
                    changes.push(match self.random.below(3) {
                        0 => FileChange::Remove(path.to_owned()),
                        1 => FileChange::Put(link(path)),
                        _ => FileChange::Put(entry(path, self.random.pick(&CONTENTS, "").as_bytes())),
                    });
                }
                Operation::ChangeFiles { changes, under: self.under() }
            }
            _ if self.random.below(4) == 0 => {
                self.copies += 1;
                Operation::Copy(thread(&format!("copy-{}-{}", self.seed, self.copies))?)
            }
            _ => {
                let after = self.random.pick(&[None, Some("/A"), Some("/a")], None);
                Operation::Files { prefix: self.random.pick(&["", "/a", "/a_", "/é"], ""), after, limit: self.limit() }
            }
        })
    }

    /// Takes note of what the operation did, which both sides say alike.
    fn note(&mut self, id: &ThreadId, operation: &Operation, answer: &str) {
        match operation {
            Operation::Claim => drop(self.claimed.insert(id.clone(), true)),
            Operation::Release => drop(self.claimed.insert(id.clone(), false)),
            Operation::Delete(_) if answer.starts_with("Ok") => drop(self.lives.remove(id)),
            Operation::Copy(to) => self.ids.push(to.clone()),
            _ => {}
        }
    }
}

async fn play(seed: u64, tested: &mut Side, reference: &mut Side) -> Verdict {
    let ids = ["t", "T", "t-2"].map(|id| format!("{id}-{seed}"));
    let ids = ids.iter().map(|id| thread(id)).collect::<Result<Vec<_>, _>>()?;
    let mut world = World { random: Random(seed), ids, lives: BTreeMap::new(), claimed: BTreeMap::new(), copies: 0, seed };
    for turn in 0..OPERATIONS {
        let home = world.random.below(world.ids.len() as u64) as usize;
        let Some(id) = world.ids.get(home).cloned() else { continue };
        let operation = world.operation(&id, turn)?;
        let found = tested.perform(turn, home, &id, &operation).await?;
        let expected = reference.perform(turn, home, &id, &operation).await?;
        let what = format!("sequence {seed}, operation {turn} on {id}: {}", super::shown(&operation));
        same(&what, found.as_str(), expected.as_str())?;
        world.note(&id, &operation, &found);
    }
    tested.rest();
    reference.rest();
    Ok(())
}

pub(super) async fn any_sequence_has_the_answers_of_the_store_in_memory(subject: Subject) -> Verdict {
    let another = subject.another().await?;
    let mut tested = Side::new(vec![Arc::clone(&subject.store), another]);
    let mut reference = Side::new(vec![Arc::new(MemoryStore::new())]);
    // One after the other over the same stores: some operations concern the threads of all.
    for seed in 0..SEEDS {
        play(seed, &mut tested, &mut reference).await?;
    }
    Ok(())
}
