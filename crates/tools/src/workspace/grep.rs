//! `grep`: ripgrep's engine over the files of a walk.

use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use tokio_util::sync::CancellationToken;
use toolwright_host::files::{FileError, FileKind, Root, RootedPath};
use toolwright_tool::{DefinitionError, Tool, ToolError, ToolOutput, args};

use super::names::compiled;
use super::read_tools::printable;
use super::walk::{InFolder, Walked, joined, marks, walk};
use super::{FileTool, Lines, Workspace, folder_path_of, refused, run, told};

#[args]
struct GrepArgs {
    /// A regular expression, such as fn \w+_test.
    pattern: String,
    /// The folder or file to search; the workspace's own folder if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Searches only files whose names match, such as *.rs, or whose paths do, such as src/**/*.rs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    glob: Option<String>,
    /// Whether upper and lower case are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ignore_case: Option<bool>,
}

/// Searches the text of files.
pub(super) fn grep(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let defined = workspace.define(FileTool::Grep, "Searches files line by line for a regular expression. Gives path:line: text.");
    run(workspace, defined, |workspace, args: GrepArgs, cx| async move {
        let path = folder_path_of(args.path.as_deref())?;
        let stop = cx.cancelled();
        workspace.blocking(move |workspace| searched(workspace, &args, &path, &stop)).await
    })
}

/// The longest expression, in characters, and the most memory that one may take.
const LONGEST: usize = 10_000;
const MOST_MEMORY: usize = 10 * 1024 * 1024;

fn matcher(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, ToolError> {
    let refused = |why: String| {
        let shown = toolwright_tool::core::bounded(pattern, 80);
        Err(ToolError::invalid("pattern", format!("{shown:?} {why}")))
    };
    if pattern.is_empty() {
        return refused("would match every line; write what to look for".to_owned());
    }
    if pattern.chars().count() > LONGEST {
        return refused(format!("is too long; use at most {LONGEST} characters"));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(ignore_case).multi_line(true).unicode(true).octal(false).crlf(true);
    builder.size_limit(MOST_MEMORY).dfa_size_limit(MOST_MEMORY);
    match builder.build(pattern) {
        Ok(matcher) => Ok(matcher),
        Err(error) => {
            // The engine's message shows the expression over several lines; its last one says what is wrong.
            let error = error.to_string();
            let why = error.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
            refused(format!("is no regular expression that can be searched for: {why}; a `\\` before a character takes it as it is"))
        }
    }
}

/// Which files are searched.
struct Only(Option<(GlobMatcher, bool)>);

impl Only {
    fn of(glob: Option<&str>) -> Result<Self, ToolError> {
        // Without a folder, a pattern is one of names.
        glob.map(|glob| Ok((compiled(glob)?, glob.contains('/')))).transpose().map(Self)
    }

    fn takes(&self, folder: &str, name: &str) -> bool {
        match &self.0 {
            None => true,
            Some((glob, false)) => glob.is_match(name),
            Some((glob, true)) if folder.is_empty() => glob.is_match(name),
            Some((glob, true)) => glob.is_match(format!("{folder}/{name}")),
        }
    }
}

/// A line that matches.
struct Hit {
    line: u64,
    text: String,
}

/// What became of files, besides hits.
#[derive(Default)]
struct Tally {
    searched: AtomicUsize,
    binary: AtomicUsize,
    large: AtomicUsize,
    unreadable: AtomicUsize,
}

/// The longest line that is shown whole, in characters.
const LINE: usize = 500;
/// Files that one thread takes at once.
const BATCH: usize = 64;
/// Threads that search, at most.
const THREADS: usize = 8;

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .binary_detection(BinaryDetection::none())
        .bom_sniffing(true)
        .build()
}

/// The hits in the content of one file, `most` at most; `None` if it is no text.
fn hits_in(searcher: &mut Searcher, matcher: &RegexMatcher, bytes: &[u8], most: usize) -> Option<Vec<Hit>> {
    let marked = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    if !marked && memchr::memchr(0, bytes).is_some() {
        return None;
    }
    let mut hits = Vec::new();
    let sink = Lossy(|line, text| {
        let text = text.trim_end_matches(['\n', '\r']);
        let mut shown: String = text.chars().take(LINE).collect();
        let left = text.chars().skip(LINE).count();
        if left > 0 {
            shown = format!("{shown} [and {left} characters more]");
        }
        hits.push(Hit { line, text: printable(&shown) });
        Ok(hits.len() < most)
    });
    // What is in memory can't fail to be read; what can't be decoded is no text.
    searcher.search_slice(matcher, bytes, sink).ok()?;
    Some(hits)
}

/// Some files of one folder, and where they stand among all.
struct Batch<'a> {
    folder: &'a RootedPath,
    files: &'a [OsString],
}

