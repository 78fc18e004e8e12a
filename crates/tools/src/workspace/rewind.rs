//! What a thread's files were before it changed them, and going back to that (sdk-tools 25.6).
//!
//! It is kept with the thread: content among its files under `/.workspace/`, what it belongs to among its values. So it is there
//! after a crash, in every store, and goes with the thread.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toolwright_host::files::RootedPath;
use toolwright_tool::core::Author;
use toolwright_tool::{FileOptions, ThreadFiles, ThreadValues, ToolContext, ToolError};

use super::change::{Change, current, make};
use super::seen::{hash, path_key, workspace_key};
use super::{Workspace, refused};

/// What is kept of one file and turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    path: String,
    before: Before,
    /// The hash of what the thread last made of it in that turn; `None` if it removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

/// What a file was before the first change of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Before {
    /// It was not there.
    Absent,
    /// Content, which is kept under its hash.
    File { sha256: String, mode: u32 },
    /// Content that is too large to be kept.
    TooLarge { sha256: String },
}

/// The turn that a call belongs to: how many messages a person sent before the one it serves.
fn turn_of(cx: &ToolContext) -> u32 {
    let sent = cx.messages().iter().filter(|message| message.author == Author::Human).count();
    u32::try_from(sent).unwrap_or(u32::MAX).saturating_sub(1)
}

fn prefix(workspace: &Workspace) -> String {
    format!("workspace.change/{}/", workspace_key(workspace))
}

fn forgotten_key(workspace: &Workspace) -> String {
    format!("workspace.forgotten/{}", workspace_key(workspace))
}

fn file_of(workspace: &Workspace, sha256: &str) -> String {
    format!("/.workspace/{}/{sha256}", workspace_key(workspace))
}

/// Keeps what a file is before it is changed. Of a turn only the first change keeps content.
pub(super) async fn keep(workspace: &Workspace, cx: &ToolContext, change: &Change) -> Result<(), ToolError> {
    let (values, turn) = (cx.values(), turn_of(cx));
    let key = format!("{}{turn:08}/{}", prefix(workspace), path_key(&change.path));
    let after = change.after.as_deref().map(hash);
    let known: Option<serde_json::Value> = values.get(&key).await?;
    if let Some(known) = known.and_then(|known| serde_json::from_value::<Kept>(known).ok()) {
        return values.set(&key, &Kept { after, ..known }).await;
    }
    let history = workspace.checkpoints_of(values.clone(), cx.files());
    history.forget_old(turn).await?;
    let before = match &change.before {
        None => Before::Absent,
        Some(content) => {
            let sha256 = hash(&content.bytes);
            if history.keep_content(&sha256, &content.bytes).await? {
                Before::File { sha256, mode: content.stat.mode }
            } else {
                Before::TooLarge { sha256 }
            }
        }
    };
    values.set(&key, &Kept { path: change.path.as_str().to_owned(), before, after }).await
}

/// The files that a thread changed in one turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnChanges {
    /// How many messages a person had sent before the one that this turn answered.
    pub turn: u32,
    /// The files, by path.
    pub paths: Vec<String>,
}

/// How to go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewind {
    /// Only says what would be done.
    pub dry_run: bool,
    /// Also takes back files that somebody else has changed since.
    pub force: bool,
}

/// Why a file was left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipReason {
    /// It is not what the thread last made of it.
    ChangedSince,
    /// It was too large for its content to be kept.
    TooLarge,
    /// It can't be read, or what it was is not kept any more.
    Unreadable,
}

/// A file that was left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its path.
    pub path: String,
    /// Why.
    pub reason: SkipReason,
}

/// What going back did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RewindReport {
    /// Whether nothing was done.
    pub dry_run: bool,
    /// Files that have their content of then.
    pub restored: Vec<String>,
    /// Files that were not there then, and are gone.
    pub deleted: Vec<String>,
    /// Files that were left as they are.
    pub skipped: Vec<Skipped>,
}

