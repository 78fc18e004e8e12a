//! The files of a folder as tools: reading, searching and editing them (sdk-tools 25).

mod change;
mod edit;
mod edit_tools;
mod grep;
mod names;
mod patch;
mod read_tools;
mod rewind;
mod seen;
mod text;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use toolwright_host::files::{FileError, Root, RootError, RootedPath};
use toolwright_tool::core::CallId;
use toolwright_tool::{
    Annotations, NeedsApproval, OnInterrupt, PrivateSource, Tool, ToolArg, ToolBuilder, ToolContext, ToolError, ToolOutput,
};

pub use rewind::{Checkpoints, Rewind, RewindReport, SkipReason, Skipped, TurnChanges};

/// One of the tools of a [`Workspace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileTool {
    /// `read_file`
    ReadFile,
    /// `list_dir`
    ListDir,
    /// `file_info`
    FileInfo,
    /// `glob`
    Glob,
    /// `grep`
    Grep,
    /// `write_file`
    WriteFile,
    /// `edit_file`
    EditFile,
    /// `multi_edit`
    MultiEdit,
    /// `apply_patch`
    ApplyPatch,
}

impl FileTool {
    /// All of them, in the order in which [`Workspace::tools`] gives them.
    pub const ALL: [Self; 9] = [
        Self::ReadFile,
        Self::ListDir,
        Self::FileInfo,
        Self::Glob,
        Self::Grep,
        Self::WriteFile,
        Self::EditFile,
        Self::MultiEdit,
        Self::ApplyPatch,
    ];

    /// What a model calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadFile => "read_file",
            Self::ListDir => "list_dir",
            Self::FileInfo => "file_info",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::WriteFile => "write_file",
            Self::EditFile => "edit_file",
            Self::MultiEdit => "multi_edit",
            Self::ApplyPatch => "apply_patch",
        }
    }

    /// Whether it changes nothing.
    pub fn only_reads(self) -> bool {
        matches!(self, Self::ReadFile | Self::ListDir | Self::FileInfo | Self::Glob | Self::Grep)
    }
}

/// Limits and habits of a workspace.
#[derive(Clone)]
pub(crate) struct Options {
    read_only: bool,
    gitignore: bool,
    checkpoints: bool,
    ignore: walk::Ignored,
    max_read_lines: usize,
    max_output: usize,
    max_results: usize,
    max_files: usize,
    max_file: u64,
    max_searched: u64,
    max_kept: u64,
    max_turns: u32,
    approvals: BTreeMap<FileTool, NeedsApproval>,
}

/// A folder whose files a model works with, by tools that can't leave it.
///
/// Paths are written from the folder on. Whatever a path says and whatever links are there, nothing outside is read or changed
/// (see [`toolwright_host::files`]). What is read is marked private, so that sending it outside asks. Tools that write ask
/// before each call, unless a rule, a permission mode or [`Workspace::needs_approval`] says otherwise.
///
/// ```
/// use toolwright_tools::workspace::{FileTool, Workspace};
///
/// # let folder = std::env::temp_dir();
/// let workspace = Workspace::at(&folder)?.max_read_lines(500);
/// assert_eq!(workspace.tools().len(), 9);
/// let names: Vec<_> = workspace.clone().read_only().tools().iter().map(|tool| tool.name().to_string()).collect();
/// assert_eq!(names, ["read_file", "list_dir", "file_info", "glob", "grep"]);
/// // Each one alone:
/// assert_eq!(workspace.tool(FileTool::Grep).name().as_str(), "grep");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// Cheap to clone. Clones with other limits share what serialises their writes.
#[derive(Clone)]
pub struct Workspace {
    root: Arc<Root>,
    options: Arc<Options>,
    /// Whoever plans a change and makes it holds this meanwhile (sdk-tools 25.6/10).
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("folder", &self.root.folder()).finish_non_exhaustive()
    }
}

impl Workspace {
    /// The workspace of a folder, which has to be there.
    pub fn at(folder: impl AsRef<Path>) -> Result<Self, RootError> {
        Ok(Self::of(Root::open(folder)?))
    }

    /// The workspace of a root that is open.
    pub fn of(root: Root) -> Self {
        const MIB: u64 = 1024 * 1024;
        let options = Options {
            read_only: false,
            gitignore: true,
            checkpoints: true,
            ignore: walk::Ignored::usual(),
            max_read_lines: 2_000,
            max_output: 50_000,
            max_results: 200,
            max_files: 20_000,
            max_file: 10 * MIB,
            max_searched: 2 * MIB,
            max_kept: 1_000_000,
            max_turns: 20,
            approvals: BTreeMap::new(),
        };
        Self { root: Arc::new(root), options: Arc::new(options), writing: Arc::default() }
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }

