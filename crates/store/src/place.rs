//! Where a store is, as an address says, and opening it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolwright_runtime::{MemoryStore, Store, StoreError};

/// The forms an address may have; it ends the sentences that refuse one.
const FORMS: &str =
    "write `sqlite:PATH` or a plain path for a file, `postgres://user@host/database` for a server, or `memory:` for nothing that stays";

/// Where a store is. Shown, it has no password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// In this process, gone with it: `memory:`.
    Memory,
    /// A file: `sqlite:PATH`, or a plain path.
    Sqlite(PathBuf),
    /// A server: `postgres://...`.
    Postgres(String),
}

impl Place {
    /// Reads an address. Nothing is opened, and nothing has to be there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] lists the forms. It shows no more of an address than what stands before its first colon: the rest may
    /// be a password.
    pub fn read(address: &str) -> Result<Self, StoreError> {
        let address = address.trim();
        let refuse = |problem: String| StoreError::invalid(format!("{problem}; {FORMS}"));
        if address.is_empty() {
            return Err(refuse("the address of the store is empty".to_owned()));
        }
        StoreError::refuse_nul("address of the store", address)?;
        match scheme(address) {
            None => Ok(Self::Sqlite(address.into())),
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("memory", _)) => Err(refuse("`memory:` has something behind it, and needs nothing".to_owned())),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(Self::Postgres(address.to_owned())),
            Some(("sqlite", rest)) => match rest.strip_prefix("//").unwrap_or(rest) {
                "" => Err(refuse("the address `sqlite:` names no file".to_owned())),
                // What SQLite itself takes for a database that no other connection sees.
                ":memory:" => Err(refuse("the address `sqlite::memory:` is no file".to_owned())),
                path => Ok(Self::Sqlite(path.into())),
            },
            Some((scheme, _)) => Err(refuse(format!("no store has addresses that begin with `{}:`", toolwright_core::cut(scheme, 40)))),
        }
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            _ => None,
        }
    }

    /// Opens the store. A file that is not there is made; the folder it is in has to be there.
    pub async fn open(&self) -> Result<Opened, StoreError> {
        match self {
            Self::Memory => Ok(Opened { store: Arc::new(MemoryStore::new()), closes: Closes::Never }),
            Self::Sqlite(path) => {
                check_file(path)?;
                sqlite(path).await
            }
            Self::Postgres(address) => postgres(address).await,
        }
    }
}

/// A store that was opened by its address.
pub struct Opened {
    store: Arc<dyn Store>,
    closes: Closes,
}

/// What closing means.
enum Closes {
    Never,
    #[cfg(feature = "sqlite")]
    Sqlite(crate::sqlite::Sqlite),
    #[cfg(feature = "postgres")]
    Postgres(crate::postgres::Postgres),
}

impl Opened {
    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Closes it for everybody who has it: a file is whole without its log then, a server's sessions are over. Whoever uses the
    /// store afterwards is told so. A program that ends without it loses nothing: the next one to open the store tidies up.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        expect(clippy::unused_async, reason = "nothing built in has to be closed")
    )]
    pub async fn close(self) {
        match self.closes {
            Closes::Never => {}
            #[cfg(feature = "sqlite")]
            Closes::Sqlite(store) => store.close().await,
            #[cfg(feature = "postgres")]
            Closes::Postgres(store) => store.close().await,
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(address) => {
                // Options may hold a password too; what stands before the last @ does.
                let server = address.split('?').next().and_then(|address| address.rsplit_once('@')).map_or("...", |(_, server)| server);
                write!(f, "postgres://{server}")
            }
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

/// What stands before the first colon, if it can be a scheme, and what behind it. One letter is a drive.
fn scheme(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once(':')?;
    let fits = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, '+' | '-' | '.'));
    fits.then_some((scheme, rest))
}

