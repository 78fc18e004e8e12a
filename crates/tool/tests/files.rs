//! A thread's files and values through a context, in memory: what each call does, and what is refused with which words.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use toolwright_core::args::Arguments;
use toolwright_core::{FilePath, FileStorage, ToolFailureKind};
use toolwright_tool::prelude::*;
use toolwright_tool::{Content, FileStats, KeepLimits, MemoryKeep, ThreadFiles};

fn files() -> ThreadFiles {
    ToolContext::detached(Arguments::empty()).files()
}

fn limited(limits: KeepLimits) -> ThreadFiles {
    ThreadFiles::new(Arc::new(MemoryKeep::with_limits(limits)))
}

async fn names(files: &ThreadFiles, path: &str) -> Vec<String> {
    files.list(path).await.unwrap().iter().map(|entry| entry.name().to_owned()).collect()
}

async fn walked(files: &ThreadFiles, path: &str) -> Vec<String> {
    let mut walk = files.walk(path).await.unwrap();
    let mut paths = Vec::new();
    while let Some(entry) = walk.next().await.unwrap() {
        paths.push(entry.path);
    }
    paths
}

/// The name of what was refused, and its one sentence.
fn said<T: std::fmt::Debug>(answer: Result<T, ToolError>) -> (String, String) {
    let error = answer.unwrap_err();
    assert_eq!(*error.kind(), ToolFailureKind::Execution);
    assert!(!error.message().ends_with('.') && !error.message().contains('\n'), "{}", error.message());
    (error.name().to_owned(), error.message().to_owned())
}

fn name<T: std::fmt::Debug>(answer: Result<T, ToolError>) -> String {
    said(answer).0
}

/// Counts visits.
#[tool]
async fn visit(Values(values): Values, Files(files): Files) -> Result<String, ToolError> {
    let visits = values.get::<u32>("visits").await?.unwrap_or(0) + 1;
    values.set("visits", &visits).await?;
    files.write("/visits.txt", visits.to_string()).await?;
    Ok(files.read_text("visits.txt").await?.unwrap_or_default())
}

// A tool that keeps things can be called by itself; each context has its own.
#[tokio::test]
async fn a_tool_alone_has_files_and_values() {
    let cx = ToolContext::detached(Arguments::empty());
    for wanted in ["1", "2"] {
        assert_eq!(visit(Values(cx.values()), Files(cx.files())).await.unwrap(), wanted);
    }
    assert_eq!(cx.values().get::<u32>("visits").await.unwrap(), Some(2));
    assert!(!files().exists("/visits.txt").await.unwrap());
}

// rule: standard-agents FIL-3
#[tokio::test]
async fn files_are_written_read_and_removed() {
    let files = files();
    let entry = files.write("notes//today.md", "# Ünïcode\n").await.unwrap();
    assert_eq!((entry.path.as_str(), entry.mime_type.as_str(), entry.size), ("/notes/today.md", "text/markdown", 12));
    assert_eq!(entry.storage(), FileStorage::Local);
    assert_eq!(files.read_text("/notes/./today.md").await.unwrap().as_deref(), Some("# Ünïcode\n"));
    assert_eq!(files.stat("/notes/today.md").await.unwrap(), Some(entry.clone()));
    assert!(files.stat("/notes").await.unwrap().unwrap().is_directory);

    let options = FileOptions::of_type("application/x-thing").with("page", 7);
    let again = files.write_with("/notes/today.md", vec![0, 159, 146, 150], options).await.unwrap();
    assert_eq!((again.mime_type.as_str(), again.metadata["page"].clone()), ("application/x-thing", json!(7)));
    assert_eq!(again.created_at, entry.created_at);
    assert_eq!(files.read("/notes/today.md").await.unwrap().unwrap().as_ref(), [0, 159, 146, 150]);
    assert_eq!(name(files.read_text("/notes/today.md").await), "NotTextError");

    assert_eq!(files.write("/data", Content::from(&b"x"[..])).await.unwrap().mime_type, "application/octet-stream");
    assert_eq!(files.write("/text", "x").await.unwrap().mime_type, "text/plain");
    assert!(files.remove("/data").await.unwrap());
    assert!(!files.remove("/data").await.unwrap());
    assert_eq!(name(files.remove("/notes").await), "IsADirectoryError");
    assert_eq!(name(files.write("/notes", "x").await), "IsADirectoryError");
    assert_eq!(name(files.write("/text/inside", "x").await), "NotADirectoryError");
    assert_eq!(name(files.write("/", "x").await), "IsADirectoryError");
}

