//! Files below a root: what links, races and odd files can't do, whoever resolves the paths.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;
use toolwright_host::files::{Expected, FileError, FileKind, Resolve, Root, RootedPath};

const HOW: [Resolve; 2] = [Resolve::Automatic, Resolve::NameByName];

/// A folder to work in, and one beside it with what nobody may reach.
struct Place {
    both: TempDir,
}

impl Place {
    fn new() -> Self {
        let both = TempDir::new().unwrap();
        fs::create_dir_all(both.path().join("in/sub/deep")).unwrap();
        fs::create_dir_all(both.path().join("out/sub")).unwrap();
        fs::create_dir_all(both.path().join("in-beside")).unwrap();
        for path in ["in/a.txt", "in/sub/b.txt", "in/sub/deep/c.txt"] {
            fs::write(both.path().join(path), path).unwrap();
        }
        for path in ["out/secret.txt", "out/sub/secret.txt", "in-beside/secret.txt"] {
            fs::write(both.path().join(path), "secret").unwrap();
        }
        Self { both }
    }

    fn inside(&self) -> PathBuf {
        self.both.path().join("in")
    }

    fn outside(&self) -> PathBuf {
        self.both.path().join("out")
    }

    fn root(&self, how: Resolve) -> Root {
        let root = Root::open_with(self.inside(), how).unwrap();
        assert!(how == Resolve::Automatic || !root.is_by_kernel());
        root
    }

    fn link(&self, target: impl AsRef<Path>, at: &str) {
        symlink(target, self.inside().join(at)).unwrap();
    }

