//! Attachments: content that messages and results hold is kept once and referred to by its address (standard-agents TOL-16,
//! FIL-10).
//!
//! An image or a file that comes as a `data:` address goes into the thread's content before it is journaled, and gets an entry
//! under `/attachments/`; records and events hold a short reference, [`BlobRef`]. A model gets the `data:` address again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde_json::{Map, Value};
use toolwright_core::{AttachmentRef, BlobId, BlobRef, Item, Message, Part, ToolOutput, Transcript, sanitized_name};
use toolwright_tool::{FileOptions, Keep, ThreadFiles, ToolError, ending_of};

/// Below this length of an address, the content stays where it is.
const SMALL: usize = 1024;
/// How much of what was shown to a model is kept in memory for its next step, in bytes.
const CACHED: usize = 64 * 1024 * 1024;
/// Where attachments are in a thread's tree.
const DIRECTORY: &str = "/attachments";

/// Reads with and without padding; writes with it.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

/// A `data:` address, read.
struct Data {
    media_type: String,
    bytes: Bytes,
}

impl Data {
    /// `None` if it is no `data:` address in base64 whose content can be read: then it stays as it is.
    fn read(address: &str) -> Option<Self> {
        let (head, content) = address.strip_prefix("data:")?.split_once(',')?;
        let media_type = head.strip_suffix(";base64")?;
        let bytes = BASE64.decode(content).ok()?;
        let media_type = if media_type.is_empty() { "text/plain" } else { media_type };
        Some(Self { media_type: media_type.to_owned(), bytes: bytes.into() })
    }
}

/// Something that may hold an image or a file.
trait Holds: Sized {
    fn held(&mut self) -> Option<Held<'_>>;

    /// A text in its place.
    fn said(text: String) -> Self;
}

/// An image or a file, as a message or a result holds it.
struct Held<'a> {
    what: &'static str,
    address: &'a mut String,
    /// The media type that stands beside the address.
    media_type: Option<&'a str>,
    name: Option<&'a str>,
}

impl Held<'_> {
    /// What it is to a reader, in place of it.
    fn told(&self, why: &str) -> String {
        let name = self.name.map(|name| format!(" {:?}", toolwright_core::bounded(name, 80))).unwrap_or_default();
        format!("[the {}{name} {why}]", self.what)
    }
}

impl Holds for Part {
    fn held(&mut self) -> Option<Held<'_>> {
        match self {
            Self::Image { image, mime_type } => Some(Held { what: "image", address: image, media_type: mime_type.as_deref(), name: None }),
            Self::File { data, mime_type, filename } => {
                Some(Held { what: "file", address: data, media_type: Some(mime_type), name: filename.as_deref() })
            }
            _ => None,
        }
    }

    fn said(text: String) -> Self {
        Self::Text { text }
    }
}

impl Holds for Item {
    fn held(&mut self) -> Option<Held<'_>> {
        match self {
            Self::Image { image, mime_type } => Some(Held { what: "image", address: image, media_type: mime_type.as_deref(), name: None }),
            Self::File { data, mime_type, filename } => {
                Some(Held { what: "file", address: data, media_type: Some(mime_type), name: filename.as_deref() })
            }
            _ => None,
        }
    }

    fn said(text: String) -> Self {
        Self::Text { text }
    }
}

/// Keeps what a result or input holds.
struct Keeper<'a> {
    keep: &'a Arc<dyn Keep>,
    /// The tool and the call it comes from.
    from: Option<(&'a str, &'a str)>,
}