/// What a thread keeps of its files in a workspace.
///
/// ```
/// use toolwright_tools::workspace::{Rewind, Workspace};
/// # use toolwright_tool::{ThreadFiles, ThreadValues, ToolError};
/// # async fn back(values: ThreadValues, files: ThreadFiles) -> Result<(), Box<dyn std::error::Error>> {
/// let workspace = Workspace::at("project")?;
/// // Of an agent's thread: `thread.values()?` and `thread.files()?`.
/// let checkpoints = workspace.checkpoints_of(values, files);
/// for changes in checkpoints.list().await.map_err(|error| error.to_string())? {
///     println!("turn {}: {}", changes.turn, changes.paths.join(", "));
/// }
/// let would = checkpoints.rewind(2, Rewind { dry_run: true, ..Rewind::default() }).await.map_err(|error| error.to_string())?;
/// println!("{} files would be as they were before turn 2", would.restored.len());
/// # Ok(())
/// # }
/// ```
///
/// What other tools change, such as a shell, is not known here. Folders that were made stay. The conversation is not taken back.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    workspace: Workspace,
    values: ThreadValues,
    files: ThreadFiles,
}

impl Workspace {
    /// What the thread of these values and files keeps of this workspace's files.
    pub fn checkpoints_of(&self, values: ThreadValues, files: ThreadFiles) -> Checkpoints {
        Checkpoints { workspace: self.clone(), values, files }
    }
}

impl Checkpoints {
    /// What is kept, by turn and key.
    async fn kept(&self) -> Result<Vec<(u32, String, Kept)>, ToolError> {
        let prefix = prefix(&self.workspace);
        let all = self.values.list(&prefix).await?;
        let read = |(key, value): (String, serde_json::Value)| {
            let turn = key.strip_prefix(&prefix)?.split('/').next()?.parse().ok()?;
            Some((turn, key, serde_json::from_value(value).ok()?))
        };
        Ok(all.into_iter().filter_map(read).collect())
    }

    /// The turns in which files were changed, in order.
    pub async fn list(&self) -> Result<Vec<TurnChanges>, ToolError> {
        let mut turns: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for (turn, _, kept) in self.kept().await? {
            turns.entry(turn).or_default().insert(kept.path);
        }
        Ok(turns.into_iter().map(|(turn, paths)| TurnChanges { turn, paths: paths.into_iter().collect() }).collect())
    }

    /// Takes files back to what they were before turn `to_turn`: those that the thread changed in that turn or later. All is
    /// planned before anything is written, and written whole or not at all. What was kept of those turns is then forgotten.
    pub async fn rewind(&self, to_turn: u32, how: Rewind) -> Result<RewindReport, ToolError> {
        let forgotten: Option<u32> = self.values.get(&forgotten_key(&self.workspace)).await?;
        if let Some(forgotten) = forgotten.filter(|forgotten| to_turn <= *forgotten) {
            return Err(refused(format!(
                "what files were before turn {to_turn} is not kept any more; go back to turn {} or a later one",
                forgotten.saturating_add(1)
            )));
        }
        // By path: what it was before the first of these turns, and what the thread last made of it.
        let mut files: BTreeMap<String, Kept> = BTreeMap::new();
        for (_, _, kept) in self.kept().await?.into_iter().filter(|(turn, ..)| *turn >= to_turn) {
            files.entry(kept.path.clone()).and_modify(|first| first.after.clone_from(&kept.after)).or_insert(kept);
        }
        let _writing = self.workspace.writing.lock().await;
        let mut report = RewindReport { dry_run: how.dry_run, ..RewindReport::default() };
        let mut changes = Vec::new();
        for (path, kept) in files {
            match self.planned(&path, &kept, how.force).await? {
                Ok(None) => {}
                Ok(Some(change)) => {
                    if change.after.is_some() { &mut report.restored } else { &mut report.deleted }.push(path);
                    changes.push(change);
                }
                Err(reason) => report.skipped.push(Skipped { path, reason }),
            }
        }
        if !how.dry_run {
            self.workspace.blocking(move |workspace| make(&workspace.root, &changes)).await?;
            self.forget(|turn| turn >= to_turn).await?;
        }
        Ok(report)
    }