fn searched(workspace: &Workspace, args: &GrepArgs, path: &RootedPath, stop: &CancellationToken) -> Result<ToolOutput, ToolError> {
    let matcher = matcher(&args.pattern, args.ignore_case.unwrap_or(false))?;
    let only = Only::of(args.glob.as_deref())?;
    let tally = Tally::default();
    let (hits, walked) = match workspace.root.stat(path).map_err(told)?.kind {
        FileKind::Folder => {
            let below = workspace.root.below(path).map_err(told)?;
            let walked = walk(workspace, &below, path, stop)?;
            (in_all(workspace, &below, &matcher, &only, &walked, &tally, stop)?, walked)
        }
        _ => (in_one(workspace, &matcher, path, &tally)?, Walked::default()),
    };
    let at = |inside: &str| printable(&joined(path, inside));
    let (most, mut shown) = (workspace.options.max_results, 0);
    let mut lines = Lines::new(workspace.options.max_output);
    'all: for (file, hits) in &hits {
        let file = at(file);
        for hit in hits {
            if shown == most || !lines.push(&format!("{file}:{}: {}", hit.line, hit.text)) {
                break 'all;
            }
            shown += 1;
        }
    }
    let mut all = Vec::new();
    let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    if shown == 0 {
        all.push(format!("no line matches in {} files", count(&tally.searched)));
    } else if shown < hits.iter().map(|(_, hits)| hits.len()).sum() || shown == most {
        all.push(format!("the first {shown} lines, there may be more; narrow it down with path, glob or a longer pattern"));
    }
    all.extend(marks(workspace, &walked));
    for (of, what) in [
        (&tally.binary, "files that are no text".to_owned()),
        (&tally.large, format!("files of more than {} bytes", workspace.options.max_searched)),
        (&tally.unreadable, "files that could not be read".to_owned()),
    ] {
        if count(of) > 0 {
            all.push(format!("{} {what} were left out", count(of)));
        }
    }
    Ok(lines.finish(&all))
}

type Hits = Vec<(String, Vec<Hit>)>;

/// The hits in one file that was named.
fn in_one(workspace: &Workspace, matcher: &RegexMatcher, path: &RootedPath, tally: &Tally) -> Result<Hits, ToolError> {
    let content = workspace.root.read(path, workspace.options.max_file).map_err(told)?;
    tally.searched.store(1, Ordering::Relaxed);
    let most = workspace.options.max_results.saturating_add(1);
    match hits_in(&mut searcher(), matcher, &content.bytes, most) {
        Some(hits) => Ok(vec![(String::new(), hits)]),
        None => Err(refused(format!("{path} is no text, so it can't be searched; name a text file"))),
    }
}

/// The hits in the files of a walk, in its order, by several threads. Once there are enough in what was begun, nothing more is.
fn in_all(
    workspace: &Workspace,
    below: &Root,
    matcher: &RegexMatcher,
    only: &Only,
    walked: &Walked,
    tally: &Tally,
    stop: &CancellationToken,
) -> Result<Hits, ToolError> {
    let mut folders: Vec<&InFolder> = walked.folders.iter().collect();
    folders.sort_by(|a, b| a.folder.cmp(&b.folder));
    let batches: Vec<Batch<'_>> = folders
        .iter()
        .flat_map(|in_folder| in_folder.files.chunks(BATCH).map(|files| Batch { folder: &in_folder.folder, files }))
        .collect();
    let most = workspace.options.max_results.saturating_add(1);
    let (next, found) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all: Mutex<Vec<(usize, Hits)>> = Mutex::default();
    let work = || {
        let mut searcher = searcher();
        let mut buffer = Vec::new();
        let mut own: Vec<(usize, Hits)> = Vec::new();
        while found.load(Ordering::Relaxed) < most && !stop.is_cancelled() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(at) else { break };
            let hits = in_batch(workspace, below, matcher, only, batch, tally, &mut searcher, &mut buffer);
            if !hits.is_empty() {
                found.fetch_add(hits.iter().map(|(_, hits)| hits.len()).sum(), Ordering::Relaxed);
                own.push((at, hits));
            }
        }
        all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut own);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(batches.len().max(1));
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    if stop.is_cancelled() {
        return Err(refused("the search was stopped"));
    }
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_unstable_by_key(|(at, _)| *at);
    Ok(all.into_iter().flat_map(|(_, hits)| hits).collect())
}

#[expect(clippy::too_many_arguments, reason = "what a thread has of its own stands beside what all have")]
fn in_batch(
    workspace: &Workspace,
    below: &Root,
    matcher: &RegexMatcher,
    only: &Only,
    batch: &Batch<'_>,
    tally: &Tally,
    searcher: &mut Searcher,
    buffer: &mut Vec<u8>,
) -> Hits {
    let add = |to: &AtomicUsize, count: usize| {
        to.fetch_add(count, Ordering::Relaxed);
    };
    let folder_path = batch.folder.as_str();
    let Ok(folder) = below.read_folder_itself(batch.folder) else {
        add(&tally.unreadable, batch.files.len());
        return Vec::new();
    };
    let mut found = Vec::new();
    for file in batch.files {
        let name = file.to_string_lossy();
        if !only.takes(folder_path, &name) {
            continue;
        }
        match folder.read(file, workspace.options.max_searched, std::mem::take(buffer)) {
            Ok(content) => {
                match hits_in(searcher, matcher, &content.bytes, workspace.options.max_results.saturating_add(1)) {
                    Some(hits) => {
                        add(&tally.searched, 1);
                        if !hits.is_empty() {
                            let path = if folder_path.is_empty() { name.into_owned() } else { format!("{folder_path}/{name}") };
                            found.push((path, hits));
                        }
                    }
                    None => add(&tally.binary, 1),
                }
                *buffer = content.bytes;
            }
            Err(FileError::TooLarge { .. }) => add(&tally.large, 1),
            Err(_) => add(&tally.unreadable, 1),
        }
    }
    found
}