// rule: standard-agents FIL-4
// rule: standard-agents FIL-6
#[tokio::test]
async fn a_link_has_no_content_and_nothing_missing_is_an_error() {
    let files = files();
    let options = FileOptions { size: Some(1 << 40), ..FileOptions::of_type("video/mp4") };
    let link = files.link("/films/one.mp4", "s3://bucket/one.mp4", options).await.unwrap();
    assert_eq!((link.storage(), link.size, link.blob.clone()), (FileStorage::S3, 1 << 40, None));
    assert_eq!(files.link("/a", "https://example.org/a?b=c", FileOptions::default()).await.unwrap().storage(), FileStorage::Url);
    assert_eq!(files.link("/b", "r2://bucket/b", FileOptions::default()).await.unwrap().storage(), FileStorage::R2);
    for path in ["/films/one.mp4", "/missing", "/films", "/"] {
        assert_eq!(files.read(path).await.unwrap(), None, "{path}");
        assert_eq!(files.read_text(path).await.unwrap(), None, "{path}");
        assert_eq!(files.head(path, 3).await.unwrap(), None, "{path}");
        assert_eq!(files.tail(path, 3).await.unwrap(), None, "{path}");
    }
    for location in ["http://example.org/a", "https://", "file:///etc/passwd", "ftp://a/b", "", "https://a b", "https://a\nb", "HTTPS://a"]
    {
        assert_eq!(name(files.link("/c", location, FileOptions::default()).await), "InvalidLocationError", "{location}");
    }
    assert!(!files.exists("/c").await.unwrap());
    // A link's size is elsewhere.
    assert_eq!(files.stats().await.unwrap(), FileStats { total_size: 0, file_count: 3 });
    assert_eq!(files.write("/a", "here").await.unwrap().storage(), FileStorage::Local);
}

// rule: standard-agents FIL-9
#[tokio::test]
async fn text_has_a_head_and_a_tail() {
    let files = files();
    files.write("/poem", "one\ntwo\r\nthree\nfour").await.unwrap();
    for (lines, head, tail) in
        [(0, "", ""), (1, "one\n", "four"), (2, "one\ntwo\r\n", "three\nfour"), (9, "one\ntwo\r\nthree\nfour", "one\ntwo\r\nthree\nfour")]
    {
        assert_eq!(files.head("/poem", lines).await.unwrap().unwrap(), head);
        assert_eq!(files.tail("/poem", lines).await.unwrap().unwrap(), tail);
    }
    files.write("/lines", "a\nb\n").await.unwrap();
    assert_eq!(files.tail("/lines", 1).await.unwrap().unwrap(), "b\n");
    assert_eq!(
        (files.exists("/poem").await.unwrap(), files.exists("/prose").await.unwrap(), files.exists("/").await.unwrap()),
        (true, false, true)
    );
}

// rule: standard-agents FIL-3
#[tokio::test]
async fn directories_are_made_listed_and_removed() {
    let files = files();
    for path in ["/b/2", "/b-side", "/b.txt", "/b/deep/er/x", "/a", "/c/y"] {
        files.write(path, "x").await.unwrap();
    }
    assert_eq!(names(&files, "/").await, ["a", "b", "b-side", "b.txt", "c"]);
    assert_eq!(names(&files, "b").await, ["2", "deep"]);
    assert_eq!(walked(&files, "/b").await, ["/b/2", "/b/deep", "/b/deep/er", "/b/deep/er/x"]);
    assert_eq!(walked(&files, "/a").await, ["/a"]);
    assert_eq!(said(files.list("/d").await), ("FileNotFoundError".to_owned(), "there is no file or directory /d".to_owned()));
    assert_eq!(name(files.list("/a").await), "NotADirectoryError");

    assert!(files.mkdir("/d/e").await.unwrap().is_directory);
    assert!(files.mkdir("/d/e").await.unwrap().is_directory);
    assert_eq!(name(files.mkdir("/a").await), "FileExistsError");
    assert_eq!(name(files.mkdir("/a/x").await), "NotADirectoryError");
    assert_eq!(name(files.rmdir("/d").await), "DirectoryNotEmptyError");
    assert!(files.rmdir("/d/e").await.unwrap());
    assert!(files.rmdir("/d").await.unwrap());
    assert!(!files.rmdir("/d").await.unwrap());
    assert_eq!(name(files.rmdir("/a").await), "NotADirectoryError");
    assert_eq!(name(files.rmdir("/").await), "InvalidPathError");
    assert_eq!(files.stats().await.unwrap(), FileStats { total_size: 6, file_count: 6 });
}

