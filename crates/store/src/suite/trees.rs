//! A thread's files as tools and programs have them, over the store: the same tree, the same hits.

use std::sync::Arc;

use serde_json::Value;
use toolwright_core::{BlobId, Outcome, Part, Seq, ToolOutput};
use toolwright_runtime::{Agent, AgentError, MemoryStore, NoResolvers, Store};
use toolwright_tool::{FileKind, FileOptions, ThreadFiles, Tool, ToolError};

use super::{Failure, Subject, Verdict, holds, same, thread};

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::new(format!("expected an answer, found {}: {}", error.name(), error.message()))
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        Self::new(format!("expected an answer, found the error: {error}"))
    }
}

fn files(store: &Arc<dyn Store>, id: &str) -> Result<ThreadFiles, Failure> {
    let agent = Agent::<NoResolvers>::builder().store(Arc::clone(store)).build_without_model()?;
    Ok(agent.thread(id).files()?)
}

async fn walked(files: &ThreadFiles) -> Result<Vec<String>, ToolError> {
    let mut walk = files.walk("/").await?;
    let mut paths = Vec::new();
    while let Some(entry) = walk.next().await? {
        paths.push(entry.path);
    }
    Ok(paths)
}

pub(super) async fn a_tree_is_changed_and_seen_by_all(subject: Subject) -> Verdict {
    let (one, other) = (files(&subject.store, "tree")?, files(&subject.another().await?, "tree")?);
    one.write("/docs/a.md", "alpha").await?;
    other.write_with("/docs/deep/b.bin", vec![0, 255], FileOptions::default().with("k", "v")).await?;
    one.link("/docs/link", "s3://bucket/key", FileOptions::default()).await?;
    other.mkdir("/empty").await?;
    same("what is there", &walked(&one).await?, &walked(&other).await?)?;
    let name = |entry: toolwright_core::FileEntry| entry.name().to_owned();
    let listed: Vec<String> = other.list("/docs").await?.into_iter().map(name).collect();
    same("a directory", &listed, &["a.md", "deep", "link"].map(str::to_owned).to_vec())?;

    let before = other.stat("/docs/deep/b.bin").await?;
    let moved = one.move_to("/docs", "/new/place").await?;
    same("the path after a move", &moved.path.as_str(), &"/new/place")?;
    let expected = before.map(|entry| toolwright_core::FileEntry { path: "/new/place/deep/b.bin".to_owned(), ..entry });
    same("the entry after a move", &other.stat("/new/place/deep/b.bin").await?, &expected)?;
    same("the content after a move", &other.read("/new/place/deep/b.bin").await?.as_deref(), &Some([0, 255].as_slice()))?;
    same("a link's content", &other.read("/new/place/link").await?, &None)?;
    holds("the source of a move is gone", !other.exists("/docs").await?)?;
    let refused = other.move_to("/empty", "/new").await.map(drop).map_err(|error| error.name().to_owned());
    same("a move onto something", &refused, &Err("FileExistsError".to_owned()))?;
    holds("an empty directory is removed", other.rmdir("/empty").await?)?;
    let stats = one.stats().await?;
    same("size and count", &(stats.total_size, stats.file_count), &(7, 3))
}

/// Lines of few words, so that they meet.
const LINES: [&str; 9] = [
    "the annual budget",
    "annual report, final",
    "Café Ünal: 1,200 EUR",
    "budget annual",
    "СЛОВО и слово",
    "東京都の予算",
    "draft",
    "it's a draft \u{1F44D} final",
    "e\u{301}te\u{301} 2026",
];

const QUERIES: [&str; 16] = [
    "budget",
    "annual budget",
    "\"annual budget\"",
    "bud*",
    "draft OR final",
    "draft NOT final",
    "NEAR(annual final, 1)",
    "cafe",
    "слово",
    "東京*",
    "ete",
    "(draft OR report) AND final",
    "^the",
    "^draft",
    "\"it's a\"",
    "\"1,200\" unal",
];

const GLOBS: [&str; 8] = ["*.md", "/a/*", "/a/**", "**/b/*", "{a,b}", "/?/[0-4]*", "[!a].txt", "/é/**/*.{md,txt}"];

pub(super) async fn searches_have_the_same_hits_as_in_memory(subject: Subject) -> Verdict {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let sides = [files(&subject.store, "search")?, files(&memory, "search")?];
    let mut number = 7_u64;
    let mut below = |bound: usize| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) as usize % bound
    };
    for count in 0..60 {
        let directory = ["a", "a-", "b", "a/b", "é", "é/a/b"].get(below(6)).copied().unwrap_or_default();
        let ending = [".md", ".txt", ".bin", ""].get(below(4)).copied().unwrap_or_default();
        let lines: Vec<&str> = (0..below(5)).filter_map(|_| LINES.get(below(LINES.len())).copied()).collect();
        for side in &sides {
            side.write(&format!("/{directory}/{count}{ending}"), lines.join("\n")).await?;
        }
    }
    let [ours, theirs] = &sides;
    same("what is there", &walked(ours).await?, &walked(theirs).await?)?;
    let mut hits = 0;
    for query in QUERIES {
        for (under, limit) in [("/", 100), ("/a", 100), ("/é/a", 100), ("/", 3)] {
            let found = ours.grep(query, under, limit).await?;
            hits += found.len();
            same(&format!("the hits of {query} in {under}"), &found, &theirs.grep(query, under, limit).await?)?;
        }
    }
    holds("something was hit", hits > 100)?;
    for glob in GLOBS {
        for kind in [FileKind::All, FileKind::File, FileKind::Directory] {
            let paths = |found: Vec<toolwright_core::FileEntry>| found.into_iter().map(|entry| entry.path).collect::<Vec<_>>();
            let found = paths(ours.find(glob, kind, 100).await?);
            same(&format!("what {glob} finds"), &found, &paths(theirs.find(glob, kind, 100).await?))?;
        }
    }
    Ok(())
}

pub(super) async fn attachments_are_kept_apart_from_the_journal(subject: Subject) -> Verdict {
    // 60,000 bytes, all of them nought, in base64.
    let address = format!("data:image/png;base64,{}", "A".repeat(80_000));
    let bytes = vec![0_u8; 60_000];
    let body = move |_args: Value, _cx| {
        let part = Part::Image { image: address.clone(), mime_type: None };
        async move { Ok::<_, ToolError>(ToolOutput::of(vec![part])) }
    };
    let tool = Tool::new("plot", "Plots.").run_json(body).map_err(|error| Failure::new(error.to_string()))?;
    let agent = Agent::<NoResolvers>::builder().tool(tool).store(Arc::clone(&subject.store)).build_without_model()?;
    for _ in 0..2 {
        let reply = agent.thread("attached").invoke("plot", "{}").await?;
        let attached = matches!(&reply.outcome, Some(Outcome::Done { output }) if output.attachments().len() == 1);
        holds("the result names its attachment", attached)?;
    }
    let other = subject.another().await?;
    let records = other.read(&thread("attached")?, Seq(0), usize::MAX).await?;
    let length: usize = records.iter().map(|record| serde_json::to_string(&**record).map_or(0, |text| text.len())).sum();
    holds("the journal is short", length < 20_000)?;
    let kept = other.data().blob(&thread("attached")?, &BlobId::of(&bytes)).await?;
    same("the content", &kept.as_deref(), &Some(bytes.as_slice()))?;
    let listed = files(&other, "attached")?.list("/attachments").await?;
    same("the files of attachments", &listed.len(), &1)
}