    /// Gives only the tools that read.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.with(|options| options.read_only = true)
    }

    /// Which calls of one tool have to be approved. Where nothing is said, calls of the tools that write are, all of them, and
    /// those of the tools that read are not.
    ///
    /// ```
    /// use toolwright_tool::{NeedsApproval, ToolContext};
    /// use toolwright_tools::workspace::{FileTool, Workspace};
    ///
    /// # let folder = std::env::temp_dir();
    /// let workspace = Workspace::at(&folder)?
    ///     .needs_approval(FileTool::EditFile, NeedsApproval::never())
    ///     .needs_approval(FileTool::WriteFile, NeedsApproval::once_per_arguments());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn needs_approval(self, tool: FileTool, needs: NeedsApproval) -> Self {
        self.with(|options| drop(options.approvals.insert(tool, needs)))
    }

    /// The most lines that `read_file` gives at once; 2,000 by default.
    #[must_use]
    pub fn max_read_lines(self, lines: usize) -> Self {
        self.with(|options| options.max_read_lines = lines.max(1))
    }

    /// The most characters of one result; 50,000 by default.
    #[must_use]
    pub fn max_output_chars(self, characters: usize) -> Self {
        self.with(|options| options.max_output = characters.max(100))
    }

    /// The most results of `glob`, `grep` and `list_dir`; 200 by default.
    #[must_use]
    pub fn max_results(self, results: usize) -> Self {
        self.with(|options| options.max_results = results.max(1))
    }

    /// The most files, and the most folders, that one `glob` or `grep` looks at; 20,000 by default.
    #[must_use]
    pub fn max_files_scanned(self, files: usize) -> Self {
        self.with(|options| options.max_files = files.max(1))
    }

    /// The largest file that is read or written, in bytes; 10 MiB by default.
    #[must_use]
    pub fn max_file_bytes(self, bytes: u64) -> Self {
        self.with(|options| options.max_file = bytes)
    }

    /// The largest file that `grep` searches, in bytes; 2 MiB by default.
    #[must_use]
    pub fn max_searched_bytes(self, bytes: u64) -> Self {
        self.with(|options| options.max_searched = bytes)
    }

    /// What `glob` and `grep` pass over, as patterns of a `.gitignore`; `.git` and `node_modules` by default.
    pub fn ignore(self, patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, RootError> {
        let ignore = walk::Ignored::of(patterns).map_err(|problem| RootError { folder: self.root.folder().to_owned(), problem })?;
        Ok(self.with(|options| options.ignore = ignore))
    }

    /// Whether `glob` and `grep` pass over what `.gitignore` files name, as they do by default; how much that is they say.
    #[must_use]
    pub fn gitignore(self, respected: bool) -> Self {
        self.with(|options| options.gitignore = respected)
    }

    /// Whether a thread keeps what its files were before it changed them, so that they can go back; see [`Checkpoints`]. It does
    /// by default.
    #[must_use]
    pub fn checkpoints(self, kept: bool) -> Self {
        self.with(|options| options.checkpoints = kept)
    }

    /// For how many turns a thread keeps what its files were; 20 by default.
    #[must_use]
    pub fn max_checkpoint_turns(self, turns: u32) -> Self {
        self.with(|options| options.max_turns = turns.max(1))
    }

    /// The largest file of which a thread keeps what it was, in bytes; 1,000,000 by default.
    #[must_use]
    pub fn max_checkpoint_bytes(self, bytes: u64) -> Self {
        self.with(|options| options.max_kept = bytes)
    }

    /// The root that its files are below.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Its tools, always in this order: those that read, then those that write.
    pub fn tools(&self) -> Vec<Tool> {
        let wanted = FileTool::ALL.into_iter().filter(|tool| tool.only_reads() || !self.options.read_only);
        wanted.map(|tool| self.tool(tool)).collect()
    }

    /// One of its tools.
    pub fn tool(&self, tool: FileTool) -> Tool {
        let made = match tool {
            FileTool::ReadFile => read_tools::read_file(self),
            FileTool::ListDir => read_tools::list_dir(self),
            FileTool::FileInfo => read_tools::file_info(self),
            FileTool::Glob => names::glob(self),
            FileTool::Grep => grep::grep(self),
            FileTool::WriteFile => edit_tools::write_file(self),
            FileTool::EditFile => edit_tools::edit_file(self),
            FileTool::MultiEdit => edit_tools::multi_edit(self),
            FileTool::ApplyPatch => edit_tools::apply_patch(self),
        };
        made.unwrap_or_else(Tool::broken)
    }

    /// Begins the definition of a tool, with what all of them share.
    fn define(&self, tool: FileTool, description: &str) -> ToolBuilder {
        let reads = tool.only_reads();
        let hints = Annotations {
            read_only_hint: Some(reads),
            destructive_hint: Some(!reads),
            idempotent_hint: Some(reads),
            open_world_hint: Some(false),
        };
        let needs = self.options.approvals.get(&tool).cloned();
        let needs = needs.unwrap_or(if reads { NeedsApproval::Never } else { NeedsApproval::Always });
        // Room for the marks that say what was left out.
        let defined = Tool::new(tool.name(), description)
            .annotations(hints)
            .approval(needs)
            .result_limit(self.options.max_output.saturating_add(1_000));
        if reads {
            return defined;
        }
        // Repeated after a crash, a change that was made is found to be made.
        defined.edits_files().sequential().on_interrupt(OnInterrupt::Rerun)
    }

    /// Work on files, where it may block.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> Result<T, ToolError> + Send + 'static) -> Result<T, ToolError> {
        let workspace = self.clone();
        if tokio::runtime::Handle::try_current().is_err() {
            return work(&workspace);
        }
        match tokio::task::spawn_blocking(move || work(&workspace)).await {
            Ok(done) => done,
            Err(error) => Err(ToolError::new(format!("the work on files broke off: {error}"))),
        }
    }
}