// More entries below a directory than one page holds, also where the page ends among them.
#[tokio::test]
async fn long_directories_are_listed_whole() {
    let files = files();
    for directory in ["a", "b", "c"] {
        for number in 0..700 {
            files.write(&format!("/{directory}/{number:03}"), "").await.unwrap();
        }
    }
    files.write("/a-file", "").await.unwrap();
    assert_eq!(names(&files, "/").await, ["a", "a-file", "b", "c"]);
    let numbers: Vec<String> = (0..700).map(|number| format!("{number:03}")).collect();
    assert_eq!(names(&files, "/b").await, numbers);
    assert_eq!(walked(&files, "/").await.len(), 2104);
    assert_eq!(files.find("/b/6?9", FileKind::All, 100).await.unwrap().len(), 10);
}

// rule: standard-agents FIL-5
#[tokio::test]
async fn files_and_directories_move() {
    let files = files();
    let written = files.write_with("/a/one.txt", "1", FileOptions::default().with("k", "v")).await.unwrap();
    files.write("/a/deep/two.txt", "2").await.unwrap();
    files.write("/ab", "not inside").await.unwrap();

    let moved = files.move_to("/a/one.txt", "/new/place/first.txt").await.unwrap();
    assert_eq!(
        (moved.path.as_str(), moved.metadata.clone(), moved.created_at),
        ("/new/place/first.txt", written.metadata, written.created_at)
    );
    assert_eq!(files.stat("/new/place/first.txt").await.unwrap(), Some(moved));
    assert_eq!(files.read("/a/one.txt").await.unwrap(), None);

    assert_eq!(files.move_to("a", "z/y").await.unwrap().path, "/z/y");
    assert_eq!(
        walked(&files, "/").await,
        ["/ab", "/new", "/new/place", "/new/place/first.txt", "/z", "/z/y", "/z/y/deep", "/z/y/deep/two.txt"]
    );
    assert_eq!(files.rename("/z/y", "ÿ").await.unwrap().path, "/z/ÿ");
    assert_eq!(files.read_text("/z/ÿ/deep/two.txt").await.unwrap().unwrap(), "2");

    for (from, to, error) in [
        ("/ab", "/new", "FileExistsError"),
        ("/ab", "/new/place/first.txt", "FileExistsError"),
        ("/ab", "/ab", "FileExistsError"),
        ("/ab", "/new/place/first.txt/x", "NotADirectoryError"),
        ("/missing", "/x", "FileNotFoundError"),
        ("/z", "/z/inside", "InvalidPathError"),
        ("/", "/x", "InvalidPathError"),
        ("/ab", "../x", "InvalidPathError"),
    ] {
        assert_eq!(name(files.move_to(from, to).await), error, "{from} to {to}");
    }
    for wrong in ["a/b", "", ".", "..", "/x"] {
        assert_eq!(name(files.rename("/ab", wrong).await), "InvalidPathError", "{wrong}");
    }
    // A directory whose new name makes a path in it too long stays where it is, whole.
    let long = "x".repeat(250);
    files.write(&format!("/l/{long}/{long}/{long}/{long}"), "deep").await.unwrap();
    let before = walked(&files, "/").await;
    assert_eq!(name(files.rename("/l", &"l".repeat(50)).await), "InvalidPathError");
    assert_eq!(walked(&files, "/").await, before);
}