impl Keeper<'_> {
    /// Keeps what a thing holds as a `data:` address, which then has the address of the content; what is too large becomes a
    /// text that says so. Gives its file.
    async fn keep<T: Holds + Send>(&self, thing: &mut T) -> Option<AttachmentRef> {
        let may_be_kept = thing.held().is_some_and(|held| held.address.len() > SMALL && held.address.starts_with("data:"));
        // Most of what comes by is not kept, so a run's own future has no room for it.
        if may_be_kept { Box::pin(self.keep_content(thing)).await } else { None }
    }

    async fn keep_content<T: Holds + Send>(&self, thing: &mut T) -> Option<AttachmentRef> {
        let held = thing.held()?;
        let data = Data::read(held.address)?;
        let limit = self.keep.limits().file;
        if data.bytes.len() as u64 > limit {
            let why = format!("was not kept: it has {} bytes, and {limit} are allowed", data.bytes.len());
            *thing = T::said(held.told(&why));
            return None;
        }
        let blob = BlobId::of(&data.bytes);
        // The media type is part of the address where nothing beside it says the same.
        let media_type = (held.media_type != Some(data.media_type.as_str())).then_some(data.media_type.as_str());
        let address = BlobRef { id: blob.clone(), size: Some(data.bytes.len() as u64), media_type }.to_string();
        match self.file(&blob, &data, held.name).await {
            Ok(file) => {
                *held.address = address;
                Some(file)
            }
            Err(error) if error.name() == "StorageFullError" => {
                *thing = T::said(held.told(&format!("was not kept: {}", error.message())));
                None
            }
            // The tree has no place for it: the content alone is kept.
            Err(error)
                if matches!(error.name(), "NotADirectoryError" | "IsADirectoryError" | "FileExistsError" | "InvalidMediaTypeError") =>
            {
                self.keep.keep_blob(data.bytes.clone()).await.ok()?;
                *held.address = address;
                None
            }
            // A store that fails: it stays where it is, and whoever journals it will see.
            Err(_) => None,
        }
    }

    /// Its file under `/attachments/`, named by its content, so that the same one is there once however often it comes.
    async fn file(&self, blob: &BlobId, data: &Data, given: Option<&str>) -> Result<AttachmentRef, ToolError> {
        let digits = blob.digits(16);
        let path = self.written(blob, data, given).await?;
        let name =
            given.filter(|given| !given.is_empty()).map_or_else(|| path.rsplit('/').next().unwrap_or_default().to_owned(), str::to_owned);
        let (width, height) = pixels(&data.bytes).unzip();
        Ok(AttachmentRef {
            id: format!("att_{digits}"),
            kind: "file".to_owned(),
            path,
            name,
            mime_type: data.media_type.clone(),
            size: data.bytes.len() as u64,
            width,
            height,
            description: None,
        })
    }

    /// The path of its file, which is written if it is not there yet.
    async fn written(&self, blob: &BlobId, data: &Data, given: Option<&str>) -> Result<String, ToolError> {
        let files = ThreadFiles::new(Arc::clone(self.keep));
        let safe = given.map(sanitized_name).unwrap_or_default();
        let (digits, ending) = (blob.digits(16), ending_of(&data.media_type).unwrap_or("bin"));
        let named = |again: &str| match safe.as_str() {
            "" => format!("{DIRECTORY}/{digits}{again}.{ending}"),
            safe => format!("{DIRECTORY}/{digits}{again}-{safe}"),
        };
        let mut path = named("");
        for attempt in 2..=10 {
            match files.stat(&path).await? {
                Some(there) if there.blob.as_ref() == Some(blob) => return Ok(path),
                // Somebody wrote another file there.
                Some(_) => path = named(&format!("-{attempt}")),
                None => {
                    let metadata = self.metadata(given, data);
                    let options = FileOptions { mime_type: Some(data.media_type.clone()), metadata, size: None };
                    files.write_with(&path, data.bytes.clone(), options).await?;
                    return Ok(path);
                }
            }
        }
        Err(ToolError::new(format!("{path} is taken")).named("FileExistsError"))
    }

    fn metadata(&self, given: Option<&str>, data: &Data) -> Map<String, Value> {
        let mut metadata = Map::new();
        let (tool, call) = self.from.unzip();
        let texts = [("name", given), ("tool", tool), ("callId", call)];
        metadata.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), toolwright_core::bounded(text?, 1000).into()))));
        if let Some((width, height)) = pixels(&data.bytes) {
            metadata.extend([("width".to_owned(), width.into()), ("height".to_owned(), height.into())]);
        }
        metadata
    }
}