/// A tool's body, given its arguments: every one of them marks what it gives as read from the workspace.
fn run<T, F, Fut>(workspace: &Workspace, defined: ToolBuilder, body: F) -> Result<Tool, toolwright_tool::DefinitionError>
where
    T: ToolArg,
    F: Fn(Workspace, T, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let workspace = workspace.clone();
    defined.run_with(move |args: T, cx: ToolContext| {
        cx.note_read(PrivateSource::Workspace);
        body(workspace.clone(), args, cx)
    })
}

/// A refusal as a model reads it (sdk-tools 25.3/5).
fn refused(message: impl Into<String>) -> ToolError {
    ToolError::new(message).named("WorkspaceError")
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn told(error: FileError) -> ToolError {
    refused(error.to_string())
}

fn path_of(written: &str) -> Result<RootedPath, ToolError> {
    RootedPath::parse(written).map_err(told)
}

/// A path of a file, which the root is not.
fn file_path_of(written: &str) -> Result<RootedPath, ToolError> {
    let path = path_of(written)?;
    if path.is_root() { Err(refused("the path names the workspace itself; name a file in it")) } else { Ok(path) }
}

/// A path of a folder; where none is written, the root.
fn folder_path_of(written: Option<&str>) -> Result<RootedPath, ToolError> {
    written.map_or_else(|| Ok(RootedPath::root()), path_of)
}

/// Whether an attempt before this one made the call's changes.
fn was_tried(cx: &ToolContext) -> Option<&CallId> {
    (cx.attempt() > 1).then(|| cx.call_id())
}

/// `1 line`, `2 lines`.
fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// A result of many lines: cut at a whole line where it would be too long.
struct Lines {
    text: String,
    characters: usize,
    limit: usize,
}

impl Lines {
    fn new(limit: usize) -> Self {
        Self { text: String::new(), characters: 0, limit }
    }

    /// Adds a line, unless it is too much.
    fn push(&mut self, line: &str) -> bool {
        let length = line.chars().count() + 1;
        if self.characters + length > self.limit {
            return false;
        }
        self.characters += length;
        self.text.push_str(line);
        self.text.push('\n');
        true
    }

    /// How many characters more it takes in one line.
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.characters + 1)
    }

    /// What it came to, with marks of what is left out.
    fn finish(mut self, marks: &[String]) -> ToolOutput {
        for mark in marks {
            self.text.push('[');
            self.text.push_str(mark);
            self.text.push_str("]\n");
        }
        if self.text.ends_with('\n') {
            self.text.pop();
        }
        ToolOutput::text(self.text)
    }
}