// rule: standard-agents FIL-8
#[tokio::test]
async fn text_is_searched() {
    let files = files();
    files.write("/notes/a.md", "# Plan\nThe annual budget.\nNo more.").await.unwrap();
    files.write("/notes/deep/b.md", "budget\n\nbudget, annually").await.unwrap();
    files.write("/other.csv", "budget;annual").await.unwrap();
    files.write("/notesbudget", "budget").await.unwrap();
    files.write_with("/image.png", "budget", FileOptions::default()).await.unwrap();
    files.write_with("/broken.txt", vec![b'b', 0xff], FileOptions::of_type("text/plain")).await.unwrap();
    files.link("/link.txt", "https://example.org/budget.txt", FileOptions::default()).await.unwrap();
    let found = |hits: Vec<toolwright_tool::GrepHit>| hits.into_iter().map(|hit| hit.path).collect::<Vec<_>>();

    let hits = files.grep("annual* budget", "/notes", 10).await.unwrap();
    assert_eq!(
        serde_json::to_value(&hits).unwrap(),
        json!([
            { "path": "/notes/a.md", "name": "a.md", "matches": ["The annual budget."], "lineNumbers": [2] },
            { "path": "/notes/deep/b.md", "name": "b.md", "matches": ["budget", "budget, annually"], "lineNumbers": [1, 3] },
        ])
    );
    assert_eq!(found(files.grep("budget", "/", 10).await.unwrap()), ["/notes/a.md", "/notes/deep/b.md", "/notesbudget", "/other.csv"]);
    assert_eq!(found(files.grep("budget", "/", 2).await.unwrap()), ["/notes/a.md", "/notes/deep/b.md"]);
    assert_eq!(found(files.grep("budget", "/other.csv", 2).await.unwrap()), ["/other.csv"]);
    assert_eq!(found(files.grep("budget", "/nowhere", 2).await.unwrap()), [""; 0]);
    assert_eq!(found(files.grep("budget NOT annual NOT annually", "/", 9).await.unwrap()), ["/notesbudget"]);
    let (name, sentence) = said(files.grep("a AND", "/", 1).await);
    assert_eq!(
        (name.as_str(), sentence.as_str()),
        ("QuerySyntaxError", "the query is not valid at character 6: a word to search for is missing")
    );

    let small = limited(KeepLimits { searched: 10, ..KeepLimits::default() });
    small.write("/small", "budget").await.unwrap();
    small.write("/large", "budget ".repeat(10)).await.unwrap();
    assert_eq!(found(small.grep("budget", "/", 10).await.unwrap()), ["/small"]);
}

// rule: standard-agents FIL-8
#[tokio::test]
async fn paths_are_found_by_globs() {
    let files = files();
    for path in ["/a.md", "/b.txt", "/docs/c.md", "/docs/deep/d.md", "/docs/deep/.hidden", "/src/main.rs", "/src/[x].rs", "/Ä/ä.md"] {
        files.write(path, "").await.unwrap();
    }
    for (glob, kind, wanted) in [
        ("*.md", FileKind::All, vec!["/a.md", "/docs/c.md", "/docs/deep/d.md", "/Ä/ä.md"]),
        ("/*.md", FileKind::All, vec!["/a.md"]),
        ("./*.md", FileKind::All, vec!["/a.md"]),
        ("docs/*.md", FileKind::All, vec!["/docs/c.md"]),
        ("docs/**/*.md", FileKind::All, vec!["/docs/c.md", "/docs/deep/d.md"]),
        ("**/deep/*", FileKind::All, vec!["/docs/deep/.hidden", "/docs/deep/d.md"]),
        ("/docs/**", FileKind::File, vec!["/docs/c.md", "/docs/deep/.hidden", "/docs/deep/d.md"]),
        ("**", FileKind::Directory, vec!["/docs", "/docs/deep", "/src", "/Ä"]),
        ("d*", FileKind::All, vec!["/docs", "/docs/deep", "/docs/deep/d.md"]),
        ("?.md", FileKind::File, vec!["/a.md", "/docs/c.md", "/docs/deep/d.md", "/Ä/ä.md"]),
        ("[a-b].*", FileKind::File, vec!["/a.md", "/b.txt"]),
        ("[!a-b].md", FileKind::File, vec!["/docs/c.md", "/docs/deep/d.md", "/Ä/ä.md"]),
        ("*.{rs,txt}", FileKind::File, vec!["/b.txt", "/src/[x].rs", "/src/main.rs"]),
        ("/src/\\[x\\].rs", FileKind::File, vec!["/src/[x].rs"]),
        ("/docs/", FileKind::All, vec!["/docs"]),
        ("A.md", FileKind::All, vec![]),
        ("docs", FileKind::File, vec![]),
    ] {
        let found: Vec<String> = files.find(glob, kind, 100).await.unwrap().into_iter().map(|entry| entry.path).collect();
        assert_eq!(found, wanted, "{glob}");
    }
    assert_eq!(files.find("**", FileKind::All, 3).await.unwrap().len(), 3);
    for glob in ["", "[a", "{a", "a{b,{c}", &"*".repeat(2000)] {
        assert_eq!(name(files.find(glob, FileKind::All, 3).await), "GlobSyntaxError", "{glob}");
    }
}

