//! Claims: who may move a thread.
//!
//! An owner holds an advisory lock on a session of its own, one for all claims of a process; the death of the process ends the
//! session and frees the lock. What makes a lost claim harmless is not the lock but the fencing number in the thread's row, which
//! every write checks. The lock's key is a hash of schema, thread and generation: whoever takes the place of a silent owner begins
//! a new generation, whose lock nobody holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;
use toolwright_core::{ThreadId, sha256_hex};
use toolwright_runtime::{Claim, StoreError};

use super::session::{Pool, Session, Tries, Trouble, lock, number};

/// How long the first look at an owner that seems silent lasts; the looks become longer from there.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// The part of the claim limit for which an owner has to be seen silent, by our clock, before its place is taken.
const WATCH_PART: u32 = 4;
/// How long the process waits between two tries to have a session for its claims again.
const RECONNECT_EVERY: Duration = Duration::from_secs(1);

/// The key of a lock.
pub(super) fn key(schema: &str, thread: &str, generation: i64) -> i64 {
    let hash = sha256_hex(format!("toolwright\n{schema}\n{thread}\n{generation}").as_bytes());
    let digits = hash.get(..16).unwrap_or_default();
    // All 64 bits are used; the sign is one of them.
    u64::from_str_radix(digits, 16).unwrap_or_default().cast_signed()
}

/// A thread and the generation of its claims.
type Place = (ThreadId, i64);

/// The claims of this process.
pub(super) struct Claims {
    limit: Duration,
    state: Mutex<State>,
    /// One reconnects at a time.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// What this process has locked or is about to, with the fencing number once there is one. A session may take its own lock
    /// twice, so the lock alone would not keep two owners in one process apart.
    held: HashMap<Place, Option<u64>>,
    session: Option<Arc<Session>>,
}

/// What the thread's row says.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    generation: i64,
    fence: i64,
    beat: i64,
}

/// A lock that is held. Dropping it frees it, in the order of what is sent on the session: a claim that this process makes next
/// comes after.
struct Held {
    pool: Arc<Pool>,
    claims: Arc<Claims>,
    place: Place,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = lock(&self.claims.state);
        state.held.remove(&self.place);
        if let Some(session) = &state.session {
            unlock(session, &self.pool, &self.place);
        }
    }
}

fn unlock(session: &Session, pool: &Pool, (thread, generation): &Place) {
    session.send(&format!("SELECT pg_advisory_unlock({})", key(&pool.server.schema, thread.as_str(), *generation)));
}

/// A claim on a thread.
struct PostgresClaim {
    held: Held,
    fence: u64,
}

impl Claim for PostgresClaim {
    fn thread(&self) -> &ThreadId {
        &self.held.place.0
    }

    fn fence(&self) -> u64 {
        self.fence
    }
}

impl Claims {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, state: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Claims a thread.
    pub(super) async fn claim(self: &Arc<Self>, pool: &Arc<Pool>, thread: &ThreadId) -> Result<Box<dyn Claim>, StoreError> {
        let busy = || StoreError::Busy { thread: thread.clone() };
        let mut watch: Option<(Seen, Instant)> = None;
        let mut look = FIRST_LOOK;
        loop {
            let (seen, age) = look_at(pool, thread).await?;
            if let Some(held) = self.lock_place(pool, (thread.clone(), seen.generation)).await? {
                let next = "UPDATE claims SET fence = fence + 1, beat = now_micros() WHERE thread = $1 AND generation = $2 RETURNING fence";
                let fence = pool.attempt(|session, _| async move {
                    let row =
                        session.row(next, &[&thread.as_str(), &seen.generation]).await.map_err(|error| pool.server.trouble(&error))?;
                    row.map(|row| row.try_get::<_, i64>(0)).transpose().map_err(|error| pool.server.trouble(&error))
                });
                match fence.await? {
                    Some(fence) => return Ok(self.owned(held, fence)),
                    // Another took the place of whoever had it between our look and our lock.
                    None => continue,
                }
            }
            let fresh = u128::try_from(age).is_ok_and(|age| age < self.limit.as_micros());
            match watch {
                // The owner has just given a sign of life.
                None if fresh => return Err(busy()),
                None => watch = Some((seen, Instant::now())),
                Some((first, _)) if first != seen => return Err(busy()),
                // The server's clock says that the owner is silent, and it may have jumped. Ours does not.
                Some((_, since)) if since.elapsed() >= self.limit / WATCH_PART => {
                    return self.take_over(pool, thread, seen).await?.ok_or_else(busy);
                }
                Some(_) => {}
            }
            tokio::time::sleep(look.min(self.limit / WATCH_PART)).await;
            look = (look * 2).min(self.limit / (WATCH_PART * WATCH_PART));
        }
    }