    /// What has to be done to one file; nothing if it is what it was. The inner error is why it is left.
    async fn planned(&self, path: &str, kept: &Kept, force: bool) -> Result<Result<Option<Change>, SkipReason>, ToolError> {
        let Ok(rooted) = RootedPath::parse(path) else { return Ok(Err(SkipReason::Unreadable)) };
        let at = rooted.clone();
        // More than was ever written through these tools is somebody else's.
        let read = self.workspace.blocking(move |workspace| Ok(current(&workspace.root, &at, workspace.options.max_file))).await?;
        let Ok(before) = read else { return Ok(Err(SkipReason::Unreadable)) };
        let now = before.as_ref().map(|before| hash(&before.bytes));
        let was = match &kept.before {
            Before::Absent => None,
            Before::File { sha256, .. } | Before::TooLarge { sha256 } => Some(sha256),
        };
        if now.as_ref() == was {
            return Ok(Ok(None));
        }
        if now != kept.after && !force {
            return Ok(Err(SkipReason::ChangedSince));
        }
        let (after, mode) = match &kept.before {
            Before::Absent => (None, None),
            Before::TooLarge { .. } => return Ok(Err(SkipReason::TooLarge)),
            Before::File { sha256, mode } => match self.files.read(&file_of(&self.workspace, sha256)).await? {
                Some(content) => (Some(content.to_vec()), Some(*mode)),
                None => return Ok(Err(SkipReason::Unreadable)),
            },
        };
        Ok(Ok(Some(Change { path: rooted, before, after, mode })))
    }

    /// Forgets everything: nothing can be taken back then.
    pub async fn clear(&self) -> Result<(), ToolError> {
        self.forget(|_| true).await?;
        self.values.remove(&forgotten_key(&self.workspace)).await
    }

    /// Keeps content; not what is too large.
    async fn keep_content(&self, sha256: &str, bytes: &[u8]) -> Result<bool, ToolError> {
        if bytes.len() as u64 > self.workspace.options.max_kept {
            return Ok(false);
        }
        let file = file_of(&self.workspace, sha256);
        if self.files.exists(&file).await? {
            return Ok(true);
        }
        match self.files.write_with(&file, bytes, FileOptions::of_type("application/octet-stream")).await {
            Ok(_) => Ok(true),
            // The thread keeps no more; that is no reason to refuse a change.
            Err(error) if matches!(error.name(), "FileTooLargeError" | "StorageFullError") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Forgets what is older than the turns that are kept.
    async fn forget_old(&self, turn: u32) -> Result<(), ToolError> {
        let turns: BTreeSet<u32> = self.kept().await?.into_iter().map(|(turn, ..)| turn).chain([turn]).collect();
        let surplus = turns.len().saturating_sub(self.workspace.options.max_turns as usize);
        let Some(last) = surplus.checked_sub(1).and_then(|at| turns.into_iter().nth(at)) else { return Ok(()) };
        self.values.set(&forgotten_key(&self.workspace), &last).await?;
        self.forget(|turn| turn <= last).await
    }

    async fn forget(&self, which: impl Fn(u32) -> bool) -> Result<(), ToolError> {
        let (gone, stay): (Vec<_>, Vec<_>) = self.kept().await?.into_iter().partition(|(turn, ..)| which(*turn));
        let content = |kept: &[(u32, String, Kept)]| -> BTreeSet<String> {
            let hashes = kept.iter().filter_map(|(_, _, kept)| match &kept.before {
                Before::File { sha256, .. } => Some(sha256.clone()),
                _ => None,
            });
            hashes.collect()
        };
        let (unused, used) = (content(&gone), content(&stay));
        for (_, key, _) in &gone {
            self.values.remove(key).await?;
        }
        for sha256 in unused.difference(&used) {
            let file = file_of(&self.workspace, sha256);
            if self.files.exists(&file).await? {
                self.files.remove(&file).await?;
            }
        }
        Ok(())
    }
}