// rule: standard-agents FIL-13
#[tokio::test]
async fn no_path_leads_out() {
    let files = files();
    for path in ["..", "/../x", "a/../../x", "", "a\0b", "a\nb"] {
        assert_eq!(name(files.write(path, "x").await), "InvalidPathError", "{path:?}");
        assert_eq!(name(files.read(path).await), "InvalidPathError", "{path:?}");
        assert_eq!(name(files.list(path).await), "InvalidPathError", "{path:?}");
        assert_eq!(name(files.mkdir(path).await), "InvalidPathError", "{path:?}");
        assert_eq!(name(files.remove(path).await), "InvalidPathError", "{path:?}");
        assert_eq!(name(files.grep("x", path, 1).await), "InvalidPathError", "{path:?}");
    }
    assert_eq!(walked(&files, "/").await, [""; 0]);
}

#[tokio::test]
async fn what_a_thread_keeps_is_bounded() {
    let files = limited(KeepLimits { file: 10, total: 25, entries: 5, ..KeepLimits::default() });
    let (name_of, sentence) = said(files.write("/a", "12345678901").await);
    assert_eq!((name_of.as_str(), sentence.as_str()), ("FileTooLargeError", "/a would take 11 bytes, and a file may take 10"));
    files.write("/a", "1234567890").await.unwrap();
    files.write("/b", "1234567890").await.unwrap();
    assert_eq!(name(files.write("/c", "123456").await), "StorageFullError");
    files.write("/c", "12345").await.unwrap();
    // Full is no reason to refuse what makes it smaller, or leaves it as large.
    files.write("/c", "54321").await.unwrap();
    files.write("/c", "1").await.unwrap();
    assert_eq!(name(files.write("/c", "123456").await), "StorageFullError");
    files.remove("/a").await.unwrap();
    files.write("/d/e", "1234567890").await.unwrap();
    let (name_of, sentence) = said(files.write("/d/f/g", "").await);
    assert_eq!(name_of, "StorageFullError");
    assert_eq!(sentence, "/d/f/g does not fit: the thread would have 6 files and directories, and 5 are allowed; remove some");
    assert_eq!(name(files.move_to("/b", "/new/directory/b").await), "StorageFullError");
    files.move_to("/b", "/d/b").await.unwrap();
    files.mkdir("/f").await.unwrap();
    assert_eq!(name(files.mkdir("/g").await), "StorageFullError");
    assert!(!files.exists("/d/f").await.unwrap());

    let options = FileOptions::default().with("k", "x".repeat(70_000));
    assert_eq!(name(files.write_with("/c", "", options.clone()).await), "MetadataTooLargeError");
    assert_eq!(name(files.link("/c", "https://x/y", options).await), "MetadataTooLargeError");
    for wrong in ["", "text", "text/\n", "täxt/plain"] {
        assert_eq!(name(files.write_with("/c", "", FileOptions::of_type(wrong)).await), "InvalidMediaTypeError", "{wrong}");
    }
}

// A file as a part of a result, without its bytes in it.
#[tokio::test]
async fn a_file_is_a_part_of_a_result() {
    let files = files();
    files.write("/plot.png", vec![1, 2, 3]).await.unwrap();
    files.write("/report.pdf", vec![4]).await.unwrap();
    let Some(Part::Image { image, mime_type }) = files.part("/plot.png").await.unwrap() else { panic!("an image") };
    assert_eq!(mime_type.as_deref(), Some("image/png"));
    assert_eq!(files.content(&image).await.unwrap().unwrap().as_ref(), [1, 2, 3]);
    let Some(Part::File { data, mime_type, filename }) = files.part("/report.pdf").await.unwrap() else { panic!("a file") };
    assert_eq!((mime_type.as_str(), filename.as_deref()), ("application/pdf", Some("report.pdf")));
    assert_eq!(files.content(&data).await.unwrap().unwrap().as_ref(), [4]);
    for address in ["", "data:,x", "https://example.org", &format!("blob:sha256:{}", "0".repeat(64))] {
        assert_eq!(files.content(address).await.unwrap(), None);
    }
    assert_eq!(files.part("/missing").await.unwrap(), None);
}