    /// Takes the place of an owner that was seen silent. `None` if somebody else was faster, or it spoke at the last moment.
    async fn take_over(self: &Arc<Self>, pool: &Arc<Pool>, thread: &ThreadId, seen: Seen) -> Result<Option<Box<dyn Claim>>, StoreError> {
        // The lock comes first: a third who reads the new generation finds it taken.
        let Some(held) = self.lock_place(pool, (thread.clone(), seen.generation + 1)).await? else { return Ok(None) };
        let sql = "UPDATE claims SET generation = generation + 1, fence = fence + 1, beat = now_micros()
            WHERE thread = $1 AND generation = $2 AND fence = $3 AND beat = $4 RETURNING fence";
        let fence = pool.attempt(|session, _| async move {
            let row = session.row(sql, &[&thread.as_str(), &seen.generation, &seen.fence, &seen.beat]).await;
            let row = row.map_err(|error| pool.server.trouble(&error))?;
            row.map(|row| row.try_get::<_, i64>(0)).transpose().map_err(|error| pool.server.trouble(&error))
        });
        let fence = fence.await?;
        if fence.is_some() {
            tracing::warn!(thread = %thread, limit = ?self.limit, "an owner gave no sign of life; another takes its place");
        }
        Ok(fence.map(|fence| self.owned(held, fence)))
    }

    fn owned(&self, held: Held, fence: i64) -> Box<dyn Claim> {
        let fence = u64::try_from(fence).unwrap_or_default();
        lock(&self.state).held.insert(held.place.clone(), Some(fence));
        Box::new(PostgresClaim { held, fence })
    }

    /// Locks a place, unless it is locked by anyone, in this process too.
    async fn lock_place(self: &Arc<Self>, pool: &Arc<Pool>, place: Place) -> Result<Option<Held>, StoreError> {
        {
            let mut state = lock(&self.state);
            if state.held.contains_key(&place) {
                return Ok(None);
            }
            state.held.insert(place.clone(), None);
        }
        let key = key(&pool.server.schema, place.0.as_str(), place.1);
        // From here on, giving up in the middle unlocks. To unlock what was not locked changes nothing.
        let held = Held { pool: Arc::clone(pool), claims: Arc::clone(self), place };
        let mut tries = Tries::new(&pool.server, pool.server.patience);
        loop {
            let session = self.session(pool).await?;
            let once = async {
                let row = session.row("SELECT pg_try_advisory_lock($1)", &[&key]).await.map_err(|error| pool.server.trouble(&error))?;
                row.map(|row| row.try_get::<_, bool>(0)).transpose().map_err(|error| pool.server.trouble(&error))
            };
            match tries.bounded(once).await {
                Ok(Some(true)) => return Ok(Some(held)),
                Ok(_) => {
                    // The lock is another's. Nothing of ours is to be unlocked, but that changes nothing.
                    return Ok(None);
                }
                Err(trouble) => {
                    if matches!(trouble, Trouble::Lost(_)) {
                        self.forget(&session);
                    }
                    tries.after(trouble).await?;
                }
            }
        }
    }

    fn forget(&self, session: &Arc<Session>) {
        let mut state = lock(&self.state);
        if state.session.as_ref().is_some_and(|known| Arc::ptr_eq(known, session)) {
            state.session = None;
        }
    }

    fn live(&self) -> Option<Arc<Session>> {
        lock(&self.state).session.as_ref().filter(|session| !session.is_over()).map(Arc::clone)
    }

    /// The session of this process's claims. A new one takes the locks again of what the process still owns.
    async fn session(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let _one = self.connecting.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        if pool.is_closed() {
            return Err(pool.server.failed("the store was closed; open it again"));
        }
        let mut tries = Tries::new(&pool.server, pool.server.patience);
        loop {
            let owned: Vec<(Place, u64)> =
                lock(&self.state).held.iter().filter_map(|(place, fence)| Some((place.clone(), (*fence)?))).collect();
            let opened = async {
                let session = pool.server.connect().await?;
                let tried = lock_again(pool, &session, &owned).await?;
                Ok((Arc::new(session), tried))
            };
            match tries.bounded(opened).await {
                Ok((session, tried)) => {
                    let mut state = lock(&self.state);
                    let missing = state.sort_out(pool, &session, tried);
                    state.session = Some(Arc::clone(&session));
                    drop(state);
                    watch_over(Arc::downgrade(self), Arc::downgrade(pool), &session, missing);
                    return Ok(session);
                }
                Err(trouble) => tries.after(trouble).await?,
            }
        }
    }