/// Width and height of a PNG, GIF or JPEG, from its header.
fn pixels(bytes: &[u8]) -> Option<(u32, u32)> {
    let two = |at: usize| Some([*bytes.get(at)?, *bytes.get(at + 1)?]);
    let short = |at: usize| Some(u32::from(u16::from_be_bytes(two(at)?)));
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        let long = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        return Some((long(16)?, long(20)?));
    }
    if bytes.starts_with(b"GIF8") {
        return Some((u16::from_le_bytes(two(6)?).into(), u16::from_le_bytes(two(8)?).into()));
    }
    if !bytes.starts_with(b"\xff\xd8") {
        return None;
    }
    // Segments of a JPEG: a marker and a length each, until the one that begins the frame.
    let mut at = 2;
    loop {
        let (mark, kind) = (*bytes.get(at)?, *bytes.get(at + 1)?);
        match kind {
            _ if mark != 0xff => return None,
            0xff => at += 1,
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => return Some((short(at + 7)?, short(at + 5)?)),
            _ => at += 2 + usize::try_from(short(at + 2)?).ok()?,
        }
    }
}

/// Whether an output has images or files.
pub(crate) fn has_content(output: &ToolOutput) -> bool {
    output.parts().iter().any(|part| matches!(part, Part::Image { .. } | Part::File { .. }))
}

/// Keeps the images and files of a result; the result then refers to them.
pub(crate) async fn keep_output(keep: &Arc<dyn Keep>, tool: &str, call: &str, output: &mut Arc<ToolOutput>) {
    let keeper = Keeper { keep, from: Some((tool, call)) };
    let mut kept = (**output).clone();
    let mut files = Vec::new();
    for part in kept.parts_mut() {
        files.extend(keeper.keep(part).await);
    }
    *output = Arc::new(files.into_iter().fold(kept, ToolOutput::with_attachment));
}

/// Keeps the images and files of input; its messages then refer to them.
pub(crate) async fn keep_input(keep: &Arc<dyn Keep>, mut messages: Vec<Message>) -> Vec<Message> {
    let keeper = Keeper { keep, from: None };
    for item in messages.iter_mut().flat_map(|message| message.items.iter_mut()) {
        if let Item::ToolResult(result) = item {
            for part in &mut result.parts {
                keeper.keep(part).await;
            }
        } else {
            keeper.keep(item).await;
        }
    }
    messages
}

/// Shows a model the content that messages refer to. What was shown is at hand for the next step, as far as there is room.
pub(crate) struct Shown {
    keep: Arc<dyn Keep>,
    cache: Mutex<Cache>,
    looked: Mutex<Looked>,
}

/// Which messages refer to content, as far as they were looked through: a step looks at what is new, not at the whole past.
#[derive(Default)]
struct Looked {
    through: usize,
    /// The last message that was looked at. Another one in its place: the transcript was made shorter, or is another.
    last: Option<Arc<Message>>,
    referring: Vec<usize>,
}

impl Looked {
    fn at(&mut self, messages: &Transcript) -> Vec<usize> {
        let same = |last: &Arc<Message>| {
            self.through.checked_sub(1).and_then(|at| messages.get(at)).is_some_and(|message| Arc::ptr_eq(message, last))
        };
        if !self.last.as_ref().is_some_and(same) {
            (self.through, self.referring) = (0, Vec::new());
        }
        let new = self.through..messages.len();
        self.referring.extend(new.filter(|at| messages.get(*at).is_some_and(|message| refers(message))));
        self.through = messages.len();
        self.last = messages.last().cloned();
        self.referring.clone()
    }
}

