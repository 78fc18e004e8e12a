//! What a thread keeps as files: content by its address, entries of the tree, and references to attachments.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::Timestamp;
use crate::words::words;

/// The scheme under which messages and results refer to content that their thread keeps, see [`BlobRef`].
pub const BLOB_SCHEME: &str = "blob:";

/// The address of content: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlobId(Arc<str>);

impl BlobId {
    /// The address of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(format!("sha256:{}", crate::text::sha256_hex(bytes)).into())
    }

    /// Takes an address as it is written; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let fits = digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.into()))
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first `length` digits of the hash, for a name.
    pub fn digits(&self, length: usize) -> &str {
        let digits = self.0.strip_prefix("sha256:").unwrap_or(&self.0);
        digits.get(..length).unwrap_or(digits)
    }
}

/// How a message or a result refers to content that its thread keeps: `blob:sha256:<hex>?size=<bytes>`.
///
/// Where nothing beside it says the content's media type, or something else, that follows:
/// `blob:sha256:<hex>?size=12#text/plain;charset=utf-8`. A model never sees such an address; it gets the content in a `data:`
/// address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobRef<'a> {
    /// The content.
    pub id: BlobId,
    /// How much that is, in bytes.
    pub size: Option<u64>,
    /// Its media type.
    pub media_type: Option<&'a str>,
}

impl<'a> BlobRef<'a> {
    /// Reads an address; `None` if it is no reference to content.
    pub fn parse(address: &'a str) -> Option<Self> {
        let rest = address.strip_prefix(BLOB_SCHEME)?;
        let (rest, media_type) = match rest.split_once('#') {
            Some((rest, media_type)) => (rest, Some(media_type)),
            None => (rest, None),
        };
        let (id, size) = match rest.split_once("?size=") {
            Some((id, size)) => (id, Some(size.parse().ok()?)),
            None => (rest, None),
        };
        Some(Self { id: BlobId::parse(id)?, size, media_type })
    }
}

impl fmt::Display for BlobRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BLOB_SCHEME}{}", self.id.as_str())?;
        if let Some(size) = self.size {
            write!(f, "?size={size}")?;
        }
        if let Some(media_type) = self.media_type {
            write!(f, "#{media_type}")?;
        }
        Ok(())
    }
}

words! {
    /// Where a file's content is (standard-agents FIL-2).
    FileStorage {
        /// With the thread.
        Local = "local",
        /// At an `https:` address.
        Url = "url",
        /// In an S3 bucket.
        S3 = "s3",
        /// In an R2 bucket.
        R2 = "r2",
    }
}

/// A file of a thread, or a directory, without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// From the root, normalised: `/notes/today.md`.
    pub path: String,
    /// The media type; empty for a directory.
    pub mime_type: String,
    /// In bytes.
    pub size: u64,
    /// Where the content is; absent for a directory and for a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobId>,
    /// The outside address of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Whether it is a directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_directory: bool,
    /// The application's own data.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// When it was first written.
    pub created_at: Timestamp,
    /// When it was last written.
    pub modified_at: Timestamp,
}

impl FileEntry {
    /// The last part of its path; empty for the root.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Where its content is.
    pub fn storage(&self) -> FileStorage {
        match self.location.as_deref().and_then(|location| location.split_once("://")) {
            None => FileStorage::Local,
            Some(("s3", _)) => FileStorage::S3,
            Some(("r2", _)) => FileStorage::R2,
            Some(_) => FileStorage::Url,
        }
    }
}

/// One change of a thread's file tree.
#[derive(Clone, Debug, PartialEq)]
pub enum FileChange {
    /// Writes an entry, in place of one that is there.
    Put(FileEntry),
    /// Removes the entry of a path; nothing happens if there is none.
    Remove(String),
}

/// A reference to a file that a thread keeps, as results and events show it (standard-agents TOL-17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentRef {
    /// Its id; the same content has the same.
    pub id: String,
    /// Always `file`.
    #[serde(rename = "type", default = "file")]
    pub kind: String,
    /// Where it is in the thread's tree.
    pub path: String,
    /// The name it was given; its path holds a sanitised one.
    pub name: String,
    /// The media type.
    pub mime_type: String,
    /// In bytes.
    pub size: u64,
    /// Of an image, in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Of an image, in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// What it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

fn file() -> String {
    "file".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_content_reads_back() {
        let id = BlobId::of(b"abc");
        assert_eq!(id.as_str(), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        for (size, media_type, wanted) in [
            (None, None, ""),
            (Some(3), None, "?size=3"),
            (None, Some("image/png"), "#image/png"),
            (Some(3), Some("a/b;c=\"?size=4#\""), "?size=3#a/b;c=\"?size=4#\""),
        ] {
            let reference = BlobRef { id: id.clone(), size, media_type };
            let address = reference.to_string();
            assert_eq!(address, format!("blob:{}{wanted}", id.as_str()));
            assert_eq!(BlobRef::parse(&address), Some(reference));
        }
        assert_eq!(id.digits(4), "ba78");
        let bad_size = format!("blob:{}?size=x", id.as_str());
        for other in ["https://example.org", "data:,x", "blob:sha256:ba78", "blob:md5:0", "sha256:ba78", id.as_str(), &bad_size] {
            assert_eq!(BlobRef::parse(other), None, "{other}");
        }
    }

    // rule: standard-agents FIL-2
    #[test]
    fn an_entry_says_where_its_content_is() {
        let of = |location: Option<&str>| FileEntry {
            path: "/a/b.txt".to_owned(),
            mime_type: "text/plain".to_owned(),
            size: 3,
            blob: None,
            location: location.map(str::to_owned),
            is_directory: false,
            metadata: Map::new(),
            created_at: Timestamp(1),
            modified_at: Timestamp(1),
        };
        let words: Vec<String> =
            [None, Some("https://a/b"), Some("s3://a/b"), Some("r2://a/b")].map(|location| of(location).storage().to_string()).to_vec();
        assert_eq!(words, ["local", "url", "s3", "r2"]);
        assert_eq!(of(None).name(), "b.txt");
    }
}