    /// Returns when the server has done what was sent on the session before: unlocking, of a claim that was dropped.
    pub(super) async fn settled(&self) {
        if let Some(session) = self.live() {
            // A session that is lost has no locks; one that is slow is not waited for.
            let _ = tokio::time::timeout(Duration::from_secs(1), session.batch("SELECT 1")).await;
        }
    }

    /// Frees all locks and ends the session.
    pub(super) async fn close(&self) {
        let session = lock(&self.state).session.take();
        if let Some(session) = session {
            // Its end frees them too, but only when the server has noticed.
            let _ = tokio::time::timeout(Duration::from_secs(1), session.batch("SELECT pg_advisory_unlock_all()")).await;
        }
    }
}

impl State {
    /// After owned places were locked again: gives those that somebody else had locked, and unlocks what was dropped meanwhile,
    /// whose unlocking went to the session before this one.
    fn sort_out(&self, pool: &Pool, session: &Session, tried: Vec<(Place, u64, bool)>) -> Vec<(Place, u64)> {
        let mut missing = Vec::new();
        for (place, fence, locked) in tried {
            let ours = self.held.get(&place) == Some(&Some(fence));
            match (locked, ours) {
                (true, false) => unlock(session, pool, &place),
                (false, true) => missing.push((place, fence)),
                _ => {}
            }
        }
        missing
    }
}

/// Tries to lock what this process owns, as far as nobody came after. Gives what was tried, and whether it was locked.
async fn lock_again(pool: &Pool, session: &Session, owned: &[(Place, u64)]) -> Result<Vec<(Place, u64, bool)>, Trouble> {
    if owned.is_empty() {
        return Ok(Vec::new());
    }
    let threads: Vec<&str> = owned.iter().map(|((thread, _), _)| thread.as_str()).collect();
    let fences: Vec<i64> = owned.iter().map(|(_, fence)| number(*fence)).collect();
    let keys: Vec<i64> = owned.iter().map(|((thread, generation), _)| key(&pool.server.schema, thread.as_str(), *generation)).collect();
    let sql = "SELECT o.key, pg_try_advisory_lock(o.key) FROM unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[]) AS o (thread, fence, key)
        JOIN claims c ON c.thread = o.thread AND c.fence = o.fence";
    let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
    let mut tried = Vec::new();
    for row in session.rows(sql, &[&threads, &fences, &keys]).await.map_err(failed)? {
        let (of, done): (i64, bool) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        let place = keys.iter().zip(owned).find(|(key, _)| **key == of);
        tried.extend(place.map(|(_, (place, fence))| (place.clone(), *fence, done)));
    }
    Ok(tried)
}

/// When the session is lost, its locks are gone: as long as this process owns anything, it tries to have them again. At first
/// the server may not have noticed that the session before is over, and what that one locked is still missing.
fn watch_over(claims: Weak<Claims>, pool: Weak<Pool>, session: &Arc<Session>, mut missing: Vec<(Place, u64)>) {
    let ended = session.ended();
    let session = Arc::downgrade(session);
    tokio::spawn(async move {
        while !missing.is_empty() && tokio::time::timeout(RECONNECT_EVERY, ended.wait()).await.is_err() {
            let (Some(claims), Some(pool), Some(session)) = (claims.upgrade(), pool.upgrade(), session.upgrade()) else { return };
            missing.retain(|(place, fence)| lock(&claims.state).held.get(place) == Some(&Some(*fence)));
            if let Ok(tried) = lock_again(&pool, &session, &missing).await {
                missing = lock(&claims.state).sort_out(&pool, &session, tried);
            }
        }
        ended.wait().await;
        loop {
            let (Some(claims), Some(pool)) = (claims.upgrade(), pool.upgrade()) else { return };
            if pool.is_closed() || lock(&claims.state).held.is_empty() || claims.session(&pool).await.is_ok() {
                return;
            }
            drop((claims, pool));
            tokio::time::sleep(RECONNECT_EVERY).await;
        }
    });
}

/// The thread's row, and how long ago its owner gave a sign of life, in microseconds by the server's clock.
async fn look_at(pool: &Pool, thread: &ThreadId) -> Result<(Seen, i64), StoreError> {
    pool.attempt(|session, _| async move {
        let failed = |error: tokio_postgres::Error| pool.server.trouble(&error);
        let row = session.row("SELECT generation, fence, beat, age FROM claim_row($1)", &[&thread.as_str()]).await.map_err(failed)?;
        let Some(row) = row else { return Err(pool.server.failed("a thread's row of claims was not made").into()) };
        let at = |place: usize| row.try_get::<_, i64>(place).map_err(failed);
        Ok((Seen { generation: at(0)?, fence: at(1)?, beat: at(2)? }, at(3)?))
    })
    .await
}