/// What can be said of a file before SQLite is asked.
fn check_file(path: &Path) -> Result<(), StoreError> {
    let shown = path.display();
    if path.is_dir() {
        return Err(StoreError::invalid(format!(
            "the store {shown} is a folder; name a file in it, such as {}",
            path.join("threads.db").display()
        )));
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            Err(StoreError::invalid(format!("the store {shown} has no folder to be in; make {}, or name another file", folder.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &Path) -> Result<Opened, StoreError> {
    let store = crate::sqlite::Sqlite::open(path).await?;
    Ok(Opened { store: Arc::new(store.clone()), closes: Closes::Sqlite(store) })
}

#[cfg(not(feature = "sqlite"))]
#[expect(clippy::unused_async, reason = "as where it is built in")]
async fn sqlite(path: &Path) -> Result<Opened, StoreError> {
    let shown = path.display();
    Err(StoreError::invalid(format!("the store {shown} is an SQLite file, which this build can't open; build with the feature `sqlite`")))
}

#[cfg(feature = "postgres")]
async fn postgres(address: &str) -> Result<Opened, StoreError> {
    let store = crate::postgres::Postgres::connect(address).await?;
    Ok(Opened { store: Arc::new(store.clone()), closes: Closes::Postgres(store) })
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unused_async, reason = "as where it is built in")]
async fn postgres(_address: &str) -> Result<Opened, StoreError> {
    Err(StoreError::invalid("the store is on a PostgreSQL server, which this build can't reach; build with the feature `postgres`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where() {
        let of = |address: &str| Place::read(address).unwrap();
        let file = |path: &str| Place::Sqlite(path.into());
        assert_eq!(of("memory:"), Place::Memory);
        for (address, path) in [
            ("threads.db", "threads.db"),
            (" ./a b/threads.db\n", "./a b/threads.db"),
            ("sqlite:threads.db", "threads.db"),
            ("sqlite:///srv/app/threads.db", "/srv/app/threads.db"),
            ("sqlite://threads.db", "threads.db"),
            ("sqlite:redis:1", "redis:1"),
            ("C:\\threads.db", "C:\\threads.db"),
            ("/srv/a:b.db", "/srv/a:b.db"),
        ] {
            assert_eq!(of(address), file(path), "{address}");
        }
        assert_eq!(of("postgresql://me@db.example/app"), Place::Postgres("postgresql://me@db.example/app".to_owned()));
    }

    #[test]
    fn any_other_form_is_refused_with_the_forms_there_are() {
        for address in
            ["", "  ", "redis://me:geheim@host", "mysql:geheim", "memory:geheim", "sqlite:", "sqlite::memory:", "postgres:geheim"]
        {
            let error = Place::read(address).unwrap_err();
            assert_eq!(error.code(), "TOOLWRIGHT_CONFIG_INVALID");
            let said = error.to_string();
            assert!(said.contains("`sqlite:PATH`") && said.contains("postgres://") && said.contains("`memory:`"), "{said}");
            assert!(!said.contains("geheim"), "{said}");
        }
    }

    #[test]
    fn what_is_shown_has_no_password() {
        for (address, shown) in [
            ("postgres://me:geheim@db.example:5433/app?sslmode=require", "postgres://db.example:5433/app"),
            ("postgres://me:ge@heim@db.example/app", "postgres://db.example/app"),
            ("postgres://db.example/app?user=me&password=geheim@home", "postgres://..."),
            ("postgres://me:geheim", "postgres://..."),
        ] {
            let place = Place::read(address).unwrap();
            assert_eq!((place.to_string().as_str(), format!("{place:?}")), (shown, format!("Place({shown})")));
        }
    }

    #[tokio::test]
    async fn a_folder_and_a_file_without_one_are_refused_before_anything_is_made() {
        let home = std::env::temp_dir().join(format!("toolwright-place-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let folder = Place::Sqlite(home.clone()).open().await.err().unwrap();
        assert!(folder.to_string().contains("is a folder; name a file in it"), "{folder}");
        let lost = home.join("none").join("threads.db");
        let orphan = Place::Sqlite(lost.clone()).open().await.err().unwrap();
        assert!(orphan.to_string().contains("has no folder to be in; make "), "{orphan}");
        assert!(!lost.exists());
        std::fs::remove_dir(&home).unwrap();
    }
}