    /// Whatever was tried: outside nothing is new, gone or changed.
    fn nothing_happened_outside(&self) {
        let listed = |path: &str| {
            let names = fs::read_dir(self.both.path().join(path)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        assert_eq!(listed("."), ["in", "in-beside", "out"]);
        assert_eq!(listed("out"), ["secret.txt", "sub"]);
        assert_eq!((listed("out/sub"), listed("in-beside")), (vec!["secret.txt".to_owned()], vec!["secret.txt".to_owned()]));
        for path in ["out/secret.txt", "out/sub/secret.txt", "in-beside/secret.txt"] {
            assert_eq!(fs::read_to_string(self.both.path().join(path)).unwrap(), "secret");
        }
    }
}

fn path(text: &str) -> RootedPath {
    RootedPath::parse(text).unwrap()
}

fn write(root: &Root, at: &str, content: &str) -> Result<(), FileError> {
    root.make_folders(&path(at).parent())?;
    root.stage(&path(at), content.as_bytes(), None, Expected::Anything)?.commit().map(drop)
}

fn read(root: &Root, at: &str) -> Result<String, FileError> {
    root.read(&path(at), 1_000_000).map(|content| String::from_utf8(content.bytes).unwrap())
}

#[test]
fn this_kernel_resolves_by_itself_where_it_can() {
    let place = Place::new();
    if cfg!(target_os = "linux") && !place.root(Resolve::Automatic).is_by_kernel() {
        println!("this kernel, or a filter of its calls, does not resolve paths: the way name by name is tested twice");
    }
}

// rule: sdk-tools 25.3/3
// case: field-reports 107
#[test]
fn no_link_leads_out() {
    for how in HOW {
        let place = Place::new();
        let root = place.root(how);
        place.link("../out", "escape");
        place.link(place.outside(), "absolute");
        place.link("/", "everything");
        place.link("../out/secret.txt", "file");
        place.link("../in-beside", "sibling");
        place.link("sub/deep/../../../out", "winding");
        place.link("escape", "second");
        place.link("../in/../out", "back");
        // Into the root, but by an absolute path: where the root is, is not the link's to say.
        place.link(place.inside().join("a.txt"), "home");
        let secret = [
            "escape/secret.txt",
            "absolute/secret.txt",
            "everything/etc/passwd",
            "file",
            "sibling/secret.txt",
            "winding/secret.txt",
            "second/secret.txt",
            "second/sub/secret.txt",
            "back/secret.txt",
            "home",
        ];
        for at in secret {
            assert!(matches!(read(&root, at), Err(FileError::Outside { .. })), "{how:?} {at}");
            assert!(matches!(root.stat(&path(at)), Err(FileError::Outside { .. })), "{how:?} {at}");
            assert!(matches!(root.read_folder(&path(at)), Err(FileError::Outside { .. })), "{how:?} {at}");
            assert!(write(&root, at, "evil").is_err(), "{how:?} {at}");
        }
        for at in ["escape/new", "absolute/new", "everything/tmp/evil", "second/new/deeper", "sibling/new", "winding/new"] {
            assert!(matches!(write(&root, at, "evil"), Err(FileError::Outside { .. })), "{how:?} {at}");
            assert!(matches!(root.make_folders(&path(at)), Err(FileError::Outside { .. })), "{how:?} {at}");
            assert!(matches!(root.remove(&path(at)), Err(FileError::Outside { .. })), "{how:?} {at}");
        }
        assert!(matches!(root.remove(&path("escape/secret.txt")), Err(FileError::Outside { .. })));
        place.nothing_happened_outside();
    }
}

// rule: sdk-tools 25.3/3
#[test]
fn links_that_stay_inside_are_followed() {
    for how in HOW {
        let place = Place::new();
        let root = place.root(how);
        place.link("sub", "folder");
        place.link("../a.txt", "sub/up");
        place.link("folder/deep/../up", "long");
        place.link(".", "self");
        place.link("sub/", "slash");
        for (at, content) in [
            ("folder/b.txt", "in/sub/b.txt"),
            ("sub/up", "in/a.txt"),
            ("folder/up", "in/a.txt"),
            ("long", "in/a.txt"),
            ("self/self/sub/b.txt", "in/sub/b.txt"),
            ("slash/deep/c.txt", "in/sub/deep/c.txt"),
        ] {
            assert_eq!(read(&root, at).unwrap(), content, "{how:?} {at}");
        }
        // What a link leads to is written, the link stays.
        write(&root, "long", "new").unwrap();
        assert!(place.inside().join("long").is_symlink() && place.inside().join("sub/up").is_symlink());
        assert_eq!(fs::read_to_string(place.inside().join("a.txt")).unwrap(), "new");
        write(&root, "folder/made/x", "y").unwrap();
        assert_eq!(fs::read_to_string(place.inside().join("sub/made/x")).unwrap(), "y");
        assert_eq!(root.stat_itself(&path("long")).unwrap().kind, FileKind::Link);
        assert_eq!(root.stat(&path("long")).unwrap().kind, FileKind::File);
        // A walk takes no link.
        assert!(matches!(root.read_folder_itself(&path("folder")), Err(FileError::Link { .. } | FileError::NotAFolder { .. })));
        assert!(root.read_folder(&path("folder")).is_ok() && root.read_folder_itself(&path("sub")).is_ok());
    }
}

// rule: sdk-tools 25.3/4
#[test]
fn a_link_to_nothing_is_not_followed_and_a_removed_link_leaves_its_target() {
    for how in HOW {
        let place = Place::new();
        let root = place.root(how);
        place.link("not-there", "dangling");
        place.link("../out/not-there", "dangling-out");
        place.link("round", "round");
        place.link("tic", "tac");
        place.link("tac", "tic");
        for at in ["dangling", "round", "tic"] {
            assert!(matches!(read(&root, at), Err(FileError::Dangling { .. } | FileError::Link { .. })), "{how:?} {at}");
            assert!(matches!(write(&root, at, "x"), Err(FileError::Dangling { .. } | FileError::Link { .. })), "{how:?} {at}");
            assert!(write(&root, &format!("{at}/below"), "x").is_err(), "{how:?} {at}");
        }
        assert!(write(&root, "dangling-out", "x").is_err());
        assert!(!place.inside().join("not-there").exists());
        place.link("../out", "escape");
        place.link("a.txt", "inner");
        for at in ["dangling", "dangling-out", "escape", "inner"] {
            root.remove(&path(at)).unwrap();
            assert!(!place.inside().join(at).is_symlink());
            assert!(matches!(read(&root, at), Err(FileError::NotFound { .. })));
        }
        assert_eq!(read(&root, "a.txt").unwrap(), "in/a.txt");
        place.nothing_happened_outside();
    }
}

/// Somebody swaps a folder for a link that leads out, and back, as fast as they can.
fn swapped(how: Resolve, work: impl FnOnce(&Root)) {
    let place = Place::new();
    let root = place.root(how);
    let (folder, link) = (place.inside().join("sub"), place.inside().join("trap"));
    symlink("../out", &link).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        // A failed check must not leave the other one swapping.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&root)));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = worked {
            std::panic::resume_unwind(panic);
        }
    });
    place.nothing_happened_outside();
}

