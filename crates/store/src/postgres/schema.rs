//! The schema, its version, and how it is brought up to date.

use tokio_postgres::Row;
use toolwright_runtime::StoreError;

use super::session::{Server, Session, Tries, Trouble, quoted};

/// What each version adds to the one before, the first beginning with nothing.
const STEPS: &[&str] = &[include_str!("schema_1.sql")];

/// The version that this crate works with.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// The oldest server whose SQL this is.
const OLDEST_SERVER: i32 = 130_000;

/// The table that says whose schema it is.
const VERSION_TABLE: &str = "toolwright_version";

/// What there is in the database: the schema, anything in it, and our table of its version. All of it is read from catalogues that
/// everyone may read, so that a schema that isn't ours is told apart without touching it.
const LOOK: &str = "
    SELECT current_setting('server_version_num')::INT AS server, current_setting('server_encoding') AS encoding,
        n.oid IS NOT NULL AS there,
        EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid)
            OR EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid)
            OR EXISTS (SELECT FROM pg_type t WHERE t.typnamespace = n.oid) AS filled,
        EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = $2 AND c.relkind = 'r') AS ours
    FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = $1";

/// Makes the schema, brings it up to date, or refuses it. Processes that start at once wait for each other.
pub(super) async fn open(server: &Server) -> Result<(), StoreError> {
    let mut tries = Tries::new(server, server.heavy());
    loop {
        let once = async {
            let session = server.connect().await?;
            once(server, &session).await
        };
        match tries.bounded(once).await {
            Ok(()) => return Ok(()),
            // Whoever opens a store is told at once that there is no server; only one that is about to come up is waited for.
            Err(Trouble::Lost(problem)) if problem.contains("error connecting") => {
                return Err(server.failed(format!("{problem}; check that the server runs and that the address is right")));
            }
            Err(trouble) => tries.after(trouble).await?,
        }
    }
}

async fn once(server: &Server, session: &Session) -> Result<(), Trouble> {
    let found = look(server, session).await?;
    if found == Found::Version(VERSION) {
        return Ok(());
    }
    let failed = |error: tokio_postgres::Error| server.trouble(&error);
    session.batch("BEGIN").await.map_err(failed)?;
    session.rows("SELECT pg_advisory_xact_lock($1)", &[&super::claims::key(&server.schema, "schema", 0)]).await.map_err(failed)?;
    let version = match look(server, session).await? {
        Found::Nothing => {
            session.batch(&format!("CREATE SCHEMA {}", quoted(&server.schema))).await.map_err(failed)?;
            0
        }
        Found::Empty => 0,
        Found::Version(version) => version,
    };
    if version == 0 {
        session
            .batch(&format!("CREATE TABLE {VERSION_TABLE} (version BIGINT NOT NULL); INSERT INTO {VERSION_TABLE} VALUES (0)"))
            .await
            .map_err(failed)?;
    }
    for step in STEPS.iter().skip(usize::try_from(version).unwrap_or_default()) {
        session.batch(step).await.map_err(failed)?;
    }
    session.batch(&format!("UPDATE {VERSION_TABLE} SET version = {VERSION}; COMMIT")).await.map_err(failed)
}

#[derive(PartialEq)]
enum Found {
    /// There is no such schema.
    Nothing,
    /// The schema is there, and has nothing in it.
    Empty,
    /// It is ours, of this version, which we know.
    Version(i64),
}

async fn look(server: &Server, session: &Session) -> Result<Found, Trouble> {
    let failed = |error: tokio_postgres::Error| server.trouble(&error);
    let schema = &server.schema;
    let row = session.row(LOOK, &[schema, &VERSION_TABLE]).await.map_err(failed)?;
    let Some(row) = row else { return Err(server.failed("it said nothing of itself").into()) };
    let field = |error: tokio_postgres::Error| server.trouble(&error);
    let number: i32 = row.try_get("server").map_err(field)?;
    if number < OLDEST_SERVER {
        let found = number / 10_000;
        return Err(server.failed(format!("the server is PostgreSQL {found}; update it to 13 or newer")).into());
    }
    let encoding: String = row.try_get("encoding").map_err(field)?;
    if encoding != "UTF8" {
        return Err(server.failed(format!("the database has the encoding {encoding}; make one with ENCODING 'UTF8'")).into());
    }
    let is = |row: &Row, name: &str| row.try_get::<_, bool>(name).map_err(field);
    if !is(&row, "there")? {
        return Ok(Found::Nothing);
    }
    if !is(&row, "filled")? {
        return Ok(Found::Empty);
    }
    let foreign = || {
        let say =
            format!("the schema {schema} holds tables that are not Toolwright's; name another schema, or leave it to Toolwright empty");
        Trouble::Final(StoreError::invalid(format!("PostgreSQL at {}: {say}", server.address.name)))
    };
    if !is(&row, "ours")? {
        return Err(foreign());
    }
    let versions = session.rows(&format!("SELECT version::BIGINT FROM {}.{VERSION_TABLE}", quoted(schema)), &[]).await;
    let versions = versions.map_err(|error| match server.trouble(&error) {
        Trouble::Final(_) if error.code().is_some_and(|code| code.code() != "42501") => foreign(),
        other => other,
    })?;
    let [row] = versions.as_slice() else { return Err(foreign()) };
    let version: i64 = row.try_get(0).map_err(field)?;
    if version > VERSION {
        let say = format!(
            "the schema {schema} has version {version}, and this Toolwright knows versions up to {VERSION}; use the Toolwright that wrote it, or a newer one"
        );
        return Err(server.failed(say).into());
    }
    if version < 1 {
        return Err(foreign());
    }
    Ok(Found::Version(version))
}