// As standard-agents STA-2 has it.
#[tokio::test]
async fn values_are_json_under_keys() {
    let values = ToolContext::detached(Arguments::empty()).values();
    let given = json!({ "z": 1, "a": [u64::MAX, 0.1, null], "é": "\u{0}" });
    values.set("k", &given).await.unwrap();
    assert_eq!(values.get::<Value>("k").await.unwrap().unwrap().to_string(), given.to_string());
    values.set("k", "text").await.unwrap();
    assert_eq!(values.get::<String>("k").await.unwrap().as_deref(), Some("text"));
    assert_eq!(name(values.get::<u32>("k").await), "ValueTypeError");
    values.set("k", &None::<u32>).await.unwrap();
    assert_eq!(values.get::<Value>("k").await.unwrap(), None);
    values.set("user:2", &2).await.unwrap();
    values.set("user:1", &1).await.unwrap();
    values.set("other", &3).await.unwrap();
    let listed = values.list("user:").await.unwrap();
    assert_eq!(listed, [("user:1".to_owned(), json!(1)), ("user:2".to_owned(), json!(2))]);
    assert_eq!(values.list("").await.unwrap().len(), 3);
    assert_eq!(values.page("", Some("other"), 1).await.unwrap(), [("user:1".to_owned(), json!(1))]);
    values.remove("user:1").await.unwrap();
    values.remove("user:1").await.unwrap();
    assert_eq!(values.list("user:").await.unwrap().len(), 1);

    for key in ["", "a\0b", &"k".repeat(513)] {
        assert_eq!(name(values.set(key, &1).await), "InvalidKeyError");
        assert_eq!(name(values.get::<Value>(key).await), "InvalidKeyError");
    }
    assert_eq!(name(values.set("big", &"x".repeat(2_000_000)).await), "ValueTooLargeError");
    // What JSON has no place for is refused, and what was there stays.
    let unwritable: BTreeMap<(u8, u8), u8> = BTreeMap::from([((1, 2), 3)]);
    assert_eq!(name(values.set("other", &unwritable).await), "ValueTypeError");
    assert_eq!(values.get::<u8>("other").await.unwrap(), Some(3));
    for number in 0..1200 {
        values.set(&format!("many:{number:04}"), &number).await.unwrap();
    }
    let many = values.list("many:").await.unwrap();
    assert_eq!((many.len(), many[1199].1.clone()), (1200, json!(1199)));
}

#[derive(Clone, Debug)]
enum Step {
    Write(String, usize),
    Mkdir(String),
    Rmdir(String),
    Remove(String),
    Move(String, String),
}

fn step() -> impl Strategy<Value = Step> {
    let path =
        || prop::collection::vec(prop::sample::select(vec!["a", "b", "a-", "é"]), 1..4).prop_map(|parts| format!("/{}", parts.join("/")));
    prop_oneof![
        3 => (path(), 0..20_usize).prop_map(|(path, size)| Step::Write(path, size)),
        1 => path().prop_map(Step::Mkdir),
        1 => path().prop_map(Step::Rmdir),
        1 => path().prop_map(Step::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Step::Move(from, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // Whatever is done, the tree is a tree, and its count and size are known.
    #[test]
    fn a_tree_stays_a_tree(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let keep = Arc::new(MemoryKeep::with_limits(KeepLimits { total: 60, entries: 12, ..KeepLimits::default() }));
            let files = ThreadFiles::new(keep);
            for step in steps {
                let _ = match step {
                    Step::Write(path, size) => files.write(&path, "x".repeat(size)).await.map(drop),
                    Step::Mkdir(path) => files.mkdir(&path).await.map(drop),
                    Step::Rmdir(path) => files.rmdir(&path).await.map(drop),
                    Step::Remove(path) => files.remove(&path).await.map(drop),
                    Step::Move(from, to) => files.move_to(&from, &to).await.map(drop),
                };
                let mut walk = files.walk("/").await.unwrap();
                let (mut bytes, mut entries, mut listed) = (0, 0, 0);
                while let Some(entry) = walk.next().await.unwrap() {
                    let parent = FilePath::parse(&entry.path).unwrap().parent().unwrap();
                    let above = files.stat(parent.as_str()).await.unwrap().expect("a directory above");
                    assert!(above.is_directory, "{} is in a file", entry.path);
                    if entry.is_directory {
                        listed += files.list(&entry.path).await.unwrap().len();
                    }
                    bytes += entry.size;
                    entries += 1;
                }
                assert!(bytes <= 60 && entries <= 12, "{bytes} bytes in {entries} entries");
                assert_eq!(listed + files.list("/").await.unwrap().len(), entries);
                assert_eq!(files.stats().await.unwrap().total_size, bytes);
            }
        });
    }
}