#[test]
fn a_folder_swapped_for_a_link_during_a_write_leads_nowhere() {
    for how in HOW {
        let (mut written, mut refused) = (0, 0);
        swapped(how, |root| {
            for n in 0..1_500 {
                match write(root, &format!("sub/n{}.txt", n % 7), "evil") {
                    Ok(()) => written += 1,
                    Err(_) => refused += 1,
                }
                let _ = write(root, &format!("sub/deep/new{}/x", n % 5), "evil");
                let _ = root.remove(&path(&format!("sub/n{}.txt", n % 3)));
                let _ = root.remove(&path("sub/secret.txt"));
                let _ = root.remove(&path("sub/sub/secret.txt"));
            }
        });
        // Both happened, else nothing was shown.
        assert!(written > 0 && refused > 0, "{how:?} {written} {refused}");
    }
}

#[test]
fn a_folder_swapped_for_a_link_during_a_read_shows_nothing() {
    for how in HOW {
        let (mut seen, mut refused) = (0, 0);
        swapped(how, |root| {
            for _ in 0..6_000 {
                assert!(read(root, "sub/secret.txt").is_err());
                match read(root, "sub/b.txt") {
                    Ok(content) => {
                        assert_eq!(content, "in/sub/b.txt");
                        seen += 1;
                    }
                    Err(_) => refused += 1,
                }
                if let Ok(folder) = root.read_folder_itself(&path("sub")) {
                    let (entries, whole) = folder.entries(10).unwrap();
                    assert!(whole && entries.iter().all(|entry| entry.name != "secret.txt"));
                    assert!(folder.read("secret.txt".as_ref(), 100, Vec::new()).is_err());
                }
            }
        });
        assert!(seen > 0 && refused > 0, "{how:?} {seen} {refused}");
    }
}

#[test]
fn a_write_is_whole_and_keeps_the_mode() {
    for how in HOW {
        let place = Place::new();
        let root = place.root(how);
        let file = place.inside().join("a.txt");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
        write(&root, "a.txt", "more").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o751);
        root.stage(&path("run.sh"), b"#!/bin/sh\n", Some(0o700), Expected::Absent).unwrap().commit().unwrap();
        assert_eq!(root.stat(&path("run.sh")).unwrap().mode, 0o700);
        // What is not put in place leaves nothing.
        let staged = root.stage(&path("a.txt"), b"dropped", None, Expected::Anything).unwrap();
        assert_eq!(fs::read_dir(place.inside()).unwrap().count(), 4);
        drop(staged);
        assert_eq!(fs::read_dir(place.inside()).unwrap().count(), 3);
        assert_eq!(read(&root, "a.txt").unwrap(), "more");
    }
}