#[derive(Default)]
struct Cache {
    /// By the place of the message in memory, which the entry itself keeps from being given to another.
    entries: HashMap<usize, Entry>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    /// Held, so that its place in memory stays its own.
    _message: Arc<Message>,
    shown: Arc<Message>,
    bytes: usize,
    used: u64,
}

impl Shown {
    pub(crate) fn new(keep: Arc<dyn Keep>) -> Self {
        Self { keep, cache: Mutex::default(), looked: Mutex::default() }
    }

    /// The messages as a model gets them.
    pub(crate) async fn to_model(&self, messages: Transcript) -> Transcript {
        let referring = self.looked.lock().unwrap_or_else(PoisonError::into_inner).at(&messages);
        let mut shown = messages.clone();
        for index in referring {
            // A result that has become a marker refers to nothing any more.
            if let Some(message) = messages.get(index).filter(|message| refers(message)) {
                shown.set(index, self.message(message).await);
            }
        }
        shown
    }

    async fn message(&self, message: &Arc<Message>) -> Arc<Message> {
        let key = Arc::as_ptr(message).addr();
        if let Some(shown) = self.cache().get(key) {
            return shown;
        }
        let mut shown = (**message).clone();
        let mut bytes = 0;
        for item in &mut shown.items {
            if let Item::ToolResult(result) = item {
                for part in &mut result.parts {
                    bytes += self.show(part).await;
                }
            } else {
                bytes += self.show(item).await;
            }
        }
        let shown = Arc::new(shown);
        self.cache().put(key, Arc::clone(message), Arc::clone(&shown), bytes);
        shown
    }

    /// Puts content in place of its address, or a text that says why it is not there. Gives how much that is, in bytes.
    async fn show<T: Holds>(&self, thing: &mut T) -> usize {
        let Some(held) = thing.held() else { return 0 };
        let Some(BlobRef { id: blob, media_type, .. }) = BlobRef::parse(held.address) else { return 0 };
        match self.keep.blob(&blob).await {
            Ok(Some(bytes)) => {
                let media_type = media_type.or(held.media_type).unwrap_or("application/octet-stream");
                let data = format!("data:{media_type};base64,{}", BASE64.encode(&bytes));
                let length = data.len();
                *held.address = data;
                length
            }
            Ok(None) => {
                *thing = T::said(held.told("is no longer kept and can't be shown"));
                0
            }
            Err(error) => {
                tracing::warn!(%error, blob = blob.as_str(), "content could not be read for a model");
                *thing = T::said(held.told("could not be read and can't be shown"));
                0
            }
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        // Every change is complete at each step, so a panic elsewhere leaves nothing half done.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn get(&mut self, key: usize) -> Option<Arc<Message>> {
        self.uses += 1;
        let uses = self.uses;
        self.entries.get_mut(&key).map(|entry| {
            entry.used = uses;
            Arc::clone(&entry.shown)
        })
    }

    fn put(&mut self, key: usize, message: Arc<Message>, shown: Arc<Message>, bytes: usize) {
        if bytes > CACHED {
            return;
        }
        self.bytes += bytes;
        self.uses += 1;
        self.entries.insert(key, Entry { _message: message, shown, bytes, used: self.uses });
        while self.bytes > CACHED {
            let Some(oldest) = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) else { return };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(entry.bytes);
            }
        }
    }
}

/// Whether a message refers to content.
fn refers(message: &Message) -> bool {
    let is = |address: &str| address.starts_with(toolwright_core::BLOB_SCHEME);
    let in_part = |part: &Part| match part {
        Part::Image { image: address, .. } | Part::File { data: address, .. } => is(address),
        _ => false,
    };
    message.items.iter().any(|item| match item {
        Item::Image { image: address, .. } | Item::File { data: address, .. } => is(address),
        Item::ToolResult(result) => result.parts.iter().any(in_part),
        _ => false,
    })
}