#[test]
fn a_write_takes_only_the_place_it_was_meant_for() {
    for how in HOW {
        let place = Place::new();
        let root = place.root(how);
        let before = root.read(&path("a.txt"), 100).unwrap().stat.stamp;
        assert!(matches!(root.stage(&path("a.txt"), b"x", None, Expected::Absent), Err(FileError::Exists { .. })));
        let staged = root.stage(&path("a.txt"), b"x", None, Expected::Same(before)).unwrap();
        fs::write(place.inside().join("a.txt"), "somebody else").unwrap();
        assert!(matches!(staged.commit(), Err(FileError::Changed { .. })));
        assert_eq!(read(&root, "a.txt").unwrap(), "somebody else");
        let staged = root.stage(&path("new.txt"), b"x", None, Expected::Absent).unwrap();
        fs::write(place.inside().join("new.txt"), "first").unwrap();
        assert!(matches!(staged.commit(), Err(FileError::Exists { .. })));
        assert_eq!(read(&root, "new.txt").unwrap(), "first");
        let now = root.read(&path("a.txt"), 100).unwrap().stat.stamp;
        let put = root.stage(&path("a.txt"), b"x", None, Expected::Same(now)).unwrap().commit().unwrap();
        assert_eq!(put, root.stat(&path("a.txt")).unwrap().stamp);
        assert!(matches!(root.stage(&path("gone.txt"), b"x", None, Expected::Same(now)), Err(FileError::Changed { .. })));
    }
}

#[test]
fn what_is_no_file_is_told() {
    use rustix::fs::{FileType, Mode, mknodat};
    for how in HOW {
        let place = Place::new();
        let root = place.root(how);
        mknodat(CWD, place.inside().join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        assert!(fs::metadata(place.inside().join("pipe")).unwrap().file_type().is_fifo());
        let _socket = std::os::unix::net::UnixListener::bind(place.inside().join("socket")).unwrap();
        for at in ["pipe", "socket"] {
            assert!(matches!(read(&root, at), Err(FileError::NotAFile { .. })), "{how:?} {at}");
            assert!(matches!(write(&root, at, "x"), Err(FileError::NotAFile { .. })), "{how:?} {at}");
            assert_eq!(root.stat(&path(at)).unwrap().kind, FileKind::Other);
        }
        assert!(matches!(read(&root, "sub"), Err(FileError::IsAFolder { .. })));
        assert!(matches!(read(&root, "."), Err(FileError::IsAFolder { .. })));
        assert!(matches!(write(&root, "sub", "x"), Err(FileError::IsAFolder { .. })));
        assert!(matches!(root.remove(&path("sub")), Err(FileError::IsAFolder { .. })));
        assert!(matches!(read(&root, "not-there"), Err(FileError::NotFound { .. })));
        assert!(matches!(read(&root, "a.txt/x"), Err(FileError::NotAFolder { .. })));
        assert!(matches!(write(&root, "a.txt/x", "x"), Err(FileError::NotAFolder { .. })));
        assert!(matches!(root.read_folder(&path("a.txt")), Err(FileError::NotAFolder { .. })));
        assert!(matches!(root.read(&path("a.txt"), 3), Err(FileError::TooLarge { size: 8, limit: 3, .. })));
        assert!(matches!(root.remove(&path("not-there")), Err(FileError::NotFound { .. })));
        let error = read(&root, "a.txt/x").unwrap_err().to_string();
        assert!(!error.contains(place.both.path().to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_folder_lists_what_it_holds() {
    for how in HOW {
        let place = Place::new();
        place.link("../out", "escape");
        let root = place.root(how);
        let (entries, whole) = root.read_folder(&RootedPath::root()).unwrap().entries(100).unwrap();
        let seen: Vec<_> = entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
        assert_eq!(seen, [("a.txt", FileKind::File), ("escape", FileKind::Link), ("sub", FileKind::Folder)]);
        assert!(whole && !root.read_folder(&RootedPath::root()).unwrap().entries(2).unwrap().1);
        assert_eq!(root.make_folders(&path("x/y/z")).unwrap().len(), 3);
        assert_eq!(root.make_folders(&path("x/y/z")).unwrap().len(), 0);
    }
}

// rule: sdk-tools 25.3/6
#[test]
fn a_root_is_a_folder() {
    let place = Place::new();
    for (folder, problem) in [("nothing", "it is not there"), ("in/a.txt", "it is no folder")] {
        let error = Root::open(place.both.path().join(folder)).unwrap_err();
        assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
        assert!(error.to_string().contains(problem), "{error}");
    }
    symlink("in", place.both.path().join("link")).unwrap();
    assert!(read(&Root::open(place.both.path().join("link")).unwrap(), "a.txt").is_ok());
}
